//! The DataFusion aggregate `moments`: count, mean, deviation and bounds of a column in one pass, rounded once.

use std::sync::{Arc, LazyLock};

use arrow::{
    array::{Array, ArrayRef, AsArray, Float64Array, StructArray, UInt64Array},
    datatypes::{DataType, Field, FieldRef, Fields, Float64Type, Int64Type, UInt64Type},
};
use datafusion_common::{DataFusionError, Result, ScalarValue, exec_err};
use datafusion_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Signature, Volatility,
    function::{AccumulatorArgs, StateFieldsArgs},
};

use super::exact::Moments;

/// A summary of the non-null values of a numeric column.
///
/// Mean and deviation are exact and rounded once: they do not depend on the order of the values or on the sizes of
/// batches. Both are NaN if a value is infinite.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// Number of values.
    pub count: u64,
    /// Mean.
    pub mean: f64,
    /// Standard deviation of the population.
    pub deviation: f64,
    /// Smallest value.
    pub min: f64,
    /// Largest value.
    pub max: f64,
}

/// Returns the aggregate from Float64, Int64 or `UInt64` to a struct of count, mean, deviation, min and max, which are
/// null without values.
pub(super) fn moments_udaf() -> Arc<AggregateUDF> {
    static FUNCTION: LazyLock<Arc<AggregateUDF>> =
        LazyLock::new(|| Arc::new(AggregateUDF::from(MomentsFunction::new())));
    Arc::clone(&FUNCTION)
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct MomentsFunction {
    signature: Signature,
}

/// The error for bytes that are not a state.
const DAMAGED: &str = "a state that moments did not write";

/// The moments of the values so far.
#[derive(Debug)]
pub(super) struct MomentsAccumulator {
    moments: Moments,
    min: f64,
    max: f64,
}

/// Returns the fields of the result.
fn result_fields() -> Fields {
    let number = |name: &str| Field::new(name, DataType::Float64, true);
    let count = Field::new("count", DataType::UInt64, true);
    Fields::from(vec![count, number("mean"), number("deviation"), number("min"), number("max")])
}

// === impl MomentsFunction ===

impl MomentsFunction {
    fn new() -> Self {
        let types = vec![DataType::Float64, DataType::Int64, DataType::UInt64];
        Self { signature: Signature::uniform(1, types, Volatility::Immutable) }
    }
}

impl AggregateUDFImpl for MomentsFunction {
    fn name(&self) -> &'static str {
        "moments"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arguments: &[DataType]) -> Result<DataType> {
        Ok(DataType::Struct(result_fields()))
    }

    fn accumulator(&self, _arguments: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        Ok(Box::new(MomentsAccumulator::new()))
    }

    fn state_fields(&self, _arguments: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        let field = |name: &str, data_type| Arc::new(Field::new(name, data_type, false));
        Ok(vec![field("sums", DataType::Binary), field("min", DataType::Float64), field("max", DataType::Float64)])
    }
}

// === impl MomentsAccumulator ===

impl MomentsAccumulator {
    pub(super) fn new() -> Self {
        Self { moments: Moments::new(), min: f64::INFINITY, max: f64::NEG_INFINITY }
    }

    /// Whether there are values.
    pub(super) fn has_values(&self) -> bool {
        self.moments.count() > 0
    }

    /// The summary of the values; `None` without any.
    pub(super) fn summary(&self) -> Option<Summary> {
        let (mean, deviation) = (self.moments.mean(), self.moments.deviation());
        let (count, min, max) = (self.moments.count(), self.min, self.max);
        self.has_values().then_some(Summary { count, mean, deviation, min, max })
    }

    /// The state, to be merged in another process.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        [&self.moments.to_bytes()[..], &self.min.to_le_bytes(), &self.max.to_le_bytes()].concat()
    }

    /// Merges the result of [`Self::to_bytes`].
    pub(super) fn merge_bytes(&mut self, bytes: &[u8]) -> Result<()> {
        let damaged = || DataFusionError::Execution(DAMAGED.to_owned());
        let (rest, max) = bytes.split_last_chunk().ok_or_else(damaged)?;
        let (rest, min) = rest.split_last_chunk().ok_or_else(damaged)?;
        self.merge(rest, f64::from_le_bytes(*min), f64::from_le_bytes(*max))
    }

    fn merge(&mut self, sums: &[u8], min: f64, max: f64) -> Result<()> {
        let damaged = || DataFusionError::Execution(DAMAGED.to_owned());
        self.moments.merge(&Moments::from_bytes(sums).ok_or_else(damaged)?);
        self.bound(min);
        self.bound(max);
        Ok(())
    }

    fn bound(&mut self, value: f64) {
        self.min = self.min.min(value);
        self.max = self.max.max(value);
    }
}

