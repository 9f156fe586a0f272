//! The published report of a run. Field names end in their unit.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use serde::Serialize;

use super::{
    bound::Bound,
    pace::Pace,
    runner::{Outcome, StreamOutcome},
    settings::{RunEnd, Settings},
    timeline::Rate,
};

/// Bins per decade of the latency distribution.
const BINS_PER_DECADE: i32 = 20;

const NANOSECONDS: f64 = 1e9;

/// Report of a run. Values without data are null.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) dataset: String,
    pub(crate) plan_id: String,
    pub(crate) snapshot: String,
    pub(crate) clients: usize,
    pub(crate) streams_per_client: usize,
    pub(crate) world_size: usize,
    pub(crate) batch_size_rows: u64,
    pub(crate) shuffle: bool,
    /// "closed" or "open".
    pub(crate) r#loop: &'static str,
    /// Per stream, in an open loop.
    pub(crate) rate_batches_per_second: Option<f64>,
    pub(crate) is_verified: bool,
    pub(crate) was_interrupted: bool,
    pub(crate) warm_up_seconds: f64,
    /// The values below cover this time only, except first batch times, errors and retries, which include the warm-up.
    pub(crate) wall_seconds: f64,
    /// Complete epochs, summed over streams.
    pub(crate) epochs: u64,
    pub(crate) batches: u64,
    pub(crate) rows: u64,
    /// Size of the Arrow bodies.
    pub(crate) bytes: u64,
    pub(crate) batches_per_second: Option<f64>,
    pub(crate) rows_per_second: Option<f64>,
    pub(crate) bytes_per_second: Option<f64>,
    pub(crate) slowest_stream_rows_per_second: Option<f64>,
    pub(crate) fastest_stream_rows_per_second: Option<f64>,
    /// Rate of the slowest stream divided by that of the fastest; 1 is fair.
    pub(crate) fairness_ratio: Option<f64>,
    /// From an epoch's request to its first batch.
    pub(crate) first_batch: Times,
    /// Time until a batch arrives: in a closed loop since its request, without first batches; in an open loop since it
    /// was due.
    pub(crate) batch_latency: Times,
    /// Open loop: batches due but not received when the run stopped.
    pub(crate) overdue_batches: u64,
    /// The server's stage times for the measured batches, summed over streams.
    pub(crate) fetch_seconds: f64,
    pub(crate) queue_seconds: f64,
    pub(crate) decode_seconds: f64,
    pub(crate) transform_seconds: f64,
    pub(crate) udf_seconds: f64,
    pub(crate) assemble_seconds: f64,
    pub(crate) send_wait_seconds: f64,
    /// Bottleneck: "schedule", "wire", "storage", "functions" or "cpu".
    pub(crate) bound_by: Option<Bound>,
    /// CPU time of the client, user and system.
    pub(crate) cpu_seconds: f64,
    /// Per 10^9 bytes.
    pub(crate) cpu_seconds_per_gigabyte: Option<f64>,
    pub(crate) retries: u64,
    /// By gRPC code.
    pub(crate) errors: BTreeMap<&'static str, u64>,
    pub(crate) failed_streams: usize,
    pub(crate) streams: Vec<Part>,
    pub(crate) throughput: Vec<Rate>,
    pub(crate) batch_latency_distribution: Vec<Bin>,
}

/// Quantiles of a distribution of times, within 0.1 %.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Times {
    pub(crate) count: u64,
    pub(crate) min_seconds: Option<f64>,
    pub(crate) mean_seconds: Option<f64>,
    pub(crate) p50_seconds: Option<f64>,
    pub(crate) p90_seconds: Option<f64>,
    pub(crate) p99_seconds: Option<f64>,
    pub(crate) p99_9_seconds: Option<f64>,
    pub(crate) max_seconds: Option<f64>,
}

/// Results of one stream.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Part {
    pub(crate) stream: usize,
    pub(crate) client: usize,
    pub(crate) rank: usize,
    pub(crate) epochs: u64,
    pub(crate) batches: u64,
    pub(crate) rows: u64,
    pub(crate) bytes: u64,
    pub(crate) seconds: f64,
    pub(crate) rows_per_second: Option<f64>,
}

/// Number of batches with a latency in an interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Bin {
    pub(crate) from_seconds: f64,
    pub(crate) to_seconds: f64,
    pub(crate) batches: u64,
}

// === impl Report ===

