//! Shared computations: concurrent requests for one key share a task, its progress and its result.
//!
//! The task belongs to its requests: it continues as long as one of them waits, and ends with the last one.

use std::{
    collections::HashMap,
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use forebay_proto::v1;
use forebay_runtime::{cpu_pool::CpuError, tenant::Spawned};
use futures::FutureExt;
use tokio::sync::watch;

use super::error::StreamError;

/// Rows between two progress reports.
const ROWS_A_REPORT: u64 = 1 << 18;

/// Running computations by key. Those that no request waits for are dropped.
#[derive(Debug)]
pub(super) struct SharedComputations<T>(Mutex<HashMap<String, Weak<SharedComputation<T>>>>);

/// One computation, shared by its requests. Dropping the last reference stops it.
#[derive(Debug)]
pub(super) struct SharedComputation<T> {
    progress: watch::Receiver<v1::FitProgress>,
    result: watch::Receiver<Option<SharedResult<T>>>,
    _task: Spawned<()>,
}

/// The outcome that all requests of a computation get.
type SharedResult<T> = Result<Arc<T>, Arc<StreamError>>;

/// Where a computation reports its progress.
#[derive(Clone, Debug)]
pub(super) struct Progress {
    sender: watch::Sender<v1::FitProgress>,
    counts: v1::FitProgress,
}

impl<T> Default for SharedComputations<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T: Send + Sync + 'static> SharedComputations<T> {
    /// Joins the running computation of a key, or starts one. Returns whether this call started it.
    pub(super) fn join<Computed>(
        &self,
        key: &str,
        compute: impl FnOnce(Progress) -> Computed,
    ) -> (Arc<SharedComputation<T>>, bool)
    where
        Computed: Future<Output = Result<T, StreamError>> + Send + 'static,
    {
        let mut computations = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // A finished computation only serves the requests that waited for it: a later one may retry after an error.
        if let Some(running) =
            computations.get(key).and_then(Weak::upgrade).filter(|computation| !computation.is_done())
        {
            return (running, false);
        }
        computations.retain(|_, computation| computation.strong_count() > 0);
        let computation = Arc::new(SharedComputation::start(compute));
        computations.insert(key.to_owned(), Arc::downgrade(&computation));
        (computation, true)
    }
}

// === impl SharedComputation ===

impl<T: Send + Sync + 'static> SharedComputation<T> {
    fn start<Computed>(compute: impl FnOnce(Progress) -> Computed) -> Self
    where
        Computed: Future<Output = Result<T, StreamError>> + Send + 'static,
    {
        let (sender, progress) = watch::channel(v1::FitProgress::default());
        let (finish, result) = watch::channel(None);
        let computed = AssertUnwindSafe(compute(Progress { sender, counts: v1::FitProgress::default() }));
        let task = Spawned::start(async move {
            let computed = computed.catch_unwind().await;
            let computed = computed.unwrap_or_else(|panic| Err(CpuError::of_panic(&*panic).into()));
            finish.send_replace(Some(computed.map(Arc::new).map_err(Arc::new)));
        });
        Self { progress, result, _task: task }
    }

    fn is_done(&self) -> bool {
        self.result.borrow().is_some()
    }

    /// Waits for the result, and reports progress meanwhile, beginning with the latest of earlier reports.
    pub(super) async fn result(&self, report: impl Fn(v1::FitProgress)) -> Result<Arc<T>, StreamError> {
        let (mut progress, mut result) = (self.progress.clone(), self.result.clone());
        let mut reported = v1::FitProgress::default();
        let mut report_new = |latest: v1::FitProgress| {
            if latest != reported {
                report(latest);
                reported = latest;
            }
        };
        report_new(*progress.borrow_and_update());
        loop {
            let outcome = tokio::select! {
                biased;
                Ok(()) = progress.changed() => None,
                Ok(outcome) = result.wait_for(Option::is_some) => outcome.clone(),
                // Only the end of the runtime stops a task that a request waits for.
                else => return Err(CpuError::Gone.into()),
            };
            report_new(*progress.borrow_and_update());
            if let Some(outcome) = outcome {
                return outcome.map_err(StreamError::Shared);
            }
        }
    }
}

// === impl Progress ===

impl Progress {
    /// The progress of a computation that no request waits for.
    pub(super) fn unreported() -> Self {
        let (sender, _) = watch::channel(v1::FitProgress::default());
        Self { sender, counts: v1::FitProgress::default() }
    }

