//! `--engine`: a query or fit runs in this process, or on a Ballista cluster.
//!
//! Everything else (inputs, SQL, the files of the result) is the same for both.

use std::sync::Arc;

use datafusion::{
    error::DataFusionError,
    execution::{SendableRecordBatchStream, context::SessionContext},
    physical_plan::{ExecutionPlan, execute_stream},
};
use forebay_stream::PassRunner;

#[cfg(feature = "ballista")]
use crate::cluster::{self, Cluster, ClusterPasses};
use crate::{
    engine_flag::EngineFlag,
    error::PrepareError,
    inputs::Input,
    session::{self, Joins, Limits},
};

/// Partitions of a query on a cluster by default, which is that of Ballista: the cores of its executors are not known here.
#[cfg(feature = "ballista")]
const CLUSTER_PARTITIONS: usize = 16;

/// Runs the plans of queries.
pub(crate) enum Engine {
    /// In this process.
    Embedded,
    /// On a cluster.
    #[cfg(feature = "ballista")]
    Cluster(Arc<Cluster>),
}

// === impl Engine ===

impl Engine {
    /// The engine of a flag. Connects to nothing.
    #[cfg_attr(feature = "ballista", expect(clippy::unnecessary_wraps, reason = "fails without the feature"))]
    pub(crate) fn new(flag: &EngineFlag) -> Result<Self, PrepareError> {
        match flag {
            EngineFlag::Embedded => Ok(Self::Embedded),
            #[cfg(feature = "ballista")]
            EngineFlag::Ballista(address) => Ok(Self::Cluster(Arc::new(Cluster::new(address.clone())))),
            #[cfg(not(feature = "ballista"))]
            EngineFlag::Ballista(address) => {
                let reason = "this build has no cluster engine: `make build-all PREPARE_FEATURES=ballista` builds it";
                Err(PrepareError::Usage(format!("--engine {address}: {reason}")))
            }
        }
    }

    /// Whether the query runs in this process, within its memory.
    pub(crate) fn is_embedded(&self) -> bool {
        matches!(self, Self::Embedded)
    }

    /// The partitions of a query: those of `--cpu-threads`, or a default.
    #[cfg_attr(not(feature = "ballista"), expect(unused_variables, reason = "only a cluster has a default"))]
    pub(crate) fn partitions(&self, cpu_threads: u32, threads: usize) -> usize {
        match self {
            Self::Embedded => threads,
            #[cfg(feature = "ballista")]
            Self::Cluster(_) if cpu_threads == 0 => CLUSTER_PARTITIONS,
            #[cfg(feature = "ballista")]
            Self::Cluster(_) => cpu_threads as usize,
        }
    }

    /// A session whose only tables are the inputs.
    pub(crate) fn session(
        &self,
        inputs: &[Input],
        limits: &Limits,
        joins: Joins,
    ) -> Result<SessionContext, DataFusionError> {
        match self {
            Self::Embedded => session::open(inputs, limits, joins),
            #[cfg(feature = "ballista")]
            Self::Cluster(_) => cluster::session(inputs, limits),
        }
    }

    /// The rows of a plan of [`Self::session`]. On a cluster, completes when the query has ended there.
    #[cfg_attr(not(feature = "ballista"), expect(clippy::unused_async, reason = "a cluster is awaited"))]
    pub(crate) async fn rows(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        context: &SessionContext,
    ) -> Result<SendableRecordBatchStream, DataFusionError> {
        match self {
            Self::Embedded => execute_stream(plan, context.task_ctx()),
            #[cfg(feature = "ballista")]
            Self::Cluster(cluster) => cluster.rows(plan, context).await,
        }
    }

    /// Runs the passes of a fit on a cluster; `None` in this process.
    #[cfg_attr(not(feature = "ballista"), expect(unused_variables, reason = "only a cluster has limits"))]
    pub(crate) fn passes(&self, limits: &Limits) -> Option<Arc<dyn PassRunner>> {
        match self {
            Self::Embedded => None,
            #[cfg(feature = "ballista")]
            Self::Cluster(cluster) => Some(Arc::new(ClusterPasses::new(Arc::clone(cluster), limits.clone()))),
        }
    }

    /// The error of a query on a cluster, if it is one.
    #[cfg_attr(not(feature = "ballista"), expect(unused_variables, reason = "only a cluster has such errors"))]
    pub(crate) fn error(&self, error: &DataFusionError, inputs: &[Input]) -> Option<PrepareError> {
        match self {
            Self::Embedded => None,
            #[cfg(feature = "ballista")]
            Self::Cluster(cluster) => cluster.error(error, inputs),
        }
    }

    /// Frees what the last query holds on a cluster. Cancels it if it still runs.
    #[cfg_attr(not(feature = "ballista"), expect(clippy::unused_async, reason = "a cluster is awaited"))]
    pub(crate) async fn release(&self) {
        match self {
            Self::Embedded => {}
            #[cfg(feature = "ballista")]
            Self::Cluster(cluster) => cluster.release().await,
        }
    }
}
