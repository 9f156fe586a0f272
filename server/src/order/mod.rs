//! Snapshot × seed × epoch × world → which row sits where: the arithmetic of an epoch.
//!
//! Pure and synchronous: no clock, no I/O, no global randomness. Rows that pass the filter count; N is their number,
//! W the world size, B the batch size. Version [`ORDER_VERSION`] of the order:
//!
//! **In file order** the sequence T is the passing rows as they lie, and rank r reads the span ⌊rN/W⌋…⌊(r+1)N/W⌋ of it.
//!
//! **Shuffled**, with L lanes (W divides L) and windows of w rows:
//! 1. T is the row groups laid end to end in the order of a keyed permutation of all of them.
//! 2. Lane ℓ is a run of ⌊N/L⌋ rows of T, or one more for ℓ < N mod L; the lanes lie in T one after another.
//! 3. The i-th run of w rows of a lane (the last one may be shorter) is a window. A keyed permutation gives each of its
//!    places one of its rows.
//! 4. Global position p < N is lane p mod L, offset ⌊p/L⌋; rank r's q-th row is position r + W·q.
//!
//! So what has been read up to position p is the same set of rows at every world size, and a position turns into a row,
//! or a row into its position, by arithmetic and one binary search. Permutations are those of [`Permutation`]; their
//! keys are XXH3-64 (seed 0) of `forebay order 1`, a letter (`g` for the row groups, `w` for a window), and seed, epoch,
//! lane and window (both 0 for row groups) as 8 little-endian bytes each.
//!
//! A batch is B rows of a rank's sequence, counted from the place the stream starts at. The rows that do not fill
//! batches on every rank are left to [`Remainder`].

mod lane;
mod permutation;
mod sequence;
mod shuffle;

use std::{ops::Range, sync::Arc};

pub use lane::{Lane, Window};
pub use permutation::Permutation;
pub use sequence::{Piece, Sequence};
pub use shuffle::Shuffle;

/// The version of the arithmetic. Tickets and checkpoints name it: under another one a position is another row.
pub const ORDER_VERSION: u32 = 1;

/// An epoch, shared out among ranks.
#[derive(Clone, Debug)]
pub struct Epoch {
    /// Passing rows of each row group of the snapshot.
    passing: Arc<Vec<u64>>,
    row_count: u64,
    world_size: u64,
    batch_size: u64,
    remainder: Remainder,
    shuffle: Option<Shuffle>,
}

/// What happens to the rows that do not fill a batch on every rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remainder {
    /// Every row exactly once; ranks may differ by a step.
    Keep,
    /// Whole batches only, equal steps.
    Drop,
    /// Equal steps; a rank repeats its own first rows, and one without rows repeats another's.
    Pad,
}

/// What a rank sends, from a place of its sequence on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// The rank.
    pub rank: u64,
    /// Rows of its sequence that are left out.
    pub start: u64,
    /// Rows of its sequence, each of them once.
    pub length: u64,
    /// Where in its sequence the sending ends; beyond the length come repeats.
    pub end: u64,
    /// Steps that are sent.
    pub step_count: u64,
}

impl Epoch {
    /// An epoch over row groups with these numbers of passing rows. `world_size` and `batch_size` are at least 1.
    pub fn new(
        passing: Arc<Vec<u64>>,
        world_size: u64,
        batch_size: u64,
        remainder: Remainder,
        shuffle: Option<Shuffle>,
    ) -> Self {
        let row_count = passing.iter().sum();
        Self { passing, row_count, world_size, batch_size, remainder, shuffle }
    }

    /// N: rows that pass, of all row groups.
    pub fn row_count(&self) -> u64 {
        self.row_count
    }

    /// Passing rows of each row group of the snapshot.
    pub fn passing(&self) -> &[u64] {
        &self.passing
    }

    /// What shuffles it; nothing in file order.
    pub fn shuffle(&self) -> Option<&Shuffle> {
        self.shuffle.as_ref()
    }

    /// What a rank below the world size sends of the whole epoch.
    pub fn share(&self, rank: u64) -> Share {
        self.share_from(rank, 0)
    }

    /// What a rank sends once `start` rows of every rank have been sent.
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

    /// Rows that all ranks send, repeats included.
    pub fn sent_row_count(&self) -> u64 {
        match self.remainder {
            Remainder::Keep => self.row_count,
            Remainder::Drop | Remainder::Pad => {
                self.step_count_max().saturating_mul(self.batch_size).saturating_mul(self.world_size)
            }
        }
    }

