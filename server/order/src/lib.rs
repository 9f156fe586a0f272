//! The order of an epoch: snapshot × seed × epoch × world size → the row at each position.
//!
//! Pure and synchronous: no clock, no I/O, no global randomness. N is the number of rows that pass the filter, W the
//! world size, B the batch size.
//!
//! **In file order** the sequence T is the passing rows as stored, and rank r reads ⌊rN/W⌋…⌊(r+1)N/W⌋ of it.
//!
//! **Shuffled**, with L lanes (W divides L) and windows of at most w rows:
//! 1. T is the concatenation of the row groups in the order of a keyed permutation.
//! 2. Lane ℓ has ⌊N/L⌋ rows, or one more for ℓ < N mod L. Lanes are consecutive rows of T.
//! 3. A lane is divided into windows, and a keyed permutation assigns the rows of a window to the places of the window.
//! 4. Global position p < N is lane p mod L, offset ⌊p/L⌋; rank r's q-th row is position r + W·q.
//!
//! The [`OrderVersion`] decides about the rest:
//! - Version 1: lane 0 is first in T, then lane 1, and so on. A window ends after every w rows of a lane.
//! - Version 2: lane ℓ has a ramp that ends at e = w + ⌊wℓ/L⌋; its windows end at ⌊e/2ʰ⌋, ⌊e/2ʰ⁻¹⌋, … ⌊e/2⌋, e, and the
//!   later ones after every w more rows. h is max(⌊log₂w⌋ − 9, 1), or 0 if w = 1. The first batches therefore need few
//!   rows of each lane, and at most one lane more than the mean begins a window in the same batch.
//! - Version 3: windows are those of version 2. T begins at the row whose place in the permuted row groups is a key
//!   modulo N; the rows before it are at the end of T. A keyed permutation assigns to lane ℓ its place among the lanes in
//!   T. A lane reads its rows of T in this order, of which windows are divisions:
//!   - With at least 8·L row groups with passing rows, lanes at odd places go through their row groups from the last to the
//!     first, each row group from front to back. Two lanes with rows of the same row group therefore read it at the same
//!     time, at the beginning of the epoch or at its end.
//!   - With fewer than 2·L, a lane of n rows at place k begins at the row whose number in the lane is a key modulo n, and
//!     has the rows before that at its end. Otherwise a row's place in its row group would decide about its place in the
//!     epoch.
//!   - Otherwise, the order is that of T.
//!
//! In all, the last window ends with the lane.
//!
//! Therefore the rows read up to position p are the same set at every world size, and a position is converted to a row,
//! and a row to its position, by arithmetic and two binary searches. Permutations are those of [`Permutation`]; keys are
//! XXH3-64 (seed 0) of `forebay order ` and the version's digit, a letter, and seed, epoch and two numbers as 8
//! little-endian bytes each. The letters are `g` for the row groups, `r` for the first row of T and `l` for the places of
//! lanes (both numbers are 0), `b` for the first row of a lane (its place and 0), and `w` for a window (lane and window).
//!
//! A batch is B rows of a rank's sequence, counted from the start of the stream. [`Remainder`] decides about the rows
//! that do not fill a batch on every rank.

#![forbid(unsafe_code)]

pub mod balance;
mod buckets;
pub mod estimate;
mod fields;
mod lane;
mod lanes;
pub mod mixing;
mod mixture;
mod permutation;
pub mod row_groups;
mod sequence;
pub mod series;
mod shuffle;
pub mod sizing;
mod version;
pub mod weighted;
mod windows;

use std::{ops::Range, sync::Arc};

use lanes::Lanes;

pub use buckets::{BucketStep, Buckets};
pub use fields::{BATCH_SIZE_MAX, FieldError, OrderFields, WINDOW_ROWS_MAX, WORLD_SIZE_MAX};
pub use lane::{Lane, Window};
pub use mixture::{
    DENOMINATOR_MAX, MixedRow, MixedRows, Mixture, Pattern, Repetition, SOURCES_MAX, Strides, WeightProblem, exact,
    quantize,
};
pub use permutation::Permutation;
pub use sequence::{Piece, Sequence};
pub use shuffle::Shuffle;
pub use version::OrderVersion;

/// An epoch, divided among ranks.
#[derive(Clone, Debug)]
pub struct Epoch {
    /// Rows of each row group of the snapshot that pass the filter.
    passing: Arc<Vec<u64>>,
    row_count: u64,
    world_size: u64,
    batch_size: u64,
    remainder: Remainder,
    shuffle: Option<Shuffle>,
    /// The lanes of the shuffle.
    lanes: Option<Arc<Lanes>>,
    /// See [`Epoch::of_part`].
    is_part: bool,
}

