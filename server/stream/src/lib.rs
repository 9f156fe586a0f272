//! Streams, fits and exchanges: connects the crates below with bounded channels.
//!
//! ```text
//! stream    snapshot + plan + order ─ prepare ─▶ pieces ─▶ scan ─▶ kernels ─ epoch ─▶ batches
//! fit       the same rows ─▶ engine ─ fit ─▶ learned parameters
//! describe  the same rows ─▶ engine ─ describe ─▶ what columns hold
//! take      chosen rows ─▶ scan ─▶ kernels ─ take ─▶ batches
//! exchange  a client's rows ─▶ kernels ─▶ outputs
//! ```
//!
//! This crate has no access to gRPC: it receives checked requests, and the module `flight` of the server encodes the batches that it sends.

#![forbid(unsafe_code)]
// Futures are nested deeply: whether they are `Send` is decided type by type.
#![recursion_limit = "256"]

mod advice;
mod ahead;
mod check;
mod computations;
mod counts;
mod describe;
mod device;
mod disclosure;
mod environment;
mod epoch;
mod error;
mod exchange;
mod explain;
mod fit;
mod pieces;
mod plan_records;
mod plan_store;
mod prepare;
mod replay;
mod row_pass;
mod rows;
mod table;
mod take;

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use forebay_catalog::Catalog;
use forebay_columns::{tokenizers::Tokenizers, udf::Udfs};
use forebay_plan::Request;
use forebay_proto::v1;
use forebay_runtime::budget::Budget;
use tokio::sync::Semaphore;

pub use ahead::{Ahead, Batch};
pub use describe::DescribeTask;
pub use device::{Device, DeviceName};
pub use epoch::{batch_task::BatchTask, memory::SENDING_BYTES};
pub use error::StreamError;
pub use exchange::{DerivedRows, Exchange};
pub use fit::{
    FitSpec, FitTask, FitWorker, PartialStream, PartialTask, PassRunner, RemotePass, RunnerError, UnreadPin,
};
pub use plan_records::PlanRecord;
pub use prepare::{prepared::Prepared, resolver::PreparedGroups};
pub use replay::Replayed;
pub use table::RawTable;
pub use take::PreparedTake;

use describe::Descriptions;
use environment::Environment;
pub use environment::StreamParts;
use exchange::Exchanges;
use fit::Fits;
use prepare::resolver::Resolver;

/// Starts streams, fits and exchanges, which share memory, threads and compiled plans.
#[derive(Debug)]
pub struct Streams {
    environment: Arc<Environment>,
    resolver: Resolver,
    exchanges: Exchanges,
    fits: Fits,
    descriptions: Descriptions,
    /// Permits to list the stored plans.
    plan_lists: Semaphore,
}

impl Streams {
    /// Streams over these parts of the server.
    pub fn new(parts: StreamParts) -> Self {
        let (environment, series) = (Arc::new(Environment::new(parts)), Arc::default());
        Self {
            resolver: Resolver::new(Arc::clone(&environment), Arc::clone(&series)),
            exchanges: Exchanges::new(Arc::clone(&environment)),
            fits: Fits::new(Arc::clone(&environment), series),
            descriptions: Descriptions::new(Arc::clone(&environment)),
            plan_lists: Semaphore::new(1),
            environment,
        }
    }

    /// Runs the passes of fits in other processes.
    #[must_use]
    pub fn with_runner(mut self, runner: Arc<dyn PassRunner>) -> Self {
        self.fits.set_runner(runner);
        self
    }

    /// The datasets.
    pub fn catalog(&self) -> &Catalog {
        &self.environment.catalog
    }

    /// The tokenizers of the operator.
    pub fn tokenizers(&self) -> &Tokenizers {
        &self.environment.tokenizers
    }

    /// The Python functions.
    pub fn udfs(&self) -> &Udfs {
        &self.environment.udfs
    }

    /// Resolves a request: opens the snapshot, compiles the plan and counts the rows.
    pub async fn prepare(&self, request: Request) -> Result<Prepared, StreamError> {
        // Boxed: every call holds this future.
        Box::pin(self.resolver.prepare(request)).await
    }

