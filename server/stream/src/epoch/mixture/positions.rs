//! The positions of a rank's rows.

use std::ops::Range;

use forebay_order::Share;

use crate::prepare::mixed::PreparedMixture;

/// The positions of a rank's rows, at equal distances.
#[derive(Clone, Copy, Debug)]
pub(super) struct RankPositions {
    first: u64,
    distance: u64,
}

/// The source of each row of a share's batch that begins with row `first` of the rank's sequence.
pub(crate) fn sources_of(mixture: &PreparedMixture, share: &Share, rows: Range<u64>) -> Vec<usize> {
    let source = |position: u64| mixture.order.pattern().at(position).0;
    let own_end = (share.start + share.own_rows()).clamp(rows.start, rows.end);
    let own = RankPositions::of_share(mixture, share);
    let (repeated, count) = RankPositions::of_padding(mixture, share, rows.end - own_end);
    let of_own = (rows.start..own_end).map(|row| source(own.at(row)));
    of_own.chain((0..rows.end - own_end).map(|row| source(repeated.at(row % count.max(1))))).collect()
}

impl RankPositions {
    /// Those of a share's own rows.
    pub(super) fn of_share(mixture: &PreparedMixture, share: &Share) -> Self {
        let distance = mixture.epoch.shuffle().map_or(1, |_| mixture.request.world_size);
        Self { first: mixture.epoch.position_in(share.rank, 0), distance }
    }

    /// Those of the rows that fill `missing` rows of a batch, and their number: they are repeated as often as necessary.
    ///
    /// A rank without rows repeats the row at the position of its rank, modulo the epoch's rows.
    pub(super) fn of_padding(mixture: &PreparedMixture, share: &Share, missing: u64) -> (Self, u64) {
        if share.length > 0 {
            return (Self::of_share(mixture, share), missing.min(share.length));
        }
        let lanes = mixture.epoch.shuffle().map_or(1, |shuffle| shuffle.lanes);
        (Self { first: share.rank % mixture.epoch.row_count().max(1), distance: lanes }, missing.min(1))
    }

    /// The position of a row.
    pub(super) fn at(self, row: u64) -> u64 {
        self.first + self.distance * row
    }

    /// The number of lanes that the rows take turns in.
    pub(super) fn lane_count(self, lanes: u64) -> u64 {
        (lanes / self.distance).max(1)
    }
}