impl Accumulator for MomentsAccumulator {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let [values] = values else { return exec_err!("moments expects one column") };
        match values.data_type() {
            DataType::Float64 => each(values.as_primitive::<Float64Type>(), |value| {
                self.moments.add(value);
                self.bound(value);
            }),
            DataType::Int64 => each(values.as_primitive::<Int64Type>(), |value| {
                self.moments.add_integer(value < 0, value.unsigned_abs());
                self.bound(value as f64);
            }),
            DataType::UInt64 => each(values.as_primitive::<UInt64Type>(), |value| {
                self.moments.add_integer(false, value);
                self.bound(value as f64);
            }),
            other => return exec_err!("moments of {other} are not supported"),
        }
        Ok(())
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let [sums, mins, maxs] = states else { return exec_err!("moments has three columns of state") };
        let (sums, mins, maxs) =
            (sums.as_binary::<i32>(), mins.as_primitive::<Float64Type>(), maxs.as_primitive::<Float64Type>());
        (0..sums.len()).try_for_each(|row| self.merge(sums.value(row), mins.value(row), maxs.value(row)))
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let sums = ScalarValue::Binary(Some(self.moments.to_bytes()));
        Ok(vec![sums, ScalarValue::Float64(Some(self.min)), ScalarValue::Float64(Some(self.max))])
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let is_known = self.moments.count() > 0;
        let known = |value: f64| -> ArrayRef { Arc::new(Float64Array::from(vec![is_known.then_some(value)])) };
        let columns = vec![
            Arc::new(UInt64Array::from(vec![self.moments.count()])) as ArrayRef,
            known(self.moments.mean()),
            known(self.moments.deviation()),
            known(self.min),
            known(self.max),
        ];
        Ok(ScalarValue::Struct(Arc::new(StructArray::try_new(result_fields(), columns, None)?)))
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.moments.heap_bytes()
    }
}

/// Calls `take` with every non-null value.
fn each<T: arrow::array::ArrowPrimitiveType>(
    values: &arrow::array::PrimitiveArray<T>,
    mut take: impl FnMut(T::Native),
) {
    if values.null_count() == 0 {
        values.values().iter().for_each(|value| take(*value));
    } else {
        values.iter().flatten().for_each(take);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(parts: &[ArrayRef]) -> Summary {
        let mut whole = MomentsAccumulator::new();
        for part in parts {
            whole.update_batch(&[Arc::clone(part)]).unwrap();
        }
        summary_of(&mut whole)
    }

    type Summary = Option<[u64; 4]>;

    /// The bits of mean, deviation, min and max.
    fn summary_of(accumulator: &mut MomentsAccumulator) -> Summary {
        let ScalarValue::Struct(row) = accumulator.evaluate().unwrap() else { panic!("a struct") };
        let numbers = [1, 2, 3, 4].map(|column| row.column(column).as_primitive::<Float64Type>().clone());
        numbers[0].is_valid(0).then(|| numbers.map(|number| number.value(0).to_bits()))
    }

    #[test]
    fn merged_states_equal_one_pass_bit_for_bit() {
        let values: Vec<f64> = (0..1009).map(|i| (f64::from(i) - 500.0).powi(5) * 1e280 / 3.0).collect();
        let whole = of(&[Arc::new(Float64Array::from(values.clone()))]);
        for cut in [1, 2, 7, 1000] {
            let mut merged = MomentsAccumulator::new();
            for part in values.rchunks(cut) {
                let mut partial = MomentsAccumulator::new();
                partial.update_batch(&[Arc::new(Float64Array::from(part.to_vec()))]).unwrap();
                let state: Vec<ArrayRef> =
                    partial.state().unwrap().iter().map(|value| value.to_array().unwrap()).collect();
                merged.merge_batch(&state).unwrap();
            }
            assert_eq!(summary_of(&mut merged), whole, "{cut}");
        }
    }

    #[test]
    fn nulls_are_ignored() {
        assert_eq!(of(&[Arc::new(Float64Array::from(vec![None, None]))]), None);
        let one = of(&[Arc::new(Float64Array::from(vec![None, Some(0.1)]))]);
        assert_eq!(one, Some([0.1, 0.0, 0.1, 0.1].map(f64::to_bits)));
    }
}
