//! All metrics of the server: one table of names, handles created once, recorded per batch and never per row.
//!
//! The only module that uses the metric macros. `/metrics` renders recorded values, and values that are read when the
//! page is rendered: open streams, the process, thread pools.

mod guards;
mod handles;
mod last_errors;
mod names;
mod page;
mod process;
mod stages;
mod streams;

use std::{sync::Arc, time::Duration};

use metrics::{SharedString, counter, describe_counter, describe_gauge, describe_histogram, gauge};
use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};

pub use guards::{ConnectionGuard, ExchangeGuard, FitGuard, PauseReason, PausedGuard, StreamStatus, ViewRunGuard};
pub use last_errors::{FailedCall, last_errors};
pub use names::{CALLS, NAMES};
pub use process::{PoolFigures, Pools};
pub use stages::{Stage, StageTimes};
pub use streams::{OpenStream, StreamGuard, StreamLabels, open_streams};

use handles::handles;
use names::HISTOGRAMS;

/// A cache of values that are expensive to compute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cache {
    /// Footers of files.
    Footers,
    /// Compiled plans.
    Plans,
    /// Bytes of row groups shared by the lanes of a stream.
    RowGroups,
    /// Results of fits.
    Fits,
}

/// Values of the label `status` of reloads.
const RELOAD_STATUSES: [&str; 2] = ["ok", "failed"];

/// Values of the label `status` of calls of Python functions.
const UDF_STATUSES: [&str; 7] = ["ok", "failed", "died", "timeout", "unreachable", "refused", "limit"];

/// Installs the recorder and describes every metric. Must be called once, before anything is recorded.
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
    // Ratios in dashboards need their denominator to exist before the first event.
    for status in StreamStatus::ALL {
        counter!("forebay_streams_total", "status" => status.label()).absolute(0);
        counter!("forebay_exchanges_total", "status" => status.label()).absolute(0);
    }
    for reason in PauseReason::ALL {
        counter!("forebay_stream_pauses_total", "reason" => reason.label()).absolute(0);
    }
    for status in [StreamStatus::Complete, StreamStatus::Failed] {
        counter!("forebay_view_runs_total", "status" => status.label()).absolute(0);
    }
    for status in UDF_STATUSES {
        counter!("forebay_udf_calls_total", "status" => status).absolute(0);
    }
    for action in ["fail", "null", "skip"] {
        counter!("forebay_image_errors_total", "action" => action).absolute(0);
    }
    for operation in ["list", "head", "get", "put", "delete"] {
        for status in ["ok", "error"] {
            counter!("forebay_storage_requests_total", "operation" => operation, "status" => status).absolute(0);
        }
    }
    for cache in [Cache::Footers, Cache::Plans, Cache::RowGroups, Cache::Fits] {
        for result in ["hit", "miss"] {
            counter!("forebay_cache_requests_total", "cache" => cache.label(), "result" => result).absolute(0);
        }
    }
    for name in ["hits", "evictions", "damaged", "dropped"] {
        counter!(format!("forebay_cache_disk_{name}_total")).absolute(0);
    }
    cache_disk_bytes(0);
    for status in RELOAD_STATUSES {
        counter!("forebay_config_reloads_total", "status" => status).absolute(0);
    }
    for (reason, principal) in [("UNAUTHENTICATED", "unknown"), ("OVERLOADED", "anonymous")] {
        counter!("forebay_refusals_total", "reason" => reason, "principal" => principal).absolute(0);
    }
    for (call, code) in CALLS.map(|call| (call, "OK")).into_iter().chain([("DoGet", "RESOURCE_EXHAUSTED")]) {
        counter!("forebay_requests_total", "call" => call, "code" => code).absolute(0);
    }
    handles();
    Ok(handle)
}

/// Returns the text of `/metrics`.
pub fn render(handle: &PrometheusHandle, pools: &Pools) -> String {
    handle.run_upkeep();
    let mut text = handle.render();
    text.push_str(&process::render(pools));
    text
}

/// Records a call that returned.
pub fn request(call: &'static str, code: &'static str) {
    counter!("forebay_requests_total", "call" => call, "code" => code).increment(1);
}

/// Records a call that ended with an error of this server. Its principal is one of a closed set: clients do not choose it.
pub fn refused(call: FailedCall) {
    let labels =
        [("reason", SharedString::from(call.reason.as_str_name())), ("principal", Arc::clone(&call.principal).into())];
    counter!("forebay_refusals_total", &labels).increment(1);
    call.keep();
}

/// Records a reload of the configuration, or of files that it names.
pub fn reloaded(ok: bool) {
    counter!("forebay_config_reloads_total", "status" => RELOAD_STATUSES[usize::from(!ok)]).increment(1);
}

