//! Measurements of all streams, recorded batch by batch.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use forebay_client::{BatchHeader, Error, StageSeconds, code_name};
use hdrhistogram::{CreationError, Histogram};
use tonic::Code;

use super::{bound::add, timeline::Total};

/// Significant digits of latencies: 0.1 %.
const LATENCY_DIGITS: u8 = 3;

/// Highest recorded wait, to which longer ones are clamped: 30 days, four times the longest run.
const NANOSECONDS_MAX: u64 = 30 * 24 * 3600 * 1_000_000_000;

/// Measurements of a run. From the warm-up, before `begin`, it keeps only errors, retries and times to first batches,
/// of which most streams have just one.
///
/// All streams share one lock. It is held for about 50 ns per batch, so even 100,000 batches/s leave it mostly free.
#[derive(Debug)]
pub(super) struct Measures {
    begin: Instant,
    counted: Mutex<Counted>,
}

/// Measurements so far.
#[derive(Clone, Debug)]
pub(crate) struct Counted {
    pub(crate) batches: u64,
    pub(crate) rows: u64,
    /// Size of the Arrow bodies.
    pub(crate) bytes: u64,
    /// Includes the warm-up.
    pub(crate) rows_ever: u64,
    /// Nanoseconds.
    pub(crate) latency: Histogram<u64>,
    /// Nanoseconds.
    pub(crate) first_batch: Histogram<u64>,
    /// The server's stage times.
    pub(crate) stages: StageSeconds,
    /// Time spent waiting for measured batches.
    pub(crate) waited: Duration,
    /// By name of the gRPC code.
    pub(crate) errors: BTreeMap<&'static str, u64>,
    pub(crate) retries: u64,
}

impl Measures {
    pub(super) fn new(begin: Instant) -> Result<Self, CreationError> {
        let histogram = Histogram::new_with_bounds(1, NANOSECONDS_MAX, LATENCY_DIGITS)?;
        let counted = Counted {
            batches: 0,
            rows: 0,
            bytes: 0,
            rows_ever: 0,
            first_batch: histogram.clone(),
            latency: histogram,
            stages: StageSeconds::default(),
            waited: Duration::ZERO,
            errors: BTreeMap::new(),
            retries: 0,
        };
        Ok(Self { begin, counted: Mutex::new(counted) })
    }

    /// Records a batch with the time it was waited for and its latency, if that is measured. Returns whether the batch
    /// is past the warm-up.
    pub(super) fn batch(
        &self,
        arrived: Instant,
        header: &BatchHeader,
        bytes: u64,
        waited: Duration,
        latency: Option<Duration>,
    ) -> bool {
        let rows = header.rows;
        let mut counted = self.counted();
        counted.rows_ever += rows;
        if arrived < self.begin {
            return false;
        }
        counted.batches += 1;
        counted.rows += rows;
        counted.bytes += bytes;
        if let Some(stages) = &header.stage_seconds {
            add(&mut counted.stages, stages);
        }
        counted.waited += waited;
        if let Some(latency) = latency {
            record(&mut counted.latency, latency);
        }
        true
    }

    pub(super) fn first_batch(&self, time: Duration) {
        record(&mut self.counted().first_batch, time);
    }

    /// Records an error of the client library, or corrupt data if there is none.
    pub(super) fn error(&self, error: Option<&Error>) {
        let code = error.map_or(Code::DataLoss, code);
        *self.counted().errors.entry(code_name(code)).or_default() += 1;
    }

    pub(super) fn retry(&self) {
        self.counted().retries += 1;
    }

    /// Returns the totals at the instant `now`.
    pub(super) fn total(&self, now: Instant) -> Total {
        let counted = self.counted();
        let seconds = now.saturating_duration_since(self.begin).as_secs_f64();
        Total { seconds, rows: counted.rows, bytes: counted.bytes }
    }

    pub(super) fn rows_ever(&self) -> u64 {
        self.counted().rows_ever
    }

    pub(super) fn snapshot(&self) -> Counted {
        self.counted().clone()
    }

    fn counted(&self) -> MutexGuard<'_, Counted> {
        self.counted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn record(histogram: &mut Histogram<u64>, time: Duration) {
    histogram.saturating_record(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
}

/// Returns the gRPC code of an error, or the equivalent code.
fn code(error: &Error) -> Code {
    match error {
        Error::Status(status) => status.code(),
        // Regardless of the transport's own code.
        Error::Unreachable { .. } | Error::Handshake { .. } | Error::Disconnected { .. } => Code::Unavailable,
        _ => Code::DataLoss,
    }
}

#[cfg(test)]
mod tests {
    use tonic::Status;

    use super::*;

    #[test]
    fn counts_rows_of_the_warm_up_separately() {
        let start = Instant::now();
        let begin = start + Duration::from_secs(1);
        let measures = Measures::new(begin).unwrap();
        let wait = Duration::from_millis(1);
        let header = |rows| {
            let stage_seconds = Some(StageSeconds { decode: 0.25, ..StageSeconds::default() });
            BatchHeader { rows, stage_seconds, ..BatchHeader::default() }
        };
        assert!(!measures.batch(start, &header(10), 80, wait, Some(wait)));
        assert!(measures.batch(begin, &header(10), 80, wait, Some(wait)));
        assert!(measures.batch(begin + Duration::from_millis(2), &header(5), 40, wait, None));
        measures.first_batch(Duration::from_millis(7));
        let counted = measures.snapshot();
        assert_eq!((counted.batches, counted.rows, counted.bytes, counted.rows_ever), (2, 15, 120, 25));
        assert_eq!((counted.waited, counted.stages.decode), (2 * wait, 0.5));
        assert_eq!((counted.latency.len(), counted.first_batch.len()), (1, 1));
        let total = measures.total(begin + Duration::from_millis(500));
        assert_eq!(total, Total { seconds: 0.5, rows: 15, bytes: 120 });
    }

    #[test]
    fn counts_errors_by_code() {
        let measures = Measures::new(Instant::now()).unwrap();
        let drains = Error::Status(Box::new(Status::unavailable("drains")));
        for error in [Some(&drains), None, Some(&drains)] {
            measures.error(error);
        }
        measures.retry();
        let counted = measures.snapshot();
        assert_eq!(counted.errors, [("DATA_LOSS", 1), ("UNAVAILABLE", 2)].into());
        assert_eq!(counted.retries, 1);
    }
}