/// Treatment of the rows that do not fill a batch on every rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remainder {
    /// Every row exactly once; ranks may differ by a step.
    Keep,
    /// Whole batches only, equal steps.
    Drop,
    /// Equal steps; a rank repeats its own first rows, and a rank without rows repeats those of another.
    Pad,
}

/// The part of a rank's sequence that a stream sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// The rank.
    pub rank: u64,
    /// Rows of its sequence before the start of the stream.
    pub start: u64,
    /// Rows of its sequence, without repeats.
    pub length: u64,
    /// End of the stream in its sequence; rows beyond `length` are repeats.
    pub end: u64,
    /// Steps of the stream.
    pub step_count: u64,
}

impl Epoch {
    /// Creates an epoch from the passing rows of each row group. `world_size` and `batch_size` are at least 1.
    pub fn new(
        passing: Arc<Vec<u64>>,
        world_size: u64,
        batch_size: u64,
        remainder: Remainder,
        shuffle: Option<Shuffle>,
    ) -> Self {
        let row_count = passing.iter().sum();
        let lanes = lanes_of(shuffle.as_ref(), row_count, false);
        Self { passing, row_count, world_size, batch_size, remainder, shuffle, lanes, is_part: false }
    }

    /// Returns the epoch as one of several, each of a part of the rows, whose steps are taken in turn. T and the lanes begin at
    /// fractions of their rows that depend on the key alone, not at a key modulo their number, so that the parts read the same row
    /// groups at about the same time. In file order, too, the first ranks are those with a row more.
    #[must_use]
    pub fn of_part(self) -> Self {
        Self { lanes: lanes_of(self.shuffle.as_ref(), self.row_count, true), is_part: true, ..self }
    }

    /// Returns the same rows in batches of another size, in another order.
    #[must_use]
    pub fn with(&self, batch_size: u64, shuffle: Option<Shuffle>) -> Self {
        let lanes = lanes_of(shuffle.as_ref(), self.row_count, self.is_part);
        Self { batch_size, shuffle, lanes, ..self.clone() }
    }

    /// Returns N, the passing rows of all row groups.
    pub fn row_count(&self) -> u64 {
        self.row_count
    }

    /// Returns B, the rows of a full batch.
    pub fn batch_size(&self) -> u64 {
        self.batch_size
    }

    /// Returns the passing rows of each row group of the snapshot.
    pub fn passing(&self) -> &[u64] {
        &self.passing
    }

    /// Returns the parameters of the shuffle; none in file order.
    pub fn shuffle(&self) -> Option<&Shuffle> {
        self.shuffle.as_ref()
    }

    /// Returns a rank's share of the whole epoch. The rank is below the world size.
    pub fn share(&self, rank: u64) -> Share {
        self.share_from(rank, 0)
    }

    /// Returns a rank's share after `start` rows of every rank have been sent.
    pub fn share_from(&self, rank: u64, start: u64) -> Share {
        let length = match self.shuffle {
            Some(_) => self.row_count / self.world_size + u64::from(rank < self.row_count % self.world_size),
            None => self.cut(rank + 1) - self.cut(rank),
        };
        let whole = |steps: u64| (start.saturating_add(steps.saturating_mul(self.batch_size)), steps);
        let (end, step_count) = match self.remainder {
            Remainder::Keep => (length.max(start), length.saturating_sub(start).div_ceil(self.batch_size)),
            Remainder::Drop => whole(self.shortest().saturating_sub(start) / self.batch_size),
            Remainder::Pad => whole(self.longest().saturating_sub(start).div_ceil(self.batch_size)),
        };
        Share { rank, start, length, end, step_count }
    }

    /// Returns the rows that all ranks send, including repeats.
    pub fn sent_row_count(&self) -> u64 {
        match self.remainder {
            Remainder::Keep => self.row_count,
            Remainder::Drop | Remainder::Pad => {
                self.step_count_max().saturating_mul(self.batch_size).saturating_mul(self.world_size)
            }
        }
    }

    /// Returns the steps of the longest rank.
    pub fn step_count_max(&self) -> u64 {
        match self.remainder {
            Remainder::Drop => self.shortest() / self.batch_size,
            Remainder::Keep | Remainder::Pad => self.longest().div_ceil(self.batch_size),
        }
    }

