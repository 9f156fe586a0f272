//! Work that runs ahead of whoever takes its results, and ends with its reader.

use std::{
    panic::AssertUnwindSafe,
    pin::Pin,
    task::{Context, Poll, ready},
};

use futures::{FutureExt, Stream, StreamExt};
use tokio::{sync::mpsc, task::JoinHandle};
use tracing::Instrument;

use super::{BATCHES_AHEAD, Batch, FETCH_AHEAD, StreamError};
use crate::runtime::CpuError;

/// Results of a task that makes them ahead, as many as its queue holds. Dropping it ends the task at its next await.
#[derive(Debug)]
pub struct Ahead<T> {
    receiver: mpsc::Receiver<Result<T, StreamError>>,
    _task: Spawned<()>,
}

/// The batches of one stream, made ahead of the wire.
pub type BatchTask = Ahead<Batch>;

/// Where a task puts its results.
pub(super) type AheadSender<T> = mpsc::Sender<Result<T, StreamError>>;

/// Where a stream's task puts its batches.
pub(super) type BatchSender = AheadSender<Batch>;

/// A future that goes on by itself and ends with this handle.
#[derive(Debug)]
struct Spawned<T>(JoinHandle<T>);

/// The results of futures, in their order: each of them is under way before it is asked for.
pub(super) fn fetched_ahead<T, Fetch>(
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
    pub(super) fn batches<Work, Made>(work: Work) -> Self
    where
        Work: FnOnce(BatchSender) -> Made,
        Made: Future<Output = Result<(), StreamError>> + Send + 'static,
    {
        Self::start(BATCHES_AHEAD, work)
    }
}

impl<T: Send + 'static> Ahead<T> {
    /// Starts a task that sends results until it is done, fails, or its reader goes; so many may wait to be taken.
    pub(super) fn start<Work, Made>(waiting_max: usize, work: Work) -> Self
    where
        Work: FnOnce(AheadSender<T>) -> Made,
        Made: Future<Output = Result<(), StreamError>> + Send + 'static,
    {
        let (sender, receiver) = mpsc::channel(waiting_max);
        let made = work(sender.clone());
        let work = async move {
            let made = AssertUnwindSafe(made).catch_unwind().await;
            if let Err(error) = made.unwrap_or_else(|panic| Err(CpuError::of_panic(&*panic).into())) {
                // Nobody is told where the reader has gone.
                let _ = sender.send(Err(error)).await;
            }
        };
        Self { receiver, _task: Spawned(tokio::spawn(work.in_current_span())) }
    }
}

impl<T> Stream for Ahead<T> {
    type Item = Result<T, StreamError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.receiver.poll_recv(context)
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