    /// Announces the number of passes; more may follow.
    pub(super) fn expect_passes(&mut self, passes: u64) {
        self.counts.passes = self.counts.passes.max(passes);
    }

    /// Begins the next pass, over `rows_total` rows.
    pub(super) fn begin_pass(&mut self, rows_total: u64) {
        self.counts.pass += 1;
        self.counts.passes = self.counts.passes.max(self.counts.pass);
        (self.counts.rows_done, self.counts.rows_total) = (0, rows_total);
        self.sender.send_replace(self.counts);
    }

    /// Adds rows that were read.
    pub(super) fn add_rows(&mut self, rows: u64) {
        let reports = self.counts.rows_done / ROWS_A_REPORT;
        self.counts.rows_done += rows;
        if self.counts.rows_done / ROWS_A_REPORT > reports || self.counts.rows_done == self.counts.rows_total {
            self.sender.send_replace(self.counts);
        }
    }

    /// The passes that have begun.
    pub(super) fn passes_begun(&self) -> u64 {
        self.counts.pass
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use tokio::sync::Semaphore;

    use super::*;

    /// Starts or joins a computation that counts its starts and waits at a gate.
    fn join(
        computations: &SharedComputations<u64>,
        starts: &Arc<AtomicU64>,
        gate: &Arc<Semaphore>,
    ) -> (Arc<SharedComputation<u64>>, bool) {
        let (starts, gate) = (Arc::clone(starts), Arc::clone(gate));
        computations.join("key", |mut progress| async move {
            let started = starts.fetch_add(1, Ordering::SeqCst) + 1;
            progress.begin_pass(10);
            gate.acquire().await.unwrap().forget();
            progress.add_rows(10);
            Ok(started)
        })
    }

    #[tokio::test]
    async fn concurrent_requests_share_one_computation_and_its_progress() {
        let (computations, starts, gate) = (SharedComputations::default(), Arc::default(), Arc::new(Semaphore::new(0)));
        let ((first, is_first), (second, is_second)) =
            (join(&computations, &starts, &gate), join(&computations, &starts, &gate));
        assert!(Arc::ptr_eq(&first, &second) && is_first && !is_second);
        let seen = Mutex::new(Vec::new());
        let report = |progress: v1::FitProgress| {
            seen.lock().unwrap().push((progress.pass, progress.rows_done, progress.rows_total));
            gate.add_permits(1);
        };
        let (one, two) = tokio::join!(first.result(report), second.result(|_| ()));
        assert_eq!((*one.unwrap(), *two.unwrap()), (1, 1));
        let seen = seen.into_inner().unwrap();
        assert_eq!((seen.first(), seen.last()), (Some(&(1, 0, 10)), Some(&(1, 10, 10))));
        // The first computation is still referenced, but a later request computes again.
        gate.add_permits(1);
        let (later, is_new) = join(&computations, &starts, &gate);
        assert_eq!((*later.result(|_| ()).await.unwrap(), is_new), (2, true));
    }

    #[tokio::test]
    async fn the_last_request_that_leaves_stops_the_computation() {
        struct Ended(Arc<Semaphore>);
        impl Drop for Ended {
            fn drop(&mut self) {
                self.0.add_permits(1);
            }
        }
        let (computations, ended) = (SharedComputations::<u64>::default(), Arc::new(Semaphore::new(0)));
        let start = || {
            let ended = Ended(Arc::clone(&ended));
            computations.join("key", |_| async move {
                let _ended = ended;
                std::future::pending().await
            })
        };
        let (first, _) = start();
        let (second, is_new) = start();
        // The computation that the second call did not need is dropped.
        ended.acquire().await.unwrap().forget();
        assert!(!is_new);
        drop(first);
        tokio::task::yield_now().await;
        assert_eq!(ended.available_permits(), 0);
        drop(second);
        ended.acquire().await.unwrap().forget();
        assert!(start().1);
    }

    #[tokio::test]
    async fn all_requests_get_the_error_and_a_later_one_retries() {
        let computations = SharedComputations::<u64>::default();
        let fail = |progress| async move {
            drop::<Progress>(progress);
            panic!("on purpose")
        };
        let ((first, _), (second, _)) = (computations.join("key", fail), computations.join("key", fail));
        for computation in [first, second] {
            assert!(computation.result(|_| ()).await.unwrap_err().to_string().contains("on purpose"));
        }
        let (retry, is_new) = computations.join("key", |_| async { Ok(3) });
        assert_eq!((*retry.result(|_| ()).await.unwrap(), is_new), (3, true));
    }
}
