//! What a column holds, in one pass and bounded memory: counts, bounds, distinct values, quantiles, frequent values.
//!
//! Callers push arrays into a [`ColumnProfile`] on the CPU pool. A column with very frequent values among very many
//! needs a second pass, which counts the candidates exactly.

mod tally;
mod values;

use std::sync::Arc;

use arrow::{
    array::{Array, ArrayRef, AsArray},
    compute,
    datatypes::{DataType, Decimal256Type, Field, Float64Type, Int64Type, Schema, UInt64Type},
};
use datafusion_common::ScalarValue;
use datafusion_execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion_expr::Accumulator;
use datafusion_functions_aggregate::approx_distinct::approx_distinct_udaf;
use datafusion_physical_expr::{aggregate::AggregateExprBuilder, expressions::Column};
use forebay_kernels::float64_of_decimals;

use super::{
    Engine, EngineError,
    distribution::{Collector, Distribution},
    exact::Moments,
};
use tally::{PROFILE_VALUES_MAX, Tallies};
pub use values::{ProfileKind, ProfileValue, comparable, used_values};
use values::{lengths, without_nans};

/// Memory of a profile without its quantiles: 2^14 texts of 256 bytes, and a table of at most 2^15 entries of up to 41
/// bytes, of which half exist twice while it doubles.
const PROFILE_BYTES: usize = 6 << 20;

/// Profiles of one pass.
const PROFILES_MAX: usize = 64;

/// A column as far as it has been read.
pub struct ColumnProfile {
    kind: ProfileKind,
    nulls: u64,
    nans: u64,
    lengths: Option<Lengths>,
    values: Option<ProfiledValues>,
    _memory: MemoryReservation,
}

/// The lengths of a column's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lengths {
    /// Shortest.
    pub min: u64,
    /// Longest.
    pub max: u64,
    /// Sum.
    pub sum: u64,
    /// Number of values.
    pub count: u64,
}

/// The result of a profile. Parts that the column's type does not have are none.
#[derive(Debug)]
pub struct Profile {
    /// Null values.
    pub nulls: u64,
    /// NaN values.
    pub nans: u64,
    /// Distinct values, and whether they were counted rather than estimated.
    pub distinct: Option<(u64, bool)>,
    /// Smallest and largest value.
    pub bounds: Option<(ProfileValue, ProfileValue)>,
    /// Mean and standard deviation of numbers.
    pub moments: Option<(f64, f64)>,
    /// The distribution of numbers and times.
    pub distribution: Option<Distribution>,
    /// Frequent values with their counts, by count descending and value ascending, and whether these are all values.
    pub top: Option<(Vec<(ProfileValue, u64)>, bool)>,
    /// Lengths.
    pub lengths: Option<Lengths>,
}

/// The comparable values of a column.
struct ProfiledValues {
    tallies: Tallies,
    distinct: Box<dyn Accumulator>,
    bounds: Option<(ProfileValue, ProfileValue)>,
    /// For numbers; times have no mean here.
    moments: Option<Moments>,
    collector: Option<Collector>,
}

impl Engine {
    /// Creates a profile of a column of this type.
    pub fn profile(&self, data_type: &DataType) -> Result<ColumnProfile, EngineError> {
        let pool = self.context.memory_pool();
        let memory = MemoryConsumer::new("description").register(pool);
        memory.try_grow(PROFILE_BYTES)?;
        let kind = ProfileKind::of(data_type);
        let values = match kind.comparable_type() {
            Some(comparable) => {
                let collected = MemoryConsumer::new("quantiles").register(pool);
                Some(ProfiledValues::new(kind, &comparable, collected)?)
            }
            None => None,
        };
        Ok(ColumnProfile { kind, nulls: 0, nans: 0, lengths: None, values, _memory: memory })
    }

    /// Returns the number of profiles that fit half of the engine's pool; more need another pass.
    pub fn profiles_max(&self) -> usize {
        (self.pool_bytes / 2 / PROFILE_BYTES).clamp(1, PROFILES_MAX)
    }
}

// === impl ColumnProfile ===

impl ColumnProfile {
    /// Adds values of the column.
    pub fn push(&mut self, column: &ArrayRef) -> Result<(), EngineError> {
        self.nulls += column.logical_null_count() as u64;
        let (column, weights) = used_values(column)?;
        for (row, length) in lengths(&column)?.into_iter().enumerate() {
            let times = weights.as_ref().map_or(1, |weights| weights[row]);
            self.lengths.get_or_insert_default().add(length, times);
        }
        let Some(values) = &mut self.values else { return Ok(()) };
        let (comparable, nans) = without_nans(comparable(&column, self.kind)?);
        self.nans += nans;
        values.push(&comparable, weights.as_deref())
    }

    /// Returns whether a second pass must count the frequent values, and prepares it: [`Self::recount`] every value.
    pub fn begin_recount(&mut self) -> bool {
        self.values.as_mut().is_some_and(|values| values.tallies.begin_recount())
    }

    /// Counts the frequent values among these.
    pub fn recount(&mut self, column: &ArrayRef) -> Result<(), EngineError> {
        let Some(values) = &mut self.values else { return Ok(()) };
        let (column, weights) = used_values(column)?;
        let (comparable, _) = without_nans(comparable(&column, self.kind)?);
        values.tallies.push(&comparable, weights.as_deref());
        Ok(())
    }

