//! The batches of one stream, computed ahead of the wire as long as their reader takes them.
//!
//! ```text
//!              reader leaves batches for `pause_max`,
//!              or another tenant needs the memory              reader leaves them for `idle_max`
//! computing ─────────────────────────────────────────▶ paused ──────────────────────────────────▶ ended: Idle
//!     ▲     drops batches, windows and fetched bytes     │
//!     └──────────────────────────────────────────────────┘
//!       reader asks: computes from the next batch on
//! ```
//!
//! A batch is a function of the request and its step, so that a paused stream continues with the same bytes. What is
//! paused keeps reserved what may wait for the socket.

use std::{
    panic::AssertUnwindSafe,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use forebay_plan::Limits;
use forebay_proto::v1;
use forebay_runtime::{
    budget::{Budget, BudgetError, Reservation, Revocable},
    cpu_pool::CpuError,
    metrics::{PauseReason, PausedGuard},
    tenant::Spawned,
};
use futures::{FutureExt, Stream};
use tokio::sync::{Notify, mpsc};

use crate::{
    ahead::{BATCHES_AHEAD, Batch, BatchSender},
    error::StreamError,
};

/// Time for which a stream that continues waits for memory that others have taken.
const CONTINUE_TIME: Duration = Duration::from_secs(30);

/// The batches of one stream. Dropping it ends their computation.
#[derive(Debug)]
pub struct BatchTask {
    queue: Arc<ReadyBatches>,
    _task: Spawned<()>,
}

/// The memory of a stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BatchMemory {
    /// All of it.
    pub bytes: u64,
    /// A batch.
    pub batch_bytes: u64,
    /// What may wait for the socket, besides the batch that is being written.
    pub sending_bytes: u64,
}

/// The batches that a reader has taken.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TakenBatches {
    /// Their number.
    pub batches: u64,
    /// The position after the last one.
    pub position: u64,
}

/// The receiving end of a stream's queue, and the memory of the stream.
#[derive(Debug)]
struct ReadyBatches {
    state: Mutex<ReadyState>,
    /// Wakes the task when the reader has polled.
    polled: Notify,
    revocable: Arc<Revocable>,
}

#[derive(Debug)]
struct ReadyState {
    receiver: mpsc::Receiver<Result<Batch, StreamError>>,
    taken: TakenBatches,
    /// Whether the reader waits for a batch.
    is_wanted: bool,
    held: Reservation,
}

/// The task's side of a stream.
struct BatchSource<Work> {
    queue: Arc<ReadyBatches>,
    sender: BatchSender,
    budget: Budget,
    limits: Limits,
    memory: BatchMemory,
    work: Work,
}

// === impl BatchTask ===

impl BatchTask {
    /// Starts to send the batches after those that were taken, with this memory. `work` is called again for a stream that
    /// continues after a pause.
    pub(crate) fn start<Work, Output>(
        budget: &Budget,
        limits: Limits,
        (memory, held): (BatchMemory, Reservation),
        work: Work,
    ) -> Self
    where
        Work: Fn(TakenBatches, BatchSender) -> Output + Send + Sync + 'static,
        Output: Future<Output = Result<(), StreamError>> + Send + 'static,
    {
        let (sender, receiver) = mpsc::channel(BATCHES_AHEAD);
        let revocable = budget.revocable();
        revocable.set_bytes(memory.bytes - memory.paused_bytes());
        let state = ReadyState { receiver, taken: TakenBatches::default(), is_wanted: false, held };
        let queue = Arc::new(ReadyBatches { state: Mutex::new(state), polled: Notify::new(), revocable });
        let source = BatchSource { queue: Arc::clone(&queue), sender, budget: budget.clone(), limits, memory, work };
        Self { queue, _task: Spawned::start(source.run()) }
    }
}

impl Stream for BatchTask {
    type Item = Result<Batch, StreamError>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let queue = &self.queue;
        let polled = {
            let mut state = queue.state();
            let polled = state.receiver.poll_recv(context);
            if let Poll::Ready(Some(Ok(batch))) = &polled {
                let v1::BatchHeader { position, rows, .. } = batch.header;
                state.taken = TakenBatches { batches: state.taken.batches + 1, position: position + rows };
            }
            state.is_wanted = polled.is_pending();
            queue.revocable.set_used(state.is_wanted);
            polled
        };
        queue.polled.notify_one();
        polled
    }
}

