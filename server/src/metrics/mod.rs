//! Every metric of the server: one name table, handles made once, counted per batch and never per row.
//!
//! The only room that names the metric macros. `/metrics` renders what is recorded here, and what is read when it is
//! asked for: open streams, the process, the pools of threads.

mod guards;
mod process;
mod stages;
mod streams;

use std::{sync::OnceLock, time::Duration};

use metrics::{
    Counter, Gauge, Histogram, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram,
};
use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};

pub use guards::{ConnectionGuard, ExchangeGuard, FitGuard, StreamStatus};
pub use process::{PoolFigures, Pools};
pub use stages::{Stage, StageTimes};
pub use streams::{StreamGuard, StreamLabels};

/// Upper bounds of `forebay_batch_seconds`, from 100 µs to 100 s by half decades.
const BATCH_SECONDS_BUCKETS: [f64; 13] =
    [0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0];

/// The histograms, and their upper bounds.
const HISTOGRAMS: [(&str, &[f64]); 3] = [
    ("forebay_first_batch_seconds", &BATCH_SECONDS_BUCKETS),
    ("forebay_batch_seconds", &BATCH_SECONDS_BUCKETS),
    ("forebay_exchange_seconds", &EXCHANGE_SECONDS_BUCKETS),
];

/// Upper bounds of `forebay_exchange_seconds`, from 30 µs to 10 s by half decades: a batch may be one row.
const EXCHANGE_SECONDS_BUCKETS: [f64; 12] =
    [0.000_03, 0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0];

struct Handles {
    streams_active: Gauge,
    batches: Counter,
    rows: Counter,
    bytes: Counter,
    first_batch_seconds: Histogram,
    batch_seconds: Histogram,
    read_bytes: Counter,
    retries: Counter,
    reserved: Gauge,
    limit: Gauge,
    connections_active: Gauge,
    fits_active: Gauge,
    exchanges_active: Gauge,
    exchange_batches: Counter,
    exchange_rows: Counter,
    exchange_seconds: Histogram,
}

/// What remembers things that are dear to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cache {
    /// Footers of files.
    Footers,
    /// Compiled plans.
    Plans,
    /// Bytes of row groups that a stream's lanes share.
    RowGroups,
}

/// The calls that are told apart: Flight's methods, and gRPC's health check.
pub const CALLS: [&str; 11] = [
    "Handshake",
    "ListFlights",
    "GetFlightInfo",
    "PollFlightInfo",
    "GetSchema",
    "DoGet",
    "DoPut",
    "DoExchange",
    "DoAction",
    "ListActions",
    "Check",
];

