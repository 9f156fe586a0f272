//! Collects values into exact counts, or into a t-digest once there are too many distinct ones.

use std::{cmp::Ordering, collections::HashMap};

use arrow::{
    array::{ArrayRef, AsArray, RecordBatch},
    datatypes::{DataType, Float64Type, Int64Type, UInt64Type},
};
use datafusion_common::exec_datafusion_err;
use datafusion_execution::memory_pool::MemoryReservation;
use datafusion_functions_aggregate_common::tdigest::{Centroid, TDigest};

use super::spread::{Distribution, Spike, Spread};
use crate::{EngineError, job::Fold};

/// Bytes of a distinct value in the hash table of counts: 16 for the pair and one for the control byte, at a load of
/// 7/8 or, after the table has doubled, half of that, plus the old table while it doubles.
pub(super) const VALUE_BYTES: usize = 3 * 20;

/// Values per memory reservation.
pub(super) const RESERVATION_VALUES: usize = 1 << 14;

/// Centroids of a t-digest: enough to keep the error of quantiles within [`SKETCH_SHARE_ERROR_MAX`].
const CENTROIDS_MAX: usize = 4096;

/// Values per merge into the t-digest.
pub(super) const MERGE_VALUES: usize = 1 << 15;

/// A value with more than one row in this many is counted separately once the t-digest starts: the digest would blur it
/// with its neighbours (an amount that is mostly 0, a code for "unknown").
pub(super) const SPIKE_ROWS: u64 = 2048;

/// Collects values into exact counts, or into a t-digest once there are too many distinct ones.
#[derive(Debug)]
pub(crate) struct Collector {
    exact_values_max: usize,
    kind: NumberKind,
    is_infinite: bool,
    /// Counts by the bits of the value; −0 and NaN do not occur.
    counts: HashMap<u64, u64>,
    /// The digest of all values before `waiting`; none while counts are exact.
    sketch: Option<TDigest>,
    /// Frequent values ascending, with their rows, which are not in the digest.
    spikes: Vec<(f64, u64)>,
    waiting: Vec<f64>,
    memory: MemoryReservation,
}

/// The type of the bits in `Collector::counts`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum NumberKind {
    Float,
    Integer,
    Unsigned,
}

// === impl Collector ===

impl Collector {
    pub(super) fn new(kind: NumberKind, exact_values_max: usize, memory: MemoryReservation) -> Self {
        let (counts, sketch) = (HashMap::new(), None);
        let (spikes, waiting) = (Vec::new(), Vec::new());
        Self { exact_values_max, kind, is_infinite: false, counts, sketch, spikes, waiting, memory }
    }

    /// Creates a collector of float64, int64 or uint64.
    pub(crate) fn of(data_type: &DataType, exact_values_max: usize, memory: MemoryReservation) -> Self {
        Self::new(NumberKind::of(data_type), exact_values_max, memory)
    }

    /// Adds the values that are not null.
    pub(crate) fn add_all(&mut self, column: &ArrayRef) -> Result<(), EngineError> {
        let unexpected = || exec_datafusion_err!("a distribution of {} is not supported", column.data_type());
        match self.kind {
            NumberKind::Float => {
                let values = column.as_primitive_opt::<Float64Type>().ok_or_else(unexpected)?;
                self.is_infinite |= values.iter().flatten().any(f64::is_infinite);
                values.iter().flatten().try_for_each(|value| self.add(value.to_bits()))
            }
            NumberKind::Integer => {
                let values = column.as_primitive_opt::<Int64Type>().ok_or_else(unexpected)?;
                values.iter().flatten().try_for_each(|value| self.add(value.cast_unsigned()))
            }
            NumberKind::Unsigned => {
                let values = column.as_primitive_opt::<UInt64Type>().ok_or_else(unexpected)?;
                values.iter().flatten().try_for_each(|value| self.add(value))
            }
        }
    }

    pub(super) fn add(&mut self, bits: u64) -> Result<(), EngineError> {
        if self.sketch.is_some() {
            let value = self.kind.number(bits);
            match self.spikes.binary_search_by(|(spike, _)| spike.total_cmp(&value)) {
                Ok(place) => self.spikes[place].1 += 1,
                Err(_) => self.waiting.push(value),
            }
            if self.waiting.len() == MERGE_VALUES {
                self.merge_waiting();
            }
            return Ok(());
        }
        *self.counts.entry(bits).or_default() += 1;
        if self.counts.len() > self.exact_values_max {
            self.begin_sketch()?;
        } else if self.counts.len() * VALUE_BYTES > self.memory.size() {
            self.memory.try_grow(RESERVATION_VALUES * VALUE_BYTES)?;
        }
        Ok(())
    }

