//! Sums of a label for each distinct value of a column, fold by fold, for target encoding.
//!
//! DataFusion's GROUP BY adds them up, and spills when its memory is full. The groups themselves must fit a plan.

use std::sync::Arc;

use arrow::{
    array::{Array, ArrayRef, AsArray, RecordBatch},
    compute::{SortOptions, concat_batches, filter_record_batch, is_not_null, sort_to_indices, take_record_batch},
    datatypes::{DataType, Field, Float64Type, Int64Type, Schema, SchemaRef},
};
use datafusion_common::DataFusionError;
use datafusion_execution::memory_pool::MemoryConsumer;
use datafusion_functions_aggregate::{count::count_udaf, sum::sum_udaf};
use datafusion_physical_expr::{
    PhysicalExpr,
    aggregate::{AggregateExprBuilder, AggregateFunctionExpr},
    expressions::Column,
};
use datafusion_physical_plan::{
    ExecutionPlan,
    aggregates::{AggregateExec, AggregateMode, PhysicalGroupBy},
};
use futures::{FutureExt, TryStreamExt};

use super::{Engine, EngineError, Job};

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

impl Engine {
    /// Starts a job that adds up a label for each value. Push batches of [`target_schema`].
    pub fn target_sums(
        &self,
        data_type: &DataType,
        folds: usize,
        bytes_max: usize,
    ) -> Result<Job<TargetSums>, EngineError> {
        let schema = target_schema(data_type, folds);
        let memory = MemoryConsumer::new("target means").register(self.context.memory_pool());
        let plan = move |leaf: Arc<dyn ExecutionPlan>| plan(leaf, folds);
        Job::start(self, &schema, plan, move |mut output| {
            async move {
                let (mut batches, mut bytes) = (Vec::new(), 0);
                while let Some(batch) = output.try_next().await? {
                    bytes += batch.get_array_memory_size();
                    if bytes > bytes_max {
                        return Err(EngineError::TooManyValues { bytes: bytes_max });
                    }
                    memory.resize(bytes);
                    batches.push(batch);
                }
                let groups = concat_batches(&output.schema(), &batches).map_err(DataFusionError::from)?;
                Ok(sums(&groups, folds).map_err(DataFusionError::from)?)
            }
            .boxed()
        })
    }
}

/// The schema of the input: a value, and the label in the column of the row's fold, null in the others.
pub fn target_schema(data_type: &DataType, folds: usize) -> SchemaRef {
    let labels = (0..folds).map(|fold| Field::new(label(fold), DataType::Float64, true));
    let fields: Vec<Field> = [Field::new("value", data_type.clone(), true)].into_iter().chain(labels).collect();
    Arc::new(Schema::new(fields))
}

fn label(fold: usize) -> String {
    format!("label_{fold}")
}

/// Returns the plan of `SELECT value, COUNT(label_0), SUM(label_0), … GROUP BY value`.
fn plan(leaf: Arc<dyn ExecutionPlan>, folds: usize) -> Result<Arc<dyn ExecutionPlan>, DataFusionError> {
    let schema = leaf.schema();
    let mut aggregates: Vec<Arc<AggregateFunctionExpr>> = Vec::with_capacity(2 * folds);
    for fold in 0..folds {
        for (name, function) in [("count", count_udaf()), ("sum", sum_udaf())] {
            let column: Arc<dyn PhysicalExpr> = Arc::new(Column::new(&label(fold), fold + 1));
            let aggregate = AggregateExprBuilder::new(function, vec![column])
                .schema(SchemaRef::clone(&schema))
                .alias(format!("{name}_{fold}"))
                .build()?;
            aggregates.push(Arc::new(aggregate));
        }
    }
    let value: Arc<dyn PhysicalExpr> = Arc::new(Column::new("value", 0));
    let group = PhysicalGroupBy::new_single(vec![(value, "value".to_owned())]);
    let filters = vec![None; aggregates.len()];
    Ok(Arc::new(AggregateExec::try_new(AggregateMode::Single, group, aggregates, filters, leaf, schema)?))
}

/// Reads the groups, sorted by value.
fn sums(groups: &RecordBatch, folds: usize) -> Result<TargetSums, arrow::error::ArrowError> {
    let of_row = |batch: &RecordBatch, row: usize| -> Vec<LabelSum> {
        let of_fold = |fold: usize| {
            let counts = batch.column(1 + 2 * fold).as_primitive::<Int64Type>();
            let sums = batch.column(2 + 2 * fold).as_primitive::<Float64Type>();
            let sum = if sums.is_null(row) { 0.0 } else { sums.value(row) };
            LabelSum { count: counts.value(row).unsigned_abs(), sum }
        };
        (0..folds).map(of_fold).collect()
    };
    let without_value = (0..groups.num_rows()).find(|row| groups.column(0).is_null(*row));
    let of_null = without_value.map_or_else(|| vec![LabelSum::default(); folds], |row| of_row(groups, row));
    let groups = filter_record_batch(groups, &is_not_null(groups.column(0))?)?;
    let order = sort_to_indices(groups.column(0), Some(SortOptions::default()), None)?;
    let groups = take_record_batch(&groups, &order)?;
    let of_values = (0..groups.num_rows()).map(|row| of_row(&groups, row)).collect();
    Ok(TargetSums { values: Arc::clone(groups.column(0)), of_values, of_null })
}
