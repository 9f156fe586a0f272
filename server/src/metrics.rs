//! Every metric of the server: one name table, handles made once, counted per batch and never per row.
//!
//! The only room that names the metric macros. `/metrics` renders what is recorded here.

use std::{
    fmt::Write as _,
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use metrics::{
    Counter, Gauge, Histogram, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram,
};
use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};

/// Upper bounds of `forebay_batch_seconds`, from 100 µs to 100 s by half decades.
const BATCH_SECONDS_BUCKETS: [f64; 13] =
    [0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0];

/// Upper bounds of `forebay_exchange_seconds`, from 30 µs to 10 s by half decades: a batch may be one row.
const EXCHANGE_SECONDS_BUCKETS: [f64; 12] =
    [0.000_03, 0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0];

/// Where a stream's time goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Waiting for storage.
    Fetch,
    /// Parquet pages to Arrow arrays.
    Decode,
    /// Filter and derived columns.
    Transform,
    /// Ops and row-major matrices.
    Assemble,
    /// Waiting for the client to take a batch.
    SendWait,
}

/// How a stream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamStatus {
    /// Every batch was sent.
    Complete,
    /// The client went away.
    Cancelled,
    /// An error was sent.
    Failed,
}

/// Time spent in each stage, gathered over a batch and recorded at once.
#[derive(Clone, Copy, Debug, Default)]
pub struct StageTimes([Duration; 5]);

/// Keeps `forebay_streams_active` and `forebay_streams_total` right however the stream ends: a stream that is
/// dropped before it says otherwise was cancelled.
#[derive(Debug)]
pub struct StreamGuard {
    status: StreamStatus,
}

/// The same for `forebay_exchanges_active` and `forebay_exchanges_total`.
#[derive(Debug)]
pub struct ExchangeGuard {
    status: StreamStatus,
}

/// Keeps `forebay_fits_active` right however the fit ends.
#[derive(Debug)]
pub struct FitGuard(());

struct Handles {
    streams_active: Gauge,
    batches: Counter,
    rows: Counter,
    bytes: Counter,
    batch_seconds: Histogram,
    read_bytes: Counter,
    reserved: Gauge,
    limit: Gauge,
    fits_active: Gauge,
    exchanges_active: Gauge,
    exchange_batches: Counter,
    exchange_rows: Counter,
    exchange_seconds: Histogram,
}

/// The recorder's integer counters cannot hold seconds, so these are kept here and rendered by `render`.
static STAGE_NANOSECONDS: [AtomicU64; 5] = [const { AtomicU64::new(0) }; 5];

/// Name and meaning of every metric, in the order of the README's table.
pub const NAMES: [(&str, &str); 18] = [
    ("forebay_streams_active", "Streams that are open now."),
    ("forebay_streams_total", "Streams that have ended, by status (complete, cancelled, failed)."),
    ("forebay_batches_sent_total", "Batches handed to the wire."),
    ("forebay_rows_sent_total", "Rows in those batches."),
    ("forebay_sent_bytes_total", "Arrow bytes of those batches, headers included."),
    ("forebay_stage_seconds_total", "Seconds spent per stage: fetch, decode, transform, assemble, send_wait."),
    (
        "forebay_batch_seconds",
        "Seconds from one batch of a stream to its next, time in which the client was waited for left out.",
    ),
    ("forebay_storage_requests_total", "Requests to storage, by operation (list, head, get) and status (ok, error)."),
    ("forebay_storage_read_bytes_total", "Bytes read from storage."),
    ("forebay_memory_reserved_bytes", "Bytes of the memory budget that streams hold."),
    ("forebay_memory_limit_bytes", "The memory budget."),
    ("forebay_fits_active", "Fits that are running now."),
    ("forebay_exchanges_active", "Exchanges (DoExchange) that are open now."),
    ("forebay_exchanges_total", "Exchanges that have ended, by status (complete, cancelled, failed)."),
    ("forebay_exchange_batches_total", "Batches that exchanges have answered."),
    ("forebay_exchange_rows_total", "Rows of the outputs in those answers."),
    ("forebay_exchange_seconds", "Seconds from a whole batch's arrival to its answer, both in the server."),
    ("forebay_build_info", "1, with the version as a label."),
];

