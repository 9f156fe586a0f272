//! Whole-table jobs: the aggregates that a fit learns from, run on the embedded DataFusion under a memory limit, with
//! spilling to disk.
//!
//! Batches come in through [`Job`]s from whoever scans; this room reads no files and knows nothing of plans.

mod counts;
mod distribution;
mod exact;
mod job;
mod moments;
mod summary;
mod top_values;

use std::{
    error::Error,
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use datafusion_common::DataFusionError;
use datafusion_execution::{
    TaskContext,
    config::SessionConfig,
    disk_manager::{DiskManagerBuilder, DiskManagerMode},
    memory_pool::FairSpillPool,
    runtime_env::RuntimeEnvBuilder,
};

pub use distribution::{Distribution, EXACT_VALUES_MAX, SKETCH_SHARE_ERROR_MAX, distribution_schema};
pub use job::Job;
pub use summary::{Summary, summary_schema};
pub use top_values::{Keep, ValueCounts};

use crate::state::State;

/// Rows of the batches that aggregates exchange.
const BATCH_ROWS: usize = 8192;

/// Kept back for merging what a sort has spilled (DataFusion's own default); a sixteenth of small budgets.
const SORT_RESERVATION_BYTES_MAX: usize = 10 << 20;

/// The part of the limit that is handed out. A GROUP BY that spills sorts a copy of its groups, which DataFusion does not
/// count: at a pool of the whole limit a fit of 50 million strings held 2.2 times as much.
const POOL_SHARE: (usize, usize) = (2, 5);

/// Where aggregates run.
#[derive(Clone, Debug)]
pub struct Engine {
    context: Arc<TaskContext>,
    pool_bytes: usize,
    spill_directory: PathBuf,
}

/// Why a job has no result.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The aggregate failed.
    #[error("{0}")]
    Aggregate(DataFusionError),
    /// It does not fit its memory, even with spilling.
    #[error("the fit needs more memory than it may use ({0}); raise --fit-memory-bytes")]
    Memory(DataFusionError),
    /// What does not fit its memory cannot be put on the disk.
    #[error(
        "the fit cannot spill to \"{}\": {reason}; make room there, or raise --fit-memory-bytes so that it spills less",
        directory.display()
    )]
    Spill {
        /// Where to.
        directory: PathBuf,
        /// What the system said.
        reason: String,
    },
    /// More distinct values are left than a vocabulary may hold.
    #[error("more than {bytes} bytes of distinct values: set max_size or min_count, or use hash_bucket")]
    TooManyValues {
        /// The limit.
        bytes: usize,
    },
    /// The job was cut.
    #[error("the fit was stopped")]
    Stopped,
}

impl Engine {
    /// An engine that uses about so much memory and spills under the state directory.
    pub fn new(memory_bytes: usize, state: &State) -> Result<Self, EngineError> {
        let spill_directory = state.spill_directory();
        let spill =
            DiskManagerBuilder::default().with_mode(DiskManagerMode::Directories(vec![spill_directory.clone()]));
        let pool_bytes = memory_bytes / POOL_SHARE.1 * POOL_SHARE.0;
        let runtime = RuntimeEnvBuilder::new()
            .with_memory_pool(Arc::new(FairSpillPool::new(pool_bytes)))
            .with_disk_manager_builder(spill)
            .build_arc()?;
        // One partition: a job has a thread of its own, and the jobs of a fit run side by side.
        let config = SessionConfig::new()
            .with_target_partitions(1)
            .with_batch_size(BATCH_ROWS)
            .with_sort_spill_reservation_bytes((pool_bytes / 16).min(SORT_RESERVATION_BYTES_MAX));
        let context = TaskContext::default().with_session_config(config).with_runtime(runtime);
        Ok(Self { context: Arc::new(context), pool_bytes, spill_directory })
    }
}

impl EngineError {
    /// The same, with the place that could not be written or read: all that an aggregate does with files is to spill.
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
            DataFusionError::ResourcesExhausted(_) => Self::Memory(error),
            _ => Self::Aggregate(error),
        }
    }
}

#[cfg(test)]
mod tests;