    /// Steps of the longest rank.
    pub fn step_count_max(&self) -> u64 {
        match self.remainder {
            Remainder::Drop => self.shortest() / self.batch_size,
            Remainder::Keep | Remainder::Pad => self.longest().div_ceil(self.batch_size),
        }
    }

    /// T: in which order the row groups lie. Takes time and memory with their number.
    pub fn sequence(&self) -> Sequence {
        match &self.shuffle {
            None => Sequence::in_file_order(&self.passing),
            Some(shuffle) => {
                let order = Permutation::new(self.passing.len() as u64, shuffle.key(b'g', 0, 0));
                Sequence::permuted(&self.passing, order)
            }
        }
    }

    /// In file order: the runs of T that yield a share's rows, its own and then its repeats. Where more repeats are due,
    /// the whole share lies in its last batch, and that batch repeats itself.
    pub fn runs(&self, share: &Share) -> [Range<u64>; 2] {
        let first = self.cut(share.rank);
        let start = share.start.min(share.length);
        let skipped = share.start - start;
        let repeated = (skipped + share.padding(share.start, share.end)).min(share.length.max(1));
        [first + start..first + start + share.own_rows(), first + skipped.min(repeated)..first + repeated]
    }

    /// The rank's lanes, in turn; none in file order.
    pub fn lanes_of(&self, rank: u64) -> Vec<Lane> {
        let lanes = self.shuffle.map_or(0, |shuffle| shuffle.lanes);
        (rank..lanes).step_by(self.world_size as usize).filter_map(|lane| self.lane(lane)).collect()
    }

    /// A lane below the number of lanes; none in file order.
    pub fn lane(&self, index: u64) -> Option<Lane> {
        let shuffle = self.shuffle.filter(|shuffle| index < shuffle.lanes)?;
        let (rows, more) = (self.row_count / shuffle.lanes, self.row_count % shuffle.lanes);
        let start = index * rows + index.min(more);
        Some(Lane { index, start, length: rows + u64::from(index < more), shuffle })
    }

    /// The place in T of the row at a global position of a shuffled epoch.
    pub fn row_at(&self, position: u64) -> Option<u64> {
        let shuffle = self.shuffle.filter(|_| position < self.row_count)?;
        Some(self.lane(position % shuffle.lanes)?.row_at(position / shuffle.lanes))
    }

    /// The global position of the row at a place in T of a shuffled epoch.
    pub fn position_of(&self, row: u64) -> Option<u64> {
        let shuffle = self.shuffle.filter(|_| row < self.row_count)?;
        let (rows, more) = (self.row_count / shuffle.lanes, self.row_count % shuffle.lanes);
        let in_longer = more * (rows + 1);
        let lane = if row < in_longer { row / (rows + 1) } else { more + (row - in_longer) / rows };
        Some(self.lane(lane)?.offset_of(row) * shuffle.lanes + lane)
    }

    /// In file order: where the rank's rows end and the next one's begin.
    fn cut(&self, rank: u64) -> u64 {
        let product = u128::from(rank) * u128::from(self.row_count) / u128::from(self.world_size);
        // At most N, since rank is at most the world size.
        product as u64
    }

    fn shortest(&self) -> u64 {
        self.row_count / self.world_size
    }

    fn longest(&self) -> u64 {
        self.row_count.div_ceil(self.world_size)
    }
}

// === impl Share ===

impl Share {
    /// Rows that are sent, repeats included.
    pub fn row_count(&self) -> u64 {
        self.end - self.start
    }

    /// Rows of the rank's own that are sent.
    pub fn own_rows(&self) -> u64 {
        self.length.min(self.end).saturating_sub(self.start)
    }

    /// How many of the rows `start..end` of the sequence are repeats.
    pub fn padding(&self, start: u64, end: u64) -> u64 {
        end.max(self.length) - start.max(self.length)
    }

    /// The share of its next steps only, of at most this many rows each.
    #[must_use]
    pub fn first_steps(self, steps: u64, batch_size: u64) -> Self {
        let end = self.end.min(self.start.saturating_add(steps.saturating_mul(batch_size)));
        Self { end, step_count: self.step_count.min(steps), ..self }
    }
}

#[cfg(test)]
mod tests;
