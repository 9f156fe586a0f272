//! The numbers of a batch → which rows to read of each row group, and where each goes. Pure.

use std::{collections::HashMap, ops::Range};

use arrow::{
    array::{BooleanBufferBuilder, UInt64Array},
    buffer::BooleanBuffer,
};
use forebay_order::Sequence;
use forebay_plan::TakeBy;

/// The rows of one batch.
#[derive(Debug)]
pub(super) struct Targets {
    /// The row groups to read, in file order.
    pub groups: Vec<RowGroupTargets>,
    /// The number of different rows.
    pub distinct: usize,
    /// The place, among the different rows, of each row of the batch; none: they are the same.
    pub repeated: Option<UInt64Array>,
}

/// The rows to read of one row group.
#[derive(Debug)]
pub(super) struct RowGroupTargets {
    /// Index in the snapshot.
    pub row_group: usize,
    by: TakeBy,
    /// In ascending order, each once.
    rows: Vec<TargetRow>,
    /// The first of them that was not read.
    next: usize,
    /// The number of the next row that is read.
    at: u64,
}

/// One row.
#[derive(Clone, Copy, Debug)]
struct TargetRow {
    /// Index in the row group, counted among all rows or only among those that pass the filter.
    row: u64,
    /// Row in the batch of distinct rows.
    place: u32,
    /// First place in the request.
    index: usize,
}

/// The rows of a block to return.
#[derive(Debug, PartialEq)]
pub(super) struct Chosen {
    /// Which of the block's rows.
    pub rows: BooleanBuffer,
    /// Where they go.
    pub places: Vec<u32>,
}

/// A row that does not pass the filter.
#[derive(Debug, PartialEq)]
pub(super) struct Dropped {
    /// First place in the request.
    pub index: usize,
    /// Index in the row group.
    pub row: u64,
}

// === impl Targets ===

impl Targets {
    /// The rows of `numbers`, of which the first is number `first` of the request. `sequence` has them in file order.
    pub(super) fn new(by: TakeBy, numbers: &[u64], first: usize, sequence: &Sequence) -> Self {
        let mut places: HashMap<u64, u32> = HashMap::with_capacity(numbers.len());
        let mut targets: Vec<(u64, TargetRow)> = Vec::with_capacity(numbers.len());
        let repeated: Vec<u64> = (numbers.iter().enumerate())
            .map(|(index, number)| {
                let place = *places.entry(*number).or_insert_with(|| {
                    let place = targets.len() as u32;
                    targets.push((*number, TargetRow { row: 0, place, index: first + index }));
                    place
                });
                place.into()
            })
            .collect();
        let distinct = targets.len();
        targets.sort_unstable_by_key(|(number, _)| *number);
        let mut groups: Vec<RowGroupTargets> = Vec::new();
        for (number, target) in targets {
            let Some(piece) = sequence.pieces(number..number + 1).pop() else { continue };
            if groups.last().is_none_or(|group| group.row_group != piece.row_group) {
                groups.push(RowGroupTargets { row_group: piece.row_group, by, rows: Vec::new(), next: 0, at: 0 });
            }
            if let Some(group) = groups.last_mut() {
                group.rows.push(TargetRow { row: piece.skip, ..target });
            }
        }
        let repeated = (distinct < repeated.len()).then(|| UInt64Array::from(repeated));
        Self { groups, distinct, repeated }
    }
}

// === impl RowGroupTargets ===

impl RowGroupTargets {
    /// Begins with the first wanted row instead of the row group's first row. Returns the rows up to the last wanted one.
    pub(super) fn begin_at_first(&mut self) -> Range<u64> {
        self.at = self.rows.first().map_or(0, |target| target.row);
        self.at..self.rows.last().map_or(0, |target| target.row + 1)
    }

    /// Whether all rows were read.
    pub(super) fn is_done(&self) -> bool {
        self.next == self.rows.len()
    }

