//! How the values of a column are spread: medians and quantiles, exact for columns of up to a million distinct values and
//! from a t-digest above.
//!
//! Which of the two it is, and what a t-digest comes to, depend on the rows and their order alone, not on how they were
//! cut into batches nor on the memory at hand.

use std::{collections::HashMap, sync::Arc};

use arrow::{
    array::{AsArray, RecordBatch},
    datatypes::{DataType, Field, Float64Type, Schema, SchemaRef},
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
pub struct Distribution(Spread);

#[derive(Clone, Debug)]
enum Spread {
    /// Distinct values ascending, each with the rows up to and with it.
    Exact { values: Vec<f64>, ends: Vec<u64> },
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
    /// By bits; −0 and NaN do not occur.
    counts: HashMap<u64, u64>,
    /// Once there are too many distinct values: the digest of all before `waiting`.
    sketch: Option<TDigest>,
    /// Ascending; their rows are not in the digest.
    spikes: Vec<(f64, u64)>,
    waiting: Vec<f64>,
    memory: MemoryReservation,
}

impl Engine {
    /// The spread of a float64 column; nulls are not counted. Push batches of that one column, −0 and NaN made 0 and null.
    pub fn distribution(&self) -> Job<Option<Distribution>> {
        let memory = MemoryConsumer::new("distinct numbers").register(self.context.memory_pool());
        Job::start_fold(Collector::new(EXACT_VALUES_MAX, memory))
    }

    /// Jobs of [`Self::distribution`] that half of the engine's pool holds: more would have to wait for another pass.
    pub fn distributions_max(&self) -> usize {
        (self.pool_bytes / 2 / (EXACT_VALUES_MAX * VALUE_BYTES)).max(1)
    }
}

/// The schema of a distribution's input.
pub fn distribution_schema() -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new("value", DataType::Float64, true)]))
}

// === impl Distribution ===

impl Distribution {
    /// The value below which this share of the rows lies, linear between neighbours: what `numpy.quantile` gives.
    pub fn quantile(&self, share: f64) -> f64 {
        match &self.0 {
            Spread::Exact { values, ends } => exact_quantile(values, ends, share),
            Spread::Sketch { digest, spikes } => sketched_quantile(digest, spikes, share),
        }
    }
}

fn exact_quantile(values: &[f64], ends: &[u64], share: f64) -> f64 {
    let last = ends.last().map_or(0, |sum| sum - 1);
    let row = |index: u64| values[ends.partition_point(|end| *end <= index)];
    let place = share * last as f64;
    let below = (place.floor() as u64).min(last);
    let (a, b, t) = (row(below), row((below + 1).min(last)), place - place.floor());
    if t <= 0.0 || a >= b {
        // Also where a neighbour is infinite.
        return a;
    }
    // numpy's own form, which is exact at both ends.
    if t >= 0.5 { b - (b - a) * (1.0 - t) } else { a + (b - a) * t }
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
    fn new(exact_values_max: usize, memory: MemoryReservation) -> Self {
        Self { exact_values_max, counts: HashMap::new(), sketch: None, spikes: Vec::new(), waiting: Vec::new(), memory }
    }

    fn add(&mut self, value: f64) -> Result<(), EngineError> {
        if self.sketch.is_some() {
            match self.spikes.binary_search_by(|(spike, _)| spike.total_cmp(&value)) {
                Ok(place) => self.spikes[place].1 += 1,
                Err(_) => self.waiting.push(value),
            }
            if self.waiting.len() == VALUES_A_MERGE {
                self.merge_waiting();
            }
            return Ok(());
        }
        *self.counts.entry(value.to_bits()).or_default() += 1;
        if self.counts.len() > self.exact_values_max {
            self.begin_sketch()?;
        } else if self.counts.len() * VALUE_BYTES > self.memory.size() {
            self.memory.try_grow(VALUES_A_RESERVATION * VALUE_BYTES)?;
        }
        Ok(())
    }

    fn begin_sketch(&mut self) -> Result<(), EngineError> {
        let sorted = sorted(&std::mem::take(&mut self.counts));
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
        let values = batch.column(0).as_primitive_opt::<Float64Type>();
        let values = values.ok_or_else(|| exec_datafusion_err!("a distribution is of float64"))?;
        values.iter().flatten().try_for_each(|value| self.add(value))
    }

    fn finish(mut self) -> Result<Self::Output, EngineError> {
        self.merge_waiting();
        if let Some(digest) = self.sketch {
            let spike = |(value, rows)| Spike { value, rows, digest_rows_below: rows_below(&digest, value) };
            let spikes = self.spikes.into_iter().map(spike).collect();
            return Ok(Some(Distribution(Spread::Sketch { digest, spikes })));
        }
        let sorted = sorted(&self.counts);
        let mut sum = 0;
        let ends: Vec<u64> = sorted
            .iter()
            .map(|(_, count)| {
                sum += count;
                sum
            })
            .collect();
        let values = sorted.into_iter().map(|(value, _)| value).collect();
        Ok((sum > 0).then_some(Distribution(Spread::Exact { values, ends })))
    }
}

fn sorted(counts: &HashMap<u64, u64>) -> Vec<(f64, u64)> {
    let mut sorted: Vec<(f64, u64)> = counts.iter().map(|(bits, count)| (f64::from_bits(*bits), *count)).collect();
    sorted.sort_unstable_by(|(a, _), (b, _)| a.total_cmp(b));
    sorted
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
