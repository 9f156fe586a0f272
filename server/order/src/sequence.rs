//! T, the concatenation of an epoch's row groups, and the reads for a range of it.

use std::ops::Range;

use super::permutation::Permutation;

/// The row groups of T in order.
#[derive(Clone, Debug)]
pub struct Sequence {
    /// `ends[i]`: passing rows of the first i + 1 row groups of T.
    ends: Vec<u64>,
    /// Maps the i-th place to a row group; none in file order.
    order: Option<Permutation>,
    /// The place, in that order, of the first row: the rows before it follow the last one.
    rotation: u64,
}

/// Consecutive passing rows of one row group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Index of the row group in the snapshot.
    pub row_group: usize,
    /// Passing rows of the row group before the piece.
    pub skip: u64,
    /// Passing rows of the piece; never 0.
    pub take: u64,
}

impl Sequence {
    pub(super) fn in_file_order(passing: &[u64]) -> Self {
        Self { ends: sums(passing.iter().copied()), order: None, rotation: 0 }
    }

    pub(super) fn permuted(passing: &[u64], order: Permutation) -> Self {
        let counts = (0..passing.len()).map(|index| passing[order.at(index as u64) as usize]);
        Self { ends: sums(counts), order: Some(order), rotation: 0 }
    }

    /// Returns the same rows from another one on: `first`, below N, is its place. The rows before it follow the last one.
    #[must_use]
    pub fn rotated(self, first: u64) -> Self {
        Self { rotation: first, ..self }
    }

    /// Returns the reads for these rows, in order.
    pub fn pieces(&self, rows: Range<u64>) -> Vec<Piece> {
        let count = self.row_count();
        // No row is at a place beyond N, and none is in two places.
        let (start, end) = (rows.start.min(count) + self.rotation, rows.end.min(count) + self.rotation);
        let mut pieces = self.stored_pieces(start.min(count)..end.min(count));
        pieces.extend(self.stored_pieces(start.saturating_sub(count)..end.saturating_sub(count)));
        pieces
    }

    /// The reads for rows by their places before the rotation.
    fn stored_pieces(&self, rows: Range<u64>) -> Vec<Piece> {
        let mut pieces = Vec::new();
        let mut next = rows.start;
        let mut index = self.ends.partition_point(|end| *end <= next);
        while next < rows.end && index < self.ends.len() {
            let start = self.start(index);
            let end = self.ends[index].min(rows.end);
            if end > next {
                pieces.push(Piece { row_group: self.row_group(index), skip: next - start, take: end - next });
                next = end;
            }
            index += 1;
        }
        pieces
    }

    /// Returns the row group of the row at a place below N.
    pub fn row_group_at(&self, place: u64) -> usize {
        let stored = (place + self.rotation) % self.row_count().max(1);
        self.row_group(self.ends.partition_point(|end| *end <= stored))
    }

    /// Returns the place in T of a passing row of a row group.
    pub fn place_of(&self, row_group: usize, row: u64) -> u64 {
        let index = self.order.as_ref().map_or(row_group, |order| order.inverse(row_group as u64) as usize);
        let (stored, count) = (self.start(index) + row, self.row_count());
        if stored < self.rotation { stored + count - self.rotation } else { stored - self.rotation }
    }

    fn row_count(&self) -> u64 {
        self.ends.last().copied().unwrap_or(0)
    }

    fn start(&self, index: usize) -> u64 {
        if index == 0 { 0 } else { self.ends[index - 1] }
    }

    fn row_group(&self, index: usize) -> usize {
        self.order.as_ref().map_or(index, |order| order.at(index as u64) as usize)
    }
}

fn sums(counts: impl Iterator<Item = u64>) -> Vec<u64> {
    counts
        .scan(0_u64, |sum, count| {
            *sum += count;
            Some(*sum)
        })
        .collect()
}