    /// The wanted rows of the next `count` rows, of which these pass (none: all).
    pub(super) fn choose(&mut self, passing: Option<&BooleanBuffer>, count: usize) -> Result<Chosen, Dropped> {
        // Positions count passing rows.
        let counted = passing.filter(|_| self.by == TakeBy::Positions);
        let end = self.at + counted.map_or(count, BooleanBuffer::count_set_bits) as u64;
        let rest = &self.rows[self.next..];
        let targets = &rest[..rest.partition_point(|target| target.row < end)];
        let mut rows = BooleanBufferBuilder::new(count);
        rows.append_n(count, false);
        let mut counted = counted.map(|passing| passing.set_indices().zip(self.at..));
        for target in targets {
            let row = match &mut counted {
                Some(counted) => counted.find(|(_, number)| *number == target.row).map(|(row, _)| row),
                None => Some((target.row - self.at) as usize),
            };
            let row = row.filter(|row| passing.is_none_or(|passing| passing.value(*row)));
            rows.set_bit(row.ok_or(Dropped { index: target.index, row: target.row })?, true);
        }
        let places = targets.iter().map(|target| target.place).collect();
        self.next += targets.len();
        self.at = end;
        Ok(Chosen { rows: rows.finish(), places })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use forebay_order::{Epoch, Remainder};

    use super::*;

    /// Row groups of 3, 0, 4 and 2 rows.
    fn sequence() -> Sequence {
        Epoch::new(Arc::new(vec![3, 0, 4, 2]), 1, 1, Remainder::Keep, None).sequence()
    }

    fn bits(rows: &[usize], count: usize) -> BooleanBuffer {
        BooleanBuffer::collect_bool(count, |row| rows.contains(&row))
    }

    #[test]
    fn rows_are_grouped_in_file_order_and_repeats_are_read_once() {
        let targets = Targets::new(TakeBy::RowIds, &[8, 2, 8, 6, 0], 10, &sequence());
        assert_eq!(targets.distinct, 4);
        assert_eq!(targets.repeated.unwrap().values(), &[0, 1, 0, 2, 3]);
        let found: Vec<_> = targets
            .groups
            .iter()
            .map(|group| {
                let rows: Vec<_> = group.rows.iter().map(|target| (target.row, target.place, target.index)).collect();
                (group.row_group, rows)
            })
            .collect();
        assert_eq!(found, [(0, vec![(0, 3, 14), (2, 1, 11)]), (2, vec![(3, 2, 13)]), (3, vec![(1, 0, 10)])]);
        let none = Targets::new(TakeBy::RowIds, &[], 0, &sequence());
        assert!(none.groups.is_empty() && none.repeated.is_none() && none.distinct == 0);
        assert!(Targets::new(TakeBy::RowIds, &[5, 1], 0, &sequence()).repeated.is_none());
    }

    #[test]
    fn row_ids_count_all_rows_and_must_pass() {
        let group = || Targets::new(TakeBy::RowIds, &[6, 4], 0, &sequence()).groups.remove(0);
        let mut all = group();
        assert_eq!(all.begin_at_first(), 1..4);
        assert_eq!(all.choose(None, 2), Ok(Chosen { rows: bits(&[0], 2), places: vec![1] }));
        assert!(!all.is_done());
        assert_eq!(all.choose(None, 1), Ok(Chosen { rows: bits(&[0], 1), places: vec![0] }));
        assert!(all.is_done());
        let mut filtered = group();
        assert_eq!(
            filtered.choose(Some(&bits(&[1, 3], 4)), 4),
            Ok(Chosen { rows: bits(&[1, 3], 4), places: vec![1, 0] })
        );
        assert_eq!(group().choose(Some(&bits(&[0, 1, 2], 4)), 4), Err(Dropped { index: 0, row: 3 }));
    }

    #[test]
    fn positions_count_passing_rows() {
        let mut group = Targets::new(TakeBy::Positions, &[3, 5, 6], 0, &sequence()).groups.remove(0);
        assert_eq!(group.choose(Some(&bits(&[], 9)), 9), Ok(Chosen { rows: bits(&[], 9), places: vec![] }));
        let chosen = group.choose(Some(&bits(&[2, 3, 7], 8)), 8);
        assert_eq!(chosen, Ok(Chosen { rows: bits(&[2, 7], 8), places: vec![0, 1] }));
        assert_eq!(group.choose(None, 2), Ok(Chosen { rows: bits(&[0], 2), places: vec![2] }));
        assert!(group.is_done());
    }
}