    /// Returns the result: the list of frequent values is complete if it has at most `complete_max`, else it is limited
    /// to `top_max`.
    pub fn finish(self, top_max: usize, complete_max: usize) -> Result<Profile, EngineError> {
        let (nulls, nans, lengths) = (self.nulls, self.nans, self.lengths);
        let mut profile = Profile {
            nulls,
            nans,
            distinct: None,
            bounds: None,
            moments: None,
            distribution: None,
            top: None,
            lengths,
        };
        let Some(mut values) = self.values else { return Ok(profile) };
        let exact = values.tallies.distinct();
        let estimated = match values.distinct.evaluate()? {
            ScalarValue::UInt64(Some(count)) => count,
            _ => 0,
        };
        profile.distinct = Some(exact.map_or((estimated, false), |count| (count, true)));
        profile.bounds = values.bounds;
        let moments = values.moments.filter(|moments| moments.count() > 0);
        profile.moments = moments.map(|moments| (moments.mean(), moments.deviation()));
        profile.distribution = values.collector.and_then(Collector::distribution);
        let is_complete = exact.is_some_and(|count| count <= complete_max as u64);
        let top = values.tallies.top(self.kind, if is_complete { complete_max } else { top_max });
        profile.top = Some((top, is_complete));
        Ok(profile)
    }
}

// === impl ProfiledValues ===

impl ProfiledValues {
    fn new(kind: ProfileKind, comparable: &DataType, memory: MemoryReservation) -> Result<Self, EngineError> {
        let collected = match kind {
            // Float64 has about the right quantiles of decimals, and they have no others.
            ProfileKind::Decimals => Some(DataType::Float64),
            ProfileKind::Texts | ProfileKind::Booleans => None,
            _ => Some(comparable.clone()),
        };
        let collector = collected.map(|collected| Collector::of(&collected, PROFILE_VALUES_MAX, memory));
        let moments = kind.is_number().then(Moments::new);
        Ok(Self { tallies: Tallies::new(kind), distinct: distinct_of(comparable)?, bounds: None, moments, collector })
    }

    fn push(&mut self, values: &ArrayRef, weights: Option<&[u64]>) -> Result<(), EngineError> {
        self.tallies.push(values, weights);
        self.distinct.update_batch(&[hashable(values)])?;
        if let Some((least, most)) = bounds_of(values) {
            self.bounds = Some(match self.bounds.take() {
                Some((min, max)) => (min.min(least), max.max(most)),
                None => (least, most),
            });
        }
        let numbers = float64_of_decimals(values).map_or_else(|| Arc::clone(values), |floats| Arc::new(floats) as _);
        if let Some(moments) = &mut self.moments {
            add_moments(moments, &numbers);
        }
        self.collector.as_mut().map_or(Ok(()), |collector| collector.add_all(&numbers))
    }
}

// === impl Lengths ===

impl Default for Lengths {
    /// No lengths.
    fn default() -> Self {
        Self { min: u64::MAX, max: 0, sum: 0, count: 0 }
    }
}

impl Lengths {
    fn add(&mut self, length: u64, times: u64) {
        self.min = self.min.min(length);
        self.max = self.max.max(length);
        self.sum = self.sum.saturating_add(length.saturating_mul(times));
        self.count += times;
    }
}

/// The estimator of distinct values.
fn distinct_of(comparable: &DataType) -> Result<Box<dyn Accumulator>, EngineError> {
    let hashed = if *comparable == DataType::Float64 { &DataType::UInt64 } else { comparable };
    let schema = Arc::new(Schema::new(vec![Field::new("value", hashed.clone(), true)]));
    let estimate = AggregateExprBuilder::new(approx_distinct_udaf(), vec![Arc::new(Column::new("value", 0))])
        .schema(schema)
        .alias("distinct")
        .build()?;
    Ok(estimate.create_accumulator()?)
}

/// The values as the estimator takes them: floats as their bits.
fn hashable(values: &ArrayRef) -> ArrayRef {
    match values.as_primitive_opt::<Float64Type>() {
        Some(floats) => Arc::new(floats.unary::<_, UInt64Type>(f64::to_bits)),
        None => Arc::clone(values),
    }
}

/// The smallest and the largest value; none without values.
fn bounds_of(values: &ArrayRef) -> Option<(ProfileValue, ProfileValue)> {
    Some(match values.data_type() {
        DataType::Int64 => {
            let integers = values.as_primitive::<Int64Type>();
            (ProfileValue::Integer(compute::min(integers)?), ProfileValue::Integer(compute::max(integers)?))
        }
        DataType::UInt64 => {
            let integers = values.as_primitive::<UInt64Type>();
            (ProfileValue::Unsigned(compute::min(integers)?), ProfileValue::Unsigned(compute::max(integers)?))
        }
        DataType::Float64 => {
            let floats = values.as_primitive::<Float64Type>();
            (ProfileValue::Float(compute::min(floats)?), ProfileValue::Float(compute::max(floats)?))
        }
        DataType::Decimal256(..) => {
            let decimals = values.as_primitive::<Decimal256Type>();
            (ProfileValue::Decimal(compute::min(decimals)?), ProfileValue::Decimal(compute::max(decimals)?))
        }
        _ => {
            let texts = values.as_string_opt::<i32>()?;
            let text = |text: &str| ProfileValue::Text(text.into());
            (text(compute::min_string(texts)?), text(compute::max_string(texts)?))
        }
    })
}

fn add_moments(moments: &mut Moments, values: &ArrayRef) {
    match values.data_type() {
        DataType::Int64 => {
            let integers = values.as_primitive::<Int64Type>().iter().flatten();
            integers.for_each(|value| moments.add_integer(value < 0, value.unsigned_abs()));
        }
        DataType::UInt64 => {
            values.as_primitive::<UInt64Type>().iter().flatten().for_each(|value| moments.add_integer(false, value));
        }
        DataType::Float64 => values.as_primitive::<Float64Type>().iter().flatten().for_each(|value| moments.add(value)),
        _ => {}
    }
}

#[cfg(test)]
mod tests;
