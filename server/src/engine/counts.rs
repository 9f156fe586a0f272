//! How often each value of a column occurs: the question behind vocabularies and modes.
//!
//! DataFusion's GROUP BY counts, and spills sorted runs where its memory ends. What it counted is looked at batch by batch
//! and only what is kept stays, so that neither a sort nor a result of all distinct values is ever held.

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
    /// Counts of a column's values; nulls are not counted. Push batches of one column of the type: Utf8, Int64, `UInt64`,
    /// Float64, Decimal128 or Decimal256.
    pub fn value_counts(&self, data_type: &DataType, keep: Keep) -> Result<Job<ValueCounts>, EngineError> {
        let schema: SchemaRef = Arc::new(Schema::new(vec![Field::new("value", data_type.clone(), true)]));
        let memory = MemoryConsumer::new("values that are kept").register(self.context.memory_pool());
        let mut kept = TopValues::new(keep, data_type, memory);
        Job::start(self, &schema, plan, |mut output| {
            async move {
                while let Some(batch) = output.try_next().await? {
                    let counts = batch.column(1).as_primitive_opt::<Int64Type>();
                    kept.offer(batch.column(0), counts.map(|counts| &counts.values()[..]).unwrap_or_default())?;
                    // So that a job that is dropped stops here.
                    tokio::task::yield_now().await;
                }
                kept.finish()
            }
            .boxed()
        })
    }
}

/// GROUP BY value.
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