/// Name and meaning of every metric, in the order of the book's table.
pub const NAMES: [(&str, &str); 42] = [
    ("forebay_streams_active", "Open streams."),
    ("forebay_streams_total", "Ended streams, by status (complete, cancelled, failed)."),
    ("forebay_batches_sent_total", "Batches handed to the wire."),
    ("forebay_rows_sent_total", "Rows in those batches."),
    ("forebay_sent_bytes_total", "Arrow bytes of those batches, headers included."),
    (
        "forebay_stage_seconds_total",
        "Seconds that streams spent in each stage: fetch (waiting for storage), decode, transform, assemble (computing), \
         send_wait (waiting for the client).",
    ),
    ("forebay_first_batch_seconds", "Seconds from a `DoGet` until its first batch is handed to the wire."),
    (
        "forebay_batch_seconds",
        "Seconds from one batch of a stream to the next, without time spent waiting for the client.",
    ),
    (
        "forebay_requests_total",
        "Calls by Flight method (call) and gRPC code of the response (code); a stream that opens is OK.",
    ),
    ("forebay_connections_active", "Open client connections."),
    ("forebay_ready", "1 while the server accepts new streams, 0 while it drains."),
    ("forebay_storage_requests_total", "Requests to storage, by operation (list, head, get) and status (ok, error)."),
    ("forebay_storage_retries_total", "Attempts of those requests that failed with a retryable error."),
    ("forebay_storage_read_bytes_total", "Bytes read from storage."),
    (
        "forebay_cache_requests_total",
        "Lookups in memory, by cache (footers, plans, row_groups) and result (hit, miss).",
    ),
    ("forebay_memory_reserved_bytes", "Bytes of the memory budget that streams hold."),
    ("forebay_memory_limit_bytes", "The memory budget."),
    ("forebay_fits_active", "Running fits."),
    ("forebay_exchanges_active", "Open exchanges (DoExchange)."),
    ("forebay_exchanges_total", "Ended exchanges, by status (complete, cancelled, failed)."),
    ("forebay_exchange_batches_total", "Batches that exchanges have answered."),
    ("forebay_exchange_rows_total", "Rows of the outputs in those answers."),
    ("forebay_exchange_seconds", "Seconds from the complete arrival of a batch to its answer, both in the server."),
    ("forebay_stream_rows_total", "Rows sent by an open stream (stream, dataset, epoch, rank)."),
    ("forebay_stream_bytes_total", "Arrow bytes sent by an open stream."),
    ("forebay_stream_position", "Next global position of an open stream."),
    ("forebay_stream_open_seconds", "Seconds since an open stream was requested."),
    ("forebay_stream_stage_seconds_total", "Seconds of an open stream per stage."),
    ("forebay_cpu_threads", "Threads that decode and compute."),
    ("forebay_cpu_jobs_waiting", "Jobs that wait for one of those threads."),
    ("forebay_cpu_busy_seconds_total", "CPU seconds of those threads."),
    ("forebay_runtime_workers", "Threads that move data (tokio's workers)."),
    ("forebay_runtime_tasks", "Tasks on those threads."),
    ("forebay_runtime_queue_depth", "Tasks that wait in the shared queue."),
    ("forebay_runtime_busy_seconds_total", "Seconds that those threads were busy."),
    ("forebay_process_cpu_seconds_total", "CPU seconds of the process, user and system."),
    ("forebay_process_resident_memory_bytes", "Resident memory of the process."),
    ("forebay_process_open_fds", "Open file descriptors."),
    ("forebay_process_max_fds", "Limit of open file descriptors."),
    ("forebay_process_threads", "Threads of the process."),
    ("forebay_process_start_time_seconds", "Start time of the process, in seconds since 1970."),
    ("forebay_build_info", "1, with the version as a label."),
];

/// Installs the recorder and describes every metric. Call once, before anything is recorded.
pub fn install() -> Result<PrometheusHandle, BuildError> {
    let mut builder = PrometheusBuilder::new();
    for (name, bounds) in HISTOGRAMS {
        builder = builder.set_buckets_for_metric(Matcher::Full(name.to_owned()), bounds)?;
    }
    let handle = builder.install_recorder()?;
    for (name, meaning) in NAMES {
        match name {
            name if HISTOGRAMS.iter().any(|(histogram, _)| *histogram == name) => describe_histogram!(name, meaning),
            name if name.ends_with("_total") => describe_counter!(name, meaning),
            name => describe_gauge!(name, meaning),
        }
    }
    gauge!("forebay_build_info", "version" => env!("CARGO_PKG_VERSION")).set(1.0);
    // A ratio needs a number below it before anything has gone wrong.
    for status in StreamStatus::ALL {
        counter!("forebay_streams_total", "status" => status.label()).absolute(0);
        counter!("forebay_exchanges_total", "status" => status.label()).absolute(0);
    }
    for operation in ["list", "head", "get"] {
        for status in ["ok", "error"] {
            counter!("forebay_storage_requests_total", "operation" => operation, "status" => status).absolute(0);
        }
    }
    for cache in [Cache::Footers, Cache::Plans, Cache::RowGroups] {
        for result in ["hit", "miss"] {
            counter!("forebay_cache_requests_total", "cache" => cache.label(), "result" => result).absolute(0);
        }
    }
    for (call, code) in CALLS.map(|call| (call, "OK")).into_iter().chain([("DoGet", "RESOURCE_EXHAUSTED")]) {
        counter!("forebay_requests_total", "call" => call, "code" => code).absolute(0);
    }
    handles();
    Ok(handle)
}

