//! Describes a dataset's columns: one pass over its rows, whose result is kept per snapshot, columns and filter.
//!
//! Single-flight: concurrent requests for one description share one computation and its progress.

mod answer;
mod columns;
mod flights;
mod kept;
mod pass;
mod type_name;

use std::sync::Arc;

use forebay_proto::v1;
use tokio::sync::Semaphore;

use super::{
    environment::Environment,
    epoch::task::{Ahead, AheadSender},
    error::StreamError,
};
use columns::DescribedColumns;
use flights::{Flight, Flights, Progress};
pub(crate) use type_name::type_name;

/// Descriptions that are computed at once; further ones wait.
const DESCRIBED_AT_ONCE: usize = 2;

/// Progress reports that wait for the client; further ones are dropped.
const REPORTS_MAX: usize = 16;

/// The updates of a running description: progress, then the result or an error.
pub type DescribeTask = Ahead<v1::DescribeUpdate>;

/// Starts descriptions, and limits how many run at once.
#[derive(Debug)]
pub(super) struct Descriptions {
    environment: Arc<Environment>,
    flights: Arc<Flights>,
    permits: Arc<Semaphore>,
}

impl Descriptions {
    pub(super) fn new(environment: Arc<Environment>) -> Self {
        Self { environment, flights: Arc::default(), permits: Arc::new(Semaphore::new(DESCRIBED_AT_ONCE)) }
    }

    /// Starts to describe columns of a dataset.
    pub(super) fn start(&self, request: v1::DescribeRequest) -> DescribeTask {
        let (environment, flights, permits) =
            (Arc::clone(&self.environment), Arc::clone(&self.flights), Arc::clone(&self.permits));
        DescribeTask::start(REPORTS_MAX, |sender| async move {
            let described = run(&environment, &flights, &permits, request, &sender).await;
            let description = described.map_err(in_request)?;
            // Fails if the client disconnected, which needs no result.
            let result = v1::describe_update::Update::Result(description.as_ref().clone());
            let _ = sender.send(Ok(v1::DescribeUpdate { update: Some(result) })).await;
            Ok(())
        })
    }
}

async fn run(
    environment: &Arc<Environment>,
    flights: &Flights,
    permits: &Semaphore,
    request: v1::DescribeRequest,
    sender: &AheadSender<v1::DescribeUpdate>,
) -> Result<Arc<v1::Description>, StreamError> {
    let snapshot = environment.catalog.dataset(&request.dataset)?.present().await?;
    let described = DescribedColumns::check(environment, snapshot, request).await?;
    let flight: Arc<Flight> = flights.join(&described.key());
    let compute = |progress: Progress| async move {
        // Reads a file.
        let (state, key) = (environment.state.clone(), described.key());
        if let Some(kept) = environment.cpu.run(move || kept::load(&state, &key)).await? {
            return Ok(kept);
        }
        // The semaphore is never closed.
        let _permit = permits.acquire().await;
        let description = pass::describe(environment, &described, progress).await?;
        let (state, key, kept) = (environment.state.clone(), described.key(), description.clone());
        environment.cpu.run(move || kept::store(&state, &key, &kept)).await?;
        Ok(description)
    };
    let report = |progress| {
        // A slow client misses reports, not the result.
        let update = v1::describe_update::Update::Progress(progress);
        let _ = sender.try_send(Ok(v1::DescribeUpdate { update: Some(update) }));
    };
    flight.share(compute, report).await
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
