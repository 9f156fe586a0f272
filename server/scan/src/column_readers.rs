//! What a reader of columns does, whatever the format of their file.

use arrow::{
    array::{Array, ArrayRef, BooleanArray},
    buffer::BooleanBuffer,
    compute::filter,
};

/// Why columns of one row group do not belong together.
pub(super) const UNEQUAL_ROWS: &str = "its columns have different numbers of rows";

/// Why a part is not decoded: the columns, by index in the projection, and the reason.
pub(super) type PartError = (Vec<usize>, String);

/// An array of a column, by its index in the projection.
pub(super) type ReadColumn = (usize, ArrayRef);

/// Reads columns of a row group in one format.
pub(super) trait ColumnsReader: Send {
    /// The columns, by index in the projection.
    fn columns(&self) -> &[usize];

    /// Prepares to read the next rows, at most `rows`, and returns their number; `None` at the end.
    fn begin(&mut self, rows: usize) -> Result<Option<usize>, PartError> {
        Ok(Some(rows))
    }

    /// Reads the next rows of the columns that are due.
    fn read(
        &mut self,
        rows: &RowsToRead<'_>,
        is_due: &dyn Fn(usize) -> bool,
        into: &mut Vec<ReadColumn>,
    ) -> Result<(), PartError>;

    /// Passes over the next rows, of which all columns have been read.
    fn pass(&mut self, _rows: usize) {}
}

/// The next rows.
pub(super) struct RowsToRead<'a> {
    /// Their number, without deleted ones.
    pub count: usize,
    /// Which of the stored rows are kept; `None`: none of them is deleted.
    pub kept: Option<BooleanBuffer>,
    /// Which of the rows are read; `None`: all.
    pub selected: Option<&'a BooleanBuffer>,
}

impl RowsToRead<'_> {
    /// The selected ones of an array of the rows.
    pub(super) fn of(&self, (column, array): ReadColumn) -> Result<ReadColumn, PartError> {
        let Some(selected) = self.selected else { return Ok((column, array)) };
        let selected = filter(&array, &BooleanArray::new(selected.clone(), None));
        selected.map(|array| (column, array)).map_err(|error| (vec![column], error.to_string()))
    }

    /// The number of rows that are read.
    pub(super) fn read_count(&self) -> usize {
        self.selected.map_or(self.count, BooleanBuffer::count_set_bits)
    }

    /// An array of this number of rows.
    pub(super) fn checked(&self, column: usize, array: ArrayRef) -> Result<ReadColumn, PartError> {
        if array.len() == self.read_count() {
            Ok((column, array))
        } else {
            Err((vec![column], UNEQUAL_ROWS.to_owned()))
        }
    }
}
