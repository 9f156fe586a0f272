//! Where the lanes of a shuffled epoch are in T, and in which order each reads its rows.

use std::{ops::Range, sync::Arc};

use super::{lane::Lane, permutation::Permutation, shuffle::Shuffle, version::OrderVersion};

/// Row groups for each lane below which a row's place in its row group would decide too much about its place in the epoch.
const STRAIGHT_FROM: u64 = 2;

/// Row groups for each lane from which on it decides little even if lanes meet, which places the first rows of a row group
/// at a cut nearer to the beginning of the epoch: positions in two epochs correlate by 0.014.
const MEETING_FROM: u64 = 8;

/// The lanes of an epoch, or of a repetition of a mixture's source.
#[derive(Debug)]
pub(super) struct Lanes {
    shuffle: Shuffle,
    /// The first row in T of the lane at each place, and the end of the last one.
    starts: Vec<u64>,
    /// The place of each lane among the lanes in T; none: its index.
    order: Option<Permutation>,
    /// Whether keyed rows are at the same fraction of any number of rows, see [`Epoch::of_part`](super::Epoch::of_part).
    is_part: bool,
}

/// The order in which lanes read their rows of T.
#[derive(Clone, Debug)]
pub(super) enum Course {
    /// The order of T.
    Straight,
    /// Lanes at odd places go through their row groups from the last to the first, each row group from front to back.
    Meeting(Arc<Lanes>),
    /// Each lane begins at a keyed row, and has those before it at its end.
    Turned(Arc<Lanes>),
}

// === impl Lanes ===

impl Lanes {
    /// Places lanes of these numbers of rows in T. Takes time and memory in proportion to the number of lanes.
    pub(super) fn new(shuffle: &Shuffle, is_part: bool, length_of: impl Fn(u64) -> u64) -> Self {
        let is_permuted = shuffle.version >= OrderVersion::Three;
        let order = is_permuted.then(|| Permutation::new(shuffle.lanes, shuffle.key(b'l', 0, 0)));
        let mut starts = Vec::with_capacity(shuffle.lanes as usize + 1);
        let mut start = 0_u64;
        starts.push(start);
        for place in 0..shuffle.lanes {
            start += length_of(order.as_ref().map_or(place, |order| order.inverse(place)));
            starts.push(start);
        }
        Self { shuffle: *shuffle, starts, order, is_part }
    }

    /// Returns the lane of an index, which is below their number.
    pub(super) fn lane(&self, index: u64) -> Lane {
        let place = self.order.as_ref().map_or(index, |order| order.at(index));
        let rows = self.rows_at(place as usize);
        Lane { index, start: rows.start, length: rows.end - rows.start, shuffle: self.shuffle }
    }

    /// Returns the index of the lane with a row of T.
    pub(super) fn index_with(&self, row: u64) -> u64 {
        let place = self.place_with(row) as u64;
        self.order.as_ref().map_or(place, |order| order.inverse(place))
    }

    /// Returns the rows of all lanes.
    pub(super) fn row_count(&self) -> u64 {
        self.starts.last().copied().unwrap_or(0)
    }

    /// Returns in which order they read a T of row groups with these passing rows.
    pub(super) fn course(self: &Arc<Self>, passing: &[u64]) -> Course {
        if self.shuffle.version < OrderVersion::Three {
            return Course::Straight;
        }
        let row_groups = passing.iter().filter(|rows| **rows > 0).count() as u64;
        match row_groups / self.shuffle.lanes {
            ..STRAIGHT_FROM => Course::Turned(Arc::clone(self)),
            STRAIGHT_FROM..MEETING_FROM => Course::Straight,
            _ => Course::Meeting(Arc::clone(self)),
        }
    }

    /// Returns the place of the lane with a row of T; that of the last lane for later ones.
    pub(super) fn place_with(&self, row: u64) -> usize {
        // The last of the lanes that begin at a row is the only one of them with rows.
        let after = self.starts.partition_point(|start| *start <= row);
        after.min(self.starts.len() - 1).saturating_sub(1)
    }

    /// Returns the rows in T of the lane at a place.
    pub(super) fn rows_at(&self, place: usize) -> Range<u64> {
        self.starts[place]..self.starts[place + 1]
    }

    /// Returns the row, counted from the lane's first in T, at which the turned lane at a place begins.
    pub(super) fn first_of(&self, place: usize) -> u64 {
        let rows = self.rows_at(place);
        self.keyed(self.shuffle.key(b'b', place as u64, 0), rows.end - rows.start)
    }

    /// Returns the place in the permuted row groups of T's first row.
    pub(super) fn rotation(&self) -> u64 {
        self.keyed(self.shuffle.key(b'r', 0, 0), self.row_count())
    }

    /// One of so many rows; 0 if there are none.
    fn keyed(&self, key: u64, rows: u64) -> u64 {
        if self.is_part {
            // Below the number of rows.
            return ((u128::from(key) * u128::from(rows)) >> u64::BITS) as u64;
        }
        key % rows.max(1)
    }
}