    /// Returns the rows in the order of T, or as lanes read them. Takes time and memory in proportion to the number of row
    /// groups.
    pub fn sequence(&self) -> Sequence {
        let Some((shuffle, lanes)) = self.shuffle.as_ref().zip(self.lanes.as_ref()) else {
            return Sequence::in_file_order(&self.passing);
        };
        let order = Permutation::new(self.passing.len() as u64, shuffle.key(b'g', 0, 0));
        let rotation = if shuffle.version < OrderVersion::Three { 0 } else { lanes.rotation() };
        Sequence::permuted(&self.passing, order, rotation, lanes.course(&self.passing))
    }

    /// Returns the two ranges of T that contain a share's own rows and then its repeats, in file order. A share with
    /// more repeats than these is within one batch, which repeats itself.
    pub fn runs(&self, share: &Share) -> [Range<u64>; 2] {
        let first = self.cut(share.rank);
        let start = share.start.min(share.length);
        let skipped = share.start - start;
        let repeated = (skipped + share.padding(share.start, share.end)).min(share.length.max(1));
        [first + start..first + start + share.own_rows(), first + skipped.min(repeated)..first + repeated]
    }

    /// Returns the rank's lanes in the order in which it takes rows from them; none in file order.
    pub fn lanes_of(&self, rank: u64) -> Vec<Lane> {
        let lanes = self.shuffle.map_or(0, |shuffle| shuffle.lanes);
        (rank..lanes).step_by(self.world_size as usize).filter_map(|lane| self.lane(lane)).collect()
    }

    /// Returns the lane of an index; none if there are fewer lanes, or in file order.
    pub fn lane(&self, index: u64) -> Option<Lane> {
        self.shuffle.filter(|shuffle| index < shuffle.lanes)?;
        self.lanes.as_ref().map(|lanes| lanes.lane(index))
    }

    /// Returns the place in the sequence of the row at a global position of a shuffled epoch.
    pub fn row_at(&self, position: u64) -> Option<u64> {
        let shuffle = self.shuffle.filter(|_| position < self.row_count)?;
        Some(self.lane(position % shuffle.lanes)?.row_at(position / shuffle.lanes))
    }

    /// Returns the global position of the row at a place in the sequence of a shuffled epoch.
    pub fn position_of(&self, row: u64) -> Option<u64> {
        let shuffle = self.shuffle.filter(|_| row < self.row_count)?;
        let lane = self.lane(self.lanes.as_ref()?.index_with(row))?;
        Some(lane.offset_of(row) * shuffle.lanes + lane.index)
    }

    /// Returns the global position of a row of a rank's sequence; in file order, its place in T.
    pub fn position_in(&self, rank: u64, row: u64) -> u64 {
        match self.shuffle {
            Some(_) => rank + self.world_size * row,
            None => self.cut(rank) + row,
        }
    }

    /// Returns the first row of the rank in T, in file order.
    fn cut(&self, rank: u64) -> u64 {
        if self.is_part {
            let (rows, more) = (self.row_count / self.world_size, self.row_count % self.world_size);
            return rank * rows + rank.min(more);
        }
        let product = u128::from(rank) * u128::from(self.row_count) / u128::from(self.world_size);
        // At most N, since rank is at most the world size.
        product as u64
    }

    fn step_rows(&self) -> u64 {
        self.batch_size * self.world_size
    }

    fn shortest(&self) -> u64 {
        self.row_count / self.world_size
    }

    fn longest(&self) -> u64 {
        self.row_count.div_ceil(self.world_size)
    }
}

/// The lanes of a shuffle of so many rows.
fn lanes_of(shuffle: Option<&Shuffle>, row_count: u64, is_part: bool) -> Option<Arc<Lanes>> {
    shuffle.map(|shuffle| {
        let (rows, more) = (row_count / shuffle.lanes, row_count % shuffle.lanes);
        Arc::new(Lanes::new(shuffle, is_part, |lane| rows + u64::from(lane < more)))
    })
}

// === impl Share ===

impl Share {
    /// Returns the rows that are sent, including repeats.
    pub fn row_count(&self) -> u64 {
        self.end - self.start
    }

    /// Returns the rows that are sent, without repeats.
    pub fn own_rows(&self) -> u64 {
        self.length.min(self.end).saturating_sub(self.start)
    }

    /// Returns how many of the rows `start..end` of the sequence are repeats.
    pub fn padding(&self, start: u64, end: u64) -> u64 {
        end.max(self.length) - start.max(self.length)
    }

    /// Returns the share of its first steps only, each of at most `batch_size` rows.
    #[must_use]
    pub fn first_steps(self, steps: u64, batch_size: u64) -> Self {
        let end = self.end.min(self.start.saturating_add(steps.saturating_mul(batch_size)));
        Self { end, step_count: self.step_count.min(steps), ..self }
    }
}

#[cfg(test)]
mod tests;
