//! Rates, shares and bottlenecks derived from two readings of a page. Performs no I/O.
//!
//! Unknown values are `None`, never 0: those of a server that is down, rates of a first reading, and rates across a
//! restart of the server.

use forebay_client::StageSeconds;
use serde::Serialize;

use super::reading::{Reading, STAGES, StreamName, StreamReading};
use crate::load::Bound;

/// Tolerance, in seconds, for a process's reported start time, which changes when the machine's clock is set.
const START_SECONDS: f64 = 1.5;

/// State of all servers at one moment.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Snapshot {
    /// Time in seconds since 1970.
    pub(crate) unix_seconds: f64,
    pub(crate) servers: Vec<ServerFigures>,
    pub(crate) streams: Vec<StreamFigures>,
}

/// Figures of a server. Rates are per second, over the time between its last two pages.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct ServerFigures {
    pub(crate) url: String,
    pub(crate) up: bool,
    /// Error, if it is not up.
    pub(crate) error: Option<String>,
    /// Age of the last page.
    pub(crate) age_seconds: Option<f64>,
    pub(crate) version: Option<String>,
    /// Whether it accepts new streams.
    pub(crate) ready: Option<bool>,
    pub(crate) uptime_seconds: Option<f64>,
    pub(crate) streams_active: Option<u64>,
    pub(crate) rows_per_second: Option<f64>,
    pub(crate) bytes_per_second: Option<f64>,
    pub(crate) batches_per_second: Option<f64>,
    pub(crate) stages: Stages,
    pub(crate) bound_by: Option<Limit>,
    pub(crate) memory_reserved_bytes: Option<u64>,
    pub(crate) memory_limit_bytes: Option<u64>,
    pub(crate) cpu_threads: Option<u64>,
    /// Busy share of those threads, from 0 to 1.
    pub(crate) cpu_busy_share: Option<f64>,
    pub(crate) resident_memory_bytes: Option<u64>,
    pub(crate) open_fds: Option<u64>,
    pub(crate) max_fds: Option<u64>,
    pub(crate) storage_read_bytes_per_second: Option<f64>,
    pub(crate) storage_errors_per_second: Option<f64>,
    pub(crate) storage_retries_per_second: Option<f64>,
    pub(crate) fits_active: Option<u64>,
    pub(crate) exchanges_active: Option<u64>,
    /// Calls that failed with a server error.
    pub(crate) failed_requests_per_second: Option<f64>,
}

/// Figures of an open stream.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct StreamFigures {
    /// URL of the server's page.
    pub(crate) server: String,
    /// The request's id.
    pub(crate) id: String,
    pub(crate) dataset: String,
    /// `None` for a raw table, like the rank.
    pub(crate) epoch: Option<u64>,
    pub(crate) rank: Option<u64>,
    /// Next global position.
    pub(crate) position: Option<u64>,
    pub(crate) rows_per_second: Option<f64>,
    pub(crate) bytes_per_second: Option<f64>,
    pub(crate) open_seconds: Option<f64>,
    pub(crate) stages: Stages,
}

/// Seconds per second that streams spend in each stage, summed over concurrent lanes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Stages {
    /// Waiting for storage.
    pub(crate) fetch: Option<f64>,
    /// Waiting for a CPU thread. Absent on pages of older servers.
    pub(crate) queue: Option<f64>,
    pub(crate) decode: Option<f64>,
    pub(crate) transform: Option<f64>,
    /// Waiting for Python functions. Absent on pages of older servers.
    pub(crate) udf: Option<f64>,
    pub(crate) assemble: Option<f64>,
    /// Waiting for clients.
    pub(crate) send_wait: Option<f64>,
}

/// Bottleneck of a server's streams, as far as the server can observe it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) enum Limit {
    /// Batches wait for clients, as intended. Only the client can distinguish itself from the wire
    /// (`data.stats()["bound_by"]`).
    #[serde(rename = "trainer or wire")]
    TrainerOrWire,
    #[serde(rename = "storage")]
    Storage,
    #[serde(rename = "functions")]
    Functions,
    #[serde(rename = "cpu")]
    Cpu,
}

