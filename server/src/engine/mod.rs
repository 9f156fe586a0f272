//! Whole-table jobs: the aggregates that a fit learns from, run on the embedded DataFusion under a memory limit, with
//! spilling to disk.
//!
//! Batches come in through [`Job`]s from whoever scans; this room reads no files and knows nothing of plans.

mod counts;
mod source;
mod summary;

use std::sync::Arc;

use datafusion_common::DataFusionError;
use datafusion_execution::{
    TaskContext,
    config::SessionConfig,
    disk_manager::{DiskManagerBuilder, DiskManagerMode},
    memory_pool::FairSpillPool,
    runtime_env::RuntimeEnvBuilder,
};

pub use counts::{CountOrder, ValueCounts};
pub use source::Job;
pub use summary::{Summary, summary_schema};

use crate::state::State;

/// Rows of the batches that aggregates exchange.
const BATCH_ROWS: usize = 8192;

/// Kept back for merging what a sort has spilled (DataFusion's own default); a sixteenth of small budgets.
const SORT_RESERVATION_BYTES_MAX: usize = 10 << 20;

/// Where aggregates run.
#[derive(Clone, Debug)]
pub struct Engine {
    context: Arc<TaskContext>,
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
    /// The job was cut.
    #[error("the fit was stopped")]
    Stopped,
}

impl Engine {
    /// An engine that uses so much memory and spills under the state directory.
    pub fn new(memory_bytes: usize, state: &State) -> Result<Self, EngineError> {
        let spill =
            DiskManagerBuilder::default().with_mode(DiskManagerMode::Directories(vec![state.spill_directory()]));
        let runtime = RuntimeEnvBuilder::new()
            .with_memory_pool(Arc::new(FairSpillPool::new(memory_bytes)))
            .with_disk_manager_builder(spill)
            .build_arc()?;
        // One partition: the order of the sums, and so their last bit, does not depend on the machine's cores.
        let config = SessionConfig::new()
            .with_target_partitions(1)
            .with_batch_size(BATCH_ROWS)
            .with_sort_spill_reservation_bytes((memory_bytes / 16).min(SORT_RESERVATION_BYTES_MAX));
        let context = TaskContext::default().with_session_config(config).with_runtime(runtime);
        Ok(Self { context: Arc::new(context) })
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
