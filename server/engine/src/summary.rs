//! Count, mean, deviation and bounds of many columns in one pass.

use std::sync::Arc;

use arrow::{
    array::{Array, AsArray, RecordBatch},
    datatypes::{DataType, Field, Float64Type, Schema, SchemaRef, UInt64Type},
};
use datafusion_common::DataFusionError;
use datafusion_physical_expr::{aggregate::AggregateExprBuilder, expressions::Column};
use datafusion_physical_plan::{
    ExecutionPlan,
    aggregates::{AggregateExec, AggregateMode, PhysicalGroupBy},
};
use futures::{FutureExt, TryStreamExt};

use super::{
    Engine, EngineError, Job,
    moments::{Summary, moments_udaf},
};

impl Engine {
    /// Starts a job that summarizes the columns of [`summary_schema`]; `None` for a column without values.
    pub fn summaries(&self, types: &[DataType]) -> Result<Job<Vec<Option<Summary>>>, EngineError> {
        let (schema, columns) = (summary_schema(types), types.len());
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

/// Returns the schema of a summary's input: columns of float64, int64 or uint64 named 0, 1, ….
pub fn summary_schema(types: &[DataType]) -> SchemaRef {
    let fields = types.iter().enumerate().map(|(column, kind)| Field::new(column.to_string(), kind.clone(), true));
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

fn plan(leaf: Arc<dyn ExecutionPlan>, columns: usize) -> Result<Arc<dyn ExecutionPlan>, DataFusionError> {
    let schema = leaf.schema();
    let mut aggregates = Vec::with_capacity(columns);
    for column in 0..columns {
        let argument = Arc::new(Column::new(&column.to_string(), column));
        let aggregate = AggregateExprBuilder::new(moments_udaf(), vec![argument])
            .schema(SchemaRef::clone(&schema))
            .alias(format!("moments of {column}"))
            .build()?;
        aggregates.push(Arc::new(aggregate));
    }
    let filters = vec![None; aggregates.len()];
    let group = PhysicalGroupBy::new_single(Vec::new());
    Ok(Arc::new(AggregateExec::try_new(AggregateMode::Single, group, aggregates, filters, leaf, schema)?))
}

/// The summary in a column of a row; `None` without values.
pub(super) fn summary(row: &RecordBatch, column: usize) -> Option<Summary> {
    let moments = row.column(column).as_struct_opt()?;
    let number = |index: usize| {
        let array = moments.column(index).as_primitive_opt::<Float64Type>()?;
        array.is_valid(0).then(|| array.value(0))
    };
    let count = moments.column(0).as_primitive_opt::<UInt64Type>()?.value(0);
    Some(Summary { count, mean: number(1)?, deviation: number(2)?, min: number(3)?, max: number(4)? })
}
