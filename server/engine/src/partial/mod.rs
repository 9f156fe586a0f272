//! Aggregates in parts: rows that any number of processes compute from their rows of a table, and that one process merges.
//!
//! A partial row counts the rows of a table that have one value in one aggregate. GROUP BY adds up the rows of equal values in any
//! order and in any process, independently of the aggregates: values are bytes, whose order is that of the values (`value_bytes`). `rows`
//! computes partial rows, and `merge` the results from them: the same, to the bit, as those of the jobs of this module's parent. Quantiles are exact for any number of distinct values.

mod merge;
mod rows;
#[cfg(test)]
mod tests;

use std::sync::{Arc, LazyLock};

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};

use super::{Keep, target_sums::SUM_TYPE};
pub use merge::{Merge, Merged};
pub use rows::PartialRows;

/// The columns of a partial row.
pub const PARTIAL_COLUMNS: [&str; 5] = ["aggregate", "value", "part", "rows", "label"];

/// The aggregates of a pass. The partial rows of each have separate numbers.
#[derive(Clone, Debug, Default)]
pub struct PartialShape {
    /// The types of the columns to summarize: float64, int64 or uint64.
    pub summaries: Vec<DataType>,
    /// The types of the columns whose quantiles are needed, and the shares of rows at which.
    pub quantiles: Vec<(DataType, Vec<f64>)>,
    /// The types of the columns whose values are counted, and which of the values are kept.
    pub counts: Vec<(DataType, Keep)>,
    /// The types of the columns for whose values labels are added up, and the number of folds of the rows.
    pub targets: Vec<(DataType, usize)>,
}

/// An aggregate of a shape, by its index among those of its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Aggregate {
    /// The value is a state of moments, and the rows are the number of processes that have this state.
    Summary(usize),
    /// The number of values.
    Total(usize),
    /// The values, after their total.
    Quantiles(usize),
    Counts(usize),
    Target(usize),
}

/// The schema of partial rows: the number of the aggregate, the value's bytes, the part of the rows, their number and the sum of their
/// labels.
pub fn partial_schema() -> SchemaRef {
    static SCHEMA: LazyLock<SchemaRef> = LazyLock::new(|| {
        let types = [DataType::UInt32, DataType::Binary, DataType::UInt32, DataType::Int64, SUM_TYPE];
        let field = |(name, data_type): (&str, DataType)| Field::new(name, data_type, name == PARTIAL_COLUMNS[1]);
        Arc::new(Schema::new(PARTIAL_COLUMNS.into_iter().zip(types).map(field).collect::<Vec<_>>()))
    });
    Arc::clone(&SCHEMA)
}

// === impl PartialShape ===

impl PartialShape {
    /// Whether partial rows must be sorted by aggregate and value before they are merged.
    pub fn is_sorted(&self) -> bool {
        !self.quantiles.is_empty()
    }

    /// The aggregates that need no values with fewer rows: their numbers, and the least number of rows.
    pub fn least_rows(&self) -> Vec<(u32, u64)> {
        let counts = self.counts.iter().enumerate().filter(|(_, (_, keep))| keep.min_count > 1);
        counts.map(|(index, (_, keep))| (self.number(Aggregate::Counts(index)), keep.min_count)).collect()
    }

    fn number(&self, aggregate: Aggregate) -> u32 {
        let quantiles = self.summaries.len();
        let counts = quantiles + 2 * self.quantiles.len();
        let number = match aggregate {
            Aggregate::Summary(index) => index,
            Aggregate::Total(index) => quantiles + 2 * index,
            Aggregate::Quantiles(index) => quantiles + 2 * index + 1,
            Aggregate::Counts(index) => counts + index,
            Aggregate::Target(index) => counts + self.counts.len() + index,
        };
        u32::try_from(number).unwrap_or(u32::MAX)
    }

    /// The aggregate of a number; `None` if the shape does not have it.
    fn aggregate(&self, number: u32) -> Option<Aggregate> {
        let mut index = number as usize;
        if index < self.summaries.len() {
            return Some(Aggregate::Summary(index));
        }
        index -= self.summaries.len();
        if index < 2 * self.quantiles.len() {
            let which = if index.is_multiple_of(2) { Aggregate::Total } else { Aggregate::Quantiles };
            return Some(which(index / 2));
        }
        index -= 2 * self.quantiles.len();
        if index < self.counts.len() {
            return Some(Aggregate::Counts(index));
        }
        index -= self.counts.len();
        (index < self.targets.len()).then_some(Aggregate::Target(index))
    }
}
