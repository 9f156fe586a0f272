//! Futures that compute for long between their awaits.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Wake, Waker},
};

use tokio::{runtime::Handle, sync::Notify};

use super::{CpuError, CpuPool};

/// Remembers that a future must be polled again.
#[derive(Default)]
struct Woken(Notify);

impl CpuPool {
    /// Runs a future each poll of which is a job. Between two polls, jobs of others may run: it should await after each
    /// step of its work. Where the future that waits for it is dropped, no other poll starts.
    pub async fn run_polls<T, Work>(&self, work: Work) -> Result<T, CpuError>
    where
        T: Send + 'static,
        Work: Future<Output = T> + Send + 'static,
    {
        let woken = Arc::new(Woken::default());
        // The work may start tasks, such as one that reads a file.
        let runtime = Handle::current();
        let mut work = Box::pin(work);
        loop {
            let (runtime, waker) = (runtime.clone(), Waker::from(Arc::clone(&woken)));
            let polled = self.run(move || {
                let _runtime = runtime.enter();
                poll_once(work, &waker)
            });
            work = match polled.await? {
                Ok(output) => return Ok(output),
                Err(unfinished) => unfinished,
            };
            woken.0.notified().await;
        }
    }
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.notify_one();
    }
}

/// The output, or the future if it has none yet.
fn poll_once<Work: Future>(mut work: Pin<Box<Work>>, waker: &Waker) -> Result<Work::Output, Pin<Box<Work>>> {
    match work.as_mut().poll(&mut Context::from_waker(waker)) {
        Poll::Ready(output) => Ok(output),
        Poll::Pending => Err(work),
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, thread};

    use super::*;
    use crate::{cpu_pool::THREAD_NAME, tenant::Tenant};

    #[tokio::test]
    async fn other_jobs_run_between_two_polls() {
        let pool = CpuPool::new(1).unwrap();
        let (begun, is_begun) = tokio::sync::oneshot::channel();
        let (other_waits, gate) = mpsc::channel::<()>();
        let (order, events) = mpsc::channel();
        let steps = order.clone();
        let work = pool.run_polls(async move {
            begun.send(()).unwrap();
            gate.recv().unwrap();
            steps.send("first").unwrap();
            tokio::task::yield_now().await;
            steps.send("second").unwrap();
        });
        let other = async {
            is_begun.await.unwrap();
            let job = pool.run(move || order.send("other").unwrap());
            let release = async {
                while pool.waiting() == 0 {
                    tokio::task::yield_now().await;
                }
                other_waits.send(()).unwrap();
            };
            tokio::join!(job, release).0
        };
        let (work, other) = tokio::join!(work, other);
        work.unwrap();
        other.unwrap();
        assert_eq!(events.try_iter().collect::<Vec<_>>(), ["first", "other", "second"]);
    }

    #[tokio::test]
    async fn every_poll_is_for_its_tenant_and_can_start_tasks() {
        for pool in [CpuPool::new(1).unwrap(), CpuPool::inline()] {
            let is_inline = thread::current().id() == pool.run(|| thread::current().id()).await.unwrap();
            let one = Tenant::new(&"one".into());
            let seen =
                || (Tenant::current(), thread::current().name().is_some_and(|name| name.starts_with(THREAD_NAME)));
            let work = pool.run_polls(async move {
                let before = seen();
                let task = tokio::spawn(async { 7 });
                (before, task.await.unwrap(), seen())
            });
            let expected = (one.clone(), !is_inline);
            assert_eq!(one.scope(work).await.unwrap(), (expected.clone(), 7, expected));
        }
    }

    #[tokio::test]
    async fn a_panic_is_an_error() {
        let pool = CpuPool::new(1).unwrap();
        let panics = async {
            tokio::task::yield_now().await;
            panic!("on purpose")
        };
        let error: CpuError = pool.run_polls::<(), _>(panics).await.unwrap_err();
        assert!(matches!(error, CpuError::Panicked(text) if text == "on purpose"));
    }
}
