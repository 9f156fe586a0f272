//! Work that runs ahead of whoever takes its results, and ends with its reader.

use std::{
    panic::AssertUnwindSafe,
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use futures::{FutureExt, Stream, StreamExt};
use tokio::{sync::mpsc, task::JoinHandle, time};
use tracing::Instrument;

use crate::cpu_pool::CpuError;
use crate::stream::{BATCHES_AHEAD, Batch, FETCH_AHEAD, StreamError};

/// Results of a task that makes them ahead, as many as its queue holds. Dropping it ends the task at its next await.
#[derive(Debug)]
pub struct Ahead<T> {
    queue: Arc<Queue<T>>,
    _task: Spawned<()>,
}

/// The end of a queue that its reader takes from, and its writer empties when the reader takes nothing any more.
#[derive(Debug)]
struct Queue<T> {
    receiver: Mutex<mpsc::Receiver<Result<T, StreamError>>>,
    taken: AtomicU64,
}

/// The batches of one stream, made ahead of the wire.
pub type BatchTask = Ahead<Batch>;

/// Where a task puts its results.
pub(crate) type AheadSender<T> = mpsc::Sender<Result<T, StreamError>>;

/// Where a stream's task puts its batches.
pub(crate) type BatchSender = AheadSender<Batch>;

/// A future that goes on by itself and ends with this handle.
#[derive(Debug)]
struct Spawned<T>(JoinHandle<T>);

/// The results of futures, in their order: each of them is under way before it is asked for.
pub(crate) fn fetched_ahead<T, Fetch>(
    fetches: impl Iterator<Item = Fetch>,
) -> impl Stream<Item = Result<T, StreamError>>
where
    T: Send + 'static,
    Fetch: Future<Output = Result<T, StreamError>> + Send + 'static,
{
    let spawned = fetches.map(|fetch| Spawned(tokio::spawn(AssertUnwindSafe(fetch).catch_unwind().in_current_span())));
    let fetched = futures::stream::iter(spawned).buffered(FETCH_AHEAD + 1);
    fetched.map(|made| made.unwrap_or_else(|panic| Err(CpuError::of_panic(&*panic).into())))
}

// === impl Ahead ===

impl BatchTask {
    /// Starts a stream's task.
    ///
    /// When its reader takes nothing for `idle_max` (zero: for ever), though there is something, what is ready is dropped with
    /// all that the work holds, and the reader, should it come back, is told so.
    pub(crate) fn batches<Work, Made>(idle_max: Duration, work: Work) -> Self
    where
        Work: FnOnce(BatchSender) -> Made,
        Made: Future<Output = Result<(), StreamError>> + Send + 'static,
    {
        Self::start_within(idle_max, BATCHES_AHEAD, work)
    }
}

impl<T: Send + 'static> Ahead<T> {
    /// Starts a task that sends results until it is done, fails, or its reader goes; so many may wait to be taken.
    pub(crate) fn start<Work, Made>(waiting_max: usize, work: Work) -> Self
    where
        Work: FnOnce(AheadSender<T>) -> Made,
        Made: Future<Output = Result<(), StreamError>> + Send + 'static,
    {
        Self::start_within(Duration::ZERO, waiting_max, work)
    }

    fn start_within<Work, Made>(idle_max: Duration, waiting_max: usize, work: Work) -> Self
    where
        Work: FnOnce(AheadSender<T>) -> Made,
        Made: Future<Output = Result<(), StreamError>> + Send + 'static,
    {
        let (sender, receiver) = mpsc::channel(waiting_max);
        let queue = Arc::new(Queue { receiver: Mutex::new(receiver), taken: AtomicU64::new(0) });
        let made = work(sender.clone());
        let watched = Arc::clone(&queue);
        let work = async move {
            let made = AssertUnwindSafe(made).catch_unwind();
            let made = tokio::select! {
                made = made => made.unwrap_or_else(|panic| Err(CpuError::of_panic(&*panic).into())),
                () = watched.is_idle(&sender, idle_max) => {
                    watched.clear();
                    Err(StreamError::Idle { seconds: idle_max.as_secs_f64() })
                }
            };
            if let Err(error) = made {
                // Nobody is told where the reader has gone.
                let _ = sender.send(Err(error)).await;
            }
        };
        Self { queue, _task: Spawned(tokio::spawn(work.in_current_span())) }
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

// === impl Queue ===

impl<T> Queue<T> {
    fn receiver(&self) -> std::sync::MutexGuard<'_, mpsc::Receiver<Result<T, StreamError>>> {
        self.receiver.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn clear(&self) {
        let mut receiver = self.receiver();
        while receiver.try_recv().is_ok() {}
    }

    /// Waits until something has lain ready for so long, and nothing was taken.
    async fn is_idle(&self, sender: &AheadSender<T>, idle_max: Duration) {
        /// Looks in that time.
        const LOOKS: u32 = 8;
        if idle_max.is_zero() {
            return std::future::pending().await;
        }
        let (mut taken, mut looks) = (self.taken.load(Ordering::Relaxed), 0);
        while looks < LOOKS {
            time::sleep(idle_max / LOOKS).await;
            let now = self.taken.load(Ordering::Relaxed);
            let is_ready = sender.capacity() < sender.max_capacity();
            looks = if now == taken && is_ready { looks + 1 } else { 0 };
            taken = now;
        }
    }
}

// === impl Spawned ===

impl<T> Future for Spawned<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        match ready!(self.0.poll_unpin(context)) {
            Ok(made) => Poll::Ready(made),
            // Its panics are caught within and nobody else ends it: the runtime is shutting down, and this task too.
            Err(_) => Poll::Pending,
        }
    }
}

impl<T> Drop for Spawned<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}
