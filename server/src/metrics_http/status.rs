//! The status page: what the server serves, to whom, and what ended with an error.
//!
//! The page is one static file, which reads [`Status`] as JSON every few seconds.

use std::{sync::Arc, time::Instant};

use serde::Serialize;

use crate::{
    metrics::{self, FailedCall, OpenStream},
    stream::Streams,
};

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
    errors: Vec<FailedCall>,
}

/// A dataset, as far as it is known without reading anything.
#[derive(Debug, Serialize)]
struct DatasetStatus {
    name: String,
    is_view: bool,
    /// Of its newest open snapshot; none before the first.
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
            errors: metrics::last_errors(),
        };
        // Numbers and strings always have a JSON form.
        serde_json::to_vec(&status).unwrap_or_default()
    }
}