    fn begin_sketch(&mut self) -> Result<(), EngineError> {
        let kind = self.kind;
        let mut sorted: Vec<(f64, u64)> =
            std::mem::take(&mut self.counts).into_iter().map(|(bits, count)| (kind.number(bits), count)).collect();
        sorted.sort_unstable_by(|(a, _), (b, _)| a.total_cmp(b));
        let rows: u64 = sorted.iter().map(|(_, count)| count).sum();
        let (spikes, others): (Vec<_>, Vec<_>) =
            sorted.into_iter().partition(|(_, count)| *count > 1 && count * SPIKE_ROWS > rows);
        self.spikes = spikes;
        self.sketch = Some(digest_of(&others)?);
        self.memory.resize(MERGE_VALUES * size_of::<f64>() + 2 * CENTROIDS_MAX * size_of::<Centroid>());
        Ok(())
    }

    /// Returns the distribution; none without values.
    pub(crate) fn distribution(mut self) -> Option<Distribution> {
        self.merge_waiting();
        let is_infinite = self.is_infinite;
        if let Some(digest) = self.sketch {
            let spike = |(value, rows)| Spike { value, rows, digest_rows_below: rows_below(&digest, value) };
            let spikes = self.spikes.into_iter().map(spike).collect();
            return Some(Distribution { spread: Spread::Sketch { digest, spikes }, is_infinite });
        }
        let kind = self.kind;
        let mut bits: Vec<u64> = self.counts.keys().copied().collect();
        bits.sort_unstable_by(|a, b| kind.compare(*a, *b));
        let ends = bits.iter().scan(0, |rows, bits| {
            *rows += self.counts.get(bits).copied().unwrap_or(0);
            Some(*rows)
        });
        let ends: Vec<u64> = ends.collect();
        if ends.is_empty() {
            return None;
        }
        let spread = match kind {
            NumberKind::Float => Spread::Exact { values: bits.into_iter().map(f64::from_bits).collect(), ends },
            NumberKind::Integer | NumberKind::Unsigned => {
                Spread::Whole { values: bits.into_iter().map(|bits| kind.whole(bits)).collect(), ends }
            }
        };
        Some(Distribution { spread, is_infinite })
    }

    fn merge_waiting(&mut self) {
        let mut values = std::mem::take(&mut self.waiting);
        values.sort_unstable_by(f64::total_cmp);
        if let Some(sketch) = &mut self.sketch {
            *sketch = sketch.merge_sorted_f64(&values);
        }
        values.clear();
        self.waiting = values;
    }
}

impl Fold for Collector {
    type Output = Option<Distribution>;

    fn push(&mut self, batch: &RecordBatch) -> Result<(), EngineError> {
        self.add_all(batch.column(0))
    }

    fn finish(self) -> Result<Self::Output, EngineError> {
        Ok(self.distribution())
    }
}

// === impl NumberKind ===

impl NumberKind {
    pub(super) fn of(data_type: &DataType) -> Self {
        match data_type {
            DataType::Int64 => Self::Integer,
            DataType::UInt64 => Self::Unsigned,
            _ => Self::Float,
        }
    }

    fn number(self, bits: u64) -> f64 {
        match self {
            Self::Float => f64::from_bits(bits),
            Self::Integer => bits.cast_signed() as f64,
            Self::Unsigned => bits as f64,
        }
    }

    /// Returns the integer of these bits; not for floats.
    pub(super) fn whole(self, bits: u64) -> i128 {
        if self == Self::Integer { bits.cast_signed().into() } else { bits.into() }
    }

    fn compare(self, a: u64, b: u64) -> Ordering {
        match self {
            Self::Float => f64::from_bits(a).total_cmp(&f64::from_bits(b)),
            Self::Integer | Self::Unsigned => self.whole(a).cmp(&self.whole(b)),
        }
    }
}

/// Returns the digest of ascending distinct values with their counts.
fn digest_of(sorted: &[(f64, u64)]) -> Result<TDigest, EngineError> {
    let centroids = sorted.iter().map(|(value, rows)| Centroid::new(*value, *rows as f64)).collect();
    let count = sorted.iter().map(|(_, rows)| *rows as f64).sum();
    let (min, max) = (sorted.first().map_or(f64::NAN, |first| first.0), sorted.last().map_or(f64::NAN, |last| last.0));
    // The sum of the values is not used.
    let whole = TDigest::try_from_parts(CENTROIDS_MAX, 0.0, count, max, min, centroids)?;
    Ok(TDigest::merge_digests([&whole]))
}

/// Estimates the digest's rows below a value, by bisection of the share.
fn rows_below(digest: &TDigest, value: f64) -> f64 {
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..f64::MANTISSA_DIGITS {
        let share = f64::midpoint(low, high);
        if digest.estimate_quantile(share) < value { low = share } else { high = share }
    }
    f64::midpoint(low, high) * digest.count()
}
