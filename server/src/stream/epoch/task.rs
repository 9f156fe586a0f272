//! Tasks that run ahead of the reader of their results, and end with it.

use std::{
    panic::AssertUnwindSafe,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use arrow::array::RecordBatch;
use forebay_proto::v1;
use futures::{FutureExt, Stream, StreamExt};
use tokio::{sync::mpsc, task::JoinHandle, time};
use tracing::Instrument;

use crate::{cpu_pool::CpuError, metrics::StageTimes, stream::error::StreamError};

/// Row groups that are fetched ahead of the one being decoded.
pub(crate) const FETCH_AHEAD: usize = 2;

/// Batches that wait for the wire.
pub(crate) const BATCHES_AHEAD: usize = 2;

/// A batch on its way to the wire, which fills in the header's checksum and times.
#[derive(Clone, Debug)]
pub struct Batch {
    /// The header.
    pub header: v1::BatchHeader,
    /// The columns.
    pub data: RecordBatch,
    /// The time that each stage took since the previous batch.
    pub times: StageTimes,
}

/// Results of a task that computes them ahead, up to the capacity of its queue. Dropping it ends the task at its next
/// await.
#[derive(Debug)]
pub struct Ahead<T> {
    queue: Arc<AheadQueue<T>>,
    _task: Spawned<()>,
}

/// The receiving end of a queue: the reader takes results, and the writer empties it when the reader is idle.
#[derive(Debug)]
struct AheadQueue<T> {
    receiver: Mutex<mpsc::Receiver<Result<T, StreamError>>>,
    taken: AtomicU64,
}

/// The batches of one stream, computed ahead of the wire.
pub type BatchTask = Ahead<Batch>;

/// The sending end of a task's queue.
pub(crate) type AheadSender<T> = mpsc::Sender<Result<T, StreamError>>;

/// The sending end of a stream's queue.
pub(crate) type BatchSender = AheadSender<Batch>;

/// A spawned future that ends with this handle.
#[derive(Debug)]
pub(crate) struct Spawned<T>(JoinHandle<T>);

/// The results of fetches in their order; the next [`FETCH_AHEAD`] fetches run while one is used.
pub(crate) fn fetched_ahead<T, Fetch>(
    fetches: impl Iterator<Item = Fetch>,
) -> impl Stream<Item = Result<T, StreamError>>
where
    T: Send + 'static,
    Fetch: Future<Output = Result<T, StreamError>> + Send + 'static,
{
    let spawned = fetches.map(|fetch| Spawned::start(AssertUnwindSafe(fetch).catch_unwind()));
    let fetched = futures::stream::iter(spawned).buffered(FETCH_AHEAD + 1);
    fetched.map(|fetched| fetched.unwrap_or_else(|panic| Err(CpuError::of_panic(&*panic).into())))
}

// === impl Ahead ===

impl BatchTask {
    /// Starts a stream's task.
    ///
    /// If its reader leaves a ready batch for `idle_max` (zero: no limit), the task ends: it drops its batches and
    /// memory, and a reader that resumes gets [`StreamError::Idle`].
    pub(crate) fn batches<Work, Output>(idle_max: Duration, work: Work) -> Self
    where
        Work: FnOnce(BatchSender) -> Output,
        Output: Future<Output = Result<(), StreamError>> + Send + 'static,
    {
        Self::start_within(idle_max, BATCHES_AHEAD, work)
    }
}

impl<T: Send + 'static> Ahead<T> {
    /// Starts a task that sends results until it ends, fails, or its reader is dropped; at most `waiting_max` results
    /// wait.
    pub(crate) fn start<Work, Output>(waiting_max: usize, work: Work) -> Self
    where
        Work: FnOnce(AheadSender<T>) -> Output,
        Output: Future<Output = Result<(), StreamError>> + Send + 'static,
    {
        Self::start_within(Duration::ZERO, waiting_max, work)
    }

    fn start_within<Work, Output>(idle_max: Duration, waiting_max: usize, work: Work) -> Self
    where
        Work: FnOnce(AheadSender<T>) -> Output,
        Output: Future<Output = Result<(), StreamError>> + Send + 'static,
    {
        let (sender, receiver) = mpsc::channel(waiting_max);
        let queue = Arc::new(AheadQueue { receiver: Mutex::new(receiver), taken: AtomicU64::new(0) });
        let output = work(sender.clone());
        let watched = Arc::clone(&queue);
        let task = async move {
            let output = AssertUnwindSafe(output).catch_unwind();
            let output = tokio::select! {
                output = output => output.unwrap_or_else(|panic| Err(CpuError::of_panic(&*panic).into())),
                () = watched.is_idle(&sender, idle_max) => {
                    watched.clear();
                    Err(StreamError::Idle { seconds: idle_max.as_secs_f64() })
                }
            };
            if let Err(error) = output {
                // Fails if the reader was dropped, which needs no error.
                let _ = sender.send(Err(error)).await;
            }
        };
        Self { queue, _task: Spawned::start(task) }
    }
}

impl<T> Stream for Ahead<T> {
    type Item = Result<T, StreamError>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let result = ready!(self.queue.receiver().poll_recv(context));
        self.queue.taken.fetch_add(1, Ordering::Relaxed);
        Poll::Ready(result)
    }
}

// === impl AheadQueue ===

impl<T> AheadQueue<T> {
    fn receiver(&self) -> MutexGuard<'_, mpsc::Receiver<Result<T, StreamError>>> {
        self.receiver.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn clear(&self) {
        let mut receiver = self.receiver();
        while receiver.try_recv().is_ok() {}
    }

    /// Waits until the reader has left a ready result for `idle_max`.
    async fn is_idle(&self, sender: &AheadSender<T>, idle_max: Duration) {
        /// Polls in that time.
        const POLLS: u32 = 8;
        if idle_max.is_zero() {
            return std::future::pending().await;
        }
        let (mut taken, mut idle_polls) = (self.taken.load(Ordering::Relaxed), 0);
        while idle_polls < POLLS {
            time::sleep(idle_max / POLLS).await;
            let now = self.taken.load(Ordering::Relaxed);
            let is_ready = sender.capacity() < sender.max_capacity();
            idle_polls = if now == taken && is_ready { idle_polls + 1 } else { 0 };
            taken = now;
        }
    }
}

// === impl Spawned ===

impl<T: Send + 'static> Spawned<T> {
    /// Spawns a future, which must catch its panics, in the current tracing span.
    pub(crate) fn start(future: impl Future<Output = T> + Send + 'static) -> Self {
        Self(tokio::spawn(future.in_current_span()))
    }
}

impl<T> Future for Spawned<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        match ready!(self.0.poll_unpin(context)) {
            Ok(output) => Poll::Ready(output),
            // Its panics are caught inside and only dropping the handle aborts it: the runtime is shutting down, and
            // this task with it.
            Err(_) => Poll::Pending,
        }
    }
}

impl<T> Drop for Spawned<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}
