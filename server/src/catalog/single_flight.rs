//! Single flight: concurrent callers share one execution, which begins after each of them called, so that no caller gets
//! a result from before its call.

use std::{
    future::Future,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::sync::{OnceCell, Semaphore};

/// Executions of one piece of work: one runs at a time, and all callers that arrive while it runs share the next.
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

    /// The result of a turn that begins after this call. Where the one who runs it is dropped, another who waits does.
    pub(super) async fn share<F: Future<Output = T>>(&self, work: impl FnOnce() -> F) -> T {
        let turn = self.join();
        let run = async {
            // The semaphore is never closed; without a permit there would be more than one turn at a time, no harm else.
            let _permit = self.running.acquire().await.ok();
            self.begin(&turn);
            work().await
        };
        turn.get_or_init(|| run).await.clone()
    }

    fn join(&self) -> Arc<OnceCell<T>> {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(next.get_or_insert_default())
    }

    /// From here on, who asks waits for another turn.
    fn begin(&self, turn: &Arc<OnceCell<T>>) {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        if next.as_ref().is_some_and(|next| Arc::ptr_eq(next, turn)) {
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
    async fn who_asks_while_a_turn_runs_shares_the_next() {
        let flights = Arc::new(SingleFlight::new());
        let (count, gate) = (Arc::new(AtomicU64::new(0)), Arc::new(Notify::new()));
        let ask = || {
            let (flights, count, gate) = (Arc::clone(&flights), Arc::clone(&count), Arc::clone(&gate));
            tokio::spawn(async move {
                let work = || async {
                    let turn = count.fetch_add(1, Ordering::SeqCst);
                    gate.notified().await;
                    turn
                };
                flights.share(work).await
            })
        };
        let first = ask();
        while count.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
        let others = [ask(), ask(), ask()];
        gate.notify_one();
        assert_eq!(first.await.unwrap(), 0);
        gate.notify_one();
        for other in others {
            assert_eq!(other.await.unwrap(), 1);
        }
        assert_eq!(count.load(Ordering::SeqCst), 2);
    }

    #[tokio::test]
    async fn a_turn_whose_runner_is_dropped_is_run_by_another() {
        let flights = Arc::new(SingleFlight::new());
        let mut dropped = Box::pin(flights.share(std::future::pending::<u64>));
        assert!(futures::poll!(&mut dropped).is_pending());
        let other = tokio::spawn({
            let flights = Arc::clone(&flights);
            async move { flights.share(|| async { 7 }).await }
        });
        tokio::task::yield_now().await;
        drop(dropped);
        assert_eq!(other.await.unwrap(), 7);
    }
}