/// Time between two readings of one process.
struct Interval<'a> {
    earlier: &'a Reading,
    later: &'a Reading,
    seconds: f64,
}

// === impl ServerFigures ===

impl ServerFigures {
    /// Returns the figures of a server that did not respond.
    pub(super) fn down(url: String, error: String) -> Self {
        Self { url, error: Some(error), ..Self::default() }
    }

    /// Returns the figures of a server from its last response and the one before, if any.
    pub(super) fn new(url: String, earlier: Option<&Reading>, later: &Reading) -> Self {
        let interval = earlier.and_then(|earlier| Interval::new(earlier, later));
        let count = |name: &str| later.total(name).map(whole);
        let rate_of = |value: fn(&Reading) -> Option<f64>| interval.as_ref()?.rate(value);
        let rate = |name: &str| interval.as_ref()?.rate(|reading| reading.total(name));
        let stages = interval.as_ref().map_or(Stages::default(), Interval::stages);
        let batches_per_second = rate("forebay_batches_sent_total");
        let cpu_threads = later.total("forebay_cpu_threads");
        let busy = rate("forebay_cpu_busy_seconds_total").zip(cpu_threads.filter(|threads| *threads > 0.0));
        Self {
            url,
            up: true,
            error: None,
            age_seconds: Some(later.at.elapsed().as_secs_f64()),
            version: (!later.version.is_empty()).then(|| later.version.clone()),
            ready: later.total("forebay_ready").map(|ready| ready > 0.0),
            // The clocks of the two machines can differ.
            uptime_seconds: later
                .total("forebay_process_start_time_seconds")
                .map(|start| (later.unix_seconds - start).max(0.0)),
            streams_active: count("forebay_streams_active"),
            rows_per_second: rate("forebay_rows_sent_total"),
            bytes_per_second: rate("forebay_sent_bytes_total"),
            batches_per_second,
            stages,
            bound_by: interval.as_ref().and_then(|interval| interval.bound_by(&stages, batches_per_second?)),
            memory_reserved_bytes: count("forebay_memory_reserved_bytes"),
            memory_limit_bytes: count("forebay_memory_limit_bytes"),
            cpu_threads: cpu_threads.map(whole),
            cpu_busy_share: busy.map(|(busy, threads)| (busy / threads).min(1.0)),
            resident_memory_bytes: count("forebay_process_resident_memory_bytes"),
            open_fds: count("forebay_process_open_fds"),
            max_fds: count("forebay_process_max_fds"),
            storage_read_bytes_per_second: rate("forebay_storage_read_bytes_total"),
            storage_errors_per_second: rate_of(Reading::storage_errors),
            storage_retries_per_second: rate("forebay_storage_retries_total"),
            fits_active: count("forebay_fits_active"),
            exchanges_active: count("forebay_exchanges_active"),
            failed_requests_per_second: rate_of(Reading::failed_requests),
        }
    }
}

/// Returns the open streams of a server.
pub(super) fn streams(url: &str, earlier: Option<&Reading>, later: &Reading) -> Vec<StreamFigures> {
    let interval = earlier.and_then(|earlier| Interval::new(earlier, later));
    later.streams.iter().map(|(name, now)| stream(url, name, interval.as_ref(), now)).collect()
}

fn stream(url: &str, name: &StreamName, interval: Option<&Interval>, now: &StreamReading) -> StreamFigures {
    let unseen = StreamReading { rows: Some(0.0), bytes: Some(0.0), stages: [Some(0.0); STAGES.len()], ..*now };
    // A stream opened since the last reading started at 0; an older one was not on that page.
    let before = interval.and_then(|interval| match interval.earlier.streams.get(name) {
        Some(before) => Some((before, interval.seconds)),
        None => now.open_seconds.filter(|open| *open <= interval.seconds).map(|_| (&unseen, interval.seconds)),
    });
    let rate = |value: &dyn Fn(&StreamReading) -> Option<f64>| {
        let (before, seconds) = before?;
        change(value(before)?, value(now)?).map(|change| change / seconds)
    };
    StreamFigures {
        server: url.to_owned(),
        id: name.id.clone(),
        dataset: name.dataset.clone(),
        epoch: name.epoch.parse().ok(),
        rank: name.rank.parse().ok(),
        position: now.position.map(whole),
        rows_per_second: rate(&|reading| reading.rows),
        bytes_per_second: rate(&|reading| reading.bytes),
        open_seconds: now.open_seconds,
        stages: Stages::new(|index| rate(&|reading| reading.stages[index])),
    }
}

