//! How often each value of a column occurs: the question behind vocabularies, modes, medians and quantiles.

use std::sync::Arc;

use arrow::{
    array::{ArrayRef, AsArray, RecordBatch},
    compute::SortOptions,
    datatypes::{DataType, Field, Int64Type, Schema, SchemaRef},
};
use datafusion_common::{DataFusionError, ScalarValue};
use datafusion_expr::Operator;
use datafusion_functions_aggregate::count::count_udaf;
use datafusion_physical_expr::{
    LexOrdering, PhysicalExpr, PhysicalSortExpr,
    aggregate::AggregateExprBuilder,
    expressions::{BinaryExpr, Column, Literal},
};
use datafusion_physical_plan::{
    ExecutionPlan,
    aggregates::{AggregateExec, AggregateMode, PhysicalGroupBy},
    filter::FilterExec,
    sorts::sort::SortExec,
};
use futures::{FutureExt, TryStreamExt};

use super::{Engine, EngineError, Job};

/// Distinct values and their counts, a pair of equally long arrays a batch.
#[derive(Clone, Debug, Default)]
pub struct ValueCounts {
    /// In the order asked for.
    pub batches: Vec<(ArrayRef, Vec<u64>)>,
}

/// Which values, in which order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountOrder {
    /// By count descending, equal counts by value ascending.
    ByCount {
        /// Values that occur less often are left out.
        min_count: u64,
        /// At most so many; 0: all.
        max_size: u64,
    },
    /// All, by value ascending.
    ByValue,
}

impl Engine {
    /// Counts of a column's values; nulls are not counted. Push batches of one column of the type.
    pub fn value_counts(&self, data_type: &DataType, order: CountOrder) -> Result<Job<ValueCounts>, EngineError> {
        let schema: SchemaRef = Arc::new(Schema::new(vec![Field::new("value", data_type.clone(), true)]));
        Job::start(
            self,
            &schema,
            |leaf| plan(leaf, order),
            |output| {
                async move {
                    let batches: Vec<RecordBatch> = output.try_collect().await?;
                    let counted = batches.iter().map(|batch| (Arc::clone(batch.column(0)), counts(batch)));
                    Ok(ValueCounts { batches: counted.collect() })
                }
                .boxed()
            },
        )
    }
}

/// GROUP BY value, then the filter on the count, then the sort.
fn plan(leaf: Arc<dyn ExecutionPlan>, order: CountOrder) -> Result<Arc<dyn ExecutionPlan>, DataFusionError> {
    let schema = leaf.schema();
    let value: Arc<dyn PhysicalExpr> = Arc::new(Column::new("value", 0));
    let count = AggregateExprBuilder::new(count_udaf(), vec![Arc::clone(&value)])
        .schema(SchemaRef::clone(&schema))
        .alias("count")
        .build()?;
    let group = PhysicalGroupBy::new_single(vec![(Arc::clone(&value), "value".to_owned())]);
    let grouped: Arc<dyn ExecutionPlan> = Arc::new(AggregateExec::try_new(
        AggregateMode::Single,
        group,
        vec![Arc::new(count)],
        vec![None],
        leaf,
        schema,
    )?);

    let count: Arc<dyn PhysicalExpr> = Arc::new(Column::new("count", 1));
    let (least, fetch) = match order {
        CountOrder::ByCount { min_count, max_size } => {
            (min_count.max(1), usize::try_from(max_size).ok().filter(|size| *size > 0))
        }
        CountOrder::ByValue => (1, None),
    };
    let least: Arc<dyn PhysicalExpr> =
        Arc::new(Literal::new(ScalarValue::Int64(Some(i64::try_from(least).unwrap_or(i64::MAX)))));
    let often = Arc::new(BinaryExpr::new(Arc::clone(&count), Operator::GtEq, least));
    let filtered = Arc::new(FilterExec::try_new(often, grouped)?);

    let ascending = PhysicalSortExpr::new(value, SortOptions { descending: false, nulls_first: false });
    let sort = match order {
        CountOrder::ByValue => vec![ascending],
        CountOrder::ByCount { .. } => {
            vec![PhysicalSortExpr::new(count, SortOptions { descending: true, nulls_first: false }), ascending]
        }
    };
    match LexOrdering::new(sort) {
        Some(ordering) => Ok(Arc::new(SortExec::new(ordering, filtered).with_fetch(fetch))),
        None => Ok(filtered),
    }
}

fn counts(batch: &RecordBatch) -> Vec<u64> {
    let counts = batch.column(1).as_primitive_opt::<Int64Type>();
    counts.map(|counts| counts.values().iter().map(|count| count.unsigned_abs()).collect()).unwrap_or_default()
}
