//! Medians and quantiles of a column: exact for up to a million distinct values, else from a t-digest.
//!
//! The choice between the two, and the t-digest, depend only on the rows and their order, not on the sizes of batches
//! or on the available memory.

mod collector;
mod sorted;
mod spread;

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion_execution::memory_pool::MemoryConsumer;

use super::{Engine, Job};
pub(super) use collector::Collector;
use collector::VALUE_BYTES;
pub(super) use sorted::SortedValues;
pub use spread::Distribution;

/// Distinct values up to which quantiles are exact.
pub const EXACT_VALUES_MAX: usize = 1 << 20;

/// Largest rank error of a quantile of more than [`EXACT_VALUES_MAX`] distinct values: the distance between the
/// requested share of rows and the range of shares that the returned value covers. Tests verify it.
pub const SKETCH_SHARE_ERROR_MAX: f64 = 1e-3;

impl Engine {
    /// Starts a job that computes the distribution of the non-null values of a column of float64, int64 or uint64. Push
    /// batches of that one column, with −0 replaced by 0 and NaN by null.
    pub fn distribution(&self, data_type: &DataType) -> Job<Option<Distribution>> {
        let memory = MemoryConsumer::new("distinct numbers").register(self.context.memory_pool());
        Job::start_fold(self, Collector::of(data_type, EXACT_VALUES_MAX, memory))
    }

    /// Returns the number of [`Self::distribution`] jobs that fit half of the engine's pool; more need another pass.
    pub fn distributions_max(&self) -> usize {
        (self.pool_bytes / 2 / (EXACT_VALUES_MAX * VALUE_BYTES)).max(1)
    }
}

/// Returns the schema of a distribution's input.
pub fn distribution_schema(data_type: &DataType) -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new("value", data_type.clone(), true)]))
}

#[cfg(test)]
mod tests;
