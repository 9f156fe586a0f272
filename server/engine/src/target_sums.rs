//! Sums of a label for each distinct value of a column, fold by fold, for target encoding: exact, so that a mean
//! depends on no order of the rows and no memory limit.
//!
//! A float64 is an integer times a power of two. The exponents are divided into windows of 128 bits, and within a window
//! labels are integers of at most 181 bits, which GROUP BY adds up in any order, in memory, in spill files or in several
//! processes. The sum of the windows is rounded once.

use std::{collections::BTreeMap, sync::Arc};

use arrow::{
    array::{ArrayRef, AsArray, BinaryArray, Decimal256Array, Int64Array, RecordBatch, UInt32Array},
    datatypes::{DataType, Decimal256Type, Field, Float64Type, Int64Type, Schema, SchemaRef, UInt32Type, i256},
};
use datafusion_common::{DataFusionError, exec_datafusion_err};
use datafusion_functions_aggregate::sum::sum_udaf;
use datafusion_physical_expr::{
    PhysicalExpr,
    aggregate::{AggregateExprBuilder, AggregateFunctionExpr},
    expressions::Column,
};
use datafusion_physical_plan::{
    ExecutionPlan,
    aggregates::{AggregateExec, AggregateMode, PhysicalGroupBy},
};
use forebay_runtime::budget::Reservation;
use futures::{FutureExt, TryStreamExt};
use num_bigint::BigInt;

use super::{Engine, EngineError, Job, exact, memory::exhausted, value_bytes};

/// Bits of a window.
const WINDOW_BITS: u32 = 128;

/// The windows of finite labels, and one for infinite ones.
const WINDOWS: u32 = 17;

/// The window of infinite labels.
const INFINITE: u32 = WINDOWS - 1;

/// The window of zero, which is also that of labels between 2⁻⁷⁴ and 4.
const WINDOW_OF_ZERO: u32 = 7;

/// The type of the sum of a window.
pub(super) const SUM_TYPE: DataType = DataType::Decimal256(76, 0);

/// The columns of the input, by which and of which sums are computed.
const COLUMNS: [&str; 4] = ["value", "part", "rows", "label"];

/// The rows of a label: how many there are, and their sum.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LabelSum {
    /// The number of rows.
    pub count: u64,
    /// The sum.
    pub sum: f64,
}

impl LabelSum {
    /// The rows of both.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self { count: self.count + other.count, sum: self.sum + other.sum }
    }

    /// The rows of all folds but one; of all, if no fold is left out.
    pub fn without(folds: &[Self], left_out: Option<usize>) -> Self {
        let kept = folds.iter().enumerate().filter(|(fold, _)| Some(*fold) != left_out);
        kept.fold(Self::default(), |sum, (_, of_fold)| sum.plus(*of_fold))
    }

    /// The mean; none without rows.
    pub fn mean(self) -> Option<f64> {
        (self.count > 0).then(|| self.sum / self.count as f64)
    }
}

/// The sums of a label for each value of a column.
#[derive(Clone, Debug)]
pub struct TargetSums {
    /// The distinct values, in ascending order, of the type of the column.
    pub values: ArrayRef,
    /// For each value, one sum per fold.
    pub of_values: Vec<Vec<LabelSum>>,
    /// The sums of the rows without a value.
    pub of_null: Vec<LabelSum>,
}

/// The sums of windows by value. A plan must have room for the values.
#[derive(Debug)]
pub(super) struct TargetGroups {
    /// In the order of the values; null is the first.
    sums: BTreeMap<Option<Box<[u8]>>, Vec<WindowSum>>,
    folds: usize,
    /// Bytes of the values and of their sums in a plan.
    plan_bytes: usize,
    bytes_max: usize,
    windows: usize,
    /// Part of the server's memory: the room in a plan limits the groups, not the memory of a fit.
    memory: Reservation,
}

/// The rows of a fold whose labels are in a window.
#[derive(Clone, Copy, Debug)]
struct WindowSum {
    part: u32,
    count: u64,
    sum: i256,
}

impl Engine {
    /// Starts a job that adds up a label for each value. Push batches of [`target_rows`].
    pub fn target_sums(
        &self,
        data_type: &DataType,
        folds: usize,
        bytes_max: usize,
    ) -> Result<Job<TargetSums>, EngineError> {
        let mut groups = self.target_groups(folds, bytes_max);
        let data_type = data_type.clone();
        Job::start(self, &schema(&data_type), plan, move |mut output| {
            async move {
                while let Some(batch) = output.try_next().await? {
                    groups.add(&value_bytes::of_values(batch.column(0))?, &batch.columns()[1..])?;
                }
                groups.finish(&data_type)
            }
            .boxed()
        })
    }