// === impl Interval ===

impl<'a> Interval<'a> {
    /// Returns `None` if the server restarted in between.
    fn new(earlier: &'a Reading, later: &'a Reading) -> Option<Self> {
        let seconds = later.at.saturating_duration_since(earlier.at).as_secs_f64();
        let start = |reading: &Reading| reading.total("forebay_process_start_time_seconds");
        let is_other = start(earlier).zip(start(later)).is_some_and(|(one, other)| (one - other).abs() > START_SECONDS);
        let fell = ["forebay_rows_sent_total", "forebay_sent_bytes_total", "forebay_batches_sent_total"]
            .iter()
            .any(|name| earlier.total(name).zip(later.total(name)).is_some_and(|(before, now)| now < before));
        (seconds > 0.0 && !is_other && !fell).then_some(Self { earlier, later, seconds })
    }

    fn rate(&self, value: impl Fn(&Reading) -> Option<f64>) -> Option<f64> {
        change(value(self.earlier)?, value(self.later)?).map(|change| change / self.seconds)
    }

    fn stages(&self) -> Stages {
        Stages::new(|index| self.rate(|reading| reading.stage(index)))
    }

    /// Applies the rule of `forebay load` as far as a page permits: it assumes that clients take batches immediately
    /// and that no more lanes wait concurrently than their waiting times imply.
    fn bound_by(&self, stages: &Stages, batches_per_second: f64) -> Option<Limit> {
        // Stage times are recorded when a batch is sent: without one the wait is unknown.
        if batches_per_second <= 0.0 {
            return None;
        }
        let active = |reading: &Reading| reading.total("forebay_streams_active");
        // At least one stream was open, if only between the readings.
        let streams = active(self.earlier)?.midpoint(active(self.later)?).max(1.0);
        let seconds = stages.seconds()?;
        let lanes = seconds.fetch.max(seconds.queue) / streams;
        match Bound::of(&seconds, streams, streams, lanes)? {
            Bound::Wire | Bound::Schedule => Some(Limit::TrainerOrWire),
            Bound::Storage => Some(Limit::Storage),
            Bound::Functions => Some(Limit::Functions),
            Bound::Cpu => Some(Limit::Cpu),
        }
    }
}

// === impl Stages ===

impl Stages {
    fn new(of: impl Fn(usize) -> Option<f64>) -> Self {
        Self {
            fetch: of(0),
            queue: of(1),
            decode: of(2),
            transform: of(3),
            udf: of(4),
            assemble: of(5),
            send_wait: of(6),
        }
    }

    /// In the order of the stages.
    pub(crate) fn each(&self) -> [Option<f64>; STAGES.len()] {
        [self.fetch, self.queue, self.decode, self.transform, self.udf, self.assemble, self.send_wait]
    }

    fn seconds(&self) -> Option<StageSeconds> {
        Some(StageSeconds {
            fetch: self.fetch?,
            queue: self.queue.unwrap_or(0.0),
            decode: self.decode?,
            transform: self.transform?,
            udf: self.udf.unwrap_or(0.0),
            assemble: self.assemble?,
            send_wait: self.send_wait?,
        })
    }
}

// === impl Limit ===

impl Limit {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::TrainerOrWire => "trainer or wire",
            Self::Storage => "storage",
            Self::Functions => "functions",
            Self::Cpu => "CPU",
        }
    }
}

/// Returns a counter's increase, or `None` if it decreased.
fn change(before: f64, now: f64) -> Option<f64> {
    (now >= before).then_some(now - before)
}

fn whole(value: f64) -> u64 {
    value.round() as u64
}

#[cfg(test)]
mod tests;
