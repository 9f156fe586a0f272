//! Count, mean, deviation and bounds of many columns in one pass.

use std::sync::Arc;

use arrow::{
    array::{Array, AsArray, RecordBatch},
    datatypes::{DataType, Field, Float64Type, Int64Type, Schema, SchemaRef},
};
use datafusion_common::DataFusionError;
use datafusion_expr::AggregateUDF;
use datafusion_functions_aggregate::{
    average::avg_udaf,
    count::count_udaf,
    min_max::{max_udaf, min_udaf},
    stddev::stddev_pop_udaf,
};
use datafusion_physical_expr::{aggregate::AggregateExprBuilder, expressions::Column};
use datafusion_physical_plan::{
    ExecutionPlan,
    aggregates::{AggregateExec, AggregateMode, PhysicalGroupBy},
};
use futures::{FutureExt, TryStreamExt};

use super::{Engine, EngineError, Job};

/// What a column of float64 holds; nulls are not counted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// Values.
    pub count: u64,
    /// Their mean.
    pub mean: f64,
    /// The population's standard deviation.
    pub deviation: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
}

const AGGREGATES_PER_COLUMN: usize = 5;

impl Engine {
    /// Summaries of so many float64 columns; `None` for one without a value. Push batches of [`summary_schema`].
    pub fn summaries(&self, columns: usize) -> Result<Job<Vec<Option<Summary>>>, EngineError> {
        let schema = summary_schema(columns);
        Job::start(
            self,
            &schema,
            |leaf| plan(leaf, columns),
            move |output| {
                async move {
                    let batches: Vec<RecordBatch> = output.try_collect().await?;
                    let row = batches.iter().find(|batch| batch.num_rows() > 0);
                    Ok((0..columns).map(|column| summary(row?, column)).collect())
                }
                .boxed()
            },
        )
    }
}

/// The schema of a summary's input: float64 columns named 0, 1, ….
pub fn summary_schema(columns: usize) -> SchemaRef {
    let fields: Vec<Field> =
        (0..columns).map(|column| Field::new(column.to_string(), DataType::Float64, true)).collect();
    Arc::new(Schema::new(fields))
}

fn plan(leaf: Arc<dyn ExecutionPlan>, columns: usize) -> Result<Arc<dyn ExecutionPlan>, DataFusionError> {
    let schema = leaf.schema();
    let functions: [Arc<AggregateUDF>; AGGREGATES_PER_COLUMN] =
        [count_udaf(), avg_udaf(), stddev_pop_udaf(), min_udaf(), max_udaf()];
    let mut aggregates = Vec::with_capacity(columns * AGGREGATES_PER_COLUMN);
    for column in 0..columns {
        for (number, function) in functions.iter().enumerate() {
            let argument = Arc::new(Column::new(&column.to_string(), column));
            let aggregate = AggregateExprBuilder::new(Arc::clone(function), vec![argument])
                .schema(SchemaRef::clone(&schema))
                .alias(format!("{column}.{number}"))
                .build()?;
            aggregates.push(Arc::new(aggregate));
        }
    }
    let filters = vec![None; aggregates.len()];
    let group = PhysicalGroupBy::new_single(Vec::new());
    Ok(Arc::new(AggregateExec::try_new(AggregateMode::Single, group, aggregates, filters, leaf, schema)?))
}

fn summary(row: &RecordBatch, column: usize) -> Option<Summary> {
    let first = column * AGGREGATES_PER_COLUMN;
    let count = row.column(first).as_primitive_opt::<Int64Type>()?.value(0);
    let number = |index: usize| {
        let array = row.column(first + index).as_primitive_opt::<Float64Type>()?;
        array.is_valid(0).then(|| array.value(0))
    };
    let count = u64::try_from(count).ok().filter(|count| *count > 0)?;
    Some(Summary { count, mean: number(1)?, deviation: number(2)?, min: number(3)?, max: number(4)? })
}