    /// Groups without rows, of which a plan has room for `bytes_max`.
    pub(super) fn target_groups(&self, folds: usize, bytes_max: usize) -> TargetGroups {
        let memory = self.budget.empty();
        TargetGroups { sums: BTreeMap::new(), folds, plan_bytes: 0, bytes_max, windows: 0, memory }
    }
}

/// The input of [`Engine::target_sums`]: rows with their value, the fold of each, and its label, which may be null.
pub fn target_rows(
    values: ArrayRef,
    folds: impl Iterator<Item = u32>,
    labels: &ArrayRef,
) -> Result<RecordBatch, EngineError> {
    let labels = labels.as_primitive::<Float64Type>();
    let (mut parts, mut sums) = (Vec::with_capacity(values.len()), Vec::with_capacity(values.len()));
    for (fold, label) in folds.zip(labels) {
        let (window, sum) = windowed(label.unwrap_or(0.0));
        parts.push(fold * WINDOWS + window);
        sums.push(sum);
    }
    let rows: Int64Array = labels.iter().map(|label| Some(i64::from(label.is_some()))).collect();
    let sums = Decimal256Array::from(sums).with_data_type(SUM_TYPE);
    let schema = schema(values.data_type());
    let columns: Vec<ArrayRef> = vec![values, Arc::new(UInt32Array::from(parts)), Arc::new(rows), Arc::new(sums)];
    Ok(RecordBatch::try_new(schema, columns)?)
}

fn schema(data_type: &DataType) -> SchemaRef {
    let [value, part, rows, label] = COLUMNS;
    Arc::new(Schema::new(vec![
        Field::new(value, data_type.clone(), true),
        Field::new(part, DataType::UInt32, false),
        Field::new(rows, DataType::Int64, false),
        Field::new(label, SUM_TYPE, false),
    ]))
}

/// A label as an integer times the lowest power of two of its window.
fn windowed(label: f64) -> (u32, i256) {
    if !label.is_finite() {
        return (INFINITE, i256::ZERO);
    }
    let (whole, place) = exact::scaled(label);
    if whole == 0 {
        return (WINDOW_OF_ZERO, i256::ZERO);
    }
    let shifted = i256::from_i128(whole.into()) << (place % WINDOW_BITS) as u8;
    (place / WINDOW_BITS, if label.is_sign_negative() { shifted.wrapping_neg() } else { shifted })
}

