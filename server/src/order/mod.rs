//! Snapshot × world → which row sits where: the arithmetic of an epoch.
//!
//! Pure and synchronous: no clock, no I/O, no randomness. Rows that pass the filter are numbered 0…N−1 in file order;
//! rank r of W owns the span ⌊rN/W⌋…⌊(r+1)N/W⌋ and reads it in order, in batches of B.

use std::ops::Range;

/// An epoch in file order, shared out among ranks.
#[derive(Clone, Debug)]
pub struct Epoch {
    /// `ends[g]`: passing rows of the row groups 0…g.
    ends: Vec<u64>,
    world_size: u64,
    batch_size: u64,
    remainder: Remainder,
}

/// What happens to the rows that do not fill a batch on every rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remainder {
    /// Every row exactly once; ranks may differ by a step.
    Keep,
    /// Whole batches only, equal steps.
    Drop,
    /// Equal steps; rows are repeated.
    Pad,
}

/// A rank's share of an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// First row of the rank's span.
    first_row: u64,
    /// Rows read from the span, each once.
    pub row_count: u64,
    /// Rows repeated to fill the last step.
    pub padding_rows: u64,
    /// Steps of the whole epoch.
    pub step_count: u64,
}

/// A run of one row group's passing rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Index of the row group in the snapshot.
    pub row_group: usize,
    /// Passing rows of the row group that are left out before the run.
    pub skip: u64,
    /// Passing rows of the run; never 0.
    pub take: u64,
}

impl Epoch {
    /// An epoch over row groups with these numbers of passing rows. `world_size` and `batch_size` are at least 1.
    pub fn new(passing_rows: &[u64], world_size: u64, batch_size: u64, remainder: Remainder) -> Self {
        let ends = passing_rows
            .iter()
            .scan(0_u64, |sum, rows| {
                *sum += rows;
                Some(*sum)
            })
            .collect();
        Self { ends, world_size, batch_size, remainder }
    }

    /// N: rows that pass, of all row groups.
    pub fn row_count(&self) -> u64 {
        self.ends.last().copied().unwrap_or(0)
    }

    /// The share of a rank below the world size.
    pub fn share(&self, rank: u64) -> Share {
        let span = self.span(rank);
        let length = span.end - span.start;
        let (row_count, padding_rows, step_count) = match self.remainder {
            Remainder::Keep => (length, 0, length.div_ceil(self.batch_size)),
            Remainder::Drop => {
                let steps = self.shortest_span() / self.batch_size;
                (steps * self.batch_size, 0, steps)
            }
            Remainder::Pad => {
                let steps = self.longest_span().div_ceil(self.batch_size);
                (length, steps.saturating_mul(self.batch_size) - length, steps)
            }
        };
        Share { first_row: span.start, row_count, padding_rows, step_count }
    }

    /// Rows that all ranks send, repeats included.
    pub fn sent_row_count(&self) -> u64 {
        match self.remainder {
            Remainder::Keep => self.row_count(),
            Remainder::Drop | Remainder::Pad => {
                self.step_count_max().saturating_mul(self.batch_size).saturating_mul(self.world_size)
            }
        }
    }

    /// Steps of the longest rank.
    pub fn step_count_max(&self) -> u64 {
        match self.remainder {
            Remainder::Drop => self.shortest_span() / self.batch_size,
            Remainder::Keep | Remainder::Pad => self.longest_span().div_ceil(self.batch_size),
        }
    }

    /// The reads that yield a share's rows from a step on, in order. Repeats of PAD are read again from the start of the
    /// rank's span; a rank without rows repeats the one at its place.
    ///
    /// At most the span is read again: where more repeats are due, the whole share lies in its only batch, and that
    /// batch repeats itself.
    pub fn pieces(&self, share: &Share, first_step: u64) -> Vec<Piece> {
        let skipped = first_step.saturating_mul(self.batch_size);
        let mut pieces = Vec::new();
        self.push_pieces(
            share.first_row + skipped.min(share.row_count)..share.first_row + share.row_count,
            &mut pieces,
        );
        let repeats = share.padding_rows.min(share.row_count.max(1));
        let repeats_skipped = skipped.saturating_sub(share.row_count).min(repeats);
        self.push_pieces(share.first_row + repeats_skipped..share.first_row + repeats, &mut pieces);
        pieces
    }

    fn span(&self, rank: u64) -> Range<u64> {
        let cut = |rank: u64| {
            let product = u128::from(rank) * u128::from(self.row_count()) / u128::from(self.world_size);
            // At most N, since rank is at most the world size.
            product as u64
        };
        cut(rank)..cut(rank + 1)
    }

    fn shortest_span(&self) -> u64 {
        self.row_count() / self.world_size
    }

    fn longest_span(&self) -> u64 {
        self.row_count().div_ceil(self.world_size)
    }

    fn push_pieces(&self, rows: Range<u64>, pieces: &mut Vec<Piece>) {
        let mut next = rows.start;
        let mut row_group = self.ends.partition_point(|end| *end <= next);
        while next < rows.end {
            let start = if row_group == 0 { 0 } else { self.ends[row_group - 1] };
            let end = self.ends[row_group].min(rows.end);
            if end > next {
                pieces.push(Piece { row_group, skip: next - start, take: end - next });
                next = end;
            }
            row_group += 1;
        }
    }
}

#[cfg(test)]
mod tests;
