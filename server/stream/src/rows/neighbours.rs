//! Where a column's values change from one row to the next.

use arrow::{
    array::{Array, ArrayRef},
    buffer::BooleanBuffer,
    compute::kernels::cmp::distinct,
    error::ArrowError,
};

/// Which of some rows after the first differ from the row before in one of the columns.
pub(crate) fn changes(columns: &[ArrayRef], rows: usize) -> Result<BooleanBuffer, ArrowError> {
    columns.iter().try_fold(BooleanBuffer::new_unset(rows.saturating_sub(1)), |changes, column| {
        let (earlier, later) = neighbours(column);
        Ok(&changes | distinct(&earlier, &later)?.values())
    })
}

/// A column without its last row, and without its first.
pub(crate) fn neighbours(column: &ArrayRef) -> (ArrayRef, ArrayRef) {
    let pairs = column.len().saturating_sub(1);
    (column.slice(0, pairs), column.slice(column.len() - pairs, pairs))
}