/// Returns the plan of `SELECT value, part, SUM(rows), SUM(label) GROUP BY value, part`.
fn plan(leaf: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>, DataFusionError> {
    let schema = leaf.schema();
    let column = |index: usize| -> Arc<dyn PhysicalExpr> { Arc::new(Column::new(COLUMNS[index], index)) };
    let sum = |index: usize| {
        let aggregate = AggregateExprBuilder::new(sum_udaf(), vec![column(index)]);
        aggregate.schema(SchemaRef::clone(&schema)).alias(COLUMNS[index]).build().map(Arc::new)
    };
    let aggregates: Vec<Arc<AggregateFunctionExpr>> = vec![sum(2)?, sum(3)?];
    let group = PhysicalGroupBy::new_single([0, 1].map(|index| (column(index), COLUMNS[index].to_owned())).to_vec());
    let filters = vec![None; aggregates.len()];
    Ok(Arc::new(AggregateExec::try_new(AggregateMode::Single, group, aggregates, filters, leaf, schema)?))
}

// === impl TargetGroups ===

impl TargetGroups {
    /// Adds rows: the bytes of their values, and the columns part, number of rows and sum. An error if a plan has no room
    /// for the values.
    pub(super) fn add(&mut self, values: &BinaryArray, columns: &[ArrayRef]) -> Result<(), EngineError> {
        let parts = columns[0].as_primitive::<UInt32Type>().values();
        let counts = columns[1].as_primitive::<Int64Type>().values();
        let sums = columns[2].as_primitive::<Decimal256Type>().values();
        for (row, value) in values.iter().enumerate() {
            let (part, count, sum) = (parts[row], counts[row].unsigned_abs(), sums[row]);
            if part as usize >= self.folds * WINDOWS as usize {
                return Err(exec_datafusion_err!("the partial rows are not those of this pass").into());
            }
            let (plan_bytes, folds) = (&mut self.plan_bytes, self.folds);
            let of_value = self.sums.entry(value.map(Box::from)).or_insert_with_key(|value| {
                *plan_bytes += value.as_ref().map_or(0, |value| value.len()) + folds * size_of::<LabelSum>();
                Vec::with_capacity(folds)
            });
            if let Some(known) = of_value.iter_mut().find(|known| known.part == part) {
                (known.count, known.sum) = (known.count + count, known.sum.wrapping_add(sum));
            } else {
                of_value.push(WindowSum { part, count, sum });
                self.windows += 1;
            }
        }
        if self.plan_bytes > self.bytes_max {
            return Err(EngineError::TooManyValues { bytes: self.bytes_max });
        }
        let bytes = (self.plan_bytes + self.windows * size_of::<WindowSum>()) as u64;
        self.memory.try_resize(bytes).map_err(|error| exhausted(&error).into())
    }

    /// Rounds the sums of values of a type.
    pub(super) fn finish(mut self, data_type: &DataType) -> Result<TargetSums, EngineError> {
        let rounded = |windows: Vec<WindowSum>| of_folds(&windows, self.folds);
        let of_null = rounded(self.sums.remove(&None).unwrap_or_default());
        let values: BinaryArray = self.sums.keys().map(|value| value.as_deref()).collect();
        let values = value_bytes::to_values(&values, data_type)?;
        Ok(TargetSums { values, of_values: self.sums.into_values().map(rounded).collect(), of_null })
    }
}

/// The sum of each fold, from those of its windows.
fn of_folds(windows: &[WindowSum], folds: usize) -> Vec<LabelSum> {
    let of_fold = |fold: u32| {
        let (mut count, mut sum, mut is_infinite) = (0, BigInt::ZERO, false);
        for window in windows.iter().filter(|window| window.part / WINDOWS == fold) {
            count += window.count;
            is_infinite |= window.part % WINDOWS == INFINITE && window.count > 0;
            let digits = BigInt::from_signed_bytes_le(&window.sum.to_le_bytes());
            sum += digits << ((window.part % WINDOWS) * WINDOW_BITS);
        }
        LabelSum { count, sum: if is_infinite { f64::INFINITY } else { exact::rounded(&sum) } }
    };
    (0..folds as u32).map(of_fold).collect()
}

#[cfg(test)]
mod tests {
    use arrow::array::{Float64Array, StringArray};

    use super::*;

    fn sums(labels: &[f64]) -> f64 {
        let windows = labels.iter().map(|label| {
            let (part, sum) = windowed(*label);
            WindowSum { part, count: 1, sum }
        });
        of_folds(&windows.collect::<Vec<_>>(), 1)[0].sum
    }

    #[test]
    fn sums_are_exact_and_rounded_once() {
        for (labels, want) in [
            (vec![], 0.0),
            (vec![0.1, 0.2, 0.3], 0.6),
            (vec![1e300, 1.0, -1e300], 1.0),
            (vec![1e16, 1.0, 1.0, -1e16], 2.0),
            (vec![5e-324, 5e-324], 1e-323),
            (vec![f64::MAX, -f64::MAX, -0.0], 0.0),
            (vec![-3.5, 0.25], -3.25),
            (vec![f64::MAX, f64::MAX], f64::INFINITY),
            (vec![1.0, f64::NEG_INFINITY], f64::INFINITY),
            (vec![2.0_f64.powi(-75), 2.0_f64.powi(60), 4.0, -4.0], 2.0_f64.powi(60)),
        ] {
            let mut reversed = labels.clone();
            reversed.reverse();
            assert_eq!((sums(&labels), sums(&reversed)), (want, want), "{labels:?}");
        }
        assert_eq!(windowed(0.0).0, windowed(3.99).0);
        assert!(windowed(f64::MAX).0 < INFINITE && windowed(5e-324).0 == 0);
    }

    #[test]
    fn values_without_labels_are_values() {
        let values: ArrayRef = Arc::new(StringArray::from(vec!["a", "b", "a"]));
        let labels: ArrayRef = Arc::new(Float64Array::from(vec![Some(1.5), None, Some(-0.5)]));
        let rows = target_rows(values, [0, 1, 1].into_iter(), &labels).unwrap();
        let counts = rows.column(2).as_primitive::<Int64Type>();
        assert_eq!((rows.num_rows(), counts.values().as_ref()), (3, &[1, 0, 1][..]));
    }
}
