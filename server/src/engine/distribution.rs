//! Medians and quantiles of a column: exact for up to a million distinct values, else from a t-digest.
//!
//! The choice between the two, and the t-digest, depend only on the rows and their order, not on the sizes of batches
//! or on the available memory.

use std::{collections::HashMap, sync::Arc};

use arrow::{
    array::{AsArray, RecordBatch},
    datatypes::{DataType, Field, Float64Type, Int64Type, Schema, SchemaRef, UInt64Type},
};
use datafusion_common::exec_datafusion_err;
use datafusion_execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion_functions_aggregate_common::tdigest::{Centroid, TDigest};

use super::{Engine, EngineError, Job, job::Fold};

/// Distinct values up to which quantiles are exact.
pub const EXACT_VALUES_MAX: usize = 1 << 20;

/// Bytes of a distinct value in the hash table of counts: 16 for the pair and one for the control byte, at a load of
/// 7/8 or, after the table has doubled, half of that, plus the old table while it doubles.
const VALUE_BYTES: usize = 3 * 20;

/// Values per memory reservation.
const RESERVATION_VALUES: usize = 1 << 14;

/// Centroids of a t-digest: enough to keep the error of quantiles within [`SKETCH_SHARE_ERROR_MAX`].
const CENTROIDS_MAX: usize = 4096;

/// Values per merge into the t-digest.
const MERGE_VALUES: usize = 1 << 15;

/// Largest rank error of a quantile of more than [`EXACT_VALUES_MAX`] distinct values: the distance between the
/// requested share of rows and the range of shares that the returned value covers. Tests verify it.
pub const SKETCH_SHARE_ERROR_MAX: f64 = 1e-3;

/// A value with more than one row in this many is counted separately once the t-digest starts: the digest would blur it
/// with its neighbours (an amount that is mostly 0, a code for "unknown").
const SPIKE_ROWS: u64 = 2048;

/// The distribution of a column's values.
#[derive(Clone, Debug)]
pub struct Distribution {
    spread: Spread,
    /// Whether a value is infinite.
    is_infinite: bool,
}

#[derive(Clone, Debug)]
enum Spread {
    /// Distinct values ascending, each with the number of rows up to and including it.
    Exact { values: Vec<f64>, ends: Vec<u64> },
    /// The same for integers.
    Whole { values: Vec<i128>, ends: Vec<u64> },
    Sketch {
        digest: TDigest,
        /// Ascending.
        spikes: Vec<Spike>,
    },
}

/// A very frequent value.
#[derive(Clone, Copy, Debug)]
struct Spike {
    value: f64,
    rows: u64,
    /// Rows of the digest below the value.
    digest_rows_below: f64,
}

/// Collects values into exact counts, or into a t-digest once there are too many distinct ones.
#[derive(Debug)]
struct Collector {
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
enum NumberKind {
    Float,
    Integer,
    Unsigned,
}

impl Engine {
    /// Starts a job that computes the distribution of the non-null values of a column of float64, int64 or uint64. Push
    /// batches of that one column, with −0 replaced by 0 and NaN by null.
    pub fn distribution(&self, data_type: &DataType) -> Job<Option<Distribution>> {
        let memory = MemoryConsumer::new("distinct numbers").register(self.context.memory_pool());
        Job::start_fold(Collector::new(NumberKind::of(data_type), EXACT_VALUES_MAX, memory))
    }

    /// Returns the number of [`Self::distribution`] jobs that fit half of the engine's pool; more need another pass.
    pub fn distributions_max(&self) -> usize {
        (self.pool_bytes / 2 / (EXACT_VALUES_MAX * VALUE_BYTES)).max(1)
    }
}

/// Returns the schema of a distribution's input.
pub fn distribution_schema(data_type: &DataType) -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new("value", data_type.clone(), true)]))
}

// === impl Distribution ===

impl Distribution {
    /// Returns the quantile of a share of the rows, linear between neighbours, like `numpy.quantile`.
    pub fn quantile(&self, share: f64) -> f64 {
        match &self.spread {
            Spread::Exact { values, ends } => {
                let (a, b, t) = neighbours(values, ends, share);
                between(a, b, t)
            }
            Spread::Whole { values, ends } => {
                let (a, b, t) = neighbours(values, ends, share);
                between(a as f64, b as f64, t)
            }
            Spread::Sketch { digest, spikes } => sketched_quantile(digest, spikes, share),
        }
    }
}

/// Returns whether a double represents this integer exactly.
fn is_double(whole: i128) -> bool {
    whole as f64 as i128 == whole
}

/// Returns the values of the two rows around a quantile, and its relative distance from the first.
fn neighbours<T: Copy>(values: &[T], ends: &[u64], share: f64) -> (T, T, f64) {
    let last = ends.last().map_or(0, |sum| sum - 1);
    let row = |index: u64| values[ends.partition_point(|end| *end <= index)];
    let place = share * last as f64;
    let below = (place.floor() as u64).min(last);
    (row(below), row((below + 1).min(last)), place - place.floor())
}