/// Records lookups in a cache that all hit or all missed.
pub fn cache_requests(cache: Cache, hit: bool, count: usize) {
    let result = if hit { "hit" } else { "miss" };
    counter!("forebay_cache_requests_total", "cache" => cache.label(), "result" => result).increment(count as u64);
}

/// Records blocks of rows that a stream copied from the cache of finished rows, or computed.
pub fn cache_blocks(hit: bool, count: u64) {
    let handles = handles();
    let counter = if hit { &handles.cache_hits } else { &handles.cache_misses };
    counter.increment(count);
}

/// Records images that cannot be decoded, by what the plan has happen to them.
pub fn image_errors(action: &'static str, count: u64) {
    counter!("forebay_image_errors_total", "action" => action).increment(count);
}

/// Records a column chunk that a stream read from the cache with its pages decompressed, or that it had to fetch.
pub fn cache_pages(hit: bool) {
    let handles = handles();
    let counter = if hit { &handles.cache_page_hits } else { &handles.cache_page_misses };
    counter.increment(1);
}

/// Records an entry that was removed from that cache.
pub fn cache_evicted() {
    handles().cache_evictions.increment(1);
}

/// Sets the bytes of the row groups in that cache.
pub fn cache_bytes(bytes: u64) {
    handles().cache_bytes.set(bytes as f64);
}

/// Records a block that a stream read from the disk tier of that cache.
pub fn cache_disk_hit() {
    counter!("forebay_cache_disk_hits_total").increment(1);
}

/// Records blocks that were removed from the disk tier to make room for others.
pub fn cache_disk_evicted(blocks: u64) {
    counter!("forebay_cache_disk_evictions_total").increment(blocks);
}

/// Records a file of the disk tier that was damaged.
pub fn cache_disk_damaged() {
    counter!("forebay_cache_disk_damaged_total").increment(1);
}

/// Records a block that was not written to the disk tier.
pub fn cache_disk_dropped() {
    counter!("forebay_cache_disk_dropped_total").increment(1);
}

/// Sets the bytes of the files of the disk tier.
pub fn cache_disk_bytes(bytes: u64) {
    gauge!("forebay_cache_disk_bytes").set(bytes as f64);
}

/// Records the time from a stream's request to its first batch.
pub fn first_batch(after: Duration) {
    handles().first_batch_seconds.record(after.as_secs_f64());
}

/// Records an attempt of a storage request that failed with a retryable error.
pub fn storage_retry() {
    handles().retries.increment(1);
}

/// Records a batch that was sent: rows, bytes, and the time since the previous batch.
pub fn batch_sent(rows: u64, bytes: u64, since_last: Duration) {
    let handles = handles();
    handles.batches.increment(1);
    handles.rows.increment(rows);
    handles.bytes.increment(bytes);
    handles.batch_seconds.record(since_last.as_secs_f64());
}

/// Records a batch of an exchange: rows of its outputs, and the time from request to result.
pub fn exchanged(rows: u64, taken: Duration) {
    let handles = handles();
    handles.exchange_batches.increment(1);
    handles.exchange_rows.increment(rows);
    handles.exchange_seconds.record(taken.as_secs_f64());
}

/// Records a call of a Python function: its status, one of those of `UDF_STATUSES`, and its time.
pub fn udf_call(status: &'static str, taken: Duration) {
    counter!("forebay_udf_calls_total", "status" => status).increment(1);
    handles().udf_seconds.record(taken.as_secs_f64());
}

/// Records a storage request that ended.
pub fn storage_request(operation: &'static str, ok: bool, read_bytes: u64) {
    let status = if ok { "ok" } else { "error" };
    counter!("forebay_storage_requests_total", "operation" => operation, "status" => status).increment(1);
    handles().read_bytes.increment(read_bytes);
}

/// Sets the size of the memory budget.
pub fn memory_limit(bytes: u64) {
    handles().limit.set(bytes as f64);
}

/// Sets the time at which the server's certificate expires, in seconds since 1970.
pub fn certificate_expiry(seconds: u64) {
    gauge!("forebay_tls_certificate_expiry_timestamp_seconds").set(seconds as f64);
}

/// Sets the size of the state directory, and the number of its plans.
pub fn state(bytes: u64, plans: usize) {
    gauge!("forebay_state_bytes").set(bytes as f64);
    gauge!("forebay_state_plans").set(plans as f64);
}

/// Sets the reserved part of the memory budget.
pub fn memory_reserved(bytes: u64) {
    handles().reserved.set(bytes as f64);
}

// === impl Cache ===

impl Cache {
    fn label(self) -> &'static str {
        match self {
            Self::Footers => "footers",
            Self::Plans => "plans",
            Self::RowGroups => "row_groups",
            Self::Fits => "fits",
        }
    }
}
