//! How the values of a column are spread: medians and quantiles, exact for columns of up to a million distinct values and
//! from a t-digest above.
//!
//! Which of the two it is, and what a t-digest comes to, depend on the rows and their order alone, not on how they were
//! cut into batches nor on the memory at hand.

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

/// Bytes of a distinct value in the table of counts: 16 for the pair, one for the control byte, at a load of 7/8 or, after
/// the table has doubled, half of that; and the table before it while it doubles.
const VALUE_BYTES: usize = 3 * 20;

/// Values whose memory is reserved at once.
const VALUES_A_RESERVATION: usize = 1 << 14;

/// Centroids of a t-digest: with them the share of the rows below an answer is within [`SKETCH_SHARE_ERROR_MAX`] of the
/// share asked for.
const CENTROIDS_MAX: usize = 4096;

/// Values that are merged into the t-digest at once.
const VALUES_A_MERGE: usize = 1 << 15;

/// What an answer above [`EXACT_VALUES_MAX`] may be off by: between the shares of the rows below it and up to it there is
/// one that is no farther than this from the share asked for. Tests hold it.
pub const SKETCH_SHARE_ERROR_MAX: f64 = 1e-3;

/// A value of more than one row in so many when the t-digest begins is counted by itself: a digest would smear it over its
/// neighbours (an amount that is mostly 0, a code for "unknown").
const ROWS_A_SPIKE: u64 = 2048;

/// The spread of a column's values.
#[derive(Clone, Debug)]
pub struct Distribution {
    spread: Spread,
    /// A value is infinite.
    is_infinite: bool,
}

#[derive(Clone, Debug)]
enum Spread {
    /// Distinct values ascending, each with the rows up to and with it.
    Exact { values: Vec<f64>, ends: Vec<u64> },
    /// The same of integers.
    Whole { values: Vec<i128>, ends: Vec<u64> },
    Sketch {
        digest: TDigest,
        /// Ascending, with the rows of the digest below each.
        spikes: Vec<Spike>,
    },
}

/// A value that very many rows have.
#[derive(Clone, Copy, Debug)]
struct Spike {
    value: f64,
    rows: u64,
    digest_rows_below: f64,
}

/// The values so far.
#[derive(Debug)]
struct Collector {
    exact_values_max: usize,
    kind: NumberKind,
    is_infinite: bool,
    /// By bits; −0 and NaN do not occur.
    counts: HashMap<u64, u64>,
    /// Once there are too many distinct values: the digest of all before `waiting`.
    sketch: Option<TDigest>,
    /// Ascending; their rows are not in the digest.
    spikes: Vec<(f64, u64)>,
    waiting: Vec<f64>,
    memory: MemoryReservation,
}

/// What the bits of counted values are.
#[derive(Clone, Copy, Debug, PartialEq)]
enum NumberKind {
    Float,
    Integer,
    Unsigned,
}

impl Engine {
    /// The spread of a column of float64, int64 or uint64; nulls are not counted. Push batches of that one column, floats with −0
    /// and NaN made 0 and null.
    pub fn distribution(&self, data_type: &DataType) -> Job<Option<Distribution>> {
        let memory = MemoryConsumer::new("distinct numbers").register(self.context.memory_pool());
        Job::start_fold(Collector::new(NumberKind::of(data_type), EXACT_VALUES_MAX, memory))
    }

    /// Jobs of [`Self::distribution`] that half of the engine's pool holds: more would have to wait for another pass.
    pub fn distributions_max(&self) -> usize {
        (self.pool_bytes / 2 / (EXACT_VALUES_MAX * VALUE_BYTES)).max(1)
    }
}

/// The schema of a distribution's input.
pub fn distribution_schema(data_type: &DataType) -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new("value", data_type.clone(), true)]))
}

// === impl Distribution ===