// === impl BatchSource ===

impl<Work, Output> BatchSource<Work>
where
    Work: Fn(TakenBatches, BatchSender) -> Output,
    Output: Future<Output = Result<(), StreamError>>,
{
    async fn run(self) {
        let Self { queue, sender, limits, memory, .. } = &self;
        loop {
            let reason = tokio::select! {
                () = self.send_all() => break,
                reason = queue.is_left(limits) => reason,
            };
            // The computation is dropped. What it sent is computed again.
            queue.release(memory.paused_bytes());
            let paused = PausedGuard::open(reason);
            tracing::info!(
                reason = reason.label(),
                "stream paused: it released its memory, and continues when it is read"
            );
            tokio::select! {
                biased;
                () = queue.is_wanted() => {}
                () = queue.revocable.unused(limits.idle_max) => {
                    queue.shrink(0);
                    let _ = sender.send(Err(StreamError::Idle { seconds: limits.idle_max.as_secs_f64() })).await;
                    break;
                }
            }
            drop(paused);
            if let Err(source) = self.reserve().await {
                let _ = sender.send(Err(StreamError::Paused(source))).await;
                break;
            }
        }
        queue.shrink(memory.paused_bytes());
    }

    /// Sends the batches and the error that may end them, and waits until they are received.
    async fn send_all(&self) {
        let taken = self.queue.state().taken;
        let sent = AssertUnwindSafe((self.work)(taken, self.sender.clone())).catch_unwind().await;
        if let Err(error) = sent.unwrap_or_else(|panic| Err(CpuError::of_panic(&*panic).into())) {
            // Fails if the reader was dropped, which needs no error.
            let _ = self.sender.send(Err(error)).await;
        }
        self.queue.shrink(self.memory.sent_bytes());
        self.queue.revocable.set_bytes(self.memory.sent_bytes() - self.memory.paused_bytes());
        while self.sender.capacity() < self.sender.max_capacity() {
            self.queue.polled.notified().await;
        }
    }

    /// Reserves the memory of a stream that continues.
    async fn reserve(&self) -> Result<(), BudgetError> {
        let missing = self.memory.bytes - self.memory.paused_bytes();
        let more = self.budget.reserve_within(missing, CONTINUE_TIME).await?;
        self.queue.state().held.merge(more);
        self.queue.revocable.set_bytes(missing);
        Ok(())
    }
}

// === impl BatchMemory ===

impl BatchMemory {
    /// The part of a stream that is paused: the batch that is being written, and what waits for the socket.
    fn paused_bytes(&self) -> u64 {
        self.bytes.min(self.batch_bytes.saturating_add(self.sending_bytes))
    }

    /// The part of a stream whose last batches are computed.
    fn sent_bytes(&self) -> u64 {
        let ahead = self.batch_bytes.saturating_mul(BATCHES_AHEAD as u64);
        self.bytes.min(self.paused_bytes().saturating_add(ahead))
    }
}

// === impl ReadyBatches ===

impl ReadyBatches {
    fn state(&self) -> MutexGuard<'_, ReadyState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the stream should be paused.
    async fn is_left(&self, limits: &Limits) -> PauseReason {
        tokio::select! {
            () = self.revocable.recalled() => PauseReason::Shortage,
            () = self.revocable.unused(limits.pause_max) => PauseReason::Unread,
            () = self.revocable.unused(limits.idle_max) => PauseReason::Unread,
        }
    }

    /// Waits until the reader waits for a batch.
    async fn is_wanted(&self) {
        while !self.state().is_wanted {
            self.polled.notified().await;
        }
    }

    /// Drops the batches that were not received, and the memory except these bytes.
    fn release(&self, bytes: u64) {
        let mut state = self.state();
        while state.receiver.try_recv().is_ok() {}
        drop(state);
        self.shrink(bytes);
        self.revocable.set_bytes(0);
    }

    fn shrink(&self, bytes: u64) {
        let mut state = self.state();
        let bytes = bytes.min(state.held.bytes());
        state.held.resize(bytes);
    }
}

#[cfg(test)]
mod tests;