fn between(a: f64, b: f64, t: f64) -> f64 {
    if t <= 0.0 || a >= b {
        // Also where a neighbour is infinite.
        return a;
    }
    let distance = b - a;
    if distance.is_infinite() && a.is_finite() && b.is_finite() {
        // Halving and doubling are exact for numbers this large.
        return 2.0 * between(a / 2.0, b / 2.0, t);
    }
    // The formula of numpy, which is exact at both ends.
    if t >= 0.5 { b - distance * (1.0 - t) } else { a + distance * t }
}

/// Returns `a + (b - a) * t`, with `t` from 0 to 1, rounded up to an integer.
fn whole_between(a: i128, b: i128, t: f64) -> i128 {
    if t <= 0.0 || a >= b {
        return a;
    }
    let bits = t.to_bits();
    // t = mantissa / 2^shift. b - a is below 2^65, so the product is below 2^118, and every larger shift yields 0.
    let (mantissa, shift) = (i128::from(bits & ((1 << 52) - 1) | 1 << 52), (1075 - (bits >> 52)).min(126));
    let product = (b - a) * mantissa;
    let floor = product >> shift;
    a + floor + i128::from(floor << shift != product)
}

impl Distribution {
    /// Returns whether a value is infinite; then quantiles may be infinite, too.
    pub fn is_infinite(&self) -> bool {
        self.is_infinite
    }

    /// Returns the median of integers if it is an integer that a double cannot represent.
    pub fn whole_median(&self) -> Option<i128> {
        let Spread::Whole { values, ends } = &self.spread else { return None };
        let (a, b, t) = neighbours(values, ends, 0.5);
        let twice = if t > 0.0 { a + b } else { 2 * a };
        (twice % 2 == 0 && !is_double(twice / 2)).then_some(twice / 2)
    }

    /// Returns the quantiles of integers, rounded up, if doubles cannot represent them. Rounding up changes no
    /// comparison with an integer.
    pub fn whole_quantiles(&self, shares: impl Iterator<Item = f64>) -> Option<Vec<i128>> {
        let Spread::Whole { values, ends } = &self.spread else { return None };
        let edges: Vec<_> = shares.map(|share| neighbours(values, ends, share)).collect();
        if edges.iter().all(|(a, b, _)| [a, b].iter().all(|edge| edge.unsigned_abs() <= 1 << f64::MANTISSA_DIGITS)) {
            return None;
        }
        Some(edges.into_iter().map(|(a, b, t)| whole_between(a, b, t)).collect())
    }
}

/// Returns the value at a share of the rows: a spike, or the digest's estimate.
fn sketched_quantile(digest: &TDigest, spikes: &[Spike], share: f64) -> f64 {
    let spike_rows: u64 = spikes.iter().map(|spike| spike.rows).sum();
    let rank = share * (digest.count() + spike_rows as f64);
    let (mut least, mut most, mut rows_below) = (f64::NEG_INFINITY, f64::INFINITY, 0_u64);
    for spike in spikes {
        let start = spike.digest_rows_below + rows_below as f64;
        if rank < start {
            most = spike.value;
            break;
        }
        if rank <= start + spike.rows as f64 {
            return spike.value;
        }
        least = spike.value;
        rows_below += spike.rows;
    }
    let digest_share = (rank - rows_below as f64) / digest.count();
    digest.estimate_quantile(digest_share).max(least).min(most)
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

// === impl Collector ===

impl Collector {
    fn new(kind: NumberKind, exact_values_max: usize, memory: MemoryReservation) -> Self {
        let (counts, sketch) = (HashMap::new(), None);
        let (spikes, waiting) = (Vec::new(), Vec::new());
        Self { exact_values_max, kind, is_infinite: false, counts, sketch, spikes, waiting, memory }
    }

    fn add(&mut self, bits: u64) -> Result<(), EngineError> {
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
        let column = batch.column(0);
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

    fn finish(mut self) -> Result<Self::Output, EngineError> {
        self.merge_waiting();
        let is_infinite = self.is_infinite;
        if let Some(digest) = self.sketch {
            let spike = |(value, rows)| Spike { value, rows, digest_rows_below: rows_below(&digest, value) };
            let spikes = self.spikes.into_iter().map(spike).collect();
            return Ok(Some(Distribution { spread: Spread::Sketch { digest, spikes }, is_infinite }));
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
            return Ok(None);
        }
        let spread = match kind {
            NumberKind::Float => Spread::Exact { values: bits.into_iter().map(f64::from_bits).collect(), ends },
            NumberKind::Integer | NumberKind::Unsigned => {
                Spread::Whole { values: bits.into_iter().map(|bits| kind.whole(bits)).collect(), ends }
            }
        };
        Ok(Some(Distribution { spread, is_infinite }))
    }
}

// === impl NumberKind ===

impl NumberKind {
    fn of(data_type: &DataType) -> Self {
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
    fn whole(self, bits: u64) -> i128 {
        if self == Self::Integer { bits.cast_signed().into() } else { bits.into() }
    }

    fn compare(self, a: u64, b: u64) -> std::cmp::Ordering {
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

#[cfg(test)]
mod tests;
