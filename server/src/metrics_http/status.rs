//! The status page: what the server serves, to whom, and what ended with an error.
//!
//! The page is one static file, which reads [`Status`] as JSON every few seconds.

use std::{sync::Arc, time::Instant};

use forebay_runtime::metrics::{self, FailedCall, OpenStream};
use forebay_stream::Streams;
use serde::Serialize;

/// The page. It loads nothing but `status.json`.
pub(super) const PAGE: &str = include_str!("status.html");

/// Datasets and streams in a status.
const LISTED_MAX: usize = 200;

/// The content of the page.
#[derive(Debug, Serialize)]
struct Status {
    version: &'static str,
    is_ready: bool,
    uptime_seconds: f64,
    dataset_count: usize,
    datasets: Vec<DatasetStatus>,
    stream_count: usize,
    streams: Vec<OpenStream>,
    errors: Vec<ErrorStatus>,
}

/// Calls that ended with the same error. No field has a text of the error, which may quote rows and requests.
#[derive(Debug, Serialize)]
struct ErrorStatus {
    /// The end of the last one, in seconds since 1970.
    at: f64,
    call: &'static str,
    /// As the caller named it.
    dataset: Option<String>,
    /// The column of the dataset.
    column: Option<String>,
    principal: Arc<str>,
    reason: &'static str,
    /// What the reason means.
    error: String,
    count: u64,
}

/// A dataset, as far as it is known without reading anything.
#[derive(Debug, Serialize)]
struct DatasetStatus {
    name: String,
    is_view: bool,
    /// Files of its newest open snapshot; none before the first.
    files: Option<usize>,
    rows: Option<u64>,
    snapshot: Option<String>,
}

/// Where the status comes from.
#[derive(Clone, Debug)]
pub(super) struct StatusSource {
    streams: Arc<Streams>,
    started: Instant,
}

impl StatusSource {
    pub(super) fn new(streams: Arc<Streams>) -> Self {
        Self { streams, started: Instant::now() }
    }

    /// The status as JSON.
    pub(super) fn json(&self, is_ready: bool) -> Vec<u8> {
        let (all, open) = (self.streams.catalog().datasets(), metrics::open_streams(LISTED_MAX));
        let datasets = all.iter().take(LISTED_MAX).map(|dataset| {
            let newest = dataset.newest();
            let newest = newest.as_ref();
            DatasetStatus {
                name: dataset.name().to_owned(),
                is_view: dataset.is_view(),
                files: newest.map(|snapshot| snapshot.files().len()),
                rows: newest.map(|snapshot| snapshot.row_count()),
                snapshot: newest.map(|snapshot| snapshot.digest().to_owned()),
            }
        });
        let status = Status {
            version: env!("CARGO_PKG_VERSION"),
            is_ready,
            uptime_seconds: self.started.elapsed().as_secs_f64(),
            dataset_count: all.len(),
            datasets: datasets.collect(),
            stream_count: open.0,
            streams: open.1,
            errors: metrics::last_errors().into_iter().map(|failed| self.error(failed)).collect(),
        };
        // Numbers and strings always have a JSON form.
        serde_json::to_vec(&status).unwrap_or_default()
    }

    /// What anyone may see of a failed call.
    fn error(&self, failed: FailedCall) -> ErrorStatus {
        let FailedCall { at, call, dataset, column, principal, reason, count } = failed;
        let column = column.filter(|column| dataset.as_deref().is_some_and(|name| self.has_column(name, column)));
        let mut error = reason.meaning().to_owned();
        if let Some(dataset) = &dataset {
            error = format!("dataset \"{dataset}\": {error}");
        }
        if let Some(column) = &column {
            error = format!("{error} (column \"{column}\")");
        }
        ErrorStatus { at, call, dataset, column, principal, reason: reason.as_str_name(), error, count }
    }

    /// Whether a column is one of the dataset's, not one that a caller named.
    fn has_column(&self, dataset: &str, column: &str) -> bool {
        let newest = self.streams.catalog().dataset(dataset).ok().and_then(|dataset| dataset.newest());
        newest.is_some_and(|snapshot| snapshot.wide_schema().index_of(column).is_ok())
    }
}