/// Installs the recorder and describes every metric. Call once, before anything is recorded.
pub fn install() -> Result<PrometheusHandle, BuildError> {
    let handle = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Full("forebay_batch_seconds".to_owned()), &BATCH_SECONDS_BUCKETS)?
        .set_buckets_for_metric(Matcher::Full("forebay_exchange_seconds".to_owned()), &EXCHANGE_SECONDS_BUCKETS)?
        .install_recorder()?;
    for (name, meaning) in NAMES {
        match name {
            "forebay_batch_seconds" | "forebay_exchange_seconds" => describe_histogram!(name, meaning),
            name if name.ends_with("_total") => describe_counter!(name, meaning),
            name => describe_gauge!(name, meaning),
        }
    }
    gauge!("forebay_build_info", "version" => env!("CARGO_PKG_VERSION")).set(1.0);
    for status in [StreamStatus::Complete, StreamStatus::Cancelled, StreamStatus::Failed] {
        counter!("forebay_streams_total", "status" => status.label()).absolute(0);
        counter!("forebay_exchanges_total", "status" => status.label()).absolute(0);
    }
    for operation in ["list", "head", "get"] {
        for status in ["ok", "error"] {
            counter!("forebay_storage_requests_total", "operation" => operation, "status" => status).absolute(0);
        }
    }
    handles();
    Ok(handle)
}

/// The text of `/metrics`.
pub fn render(handle: &PrometheusHandle) -> String {
    handle.run_upkeep();
    let mut text = handle.render();
    let name = "forebay_stage_seconds_total";
    let meaning = NAMES.iter().find(|(other, _)| *other == name).map_or("", |(_, meaning)| meaning);
    // Writing to a String cannot fail.
    let _ = write!(text, "# HELP {name} {meaning}\n# TYPE {name} counter\n");
    for stage in Stage::ALL {
        let seconds = Duration::from_nanos(STAGE_NANOSECONDS[stage as usize].load(Ordering::Relaxed)).as_secs_f64();
        let _ = writeln!(text, "{name}{{stage=\"{}\"}} {seconds}", stage.label());
    }
    text
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
        batch_seconds: histogram!("forebay_batch_seconds"),
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

// === impl Stage ===

impl Stage {
    const ALL: [Self; 5] = [Self::Fetch, Self::Decode, Self::Transform, Self::Assemble, Self::SendWait];

    fn label(self) -> &'static str {
        match self {
            Self::Fetch => "fetch",
            Self::Decode => "decode",
            Self::Transform => "transform",
            Self::Assemble => "assemble",
            Self::SendWait => "send_wait",
        }
    }
}

// === impl StageTimes ===

impl StageTimes {
    /// Adds the time since `start` to a stage.
    pub fn add_since(&mut self, stage: Stage, start: Instant) {
        self.0[stage as usize] += start.elapsed();
    }

    /// Adds what was gathered elsewhere.
    pub fn add(&mut self, other: Self) {
        self.0.iter_mut().zip(other.0).for_each(|(time, more)| *time += more);
    }

    /// Adds what was gathered to `forebay_stage_seconds_total` and starts from zero.
    pub fn record(&mut self) {
        for (total, time) in STAGE_NANOSECONDS.iter().zip(std::mem::take(&mut self.0)) {
            total.fetch_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
        }
    }
}

// === impl StreamStatus ===

impl StreamStatus {
    fn label(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::Cancelled => "cancelled",
            Self::Failed => "failed",
        }
    }
}

// === impl StreamGuard ===

impl StreamGuard {
    /// A stream has opened.
    pub fn open() -> Self {
        handles().streams_active.increment(1.0);
        Self { status: StreamStatus::Cancelled }
    }

    /// Says how the stream ends.
    pub fn end(&mut self, status: StreamStatus) {
        self.status = status;
    }
}

impl Drop for StreamGuard {
    fn drop(&mut self) {
        handles().streams_active.decrement(1.0);
        counter!("forebay_streams_total", "status" => self.status.label()).increment(1);
    }
}

// === impl ExchangeGuard ===

impl ExchangeGuard {
    /// An exchange has opened.
    pub fn open() -> Self {
        handles().exchanges_active.increment(1.0);
        Self { status: StreamStatus::Cancelled }
    }

    /// Says how the exchange ends.
    pub fn end(&mut self, status: StreamStatus) {
        self.status = status;
    }
}

impl Drop for ExchangeGuard {
    fn drop(&mut self) {
        handles().exchanges_active.decrement(1.0);
        counter!("forebay_exchanges_total", "status" => self.status.label()).increment(1);
    }
}

// === impl FitGuard ===

impl FitGuard {
    /// A fit has started.
    pub fn open() -> Self {
        handles().fits_active.increment(1.0);
        Self(())
    }
}

impl Drop for FitGuard {
    fn drop(&mut self) {
        handles().fits_active.decrement(1.0);
    }
}
