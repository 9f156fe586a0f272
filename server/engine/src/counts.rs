//! Counts of each distinct value of a column, for vocabularies and modes.
//!
//! DataFusion's GROUP BY counts, and spills sorted runs when its memory is full. Its output is reduced batch by batch
//! to the values to keep, so that the set of all distinct values is never sorted or held in memory.

use std::sync::Arc;

use arrow::{
    array::AsArray,
    datatypes::{DataType, Field, Int64Type, Schema, SchemaRef},
};
use datafusion_common::DataFusionError;
use datafusion_execution::memory_pool::MemoryConsumer;
use datafusion_functions_aggregate::count::count_udaf;
use datafusion_physical_expr::{PhysicalExpr, aggregate::AggregateExprBuilder, expressions::Column};
use datafusion_physical_plan::{
    ExecutionPlan,
    aggregates::{AggregateExec, AggregateMode, PhysicalGroupBy},
};
use futures::{FutureExt, TryStreamExt};

use super::{Engine, EngineError, Job, Keep, ValueCounts, top_values::TopValues};

impl Engine {
    /// Starts a job that counts the non-null values of a column of type Utf8, Int64, `UInt64`, Float64, Decimal128 or
    /// Decimal256. Push batches of that one column.
    pub fn value_counts(&self, data_type: &DataType, keep: Keep) -> Result<Job<ValueCounts>, EngineError> {
        let schema: SchemaRef = Arc::new(Schema::new(vec![Field::new("value", data_type.clone(), true)]));
        let memory = MemoryConsumer::new("vocabulary").register(self.context.memory_pool());
        let mut top = TopValues::new(keep, data_type, memory);
        Job::start(self, &schema, plan, |mut output| {
            async move {
                while let Some(batch) = output.try_next().await? {
                    let counts = batch.column(1).as_primitive_opt::<Int64Type>();
                    top.offer(batch.column(0), counts.map(|counts| &counts.values()[..]).unwrap_or_default())?;
                }
                top.finish()
            }
            .boxed()
        })
    }
}

/// Returns the plan of `SELECT value, COUNT(value) GROUP BY value`.
fn plan(leaf: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>, DataFusionError> {
    let schema = leaf.schema();
    let value: Arc<dyn PhysicalExpr> = Arc::new(Column::new("value", 0));
    let count = AggregateExprBuilder::new(count_udaf(), vec![Arc::clone(&value)])
        .schema(SchemaRef::clone(&schema))
        .alias("count")
        .build()?;
    let group = PhysicalGroupBy::new_single(vec![(value, "value".to_owned())]);
    let counted = vec![Arc::new(count)];
    Ok(Arc::new(AggregateExec::try_new(AggregateMode::Single, group, counted, vec![None], leaf, schema)?))
}
