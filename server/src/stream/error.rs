//! Why a stream or a fit cannot start, or ends early: the errors of the rooms below, and a few of its own.

use forebay_proto::v1;

use crate::{
    budget::BudgetError, catalog::CatalogError, cpu_pool::CpuError, engine::EngineError, expr::ExprError,
    plan::PlanError, scan::ScanError, state::StateError,
};

/// Anything between a checked request and its last batch.
#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    /// The request or its plan is wrong.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The dataset cannot be read.
    #[error(transparent)]
    Catalog(#[from] CatalogError),
    /// A row group cannot be read.
    #[error(transparent)]
    Scan(#[from] ScanError),
    /// The filter or a derived column is wrong, or fails on the data.
    #[error("{path}: {source}")]
    Expression {
        /// The field.
        path: String,
        /// What is wrong with it.
        source: ExprError,
    },
    /// A row has a value that an output cannot hold.
    #[error(transparent)]
    Kernel(#[from] forebay_kernels::KernelError),
    /// An op has nothing to learn from, or learned what cannot be used.
    #[error("{path}: {reason}")]
    Unlearnable {
        /// The op.
        path: String,
        /// Why, and the way out.
        reason: String,
    },
    /// The aggregates failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// No plan is kept under this id.
    #[error("no fitted plan \"{id}\" here: {near}; a plan is kept by the server (its --state) that fitted it")]
    UnknownPlan {
        /// The id.
        id: String,
        /// Ids to offer.
        near: String,
    },
    /// The dataset's files hold no row.
    #[error("dataset \"{dataset}\" has no rows: its {files} file(s) are empty tables")]
    NoRows {
        /// The dataset.
        dataset: String,
        /// Its files.
        files: usize,
    },
    /// The rank is not one of the epoch's.
    #[error("rank: {rank} is not below world_size {world_size}")]
    Rank {
        /// The rank.
        rank: u64,
        /// The ranks.
        world_size: u64,
    },
    /// A batch would be larger than this server makes.
    #[error("batch_size: {rows} rows of {row_bytes} bytes are more than the {limit} bytes of --batch-bytes-max")]
    BatchBytes {
        /// Rows.
        rows: u64,
        /// Bytes a row.
        row_bytes: u64,
        /// The limit.
        limit: u64,
    },
    /// A batch to compute from lacks columns.
    #[error("the batches lack the plan's column(s) {}: {near}", .columns.join(", "))]
    ColumnsMissing {
        /// The columns.
        columns: Vec<String>,
        /// Names to offer for the first.
        near: String,
    },
    /// A batch to compute from has other values than the plan was fitted to.
    #[error(
        "schema drift: column \"{column}\" is {found} here, and was {expected} in the data that the plan was fitted to; \
         convert it to that, or fit the plan to data like this"
    )]
    InputDrift {
        /// The column.
        column: String,
        /// The types that it had.
        expected: String,
        /// The type that it has.
        found: String,
    },
    /// Its client takes nothing.
    #[error("nothing was taken of the stream for {seconds} s, and what it held was given back (--stream-idle-seconds)")]
    Idle {
        /// For so long.
        seconds: f64,
    },
    /// There is no memory for it now.
    #[error(transparent)]
    Budget(#[from] BudgetError),
    /// The state directory does not work.
    #[error(transparent)]
    State(#[from] StateError),
    /// Arrow refused arrays that it should take: a bug.
    #[error("arrow: {0}")]
    Arrow(#[from] arrow::error::ArrowError),
    /// Work on the CPU pool ended without a result.
    #[error(transparent)]
    Cpu(#[from] CpuError),
    /// Fewer rows came than were counted: a bug, or a state directory that holds another dataset's counts.
    #[error("dataset \"{dataset}\": {counted} rows were counted to pass the filter, but fewer came")]
    Miscounted {
        /// The dataset.
        dataset: String,
        /// Rows that should have come.
        counted: u64,
    },
}

impl StreamError {
    /// The same with a plan's paths as they are in the plan that was sent.
    #[must_use]
    pub(super) fn in_original(self, sent: &v1::Plan) -> Self {
        match self {
            Self::Plan(error) => Self::Plan(error.in_original(sent)),
            other => other,
        }
    }
}
