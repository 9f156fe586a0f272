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
        Self { ends: sums(passing.iter().copied()), order: None }
    }

    pub(super) fn permuted(passing: &[u64], order: Permutation) -> Self {
        let counts = (0..passing.len()).map(|index| passing[order.at(index as u64) as usize]);
        Self { ends: sums(counts), order: Some(order) }
    }

    /// Returns the reads for these rows, in order.
    pub fn pieces(&self, rows: Range<u64>) -> Vec<Piece> {
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
        self.row_group(self.ends.partition_point(|end| *end <= place))
    }

    /// Returns the place in T of a passing row of a row group.
    pub fn place_of(&self, row_group: usize, row: u64) -> u64 {
        let index = self.order.as_ref().map_or(row_group, |order| order.inverse(row_group as u64) as usize);
        self.start(index) + row
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
