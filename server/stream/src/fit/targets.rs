//! Target means of a pass: the sums of a label for each value of a prefix, fold by fold.

use arrow::{
    array::{ArrayRef, AsArray, RecordBatch},
    datatypes::UInt64Type,
};
use forebay_engine::target_rows;
use forebay_kernels::hash64_integer;
use forebay_plan::ROW_ID;

use super::inputs::numbers;
use crate::error::StreamError;

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

    /// The rows' values with their folds and labels.
    pub(super) fn batch(&self, values: ArrayRef, rows: &RecordBatch) -> Result<RecordBatch, StreamError> {
        let missing = |column: &str| forebay_kernels::KernelError::MissingColumn { column: column.to_owned() };
        let label = numbers(rows.column_by_name(&self.label).ok_or_else(|| missing(&self.label))?)?;
        if self.folds == 0 {
            return Ok(target_rows(values, std::iter::repeat(0), &label)?);
        }
        let ids = rows.column_by_name(ROW_ID).ok_or_else(|| missing(ROW_ID))?;
        let ids = ids.as_primitive::<UInt64Type>().values().iter();
        let (seed, count) = (self.seed, u64::from(self.folds));
        Ok(target_rows(values, ids.map(|id| (hash64_integer(*id, seed) % count) as u32), &label)?)
    }

    /// The number of sums of a value.
    pub(super) fn parts(&self) -> usize {
        self.folds.max(1) as usize
    }
}
