//! Metrics extracted from a page: counters and gauges of a server and its open streams.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant, SystemTime},
};

use super::text::{LineError, Sample, samples};

/// Values of the page's `stage` label, in the order of the stages.
pub(super) const STAGES: [&str; 7] = ["fetch", "queue", "decode", "transform", "udf", "assemble", "send_wait"];

/// Maximum number of streams read from a page. A server reports at most a thousand.
const STREAMS_MAX: usize = 10_000;

/// Codes of server errors, as opposed to client errors.
const FAULTS: [&str; 6] =
    ["UNKNOWN", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS"];

/// Metrics that every server exposes. A page without one is another program's or an old server's.
const NEEDED: [&str; 5] = [
    "forebay_build_info",
    "forebay_streams_active",
    "forebay_rows_sent_total",
    "forebay_sent_bytes_total",
    "forebay_stage_seconds_total",
];

/// Metrics of a page at one moment.
#[derive(Clone, Debug)]
pub(super) struct Reading {
    /// Time of arrival.
    pub(super) at: Instant,
    /// Time of arrival in seconds since 1970.
    pub(super) unix_seconds: f64,
    pub(super) version: String,
    /// Sum of the series of each name.
    totals: BTreeMap<String, f64>,
    stages: [Option<f64>; STAGES.len()],
    storage_errors: Option<f64>,
    /// Calls that failed with one of [`FAULTS`].
    failed_requests: Option<f64>,
    pub(super) streams: BTreeMap<StreamName, StreamReading>,
}

/// Identity of an open stream.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct StreamName {
    pub(super) id: String,
    pub(super) dataset: String,
    pub(super) epoch: String,
    pub(super) rank: String,
}

/// Metrics of an open stream at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StreamReading {
    pub(super) rows: Option<f64>,
    pub(super) bytes: Option<f64>,
    pub(super) position: Option<f64>,
    pub(super) open_seconds: Option<f64>,
    pub(super) stages: [Option<f64>; STAGES.len()],
}

