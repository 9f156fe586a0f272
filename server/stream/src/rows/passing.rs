//! The passing rows of a block, each with its stored row.

use std::{ops::Range, sync::Arc};

use arrow::{
    array::{
        Array, ArrayRef, AsArray, BooleanArray, BooleanBufferBuilder, RecordBatch, RecordBatchOptions, UInt32Array,
    },
    buffer::BooleanBuffer,
    compute::{cast, filter_record_batch, take_record_batch},
    datatypes::DataType,
    error::ArrowError,
};
use forebay_kernels::KernelError;
use forebay_runtime::budget::Reservation;

use crate::error::StreamError;

/// Values of a dictionary for each row, from which on separate rows get a dictionary of their values.
const DICTIONARY_SHARE: usize = 8;

/// Passing rows of a block, with their derived columns. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Passing {
    pub rows: RecordBatch,
    origin: Origin,
    /// The memory of derived columns, of the columns of functions, or of sequences.
    held: Vec<Arc<Reservation>>,
}

/// The stored rows of the rows of a block.
#[derive(Clone, Debug)]
pub(crate) struct Origin {
    /// The index of the block's first row.
    first_row: u64,
    /// The rows that each selection kept of those that the previous one kept.
    kept: Vec<BooleanBuffer>,
    /// The places of the rows among those that were kept, if rows are repeated.
    places: Option<Arc<[u32]>>,
}

// === impl Origin ===

impl Origin {
    /// The origin of all rows of a block.
    pub(crate) fn of_block(first_row: u64) -> Self {
        Self { first_row, kept: Vec::new(), places: None }
    }

    /// Notes that only these of the rows are kept.
    pub(crate) fn keep(&mut self, rows: BooleanBuffer) {
        self.kept.push(rows);
    }

    /// Which of a block's rows are kept; none: all of them.
    fn selected(self) -> Option<BooleanBuffer> {
        self.kept.into_iter().reduce(|before, kept| {
            let mut rows = BooleanBufferBuilder::new(before.len());
            rows.append_n(before.len(), false);
            before.set_indices().zip(&kept).for_each(|(row, is_kept)| rows.set_bit(row, is_kept));
            rows.finish()
        })
    }

    /// The index of a kept row's stored row.
    fn stored_row(&self, row: usize) -> u64 {
        let row = self.places.as_ref().map_or(row, |places| places[row] as usize);
        let in_block = self.kept.iter().rev().fold(row, |row, kept| kept.set_indices().nth(row).unwrap_or(row));
        self.first_row + in_block as u64
    }
}

// === impl Passing ===

impl Passing {
    /// Rows with the memory of their derived columns.
    pub(crate) fn new(rows: RecordBatch, origin: Origin, derived: Reservation) -> Self {
        let held = if derived.bytes() > 0 { vec![Arc::new(derived)] } else { Vec::new() };
        Self { rows, origin, held }
    }

    /// Sequences of packed documents, and their memory. They have no stored row: the errors of their documents were found
    /// before.
    pub(crate) fn of_sequences(rows: RecordBatch, held: Option<Reservation>) -> Self {
        Self { rows, origin: Origin::of_block(0), held: held.into_iter().map(Arc::new).collect() }
    }

    /// The same rows with more columns, and the memory of these.
    pub(crate) fn with_rows(mut self, rows: RecordBatch, held: Vec<Reservation>) -> Self {
        self.held.extend(held.into_iter().map(Arc::new));
        Self { rows, ..self }
    }

    /// Some of the rows, one after another.
    pub(crate) fn slice(mut self, range: Range<usize>) -> Self {
        let (start, count) = (range.start, self.rows.num_rows());
        if range.len() < count {
            self.origin.keep(BooleanBuffer::collect_bool(count, |row| range.contains(&row)));
            self.rows = self.rows.slice(start, range.len());
        }
        self
    }

    /// These of the rows, without the memory that others take.
    pub(crate) fn only(&self, these: &BooleanArray) -> Result<Self, StreamError> {
        let rows = filter_record_batch(&self.rows, these)?;
        let columns = rows.columns().iter().map(separate).collect::<Result<_, _>>()?;
        let rows = RecordBatch::try_new_with_options(
            rows.schema(),
            columns,
            &RecordBatchOptions::new().with_row_count(Some(rows.num_rows())),
        )?;
        let mut origin = self.origin.clone();
        origin.keep(these.values().clone());
        Ok(Self { rows, origin, held: Vec::new() })
    }

