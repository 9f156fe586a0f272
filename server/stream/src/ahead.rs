//! Tasks that run ahead of the reader of their results, and end with it.

use std::{
    panic::AssertUnwindSafe,
    pin::Pin,
    task::{Context, Poll},
};

use arrow::array::RecordBatch;
use forebay_proto::v1;
use forebay_runtime::{cpu_pool::CpuError, metrics::StageTimes, tenant::Spawned};
use futures::{FutureExt, Stream, StreamExt};
use tokio::sync::mpsc;

use super::error::StreamError;

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
    receiver: mpsc::Receiver<Result<T, StreamError>>,
    _task: Spawned<()>,
}

/// The sending end of a task's queue.
pub(crate) type AheadSender<T> = mpsc::Sender<Result<T, StreamError>>;

/// The sending end of a stream's queue.
pub(crate) type BatchSender = AheadSender<Batch>;

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

impl<T: Send + 'static> Ahead<T> {
    /// Starts a task that sends results until it ends, fails, or its reader is dropped; at most `waiting_max` results
    /// wait.
    pub(crate) fn start<Work, Output>(waiting_max: usize, work: Work) -> Self
    where
        Work: FnOnce(AheadSender<T>) -> Output,
        Output: Future<Output = Result<(), StreamError>> + Send + 'static,
    {
        let (sender, receiver) = mpsc::channel(waiting_max);
        let output = AssertUnwindSafe(work(sender.clone())).catch_unwind();
        let task = async move {
            if let Err(error) = output.await.unwrap_or_else(|panic| Err(CpuError::of_panic(&*panic).into())) {
                // Fails if the reader was dropped, which needs no error.
                let _ = sender.send(Err(error)).await;
            }
        };
        Self { receiver, _task: Spawned::start(task) }
    }
}

impl<T> Stream for Ahead<T> {
    type Item = Result<T, StreamError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.receiver.poll_recv(context)
    }
}
