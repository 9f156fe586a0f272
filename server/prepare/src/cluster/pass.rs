//! The node of a plan that computes the partial rows of a fit's pass: row groups in, partial rows out, each partition by itself.
//!
//! The row groups of each partition are rows of its input, so that a scheduler, which knows nothing of this node, gives every task its
//! own.

use std::{fmt, ops::Range, sync::Arc};

use arrow::{
    array::{ArrayRef, AsArray, RecordBatch, UInt64Array},
    datatypes::{DataType, Field, Schema, SchemaRef, UInt64Type},
};
use datafusion::{
    catalog::memory::MemorySourceConfig,
    common::tree_node::TreeNodeRecursion,
    error::DataFusionError,
    execution::{SendableRecordBatchStream, TaskContext},
    physical_expr::{EquivalenceProperties, PhysicalExpr},
    physical_plan::{
        ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, Partitioning,
        PlanProperties, ReplaceChildrenOptions,
        execution_plan::{Boundedness, EmissionType},
        stream::RecordBatchStreamAdapter,
    },
};
use forebay_engine::partial_schema;
use forebay_stream::{FitWorker, StreamError, UnreadPin};
use futures::{StreamExt, TryStreamExt, stream};

use super::messages::{PassFailure, UnreadFile};

/// Computes the partial rows of the row groups that its input names.
#[derive(Clone)]
pub(super) struct PassExec {
    message: Arc<[u8]>,
    input: Arc<dyn ExecutionPlan>,
    /// `None` where the plan is only made or distributed.
    worker: Option<Arc<FitWorker>>,
    properties: Arc<PlanProperties>,
}

/// Row groups of each partition, as the input of a [`PassExec`].
pub(super) fn work(parts: &[Range<usize>]) -> Result<Arc<dyn ExecutionPlan>, DataFusionError> {
    let schema: SchemaRef =
        Arc::new(Schema::new(["first", "end"].map(|name| Field::new(name, DataType::UInt64, false)).to_vec()));
    let batch = |groups: &Range<usize>| {
        let columns =
            [groups.start, groups.end].map(|index| Arc::new(UInt64Array::from(vec![index as u64])) as ArrayRef);
        RecordBatch::try_new(Arc::clone(&schema), columns.to_vec()).map(|batch| vec![batch])
    };
    let batches = parts.iter().map(batch).collect::<Result<Vec<_>, _>>()?;
    Ok(MemorySourceConfig::try_new_exec(&batches, schema, None)?)
}

// === impl PassExec ===

impl PassExec {
    pub(super) fn new(message: Arc<[u8]>, input: Arc<dyn ExecutionPlan>, worker: Option<Arc<FitWorker>>) -> Self {
        let partitioning = Partitioning::UnknownPartitioning(input.output_partitioning().partition_count());
        let properties = PlanProperties::new(
            EquivalenceProperties::new(partial_schema()),
            partitioning,
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        Self { message, input, worker, properties: Arc::new(properties) }
    }

    /// What a worker needs of the pass.
    pub(super) fn message(&self) -> &[u8] {
        &self.message
    }
}

/// The row groups that a batch of the input names.
fn ranges(batch: &RecordBatch) -> Vec<Range<usize>> {
    let column = |index: usize| batch.column(index).as_primitive::<UInt64Type>().values();
    column(0).iter().zip(column(1)).map(|(first, end)| *first as usize..*end as usize).collect()
}

/// The error of a worker, so that it is found in the texts of the cluster.
fn failed(error: &StreamError) -> DataFusionError {
    match UnreadPin::of(error) {
        Some(UnreadPin { reason, is_change }) => DataFusionError::External(Box::new(UnreadFile { reason, is_change })),
        None => DataFusionError::External(Box::new(PassFailure(error.to_string()))),
    }
}

impl fmt::Debug for PassExec {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("PassExec").field("input", &self.input).finish_non_exhaustive()
    }
}

impl DisplayAs for PassExec {
    fn fmt_as(&self, _type: DisplayFormatType, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("PassExec")
    }
}

impl ExecutionPlan for PassExec {
    fn name(&self) -> &'static str {
        "PassExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn apply_expressions(
        &self,
        _call: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion, DataFusionError>,
    ) -> Result<TreeNodeRecursion, DataFusionError> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
        _options: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>, DataFusionError> {
        let (Some(input), true) = (children.pop(), children.is_empty()) else {
            return Err(DataFusionError::Internal("a pass has one input".to_owned()));
        };
        Ok(Arc::new(Self::new(Arc::clone(&self.message), input, self.worker.clone())))
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>, DataFusionError> {
        self.replace_children(children, ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute))
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream, DataFusionError> {
        let Some(worker) = self.worker.clone() else {
            return Err(DataFusionError::Internal("a pass runs on executors only".to_owned()));
        };
        let message = Arc::clone(&self.message);
        let groups = self.input.execute(partition, context)?;
        let of_batch = |batch: RecordBatch| stream::iter(ranges(&batch).into_iter().map(Ok::<_, DataFusionError>));
        let groups = groups.map_ok(of_batch).try_flatten();
        let rows = groups.map_ok(move |groups| {
            worker.start(Arc::clone(&message), groups).map(|rows| rows.map_err(|error| failed(&error)))
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(partial_schema(), rows.try_flatten())))
    }
}
