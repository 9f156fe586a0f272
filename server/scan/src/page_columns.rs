//! Columns of a Parquet file that `forebay_pages` reads.

use std::mem;

use arrow::{array::BooleanBufferBuilder, buffer::BooleanBuffer};
use forebay_pages::ColumnReader;

use super::column_readers::{ColumnsReader, PartError, ReadColumn, RowsToRead};

/// Readers of flat columns.
pub(super) struct PageColumns {
    columns: Vec<usize>,
    readers: Vec<ColumnReader>,
    /// Rows to pass over before the first ones.
    skip: usize,
}

/// The stored rows of a selection of the kept ones.
fn spread(selected: &BooleanBuffer, kept: &BooleanBuffer) -> BooleanBuffer {
    let mut bits = BooleanBufferBuilder::new(kept.len());
    bits.append_n(kept.len(), false);
    for (stored, is_selected) in kept.set_indices().zip(selected) {
        bits.set_bit(stored, is_selected);
    }
    bits.finish()
}

// === impl PageColumns ===

impl PageColumns {
    /// Reads columns of these indices in the projection, after the first `skip` stored rows.
    pub(super) fn new(columns: Vec<(usize, ColumnReader)>, skip: usize) -> Self {
        let (columns, readers) = columns.into_iter().unzip();
        Self { columns, readers, skip }
    }
}

impl ColumnsReader for PageColumns {
    fn columns(&self) -> &[usize] {
        &self.columns
    }

    fn read(
        &mut self,
        rows: &RowsToRead<'_>,
        is_due: &dyn Fn(usize) -> bool,
        into: &mut Vec<ReadColumn>,
    ) -> Result<(), PartError> {
        let skip = mem::take(&mut self.skip);
        let stored = match (rows.selected, &rows.kept) {
            (Some(selected), Some(kept)) => Some(spread(selected, kept)),
            (selected, kept) => selected.or(kept.as_ref()).cloned(),
        };
        for (column, reader) in self.columns.iter().copied().zip(&mut self.readers) {
            let of_column = |error: forebay_pages::PageError| (vec![column], error.to_string());
            if skip > 0 {
                reader.skip(skip).map_err(of_column)?;
            }
            if is_due(column) {
                let read = match &stored {
                    Some(stored) => reader.read_selected(stored),
                    None => reader.read(rows.count),
                };
                into.push(rows.checked(column, read.map_err(of_column)?)?);
            }
        }
        Ok(())
    }
}
