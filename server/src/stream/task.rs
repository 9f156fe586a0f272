//! A stream's task: it makes batches ahead of the wire, as many as its queue holds, and ends with its reader.

use std::{
    panic::AssertUnwindSafe,
    pin::Pin,
    task::{Context, Poll},
};

use futures::{FutureExt, Stream};
use tokio::{sync::mpsc, task::JoinHandle};

use super::{BATCHES_AHEAD, Batch, StreamError};
use crate::runtime::CpuError;

/// The batches of one stream. Dropping it ends the task at its next await.
#[derive(Debug)]
pub struct BatchTask {
    receiver: mpsc::Receiver<Result<Batch, StreamError>>,
    task: JoinHandle<()>,
}

/// Where a task puts its batches.
pub(super) type BatchSender = mpsc::Sender<Result<Batch, StreamError>>;

impl BatchTask {
    /// Starts a task that sends batches until it is done, fails, or its reader goes.
    pub(super) fn start<Work, Made>(work: Work) -> Self
    where
        Work: FnOnce(BatchSender) -> Made,
        Made: Future<Output = Result<(), StreamError>> + Send + 'static,
    {
        let (sender, receiver) = mpsc::channel(BATCHES_AHEAD);
        let made = work(sender.clone());
        let task = tokio::spawn(async move {
            let made = AssertUnwindSafe(made).catch_unwind().await;
            if let Err(error) = made.unwrap_or_else(|panic| Err(CpuError::of_panic(&*panic).into())) {
                // Nobody is told where the reader has gone.
                let _ = sender.send(Err(error)).await;
            }
        });
        Self { receiver, task }
    }
}

impl Stream for BatchTask {
    type Item = Result<Batch, StreamError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.receiver.poll_recv(context)
    }
}

impl Drop for BatchTask {
    fn drop(&mut self) {
        self.task.abort();
    }
}
