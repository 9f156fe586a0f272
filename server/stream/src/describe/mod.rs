//! Describes a dataset's columns: one pass over its rows, whose result is kept per snapshot, columns and filter.
//!
//! Concurrent requests for one description share one computation and its progress.

mod answer;
mod class_names;
mod columns;
mod pass;
mod type_name;

use std::sync::Arc;

use forebay_catalog::LeftOut;
use forebay_proto::{Encoding, decode, encode, v1};
use forebay_runtime::state::Kind;
use tokio::sync::Semaphore;

use super::{
    ahead::{Ahead, AheadSender},
    computations::{Progress, SharedComputations},
    counts::store,
    environment::Environment,
    error::StreamError,
};
use columns::DescribedColumns;
pub(crate) use type_name::{full_type_name, type_name};

/// Descriptions that are computed at once; further ones wait.
const DESCRIBED_AT_ONCE: usize = 2;

/// Descriptions to keep; those that were used longest ago are removed.
const KEPT_MAX: usize = 256;

/// Progress reports that wait for the client; further ones are dropped.
const REPORTS_MAX: usize = 16;

/// The updates of a running description: progress, then the result or an error.
pub type DescribeTask = Ahead<v1::DescribeUpdate>;

/// Starts descriptions, and limits how many run at once.
#[derive(Clone, Debug)]
pub(super) struct Descriptions {
    environment: Arc<Environment>,
    computations: Arc<SharedComputations<v1::Description>>,
    permits: Arc<Semaphore>,
}

impl Descriptions {
    pub(super) fn new(environment: Arc<Environment>) -> Self {
        Self { environment, computations: Arc::default(), permits: Arc::new(Semaphore::new(DESCRIBED_AT_ONCE)) }
    }

    /// Starts to describe columns of a dataset.
    pub(super) fn start(&self, request: v1::DescribeRequest) -> DescribeTask {
        let descriptions = self.clone();
        DescribeTask::start(REPORTS_MAX, |sender| async move {
            let description = descriptions.describe(request, &sender).await?;
            // Fails if the client disconnected, which needs no result.
            let result = v1::describe_update::Update::Result(description);
            let _ = sender.send(Ok(v1::DescribeUpdate { update: Some(result) })).await;
            Ok(())
        })
    }

    async fn describe(
        &self,
        request: v1::DescribeRequest,
        sender: &AheadSender<v1::DescribeUpdate>,
    ) -> Result<v1::Description, StreamError> {
        let dataset = self.environment.catalog.dataset(&request.dataset)?;
        let snapshot = dataset.present().await?;
        // From the listing, not from the snapshot by which descriptions are kept.
        let left_out = dataset.left_out();
        let described = DescribedColumns::check(&self.environment, snapshot, request).await.map_err(in_request)?;
        let (key, descriptions) = (described.key(), self.clone());
        let compute = |progress| async move { descriptions.compute(described, progress).await.map_err(in_request) };
        let (computation, _) = self.computations.join(&key, compute);
        let report = |progress| {
            // A slow client misses reports, not the result.
            let update = v1::describe_update::Update::Progress(progress);
            let _ = sender.try_send(Ok(v1::DescribeUpdate { update: Some(update) }));
        };
        let description = computation.result(report).await?;
        Ok(v1::Description { left_out: left_out_files(&left_out), ..description.as_ref().clone() })
    }

    async fn compute(&self, described: DescribedColumns, progress: Progress) -> Result<v1::Description, StreamError> {
        let Environment { cpu, state, .. } = self.environment.as_ref();
        let key = described.key();
        if let Some(bytes) = store::load(state, Kind::Description, &key).await
            && let Some(kept) = cpu.run(move || Some(decode(&bytes).ok()?.0)).await?
        {
            return Ok(kept);
        }
        // The semaphore is never closed.
        let _permit = self.permits.acquire().await;
        let description = pass::describe(&self.environment, &described, progress).await?;
        let message = encode(&description, Encoding::Protobuf);
        store::store(state, Kind::Description, &key, &message, KEPT_MAX).await;
        Ok(description)
    }
}

fn left_out_files(left_out: &LeftOut) -> Vec<v1::LeftOutFiles> {
    let files = left_out.by_reason().map(|(reason, names)| v1::LeftOutFiles {
        reason: reason.to_string(),
        count: names.count,
        names: names.first.iter().cloned().collect(),
    });
    files.collect()
}

/// An error of the filter, which is that of a plan to the modules that compute it, with the path in this request.
fn in_request(error: StreamError) -> StreamError {
    match error {
        StreamError::Expression { path, source } if path == "plan.filter" => {
            StreamError::Expression { path: "filter".to_owned(), source }
        }
        error => error,
    }
}