    /// Resolves a grouped request: opens the snapshot, compiles the plan and counts the rows of every group.
    pub async fn prepare_groups(&self, request: Request) -> Result<PreparedGroups, StreamError> {
        Box::pin(self.resolver.prepare_groups(request)).await
    }

    /// Starts the batches of a rank from the request's start position; with `steps`, only that many.
    pub async fn batches(&self, prepared: &Prepared, rank: u64, steps: Option<u64>) -> Result<BatchTask, StreamError> {
        epoch::batches::start(&self.environment, prepared, rank, steps).await
    }

    /// The memory that streams reserve, also for what they need besides batches.
    pub fn budget(&self) -> &Budget {
        &self.environment.budget
    }

    /// Opens rows of a raw table.
    pub async fn raw_table(&self, read: &v1::TableRead) -> Result<RawTable, StreamError> {
        RawTable::open(&self.environment, read).await
    }

    /// Starts to read rows of a raw table. The `position` of a header is the index of its first row.
    pub async fn table(&self, table: RawTable) -> Result<BatchTask, StreamError> {
        table::start(&self.environment, table).await
    }

    /// Resolves a request for rows by their numbers.
    pub async fn prepare_take(&self, message: &v1::TakeRequest) -> Result<PreparedTake, StreamError> {
        Box::pin(PreparedTake::new(&self.environment, &self.resolver, message)).await
    }

    /// Starts to read rows by their numbers. The `position` of a header is the place of its first row in the request.
    pub async fn take(&self, taken: PreparedTake) -> Result<BatchTask, StreamError> {
        take::start(&self.environment, taken).await
    }

    /// Estimates the cost of a request's epoch. Its `assume` replaces properties of the dataset by assumed ones.
    pub async fn explain(&self, message: v1::StreamRequest) -> Result<v1::Explain, StreamError> {
        explain::explain(&self.environment, &self.resolver, message).await
    }

    /// Streams a rank's batch of a step again and finds the source of each row.
    pub async fn replay(&self, message: v1::StreamRequest, rank: u64, step: u64) -> Result<Replayed, StreamError> {
        replay::replay(&self.environment, &self.resolver, message, rank, step).await
    }

    /// Starts to fit a plan on a dataset, or on a sample of it.
    pub fn fit(&self, spec: FitSpec) -> FitTask {
        self.fits.start(spec)
    }

    /// Starts to describe columns of a dataset.
    pub fn describe(&self, request: v1::DescribeRequest) -> DescribeTask {
        self.descriptions.start(request)
    }

    /// Checks a plan on a dataset without reading its rows.
    pub async fn check_plan(&self, dataset: &str, plan: v1::Plan) -> Result<v1::PlanCheck, StreamError> {
        Box::pin(check::check(&self.environment, dataset, plan)).await
    }

    /// Reads the stored result of a fit, by this server or another one with the same state.
    pub async fn show(&self, plan_id: String) -> Result<v1::FitResult, StreamError> {
        self.fits.stored(plan_id).await
    }

    /// Lists the stored plans, those used last first.
    pub async fn plans(&self) -> Result<Vec<PlanRecord>, StreamError> {
        // One list at a time: a list of many plans reads many files.
        let _permit = self.plan_lists.acquire().await;
        Ok(self.environment.plans.list().await?)
    }

    /// Returns one stored plan; none if there is none of this id.
    pub async fn plan(&self, plan_id: &str) -> Result<Option<PlanRecord>, StreamError> {
        Ok(self.environment.plans.listed(plan_id).await?)
    }

    /// Removes a stored plan. Open streams keep it. Returns whether it existed.
    pub async fn remove_plan(&self, plan_id: &str) -> Result<bool, StreamError> {
        Ok(self.environment.plans.remove(plan_id).await?)
    }

    /// Removes what is kept under `--state` and was not used for a time.
    pub async fn remove_unused(&self) {
        if let Err(error) = self.environment.plans.remove_unused().await {
            tracing::warn!(%error, "cannot remove unused plans");
        }
        self.environment.state.trim_unused_results().await;
    }

    /// Compiles the plan of an exchange against the schema of its batches.
    pub async fn exchange(
        &self,
        request: v1::ExchangeRequest,
        schema: SchemaRef,
    ) -> Result<Arc<Exchange>, StreamError> {
        self.exchanges.open(request, schema).await
    }
}
