//! Aggregates over whole tables, for fits and descriptions: run on the embedded DataFusion under a memory limit, with spilling to disk.
//!
//! Callers push batches into [`Job`]s; this crate reads no files and does not depend on plans.

#![forbid(unsafe_code)]

mod counts;
mod distribution;
mod exact;
mod groups;
mod job;
mod memory;
mod moments;
mod partial;
mod profile;
mod summary;
mod target_sums;
mod top_values;
mod value_bytes;

use std::{
    error::Error,
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use arrow::error::ArrowError;
use datafusion_common::DataFusionError;
use datafusion_execution::{
    TaskContext,
    config::SessionConfig,
    disk_manager::{DiskManagerBuilder, DiskManagerMode},
    runtime_env::RuntimeEnvBuilder,
};
use forebay_runtime::{
    budget::Budget,
    cpu_pool::{CpuError, CpuPool},
    state::State,
};

pub use distribution::{Distribution, EXACT_VALUES_MAX, SKETCH_SHARE_ERROR_MAX, distribution_schema};
pub use groups::{Groups, group_rows};
pub use job::{Job, QUEUE_BATCHES_MAX};
pub use moments::Summary;
pub use partial::{Merge, Merged, PARTIAL_COLUMNS, PartialRows, PartialShape, partial_schema};
pub use profile::{ColumnProfile, Lengths, Profile, ProfileKind, ProfileValue, comparable, used_values};
pub use summary::summary_schema;
pub use target_sums::{LabelSum, TargetSums, target_rows};
pub use top_values::{Keep, ValueCounts};

use memory::{BudgetPool, POOL_SHARE, is_of_budget};

/// Rows of DataFusion's batches.
const BATCH_ROWS: usize = 8192;

/// Memory reserved for merging spilled runs (DataFusion's default); a sixteenth of small budgets.
const SORT_RESERVATION_BYTES_MAX: usize = 10 << 20;

/// Runs aggregates. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Engine {
    context: Arc<TaskContext>,
    cpu: CpuPool,
    pool_bytes: usize,
    budget: Budget,
    spill_directory: PathBuf,
}

/// The reason why a job failed.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The aggregate failed.
    #[error("{0}")]
    Aggregate(DataFusionError),
    /// The aggregate exceeds its memory, even with spilling.
    #[error("the aggregates exceed their memory limit ({0}); raise --fit-memory-bytes")]
    Memory(DataFusionError),
    /// Other work holds the memory budget that the aggregate needs.
    #[error("the aggregates do not fit memory: {0}")]
    Budget(DataFusionError),
    /// Data cannot be spilled to disk.
    #[error(
        "the fit cannot spill to \"{}\": {reason}; free disk space, or raise --fit-memory-bytes so that it spills less",
        directory.display()
    )]
    Spill {
        /// The directory of spill files.
        directory: PathBuf,
        /// The cause.
        reason: String,
    },
    /// The vocabulary is too large.
    #[error("more than {bytes} bytes of distinct values: set max_size or min_count, or use hash_bucket")]
    TooManyValues {
        /// The limit.
        bytes: usize,
    },
    /// A part of the aggregate has no result.
    #[error(transparent)]
    Cpu(#[from] CpuError),
    /// The job was dropped.
    #[error("the fit was stopped")]
    Stopped,
}

impl Engine {
    /// Creates an engine that uses about `memory_bytes` of the budget, half of it at most, computes on the CPU pool of
    /// the state, and spills to its scratch directory.
    pub fn new(memory_bytes: usize, budget: &Budget, state: &State) -> Result<Self, EngineError> {
        let spill_directory = state.spill_directory();
        let spill =
            DiskManagerBuilder::default().with_mode(DiskManagerMode::Directories(vec![spill_directory.clone()]));
        // The other half is for the rows that the aggregates read.
        let memory_bytes = memory_bytes.min(usize::try_from(budget.limit() / 2).unwrap_or(usize::MAX));
        let pool_bytes = memory_bytes / POOL_SHARE.1 * POOL_SHARE.0;
        let runtime = RuntimeEnvBuilder::new()
            .with_memory_pool(Arc::new(BudgetPool::new(pool_bytes, budget)))
            .with_disk_manager_builder(spill)
            .build_arc()?;
        // One partition: a fit has several jobs, which run concurrently.
        let config = SessionConfig::new()
            .with_target_partitions(1)
            .with_batch_size(BATCH_ROWS)
            .with_sort_spill_reservation_bytes((pool_bytes / 16).min(SORT_RESERVATION_BYTES_MAX));
        let context = TaskContext::default().with_session_config(config).with_runtime(runtime);
        let (cpu, budget) = (state.cpu().clone(), budget.clone());
        Ok(Self { context: Arc::new(context), cpu, pool_bytes, budget, spill_directory })
    }
}

impl EngineError {
    /// Adds the spill directory to an I/O error: the only I/O of an aggregate is spilling.
    fn spilling_to(self, directory: &Path) -> Self {
        let Self::Aggregate(error) = &self else { return self };
        let mut cause: Option<&(dyn Error + 'static)> = Some(error);
        while let Some(error) = cause {
            if let Some(source) = error.downcast_ref::<io::Error>() {
                return Self::Spill { directory: directory.to_owned(), reason: source.to_string() };
            }
            cause = error.source();
        }
        self
    }
}

impl From<DataFusionError> for EngineError {
    fn from(error: DataFusionError) -> Self {
        match error.find_root() {
            DataFusionError::ResourcesExhausted(reason) if is_of_budget(reason) => Self::Budget(error),
            DataFusionError::ResourcesExhausted(_) => Self::Memory(error),
            _ => Self::Aggregate(error),
        }
    }
}

impl From<ArrowError> for EngineError {
    fn from(error: ArrowError) -> Self {
        Self::Aggregate(error.into())
    }
}

#[cfg(test)]
mod tests;
