//! A running job: batches pushed in by a scan become the leaf of a DataFusion plan, or go to a fold one by one.
//!
//! A job computes on a thread of its own and ends in one of three ways: whole, with an error, or dropped. A dropped one
//! stops where it stands, also behind its last input, and its spill files go with it.

use std::{
    convert::Infallible,
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
    sync::{mpsc, oneshot},
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
    /// Never sent on: that it is gone tells the task to stop.
    wanted: oneshot::Sender<Infallible>,
    task: JoinHandle<Result<T, EngineError>>,
}

/// A computation that takes its input batch by batch.
pub(super) trait Fold: Send + 'static {
    /// What it comes to.
    type Output: Send + 'static;

    /// Takes in a batch.
    fn push(&mut self, batch: &RecordBatch) -> Result<(), EngineError>;

    /// Behind the last batch.
    fn finish(self) -> Result<Self::Output, EngineError>;
}

/// Reads the queue once.
struct BatchQueue {
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
        let queue = BatchQueue { schema: SchemaRef::clone(schema), receiver, is_whole: Arc::clone(&is_whole) };
        let leaf = StreamingTableExec::try_new(SchemaRef::clone(schema), vec![Arc::new(queue)], None, [], false, None)?;
        let output = execute_stream(plan(Arc::new(leaf))?, Arc::clone(&engine.context))?;
        let (wanted, unwanted) = oneshot::channel();
        // Aggregates compute between awaits for longer than an I/O thread may be held.
        let handle = tokio::runtime::Handle::current();
        let spill_directory = engine.spill_directory.clone();
        let task = tokio::task::spawn_blocking(move || {
            handle.block_on(async {
                tokio::select! {
                    biased;
                    _ = unwanted => Err(EngineError::Stopped),
                    result = fold(output) => result.map_err(|error| error.spilling_to(&spill_directory)),
                }
            })
        });
        Ok(Self { sender, is_whole, wanted, task })
    }

    /// Starts a fold over what will be pushed.
    pub(super) fn start_fold(mut fold: impl Fold<Output = T>) -> Self {
        let (sender, mut receiver) = mpsc::channel::<RecordBatch>(QUEUE_BATCHES_MAX);
        let is_whole = Arc::new(AtomicBool::new(false));
        let whole = Arc::clone(&is_whole);
        let (wanted, _) = oneshot::channel();
        let task = tokio::task::spawn_blocking(move || {
            while let Some(batch) = receiver.blocking_recv() {
                fold.push(&batch)?;
            }
            if whole.load(Ordering::Acquire) { fold.finish() } else { Err(EngineError::Stopped) }
        });
        Self { sender, is_whole, wanted, task }
    }

    /// Hands over a batch; waits while the job is behind. False when the job has failed: `finish` says why.
    pub async fn push(&self, batch: RecordBatch) -> bool {
        self.sender.send(batch).await.is_ok()
    }

    /// Ends the input and waits for the result.
    pub async fn finish(self) -> Result<T, EngineError> {
        self.is_whole.store(true, Ordering::Release);
        drop(self.sender);
        let result = self.task.await.map_err(|_: JoinError| EngineError::Stopped)?;
        // Until here: a job whose result is not awaited to the end stops.
        drop(self.wanted);
        result
    }
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