/// Why a page is not a Forebay server's.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PageError {
    #[error(transparent)]
    Line(#[from] LineError),

    #[error("the page has no {0}")]
    Lacks(&'static str),
}

// === impl Reading ===

impl Reading {
    /// Reads a page that has just arrived.
    pub(super) fn new(page: &str) -> Result<Self, PageError> {
        let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
        let mut reading = Self {
            at: Instant::now(),
            unix_seconds: since_1970.as_secs_f64(),
            version: String::new(),
            totals: BTreeMap::new(),
            stages: [None; STAGES.len()],
            storage_errors: None,
            failed_requests: None,
            streams: BTreeMap::new(),
        };
        for sample in samples(page) {
            reading.take(&sample?);
        }
        match NEEDED.iter().find(|name| !reading.totals.contains_key(**name)) {
            Some(name) => Err(PageError::Lacks(name)),
            None => Ok(reading),
        }
    }

    /// Returns a gauge or counter, summed over its series; `None` if it is absent or not a size.
    pub(super) fn total(&self, name: &str) -> Option<f64> {
        self.totals.get(name).copied().and_then(size)
    }

    pub(super) fn stage(&self, index: usize) -> Option<f64> {
        self.stages[index].and_then(size)
    }

    pub(super) fn storage_errors(&self) -> Option<f64> {
        self.storage_errors.and_then(size)
    }

    pub(super) fn failed_requests(&self) -> Option<f64> {
        self.failed_requests.and_then(size)
    }

    fn take(&mut self, sample: &Sample<'_>) {
        if sample.has_label("stream") {
            return self.take_stream(sample);
        }
        // Skips unused metrics.
        if !sample.name.starts_with("forebay_") || sample.name.ends_with("_bucket") {
            return;
        }
        *self.totals.entry(sample.name.to_owned()).or_insert(0.0) += sample.value;
        // Series of a counter appear with their first event; until then they are 0.
        let add = |sum: &mut Option<f64>, counts: bool| {
            *sum = Some(sum.unwrap_or(0.0) + if counts { sample.value } else { 0.0 });
        };
        match sample.name {
            "forebay_build_info" => sample.label("version").clone_into(&mut self.version),
            "forebay_stage_seconds_total" => add_stage(&mut self.stages, sample),
            "forebay_storage_requests_total" => add(&mut self.storage_errors, sample.label("status") == "error"),
            "forebay_requests_total" => add(&mut self.failed_requests, FAULTS.contains(&sample.label("code"))),
            _ => {}
        }
    }

    fn take_stream(&mut self, sample: &Sample<'_>) {
        let label = |name| sample.label(name).to_owned();
        let name =
            StreamName { id: label("stream"), dataset: label("dataset"), epoch: label("epoch"), rank: label("rank") };
        if self.streams.len() >= STREAMS_MAX && !self.streams.contains_key(&name) {
            return;
        }
        let stream = self.streams.entry(name).or_default();
        let value = size(sample.value);
        match sample.name {
            "forebay_stream_rows_total" => stream.rows = value,
            "forebay_stream_bytes_total" => stream.bytes = value,
            "forebay_stream_position" => stream.position = value,
            "forebay_stream_open_seconds" => stream.open_seconds = value,
            "forebay_stream_stage_seconds_total" => add_stage(&mut stream.stages, sample),
            _ => {}
        }
    }
}

fn add_stage(stages: &mut [Option<f64>; STAGES.len()], sample: &Sample<'_>) {
    if let Some(index) = STAGES.iter().position(|stage| *stage == sample.label("stage")) {
        stages[index] = size(sample.value);
    }
}

/// Returns a number that is valid as a size or count.
fn size(value: f64) -> Option<f64> {
    (value.is_finite() && value >= 0.0).then_some(value)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Returns a server's minimal page with additional lines.
    pub(crate) fn page(more: &str) -> String {
        format!(
            "forebay_build_info{{version=\"0.1.0\"}} 1\nforebay_streams_active 2\nforebay_rows_sent_total 100\n\
             forebay_sent_bytes_total 1000\nforebay_stage_seconds_total{{stage=\"fetch\"}} 5\n{more}"
        )
    }

    #[test]
    fn sums_a_page_by_name_and_by_relevant_labels() {
        let reading = Reading::new(&page(
            "forebay_requests_total{call=\"DoGet\",code=\"OK\"} 7\n\
             forebay_requests_total{call=\"DoGet\",code=\"INTERNAL\"} 2\n\
             forebay_requests_total{call=\"DoPut\",code=\"UNAVAILABLE\"} 1\n\
             forebay_requests_total{call=\"DoPut\",code=\"NOT_FOUND\"} 50\n\
             forebay_storage_requests_total{operation=\"get\",status=\"ok\"} 9\n\
             forebay_memory_limit_bytes +Inf\nforebay_memory_reserved_bytes NaN\nforebay_process_open_fds -1\n",
        ))
        .unwrap();
        assert_eq!((reading.version.as_str(), reading.total("forebay_requests_total")), ("0.1.0", Some(60.0)));
        assert_eq!((reading.failed_requests(), reading.storage_errors()), (Some(3.0), Some(0.0)));
        assert_eq!((reading.stage(0), reading.stage(1)), (Some(5.0), None));
        for name in ["limit_bytes", "reserved_bytes"] {
            assert_eq!(reading.total(&format!("forebay_memory_{name}")), None);
        }
        assert_eq!(reading.total("forebay_process_open_fds"), None);
    }

    #[test]
    fn distinguishes_open_streams() {
        let series = |metric: &str, id: &str, more: &str, value: &str| {
            format!("forebay_stream_{metric}{{stream=\"{id}\",dataset=\"d\",epoch=\"0\",rank=\"1\"{more}}} {value}\n")
        };
        let reading = Reading::new(&page(
            &[
                series("rows_total", "a", "", "7"),
                series("rows_total", "b", "", "9"),
                series("stage_seconds_total", "a", ",stage=\"decode\"", "0.5"),
                "forebay_stream_pauses_total{reason=\"unread\"} 3\n".to_owned(),
            ]
            .concat(),
        ))
        .unwrap();
        let of = |id: &str| reading.streams.iter().find(|(name, _)| name.id == id).unwrap();
        assert_eq!((of("a").1.rows, of("b").1.rows, reading.streams.len()), (Some(7.0), Some(9.0), 2));
        assert_eq!(reading.total("forebay_stream_pauses_total"), Some(3.0));
        assert_eq!((of("a").1.stages[2], of("b").1.stages[2], of("a").0.rank.as_str()), (Some(0.5), None, "1"));
    }

    #[test]
    fn rejects_pages_of_other_programs() {
        let error = |page: &str| Reading::new(page).unwrap_err().to_string();
        assert_eq!(error("node_load1 0.5\n"), "the page has no forebay_build_info");
        assert_eq!(error(""), "the page has no forebay_build_info");
        assert!(error("<html>").contains("line 1"), "{}", error("<html>"));
    }
}