impl Distribution {
    /// The value below which this share of the rows lies, linear between neighbours: what `numpy.quantile` gives.
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

/// Whether a double is exactly this integer.
fn is_double(whole: i128) -> bool {
    whole as f64 as i128 == whole
}

/// The values of the two rows that a quantile is between, and how far it is from the first to the second.
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
        // Halves of numbers as large as these are exact, and so is what they are doubled to.
        return 2.0 * between(a / 2.0, b / 2.0, t);
    }
    // numpy's own form, which is exact at both ends.
    if t >= 0.5 { b - distance * (1.0 - t) } else { a + distance * t }
}

/// The smallest integer that is not below the number at `t`, from 0 to 1, of the way from an integer to a greater one.
fn whole_between(a: i128, b: i128, t: f64) -> i128 {
    if t <= 0.0 || a >= b {
        return a;
    }
    let bits = t.to_bits();
    // t = mantissa / 2^shift, and the distance is below 2^65: the product is below 2^118, so a larger shift leaves the same nothing.
    let (mantissa, shift) = (i128::from(bits & ((1 << 52) - 1) | 1 << 52), (1075 - (bits >> 52)).min(126));
    let product = (b - a) * mantissa;
    let floor = product >> shift;
    a + floor + i128::from(floor << shift != product)
}

impl Distribution {
    /// Whether a value is infinite: then quantiles may be, too.
    pub fn is_infinite(&self) -> bool {
        self.is_infinite
    }

    /// The median of integers where it is one that no double is; none where a double says it.
    pub fn whole_median(&self) -> Option<i128> {
        let Spread::Whole { values, ends } = &self.spread else { return None };
        let (a, b, t) = neighbours(values, ends, 0.5);
        let twice = if t > 0.0 { a + b } else { 2 * a };
        (twice % 2 == 0 && !is_double(twice / 2)).then_some(twice / 2)
    }

    /// The quantiles of integers, each rounded up to one, where doubles do not say them: integers that reach the one reach the other.
    pub fn whole_quantiles(&self, shares: impl Iterator<Item = f64>) -> Option<Vec<i128>> {
        let Spread::Whole { values, ends } = &self.spread else { return None };
        let edges: Vec<_> = shares.map(|share| neighbours(values, ends, share)).collect();
        if edges.iter().all(|(a, b, _)| [a, b].iter().all(|edge| edge.unsigned_abs() <= 1 << f64::MANTISSA_DIGITS)) {
            return None;
        }
        Some(edges.into_iter().map(|(a, b, t)| whole_between(a, b, t)).collect())
    }
}

/// The digest's value at a share of the rows, or the spike that lies there.
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

/// The digest's rows below a value, by halving the shares between which it lies.
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
            if self.waiting.len() == VALUES_A_MERGE {
                self.merge_waiting();
            }
            return Ok(());
        }
        *self.counts.entry(bits).or_default() += 1;
        if self.counts.len() > self.exact_values_max {
            self.begin_sketch()?;
        } else if self.counts.len() * VALUE_BYTES > self.memory.size() {
            self.memory.try_grow(VALUES_A_RESERVATION * VALUE_BYTES)?;
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
            sorted.into_iter().partition(|(_, count)| *count > 1 && count * ROWS_A_SPIKE > rows);
        self.spikes = spikes;
        self.sketch = Some(digest(&others)?);
        self.memory.resize(VALUES_A_MERGE * size_of::<f64>() + 2 * CENTROIDS_MAX * size_of::<Centroid>());
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
        let unexpected = || exec_datafusion_err!("a distribution does not take {}", column.data_type());
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

    /// Of bits that are an integer's.
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

/// The digest of distinct values ascending.
fn digest(sorted: &[(f64, u64)]) -> Result<TDigest, EngineError> {
    let centroids = sorted.iter().map(|(value, count)| Centroid::new(*value, *count as f64)).collect();
    let count = sorted.iter().map(|(_, count)| *count as f64).sum();
    let (min, max) = (sorted.first().map_or(f64::NAN, |first| first.0), sorted.last().map_or(f64::NAN, |last| last.0));
    // The sum is read by nobody.
    let whole = TDigest::try_from_parts(CENTROIDS_MAX, 0.0, count, max, min, centroids)?;
    Ok(TDigest::merge_digests([&whole]))
}

#[cfg(test)]
mod tests;
