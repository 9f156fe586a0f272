//! Target means of a pass: the sums of a label for each value of a prefix, fold by fold.

use arrow::{
    array::{Array, ArrayRef, AsArray, BooleanArray, RecordBatch},
    compute::nullif,
    datatypes::UInt64Type,
};
use forebay_kernels::hash64_integer;

use crate::{engine::target_schema, plan::ROW_ID, stream::error::StreamError};

use super::inputs::numbers;

/// A label and the folds of its rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub label: String,
    /// The number of folds, or 0.
    pub folds: u32,
    pub seed: u64,
}

impl Target {
    /// The columns that it reads.
    pub(super) fn columns(&self) -> impl Iterator<Item = &str> {
        [self.label.as_str()].into_iter().chain((self.folds > 0).then_some(ROW_ID))
    }

    /// The rows' values with their labels, each in the column of its fold.
    pub(super) fn batch(&self, values: ArrayRef, rows: &RecordBatch) -> Result<RecordBatch, StreamError> {
        let missing = |column: &str| forebay_kernels::KernelError::MissingColumn { column: column.to_owned() };
        let label = numbers(rows.column_by_name(&self.label).ok_or_else(|| missing(&self.label))?)?;
        let schema = target_schema(values.data_type(), self.parts());
        let mut columns = vec![values];
        if self.folds == 0 {
            columns.push(label);
            return Ok(RecordBatch::try_new(schema, columns)?);
        }
        let ids = rows.column_by_name(ROW_ID).ok_or_else(|| missing(ROW_ID))?;
        let count = u64::from(self.folds);
        let ids = ids.as_primitive::<UInt64Type>().values().iter();
        let folds: Vec<u64> = ids.map(|id| hash64_integer(*id, self.seed) % count).collect();
        for fold in 0..count {
            let is_other: BooleanArray = folds.iter().map(|of_row| Some(*of_row != fold)).collect();
            columns.push(nullif(&label, &is_other)?);
        }
        Ok(RecordBatch::try_new(schema, columns)?)
    }

    /// The number of label columns.
    pub(super) fn parts(&self) -> usize {
        self.folds.max(1) as usize
    }
}
