//! Single flight: concurrent callers share one execution, which begins after all of them called, so that no caller gets
//! a result from before its call.

use std::{
    future::Future,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::sync::{OnceCell, Semaphore};

/// Executions of one task: one runs at a time, and callers that arrive meanwhile share the next.
#[derive(Debug)]
pub(super) struct SingleFlight<T> {
    /// The execution that has not begun.
    next: Mutex<Option<Arc<OnceCell<T>>>>,
    running: Semaphore,
}

impl<T: Clone> SingleFlight<T> {
    pub(super) fn new() -> Self {
        Self { next: Mutex::new(None), running: Semaphore::new(1) }
    }

    /// The result of an execution that begins after this call. If the caller that runs it is dropped, another one runs
    /// it.
    pub(super) async fn share<F: Future<Output = T>>(&self, work: impl FnOnce() -> F) -> T {
        let execution = self.join();
        let run = async {
            // The semaphore is never closed. Without a permit two executions might overlap, which is harmless.
            let _permit = self.running.acquire().await.ok();
            self.begin(&execution);
            work().await
        };
        execution.get_or_init(|| run).await.clone()
    }

    fn join(&self) -> Arc<OnceCell<T>> {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(next.get_or_insert_default())
    }

    /// Closes an execution to new callers: they share the next one.
    fn begin(&self, execution: &Arc<OnceCell<T>>) {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        if next.as_ref().is_some_and(|next| Arc::ptr_eq(next, execution)) {
            *next = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use tokio::sync::Notify;

    use super::*;

    #[tokio::test]
    async fn callers_during_an_execution_share_the_next_one() {
        let single = Arc::new(SingleFlight::new());
        let (count, gate) = (Arc::new(AtomicU64::new(0)), Arc::new(Notify::new()));
        let call = || {
            let (single, count, gate) = (Arc::clone(&single), Arc::clone(&count), Arc::clone(&gate));
            tokio::spawn(async move {
                let work = || async {
                    let number = count.fetch_add(1, Ordering::SeqCst);
                    gate.notified().await;
                    number
                };
                single.share(work).await
            })
        };
        let first = call();
        while count.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
        let others = [call(), call(), call()];
        gate.notify_one();
        assert_eq!(first.await.unwrap(), 0);
        gate.notify_one();
        for other in others {
            assert_eq!(other.await.unwrap(), 1);
        }
        assert_eq!(count.load(Ordering::SeqCst), 2);
    }

    #[tokio::test]
    async fn another_caller_runs_the_execution_of_a_dropped_one() {
        let single = Arc::new(SingleFlight::new());
        let mut dropped = Box::pin(single.share(std::future::pending::<u64>));
        assert!(futures::poll!(&mut dropped).is_pending());
        let other = tokio::spawn({
            let single = Arc::clone(&single);
            async move { single.share(|| async { 7 }).await }
        });
        tokio::task::yield_now().await;
        drop(dropped);
        assert_eq!(other.await.unwrap(), 7);
    }
}
