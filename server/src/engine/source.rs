//! The input end of a job: batches pushed in by a scan become the leaf of a DataFusion plan.

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
use futures::{StreamExt, future::BoxFuture};
use tokio::{
    sync::mpsc,
    task::{JoinError, JoinHandle},
};

use super::{Engine, EngineError};

/// Batches that wait in front of a job.
const QUEUE_BATCHES_MAX: usize = 4;

/// A running aggregate: push its input, then finish it. Dropping it stops it.
#[derive(Debug)]
pub struct Job<T> {
    sender: mpsc::Sender<RecordBatch>,
    /// Set when the input is whole; a queue that ends without it belongs to a job that was dropped.
    is_whole: Arc<AtomicBool>,
    task: AbortOnDrop<Result<T, EngineError>>,
}

#[derive(Debug)]
struct AbortOnDrop<T>(JoinHandle<T>);

/// Reads the queue once.
struct Queue {
    schema: SchemaRef,
    receiver: Mutex<Option<mpsc::Receiver<RecordBatch>>>,
    is_whole: Arc<AtomicBool>,
}

impl<T: Send + 'static> Job<T> {
    /// Starts a plan over what will be pushed; `fold` makes the result of its output.
    pub(super) fn start(
        engine: &Engine,
        schema: &SchemaRef,
        plan: impl FnOnce(Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>, DataFusionError>,
        fold: impl FnOnce(SendableRecordBatchStream) -> BoxFuture<'static, Result<T, EngineError>> + Send + 'static,
    ) -> Result<Self, EngineError> {
        let (sender, receiver) = mpsc::channel(QUEUE_BATCHES_MAX);
        let is_whole = Arc::new(AtomicBool::new(false));
        let receiver = Mutex::new(Some(receiver));
        let queue = Queue { schema: SchemaRef::clone(schema), receiver, is_whole: Arc::clone(&is_whole) };
        let leaf = StreamingTableExec::try_new(SchemaRef::clone(schema), vec![Arc::new(queue)], None, [], false, None)?;
        let output = execute_stream(plan(Arc::new(leaf))?, Arc::clone(&engine.context))?;
        // Aggregates compute between awaits for longer than an I/O thread may be held.
        let handle = tokio::runtime::Handle::current();
        let task = tokio::task::spawn_blocking(move || handle.block_on(fold(output)));
        Ok(Self { sender, is_whole, task: AbortOnDrop(task) })
    }

    /// Hands over a batch; waits while the job is behind.
    pub async fn push(&self, batch: RecordBatch) {
        // A closed queue means that the job has failed: `finish` says why.
        let _ = self.sender.send(batch).await;
    }

    /// Ends the input and waits for the result.
    pub async fn finish(self) -> Result<T, EngineError> {
        self.is_whole.store(true, Ordering::Release);
        drop(self.sender);
        let mut task = self.task;
        (&mut task.0).await.map_err(|_: JoinError| EngineError::Stopped)?
    }
}

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl fmt::Debug for Queue {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Queue").finish_non_exhaustive()
    }
}

impl PartitionStream for Queue {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _context: Arc<TaskContext>) -> SendableRecordBatchStream {
        let receiver = self.receiver.lock().unwrap_or_else(PoisonError::into_inner).take();
        let is_whole = Arc::clone(&self.is_whole);
        let batches = futures::stream::unfold((receiver, is_whole), async |(receiver, is_whole)| {
            let mut receiver = receiver?;
            match receiver.recv().await {
                Some(batch) => Some((Ok(batch), (Some(receiver), is_whole))),
                None if is_whole.load(Ordering::Acquire) => None,
                // An error, so that nothing is sorted or merged for nobody.
                None => Some((exec_err!("the job was dropped"), (None, is_whole))),
            }
        });
        Box::pin(RecordBatchStreamAdapter::new(SchemaRef::clone(&self.schema), batches.boxed()))
    }
}
