//! Columns of lists, prepared for one run of rows.

use std::ops::Range;

use arrow::{
    array::{Array, ArrayRef, AsArray, UInt64Array},
    buffer::NullBuffer,
    compute::take,
    error::ArrowError,
};

use crate::ops::{bytes, pad::Side};

/// The lists of a run of rows, with their elements one after the other.
#[derive(Debug)]
pub(crate) struct ListRows {
    /// The elements of all lists, each cut to the limit.
    pub(crate) elements: ArrayRef,
    /// The end of each list in `elements`.
    pub(crate) ends: Vec<usize>,
    /// The null rows, if any.
    pub(crate) nulls: Option<NullBuffer>,
}

impl ListRows {
    /// The lists of `rows`, each cut to a number of elements at a side; bytes are lists. `None` if the column holds neither.
    pub(crate) fn new(
        column: &ArrayRef,
        rows: Range<usize>,
        (limit, side): (usize, Side),
    ) -> Result<Option<Self>, ArrowError> {
        let column = &bytes::as_lists(column)?;
        let (child, ranges): (&ArrayRef, Vec<Range<usize>>) = if let Some(lists) = column.as_list_opt::<i32>() {
            let offsets = lists.value_offsets();
            (lists.values(), rows.clone().map(|row| offsets[row] as usize..offsets[row + 1] as usize).collect())
        } else if let Some(lists) = column.as_list_opt::<i64>() {
            let offsets = lists.value_offsets();
            (lists.values(), rows.clone().map(|row| offsets[row] as usize..offsets[row + 1] as usize).collect())
        } else if let Some(lists) = column.as_fixed_size_list_opt() {
            let size = lists.value_length() as usize;
            (lists.values(), rows.clone().map(|row| row * size..(row + 1) * size).collect())
        } else {
            return Ok(None);
        };
        let nulls =
            column.nulls().filter(|nulls| nulls.null_count() > 0).map(|nulls| nulls.slice(rows.start, rows.len()));
        let cut = |(row, range): (usize, &Range<usize>)| {
            let is_null = nulls.as_ref().is_some_and(|nulls| nulls.is_null(row));
            if is_null { range.start..range.start } else { side.cut(range.clone(), limit) }
        };
        let ranges: Vec<Range<usize>> = ranges.iter().enumerate().map(cut).collect();
        let ends = ranges.iter().scan(0, |end, range| {
            *end += range.len();
            Some(*end)
        });
        let ends: Vec<usize> = ends.collect();
        let (start, count) = (ranges.first().map_or(0, |range| range.start), ends.last().copied().unwrap_or(0));
        let is_whole = ranges.last().is_none_or(|range| range.end == start + count);
        let elements = if is_whole {
            child.slice(start, count)
        } else {
            let places = ranges.into_iter().flatten().map(|place| place as u64);
            take(child.as_ref(), &UInt64Array::from_iter_values(places), None)?
        };
        Ok(Some(Self { elements, ends, nulls }))
    }

    /// The first list that does not have `n` elements, and how many it has. Null lists have none.
    pub(crate) fn first_unequal(&self, n: usize) -> Option<(usize, usize)> {
        let mut start = 0;
        self.ends.iter().enumerate().find_map(|(row, end)| {
            let len = end - std::mem::replace(&mut start, *end);
            let is_null = self.nulls.as_ref().is_some_and(|nulls| nulls.is_null(row));
            (len != n && !is_null).then_some((row, len))
        })
    }

    /// The range of elements of a range of rows.
    pub(crate) fn span(&self, rows: &Range<usize>) -> Range<usize> {
        let end = |row: usize| row.checked_sub(1).map_or(0, |before| self.ends[before]);
        end(rows.start)..end(rows.end)
    }
}