impl Report {
    pub(crate) fn new(settings: &Settings, outcome: &Outcome) -> Self {
        let counted = &outcome.counted;
        let wall_seconds = outcome.wall.as_secs_f64();
        let streams: Vec<Part> = outcome.streams.iter().map(|stream| Part::new(stream, settings.streams)).collect();
        let rates = || {
            streams
                .iter()
                .filter(|stream| !stream.is_without_rows(settings.end))
                .filter_map(|stream| stream.rows_per_second)
        };
        let slowest = rates().min_by(f64::total_cmp);
        let fastest = rates().max_by(f64::total_cmp);
        let cpu_seconds = outcome.cpu.as_secs_f64();
        let stages = &counted.stages;
        let stream_seconds = streams.iter().map(|stream| stream.seconds).sum();
        let lanes = outcome.info.lanes as f64 / outcome.world_size.max(1) as f64;
        let request = &settings.request;
        let (r#loop, rate) = match settings.pace {
            Pace::Closed => ("closed", None),
            Pace::Open { interval } => ("open", Some(1.0 / interval.as_secs_f64())),
        };
        Self {
            dataset: request.dataset.clone(),
            plan_id: outcome.info.plan_id.clone(),
            snapshot: outcome.info.snapshot.clone(),
            clients: settings.clients,
            streams_per_client: settings.streams,
            world_size: outcome.world_size,
            batch_size_rows: request.batch_size.unwrap_or(forebay_client::BATCH_SIZE_DEFAULT),
            shuffle: request.shuffle,
            r#loop,
            rate_batches_per_second: rate,
            is_verified: settings.verify,
            was_interrupted: outcome.was_interrupted,
            warm_up_seconds: settings.warm_up.as_secs_f64(),
            wall_seconds,
            epochs: streams.iter().map(|stream| stream.epochs).sum(),
            batches: counted.batches,
            rows: counted.rows,
            bytes: counted.bytes,
            batches_per_second: ratio(counted.batches as f64, wall_seconds),
            rows_per_second: ratio(counted.rows as f64, wall_seconds),
            bytes_per_second: ratio(counted.bytes as f64, wall_seconds),
            slowest_stream_rows_per_second: slowest,
            fastest_stream_rows_per_second: fastest,
            fairness_ratio: slowest.zip(fastest).and_then(|(slowest, fastest)| ratio(slowest, fastest)),
            first_batch: Times::new(&counted.first_batch),
            batch_latency: Times::new(&counted.latency),
            overdue_batches: outcome.streams.iter().map(|stream| stream.overdue).sum(),
            fetch_seconds: stages.fetch,
            queue_seconds: stages.queue,
            decode_seconds: stages.decode,
            transform_seconds: stages.transform,
            udf_seconds: stages.udf,
            assemble_seconds: stages.assemble,
            send_wait_seconds: stages.send_wait,
            bound_by: Bound::of(stages, stream_seconds, counted.waited.as_secs_f64(), lanes),
            cpu_seconds,
            cpu_seconds_per_gigabyte: ratio(cpu_seconds, counted.bytes as f64 / 1e9),
            retries: counted.retries,
            errors: counted.errors.clone(),
            failed_streams: outcome.failures.len(),
            streams,
            throughput: outcome.rates.clone(),
            batch_latency_distribution: bins(&counted.latency),
        }
    }

    /// Returns a one-line description of the run.
    pub(crate) fn title(&self) -> String {
        let plural = |count: usize, name: &str| format!("{count} {name}{}", if count == 1 { "" } else { "s" });
        let clients = plural(self.clients, "client");
        let streams = plural(self.streams_per_client, "stream");
        let pace = match self.rate_batches_per_second {
            None => "closed loop".to_owned(),
            // Rounding undoes the conversion from an interval.
            Some(rate) => format!("open loop of {} batches/s a stream", (rate * 1e3).round() / 1e3),
        };
        let order = if self.shuffle { ", shuffled" } else { "" };
        let Self { dataset, world_size, batch_size_rows, .. } = self;
        format!(
            "{dataset}: {clients} × {streams}, {pace}, world size {world_size}, {batch_size_rows} rows a batch{order}"
        )
    }
}

impl Times {
    fn new(histogram: &Histogram<u64>) -> Self {
        let seconds = |nanoseconds: u64| (!histogram.is_empty()).then_some(nanoseconds as f64 / NANOSECONDS);
        let quantile = |share| seconds(histogram.value_at_quantile(share));
        Self {
            count: histogram.len(),
            min_seconds: seconds(histogram.min()),
            mean_seconds: (!histogram.is_empty()).then(|| histogram.mean() / NANOSECONDS),
            p50_seconds: quantile(0.5),
            p90_seconds: quantile(0.9),
            p99_seconds: quantile(0.99),
            p99_9_seconds: quantile(0.999),
            max_seconds: seconds(histogram.max()),
        }
    }
}

impl Part {
    fn new(stream: &StreamOutcome, streams_per_client: usize) -> Self {
        let seconds = stream.time.as_secs_f64();
        Self {
            stream: stream.number,
            client: stream.number / streams_per_client.max(1),
            rank: stream.rank,
            epochs: stream.tally.epochs,
            batches: stream.tally.batches,
            rows: stream.tally.rows,
            bytes: stream.tally.bytes,
            seconds,
            rows_per_second: ratio(stream.tally.rows as f64, seconds),
        }
    }

    /// Whether the rank had no rows, so that the stream is left out of fairness. A starved stream is not.
    fn is_without_rows(&self, end: RunEnd) -> bool {
        let is_done = match end {
            RunEnd::Epochs(epochs) => self.epochs == epochs,
            RunEnd::Duration(_) => self.epochs > 0,
        };
        is_done && self.rows == 0
    }
}

/// Divides, unless the divisor is 0.
fn ratio(part: f64, whole: f64) -> Option<f64> {
    (whole > 0.0).then(|| part / whole)
}

/// Returns bins of equal width on a logarithmic axis, from the lowest latency to the highest.
fn bins(histogram: &Histogram<u64>) -> Vec<Bin> {
    let edge = |bin: i32| 10_f64.powf(f64::from(bin) / f64::from(BINS_PER_DECADE)) / NANOSECONDS;
    let bin_of = |nanoseconds: u64| (nanoseconds.max(1) as f64).log10() * f64::from(BINS_PER_DECADE);
    let mut counts = BTreeMap::<i32, u64>::new();
    for recorded in histogram.iter_recorded() {
        let bin = bin_of(recorded.value_iterated_to()).floor() as i32;
        *counts.entry(bin).or_default() += recorded.count_at_value();
    }
    let (Some(&first), Some(&last)) = (counts.keys().next(), counts.keys().next_back()) else { return Vec::new() };
    let bin = |bin| Bin {
        from_seconds: edge(bin),
        to_seconds: edge(bin + 1),
        batches: counts.get(&bin).copied().unwrap_or_default(),
    };
    (first..=last).map(bin).collect()
}

#[cfg(test)]
mod tests;