    /// Rows of these, each at a place, which may be repeated, and their memory.
    pub(crate) fn repeated(&self, places: Vec<u32>, held: Reservation) -> Result<Self, StreamError> {
        let places = UInt32Array::from(places);
        let rows = take_record_batch(&self.rows, &places)?;
        let origin = Origin { places: Some(Arc::from(&places.values()[..])), ..self.origin.clone() };
        Ok(Self { rows, origin, held: self.held.iter().cloned().chain([Arc::new(held)]).collect() })
    }

    /// Which of the block's rows these are; none: all of them.
    pub(crate) fn selected(self) -> Option<BooleanBuffer> {
        self.origin.selected()
    }

    /// The error of one of the rows, naming the stored row.
    pub(crate) fn locate(&self, error: KernelError) -> StreamError {
        StreamError::Kernel(error.map_row(|row| self.stored_row(row)))
    }

    /// The stored row of each row.
    pub(crate) fn stored_rows(&self) -> Vec<u64> {
        let first = self.origin.first_row;
        match self.origin.clone().selected() {
            None => (first..first + self.rows.num_rows() as u64).collect(),
            Some(selected) => selected.set_indices().map(|row| first + row as u64).collect(),
        }
    }

    /// The stored row of one of the rows.
    pub(crate) fn stored_row(&self, row: usize) -> usize {
        usize::try_from(self.origin.stored_row(row)).unwrap_or(usize::MAX)
    }
}

/// A column without values that only other rows have.
fn separate(column: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    if let Some(views) = column.as_string_view_opt() {
        return Ok(Arc::new(views.gc()));
    }
    if let Some(views) = column.as_binary_view_opt() {
        return Ok(Arc::new(views.gc()));
    }
    match (column.as_any_dictionary_opt(), column.data_type()) {
        (Some(dictionary), DataType::Dictionary(_, values))
            if dictionary.values().len() > column.len().saturating_mul(DICTIONARY_SHARE) =>
        {
            cast(&cast(column, values)?, column.data_type())
        }
        _ => Ok(Arc::clone(column)),
    }
}

#[cfg(test)]
mod tests {
    use arrow::{
        array::{DictionaryArray, StringViewArray},
        buffer::Buffer,
        datatypes::Int32Type,
    };

    use super::*;

    #[test]
    fn separate_rows_keep_nothing_of_the_others() {
        let texts: Vec<String> = (0..100).map(|row| format!("a long text of a row {row}")).collect();
        let texts: Vec<Option<&str>> =
            texts.iter().enumerate().map(|(row, text)| (row != 7).then_some(text.as_str())).collect();
        let dictionary: DictionaryArray<Int32Type> = texts.iter().copied().collect();
        let views: StringViewArray = texts.iter().copied().collect();
        let columns: Vec<(&str, ArrayRef)> = vec![("dictionary", Arc::new(dictionary)), ("views", Arc::new(views))];
        let rows = RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(name, of)| (name, of, true)));
        let passing = Passing::of_sequences(rows.unwrap(), None);
        let mask: BooleanArray = (0..100).map(|row| Some([3, 7, 9].contains(&row))).collect();
        let only = passing.only(&mask).unwrap();
        assert_eq!(only.stored_rows(), [3, 7, 9]);
        assert_eq!((only.stored_row(1), only.rows.schema()), (7, passing.rows.schema()));
        let values = only.rows.column(0).as_any_dictionary().values();
        assert_eq!(values.len(), 2);
        let expected = [texts[3], None, texts[9]];
        let plain = cast(only.rows.column(0), &DataType::Utf8).unwrap();
        assert_eq!(plain.as_string::<i32>().iter().collect::<Vec<_>>(), expected);
        let views = only.rows.column(1).as_string_view();
        assert_eq!(views.iter().collect::<Vec<_>>(), expected);
        assert!(views.data_buffers().iter().map(Buffer::len).sum::<usize>() < 100);
        // As many values as rows stay as they are.
        let half: BooleanArray = (0..100).map(|row| Some(row % 2 == 0)).collect();
        let half = passing.only(&half).unwrap();
        assert_eq!(half.rows.column(0).as_any_dictionary().values().len(), 99);
    }

    #[test]
    fn a_row_is_found_through_every_selection() {
        let mut origin = Origin::of_block(100);
        assert_eq!(origin.stored_row(3), 103);
        origin.keep(BooleanBuffer::from(vec![false, true, true, false, true, true]));
        assert_eq!([0, 1, 2, 3].map(|row| origin.stored_row(row)), [101, 102, 104, 105]);
        origin.keep(BooleanBuffer::from(vec![false, true, false, true]));
        assert_eq!([0, 1].map(|row| origin.stored_row(row)), [102, 105]);
        let selected = origin.selected().unwrap();
        assert_eq!(selected.set_indices().collect::<Vec<_>>(), [2, 5]);
        assert_eq!((selected.len(), Origin::of_block(7).selected()), (6, None));
    }
}
