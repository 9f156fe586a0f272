//! Columns of an Arrow IPC file, whose record batches are decoded as a whole.

use std::iter;

use arrow::array::{Array, ArrayRef};
use forebay_catalog::ArrowLayout;
use forebay_runtime::budget::Reservation;

use super::{
    arrow_part,
    column_readers::{ColumnsReader, PartError, ReadColumn, RowsToRead},
    columns::Fetched,
    convert::convert,
    decode_memory::DecodeMemory,
    view::View,
};

/// The rows of a record batch that are left.
pub(super) struct ArrowColumns {
    columns: Vec<usize>,
    arrays: Vec<ArrayRef>,
    /// The memory of their decompressed buffers.
    _decompressed: Vec<Reservation>,
}

// === impl ArrowColumns ===

impl ArrowColumns {
    /// Decodes columns of a record batch without its first `skip` rows. Returns the number of rows that are left.
    pub(super) fn open(
        view: &View,
        (layout, batch): (&ArrowLayout, usize),
        (columns, roots): (&[usize], &[usize]),
        fetched: &[Fetched],
        skip: usize,
        memory: &DecodeMemory,
    ) -> Result<(Self, usize), String> {
        let rows = layout.batches[batch].rows;
        let skipped = skip.min(rows);
        let (mut arrays, mut reserved) = (Vec::with_capacity(roots.len()), Vec::new());
        for root in roots {
            let array = arrow_part::decode(layout, batch, *root, fetched, memory, &mut reserved)?;
            let wanted = view.metadata.schema().field(*root).data_type();
            let array = convert(&array, wanted).map_err(|error| error.to_string())?;
            arrays.push(array.slice(skipped, rows - skipped));
        }
        Ok((Self { columns: columns.to_vec(), arrays, _decompressed: reserved }, rows - skipped))
    }
}

impl ColumnsReader for ArrowColumns {
    fn columns(&self) -> &[usize] {
        &self.columns
    }

    fn read(
        &mut self,
        rows: &RowsToRead<'_>,
        is_due: &dyn Fn(usize) -> bool,
        into: &mut Vec<ReadColumn>,
    ) -> Result<(), PartError> {
        for (column, array) in iter::zip(&self.columns, &self.arrays).filter(|(column, _)| is_due(**column)) {
            into.push(rows.of((*column, array.slice(0, rows.count.min(array.len()))))?);
        }
        Ok(())
    }

    fn pass(&mut self, rows: usize) {
        for array in &mut self.arrays {
            let taken = rows.min(array.len());
            *array = array.slice(taken, array.len() - taken);
        }
    }
}