/// The text of `/metrics`.
pub fn render(handle: &PrometheusHandle, pools: &Pools) -> String {
    handle.run_upkeep();
    let mut text = handle.render();
    text.push_str(&process::render(pools));
    text
}

/// A call was answered.
pub fn request(call: &'static str, code: &'static str) {
    counter!("forebay_requests_total", "call" => call, "code" => code).increment(1);
}

/// So many things were looked for in memory, and were there or not.
pub fn cache_requests(cache: Cache, hit: bool, count: usize) {
    let result = if hit { "hit" } else { "miss" };
    counter!("forebay_cache_requests_total", "cache" => cache.label(), "result" => result).increment(count as u64);
}

/// A stream's first batch was handed to the wire, so long after it was asked for.
pub fn first_batch(after: Duration) {
    handles().first_batch_seconds.record(after.as_secs_f64());
}

/// An attempt to ask storage failed in a way that is tried again.
pub fn storage_retry() {
    handles().retries.increment(1);
}

/// A batch was handed to the wire: its rows, its bytes, and the time since the batch before.
pub fn batch_sent(rows: u64, bytes: u64, since_last: Duration) {
    let handles = handles();
    handles.batches.increment(1);
    handles.rows.increment(rows);
    handles.bytes.increment(bytes);
    handles.batch_seconds.record(since_last.as_secs_f64());
}

/// A batch of an exchange was answered: the rows of its outputs, and the time it took.
pub fn exchanged(rows: u64, taken: Duration) {
    let handles = handles();
    handles.exchange_batches.increment(1);
    handles.exchange_rows.increment(rows);
    handles.exchange_seconds.record(taken.as_secs_f64());
}

/// A request to storage has ended.
pub fn storage_request(operation: &'static str, ok: bool, read_bytes: u64) {
    let status = if ok { "ok" } else { "error" };
    counter!("forebay_storage_requests_total", "operation" => operation, "status" => status).increment(1);
    handles().read_bytes.increment(read_bytes);
}

/// The memory budget.
pub fn memory_limit(bytes: u64) {
    handles().limit.set(bytes as f64);
}

/// What is reserved of it.
pub fn memory_reserved(bytes: u64) {
    handles().reserved.set(bytes as f64);
}

fn handles() -> &'static Handles {
    static HANDLES: OnceLock<Handles> = OnceLock::new();
    HANDLES.get_or_init(|| Handles {
        streams_active: gauge!("forebay_streams_active"),
        batches: counter!("forebay_batches_sent_total"),
        rows: counter!("forebay_rows_sent_total"),
        bytes: counter!("forebay_sent_bytes_total"),
        first_batch_seconds: histogram!("forebay_first_batch_seconds"),
        batch_seconds: histogram!("forebay_batch_seconds"),
        retries: counter!("forebay_storage_retries_total"),
        connections_active: gauge!("forebay_connections_active"),
        read_bytes: counter!("forebay_storage_read_bytes_total"),
        reserved: gauge!("forebay_memory_reserved_bytes"),
        limit: gauge!("forebay_memory_limit_bytes"),
        fits_active: gauge!("forebay_fits_active"),
        exchanges_active: gauge!("forebay_exchanges_active"),
        exchange_batches: counter!("forebay_exchange_batches_total"),
        exchange_rows: counter!("forebay_exchange_rows_total"),
        exchange_seconds: histogram!("forebay_exchange_seconds"),
    })
}

// === impl Cache ===

impl Cache {
    fn label(self) -> &'static str {
        match self {
            Self::Footers => "footers",
            Self::Plans => "plans",
            Self::RowGroups => "row_groups",
        }
    }
}
