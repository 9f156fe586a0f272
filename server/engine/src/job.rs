//! Running jobs: batches pushed by a scan are the input of a DataFusion plan, or of a fold.
//!
//! A job computes batch by batch on the CPU pool, for the caller that started it, and ends in one of three ways:
//! completed, failed or dropped. A dropped job stops after the batch that it computes, even after its last input, and
//! deletes its spill files.

use std::{
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use arrow::{array::RecordBatch, datatypes::SchemaRef};
use datafusion_common::{DataFusionError, exec_err};
use datafusion_execution::{SendableRecordBatchStream, TaskContext};
use datafusion_physical_plan::{
    ExecutionPlan, execute_stream,
    stream::RecordBatchStreamAdapter,
    streaming::{PartitionStream, StreamingTableExec},
};
use forebay_runtime::tenant::Spawned;
use futures::{Stream, StreamExt, future::BoxFuture};
use tokio::{sync::mpsc, task::yield_now};

use super::{Engine, EngineError};

/// Batches that are queued for a job.
pub const QUEUE_BATCHES_MAX: usize = 4;

/// A running aggregate: push its input, then call [`Job::finish`]. Dropping it stops it.
#[derive(Debug)]
pub struct Job<T> {
    sender: mpsc::Sender<RecordBatch>,
    /// Set when the input is complete; a queue that ends before was that of a dropped job.
    is_complete: Arc<AtomicBool>,
    task: Spawned<Result<T, EngineError>>,
}

/// A computation that processes its input batch by batch.
pub(super) trait Fold: Send + 'static {
    /// The result.
    type Output: Send + 'static;

    /// Processes a batch.
    fn push(&mut self, batch: &RecordBatch) -> Result<(), EngineError>;

    /// Returns the result after the last batch.
    fn finish(self) -> Result<Self::Output, EngineError>;
}

/// The input of a DataFusion plan; can be executed once.
struct BatchQueue {
    schema: SchemaRef,
    receiver: Mutex<Option<mpsc::Receiver<RecordBatch>>>,
    is_complete: Arc<AtomicBool>,
}

impl<T: Send + 'static> Job<T> {
    /// Starts a plan over the batches to be pushed; `fold` computes the result from its output.
    pub(super) fn start(
        engine: &Engine,
        schema: &SchemaRef,
        plan: impl FnOnce(Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>, DataFusionError>,
        fold: impl FnOnce(SendableRecordBatchStream) -> BoxFuture<'static, Result<T, EngineError>> + Send + 'static,
    ) -> Result<Self, EngineError> {
        let (sender, receiver) = mpsc::channel(QUEUE_BATCHES_MAX);
        let is_complete = Arc::new(AtomicBool::new(false));
        let receiver = Mutex::new(Some(receiver));
        let queue = BatchQueue { schema: SchemaRef::clone(schema), receiver, is_complete: Arc::clone(&is_complete) };
        let leaf = StreamingTableExec::try_new(SchemaRef::clone(schema), vec![Arc::new(queue)], None, [], false, None)?;
        let output = execute_stream(plan(Arc::new(leaf))?, Arc::clone(&engine.context))?;
        let output = Box::pin(RecordBatchStreamAdapter::new(output.schema(), in_steps(output)));
        let (engine, result) = (engine.clone(), fold(output));
        let task = Spawned::start(async move {
            let result = engine.cpu.run_polls(result).await?;
            result.map_err(|error| error.spilling_to(&engine.spill_directory))
        });
        Ok(Self { sender, is_complete, task })
    }

    /// Starts a fold over the batches to be pushed.
    pub(super) fn start_fold(engine: &Engine, mut fold: impl Fold<Output = T>) -> Self {
        let (sender, mut receiver) = mpsc::channel::<RecordBatch>(QUEUE_BATCHES_MAX);
        let is_complete = Arc::new(AtomicBool::new(false));
        let (cpu, complete) = (engine.cpu.clone(), Arc::clone(&is_complete));
        let task = Spawned::start(async move {
            while let Some(batch) = receiver.recv().await {
                let pushed = cpu.run(move || fold.push(&batch).map(|()| fold));
                fold = pushed.await??;
            }
            if complete.load(Ordering::Acquire) { cpu.run(|| fold.finish()).await? } else { Err(EngineError::Stopped) }
        });
        Self { sender, is_complete, task }
    }

    /// Queues a batch; waits while the queue is full. Returns false if the job has failed: `finish` returns the error.
    pub async fn push(&self, batch: RecordBatch) -> bool {
        self.sender.send(batch).await.is_ok()
    }

    /// Completes the input and waits for the result.
    pub async fn finish(self) -> Result<T, EngineError> {
        self.is_complete.store(true, Ordering::Release);
        drop(self.sender);
        self.task.await
    }
}

/// The same batches, each in another poll, so that a job of the CPU pool computes one of them.
fn in_steps(
    batches: impl Stream<Item = Result<RecordBatch, DataFusionError>> + Send + 'static,
) -> impl Stream<Item = Result<RecordBatch, DataFusionError>> + Send + 'static {
    batches.then(async |batch| {
        yield_now().await;
        batch
    })
}

impl fmt::Debug for BatchQueue {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("BatchQueue").finish_non_exhaustive()
    }
}

impl PartitionStream for BatchQueue {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _context: Arc<TaskContext>) -> SendableRecordBatchStream {
        let receiver = self.receiver.lock().unwrap_or_else(PoisonError::into_inner).take();
        let is_complete = Arc::clone(&self.is_complete);
        let batches = futures::stream::unfold((receiver, is_complete), async |(receiver, is_complete)| {
            let mut receiver = receiver?;
            match receiver.recv().await {
                Some(batch) => Some((Ok(batch), (Some(receiver), is_complete))),
                None if is_complete.load(Ordering::Acquire) => None,
                // An error, so that the plan does not sort or merge for a result that is not read.
                None => Some((exec_err!("the job was dropped"), (None, is_complete))),
            }
        });
        Box::pin(RecordBatchStreamAdapter::new(SchemaRef::clone(&self.schema), in_steps(batches).boxed()))
    }
}
