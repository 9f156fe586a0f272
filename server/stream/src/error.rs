//! Errors of streams, fits and exchanges.

use std::sync::Arc;

use forebay_catalog::CatalogError;
use forebay_columns::{images::ImagesError, tokenizers::TokensError, udf::UdfError};
use forebay_engine::EngineError;
use forebay_expr::ExprError;
use forebay_plan::PlanError;
use forebay_proto::v1;
use forebay_runtime::{
    budget::BudgetError,
    cpu_pool::CpuError,
    state::{PlansFull, StateError},
};
use forebay_scan::ScanError;

/// Why a stream, fit or exchange cannot start, or ends early.
#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    /// The request or its plan is invalid.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The dataset cannot be opened.
    #[error(transparent)]
    Catalog(#[from] CatalogError),
    /// A row group cannot be read.
    #[error(transparent)]
    Scan(#[from] ScanError),
    /// The filter or a derived column is invalid, or fails on the data.
    #[error("{path}: {source}")]
    Expression {
        /// The field.
        path: String,
        /// The error.
        source: ExprError,
    },
    /// A value does not fit an output.
    #[error(transparent)]
    Kernel(#[from] forebay_kernels::KernelError),
    /// An op has no values to learn from, or learned unusable ones.
    #[error("{path}: {reason}")]
    Unlearnable {
        /// The op.
        path: String,
        /// The reason, and what to do.
        reason: String,
    },
    /// An aggregate failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// No plan is stored under this id.
    #[error("no fitted plan \"{id}\": {near}; a plan is stored by the server that fitted it (--state)")]
    UnknownPlan {
        /// The id.
        id: String,
        /// Ids to offer.
        near: String,
    },
    /// The dataset's files have no rows.
    #[error("dataset \"{dataset}\" has no rows: its {files} file(s) are empty tables")]
    NoRows {
        /// The dataset.
        dataset: String,
        /// The number of its files.
        files: usize,
    },
    /// The epoch has no such rank.
    #[error("rank: {rank} must be less than world_size {world_size}")]
    Rank {
        /// The rank.
        rank: u64,
        /// The number of ranks.
        world_size: u64,
    },
    /// A batch would exceed the limit.
    #[error(
        "batch_size: {rows} rows of {row_bytes} bytes exceed the {limit} bytes of --batch-bytes-max: use smaller batches"
    )]
    BatchBytes {
        /// Rows of the batch.
        rows: u64,
        /// Bytes of a row.
        row_bytes: u64,
        /// The limit.
        limit: u64,
    },
    /// A request has too many groups.
    #[error(
        "group_by: {reason}: send group_buckets to hash the values into that many groups, filter the rows, or raise the limit"
    )]
    Groups {
        /// The limit that is exceeded.
        reason: String,
    },
    /// An exchange's schema lacks columns.
    #[error("the batches lack column(s) {} of the plan: {near}", .columns.join(", "))]
    ColumnsMissing {
        /// The columns.
        columns: Vec<String>,
        /// Names to offer for the first.
        near: String,
    },
    /// A column has another type or unit than where the plan was fitted.
    #[error(
        "schema drift: column \"{column}\" is {found}, but the plan was fitted on {expected}: convert the column, or fit \
         the plan on this data"
    )]
    InputDrift {
        /// The column.
        column: String,
        /// The types that the plan was fitted on.
        expected: String,
        /// The column's type.
        found: String,
    },
    /// The client left a ready batch unread.
    #[error("the client read nothing for {seconds} s: the stream ended to release its memory (--stream-idle-seconds)")]
    Idle {
        /// The limit.
        seconds: f64,
    },
    /// A paused stream does not get its memory back.
    #[error("the stream was paused, because it was not read, and its memory is in use now: it {0}")]
    Paused(#[source] BudgetError),
    /// A stream, fit or description does not fit the memory budget.
    #[error("the {task} needs {} bytes of memory, {}: {advice}", .source.bytes(), available(source))]
    Memory {
        /// What needs the memory.
        task: &'static str,
        /// The numbers.
        source: BudgetError,
        /// What to change so that it fits.
        advice: String,
    },
    /// The memory budget is exhausted.
    #[error(transparent)]
    Budget(#[from] BudgetError),
    /// The state cannot be read or written.
    #[error("--state: {0}")]
    State(#[from] StateError),
    /// The state has no room for a plan.
    #[error("--state: {0}")]
    PlansFull(#[from] PlansFull),
    /// Arrow rejected valid arrays: a bug.
    #[error("arrow: {0}")]
    Arrow(#[from] arrow::error::ArrowError),
    /// Work on the CPU pool ended without a result.
    #[error(transparent)]
    Cpu(#[from] CpuError),
    /// A Python function of the plan has no result.
    #[error("{place}: {source}")]
    Udf {
        /// The op, or the rows.
        place: String,
        /// The error.
        source: UdfError,
    },
    /// A text of the data has no tokens, or the tokenizer is another one.
    #[error("{place}: {source}")]
    Tokens {
        /// The op, or the rows.
        place: String,
        /// The error.
        source: TokensError,
    },
    /// A pass of a fit that other processes run failed.
    #[error("{0}")]
    Elsewhere(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// An image of the data has no tensor.
    #[error("{place}: {source}")]
    Images {
        /// The rows.
        place: String,
        /// The error.
        source: ImagesError,
    },
    /// A computation that several requests share failed.
    #[error(transparent)]
    Shared(Arc<Self>),
    /// A source of a mixture cannot be read.
    #[error("sources[{index}], dataset \"{dataset}\": {source}")]
    Source {
        /// The index of the source.
        index: usize,
        /// Its dataset.
        dataset: String,
        /// The error.
        source: Box<Self>,
    },
    /// The plan of a source is not fitted.
    #[error(
        "sources[{index}], dataset \"{dataset}\": {path}: {op} must first learn from the data, and a mixture is not \
         fitted as a whole: fit the plan on one dataset (forebay fit, or Client.fit in Python) and send the plan that it \
         returns"
    )]
    SourceNotFitted {
        /// The index of the source.
        index: usize,
        /// Its dataset.
        dataset: String,
        /// The path of the op.
        path: String,
        /// The op's name.
        op: &'static str,
    },
    /// No row of a source is in the mixture.
    #[error(
        "sources[{index}]: no row of dataset \"{dataset}\" passes the filter and the sample: widen them, or leave the \
         source out"
    )]
    NoSourceRows {
        /// The index of the source.
        index: usize,
        /// Its dataset.
        dataset: String,
    },
    /// The sources of a mixture have other snapshots than the request requires.
    #[error(
        "snapshot changed: the snapshots of the sources are now {present} together, not {requested}; request the flight \
         again to read the current files"
    )]
    SourcesChanged {
        /// The digest of the present snapshots.
        present: String,
        /// The digest in the request.
        requested: String,
    },
    /// Fewer rows pass the filter than were counted: a bug, or another dataset's counts under `--state`.
    #[error("dataset \"{dataset}\": {counted} rows passed the filter when counted, but fewer when read")]
    Miscounted {
        /// The dataset.
        dataset: String,
        /// Rows that were counted.
        counted: u64,
    },
}

/// The memory that refused work cannot exceed.
fn available(error: &BudgetError) -> String {
    let limit = error.limit();
    if error.may_pass() {
        return format!("{} of {limit} are reserved by other streams", error.reserved());
    }
    format!("all streams together may hold {limit}")
}

impl StreamError {
    /// Rewrites the paths of a canonical plan to those of the plan that the client sent.
    #[must_use]
    pub(super) fn in_original(self, sent: &v1::Plan) -> Self {
        match self {
            Self::Plan(error) => Self::Plan(error.in_original(sent)),
            other => other,
        }
    }
}
