//! The time that streams spend in each stage.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

/// A stage of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Waiting for storage.
    Fetch,
    /// Waiting for a thread of the CPU pool.
    Queue,
    /// Parquet pages to Arrow arrays.
    Decode,
    /// Filter and derived columns.
    Transform,
    /// Waiting for Python functions.
    Udf,
    /// Ops and row-major matrices.
    Assemble,
    /// Waiting for the client to take a batch.
    SendWait,
}

/// Time spent in each stage, for one batch.
#[derive(Clone, Copy, Debug, Default)]
pub struct StageTimes([Duration; Stage::ALL.len()]);

/// Totals of stage times. Counters of the recorder are integers, so these are stored in nanoseconds here.
#[derive(Debug)]
pub(super) struct StageTotals([AtomicU64; Stage::ALL.len()]);

/// Totals of all streams.
pub(super) static ALL_STREAMS: StageTotals = StageTotals::new();

// === impl Stage ===

impl Stage {
    /// Every stage, in order.
    pub const ALL: [Self; 7] =
        [Self::Fetch, Self::Queue, Self::Decode, Self::Transform, Self::Udf, Self::Assemble, Self::SendWait];

    /// Returns its label.
    pub fn label(self) -> &'static str {
        match self {
            Self::Fetch => "fetch",
            Self::Queue => "queue",
            Self::Decode => "decode",
            Self::Transform => "transform",
            Self::Udf => "udf",
            Self::Assemble => "assemble",
            Self::SendWait => "send_wait",
        }
    }
}

// === impl StageTimes ===

impl StageTimes {
    /// Adds the time since `start` to a stage.
    pub fn add_since(&mut self, stage: Stage, start: Instant) {
        self.add(stage, start.elapsed());
    }

    /// Adds time to a stage.
    pub fn add(&mut self, stage: Stage, time: Duration) {
        self.0[stage as usize] += time;
    }

    /// Adds the time since `start` in which a row group was opened: `fetch_time` at most was spent waiting for storage, and
    /// the rest waiting until its decoders could be opened.
    pub fn add_opened(&mut self, start: Instant, fetch_time: Duration) {
        let waited = start.elapsed();
        let fetched = waited.min(fetch_time);
        self.add(Stage::Fetch, fetched);
        self.add(Stage::Queue, waited.saturating_sub(fetched));
    }

    /// Adds the times of another task.
    pub fn merge(&mut self, other: Self) {
        self.0.iter_mut().zip(other.0).for_each(|(time, more)| *time += more);
    }

    /// Returns the time of a stage.
    pub fn of(&self, stage: Stage) -> Duration {
        self.0[stage as usize]
    }

    /// Adds these times to `forebay_stage_seconds_total`.
    pub fn record(&self) {
        ALL_STREAMS.add(self);
    }
}

// === impl StageTotals ===

impl StageTotals {
    pub(super) const fn new() -> Self {
        Self([const { AtomicU64::new(0) }; Stage::ALL.len()])
    }

    pub(super) fn add(&self, times: &StageTimes) {
        for (total, time) in self.0.iter().zip(times.0) {
            total.fetch_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
        }
    }

    pub(super) fn seconds(&self, stage: Stage) -> f64 {
        Duration::from_nanos(self.0[stage as usize].load(Ordering::Relaxed)).as_secs_f64()
    }
}
