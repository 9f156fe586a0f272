//! The deleted rows of a row group: row numbers count the others, so that a deleted row is at no address.

use std::{ops::Range, sync::Arc};

use arrow::buffer::{BooleanBuffer, MutableBuffer};

/// The deleted rows of one row group.
///
/// Rows of the row group in its file are stored rows; those that are left are kept rows, and are numbered without gaps.
#[derive(Debug, PartialEq, Eq)]
pub struct DeletedRows {
    /// Indices of stored rows, rising.
    indices: Vec<u64>,
    stored: u64,
}

// === impl DeletedRows ===

impl DeletedRows {
    /// The deleted rows of each row group of a file, from the rising indices of its deleted rows and the number of rows
    /// of each row group; `None` for a row group without any. The error is an index beyond the last row.
    pub(super) fn of_file(deleted: &[u64], row_counts: &[u64]) -> Result<Vec<Option<Arc<Self>>>, u64> {
        let (mut start, mut rest) = (0_u64, deleted);
        let mut of_groups = Vec::with_capacity(row_counts.len());
        for stored in row_counts.iter().copied() {
            let end = start.saturating_add(stored);
            let (own, later) = rest.split_at(rest.partition_point(|row| *row < end));
            let indices: Vec<u64> = own.iter().map(|row| row - start).collect();
            of_groups.push((!indices.is_empty()).then(|| Arc::new(Self { indices, stored })));
            start = end;
            rest = later;
        }
        rest.first().map_or(Ok(of_groups), |row| Err(*row))
    }

    /// Rows of the row group in its file.
    pub fn stored(&self) -> u64 {
        self.stored
    }

    /// Kept rows.
    pub fn kept(&self) -> u64 {
        self.stored - self.indices.len() as u64
    }

    /// The stored rows of a range of kept rows: from the first of them to the one before the next kept row.
    ///
    /// Ranges that follow each other have stored rows that follow each other, from the first stored row that a reader
    /// which skipped the kept rows before has not read.
    pub fn stored_rows(&self, kept: Range<u64>) -> Range<u64> {
        self.end_of(kept.start)..self.end_of(kept.end)
    }

    /// Which rows of a range of stored rows are kept.
    pub fn kept_of(&self, stored: Range<u64>) -> BooleanBuffer {
        let length = usize::try_from(stored.end - stored.start).unwrap_or(usize::MAX);
        let mut bits = MutableBuffer::new_null(length);
        bits.as_slice_mut().fill(u8::MAX);
        let first = self.indices.partition_point(|row| *row < stored.start);
        for row in self.indices[first..].iter().take_while(|row| **row < stored.end) {
            arrow::util::bit_util::unset_bit(bits.as_slice_mut(), (row - stored.start) as usize);
        }
        BooleanBuffer::new(bits.into(), 0, length)
    }

    /// The kept rows after the first `from` stored ones, as ranges of stored rows with deleted ones between them.
    pub fn kept_runs(&self, from: u64) -> impl Iterator<Item = Range<u64>> {
        let first = self.indices.partition_point(|row| *row < from);
        let ends = self.indices[first..].iter().copied().chain([self.stored]);
        let starts = [from].into_iter().chain(self.indices[first..].iter().map(|row| row + 1));
        starts.zip(ends).map(|(start, end)| start..end).filter(|run| run.start < run.end)
    }

    /// The index of a kept row among the stored rows.
    pub fn stored_row(&self, kept: u64) -> u64 {
        // Before the i-th deleted row there are as many kept rows as its index minus i: rising, as indices rise.
        let (mut low, mut high) = (0, self.indices.len());
        while low < high {
            let middle = low.midpoint(high);
            if self.indices[middle] - (middle as u64) <= kept { low = middle + 1 } else { high = middle }
        }
        kept + low as u64
    }

    /// The number of stored rows that end with the last of the first `kept` kept rows; all if they are all kept rows.
    fn end_of(&self, kept: u64) -> u64 {
        match kept.checked_sub(1) {
            None => 0,
            Some(_) if kept >= self.kept() => self.stored,
            Some(last) => self.stored_row(last) + 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn deleted_rows_are_split_by_row_group() {
        let groups = DeletedRows::of_file(&[0, 4, 5, 9], &[5, 0, 4, 1]).unwrap();
        let indices: Vec<_> = groups.iter().map(|group| group.as_ref().map(|group| group.indices.clone())).collect();
        assert_eq!(indices, [Some(vec![0, 4]), None, Some(vec![0]), Some(vec![0])]);
        assert_eq!(groups[3].as_ref().unwrap().kept(), 0);
        assert_eq!(DeletedRows::of_file(&[3], &[3]), Err(3));
    }

    proptest! {
        #[test]
        fn kept_rows_are_those_that_a_mask_keeps(flags in proptest::collection::vec(any::<bool>(), 1..200), cut in 0..200_u64) {
            let deleted: Vec<u64> = (0..).zip(&flags).filter(|(_, flag)| **flag).map(|(row, _)| row).collect();
            let group = DeletedRows { indices: deleted, stored: flags.len() as u64 };
            let all: Vec<u64> = (0..).zip(&flags).filter(|(_, flag)| !**flag).map(|(row, _)| row).collect();
            prop_assert_eq!(group.kept(), all.len() as u64);
            let cut = cut.min(group.kept());
            let mut found = Vec::new();
            for kept in [0..cut, cut..group.kept()] {
                let (count, stored) = (kept.end - kept.start, group.stored_rows(kept));
                let mask = group.kept_of(stored.clone());
                let rows: Vec<u64> = mask.set_indices().map(|index| stored.start + index as u64).collect();
                prop_assert_eq!(rows.len() as u64, count);
                found.extend(rows);
            }
            let runs: Vec<u64> = group.kept_runs(0).flatten().collect();
            prop_assert_eq!(&runs, &all);
            let from = group.stored_rows(0..cut).end;
            let runs: Vec<u64> = group.kept_runs(from).flatten().collect();
            prop_assert_eq!(&runs, &all[cut as usize..]);
            let one_by_one: Vec<u64> = (0..group.kept()).map(|row| group.stored_row(row)).collect();
            prop_assert_eq!(&one_by_one, &all);
            prop_assert_eq!(found, all);
        }
    }
}
