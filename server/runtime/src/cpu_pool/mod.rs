//! The thread pool for CPU work of more than half a millisecond, which would block the threads that move data.
//!
//! A panic in a job fails that job and nothing else. Callers share the threads fairly: `schedule` orders their jobs, and
//! `threads` bounds how long one waits for the jobs of others. A job whose caller has left ends early where it checks
//! [`is_abandoned`].

mod abandonment;
mod parallel;
mod polls;
mod schedule;
mod threads;

use std::{
    io,
    num::NonZero,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    thread::available_parallelism,
    time::{Duration, Instant},
};

use tokio::sync::oneshot;
use tracing::Span;

use abandonment::Abandonment;
use threads::Threads;

pub use abandonment::is_abandoned;
pub use parallel::in_parallel;

use crate::tenant::Tenant;

/// Prefix of the names of the pool's threads.
pub const THREAD_NAME: &str = "cpu-";

/// Prefix of the names of the threads for short jobs.
const SHORT_THREAD_NAME: &str = "cpu-short-";

/// A pool of threads for CPU work.
#[derive(Clone, Debug)]
pub struct CpuPool {
    workers: Workers,
    /// Jobs that wait for a thread.
    waiting: Arc<AtomicUsize>,
    /// Nanoseconds that the jobs of this handle waited for a thread; none unless it is [timed](Self::timed).
    queued: Option<Arc<AtomicU64>>,
}

/// The threads that run jobs.
#[derive(Clone, Debug)]
enum Workers {
    Threads {
        long: Arc<Threads>,
        /// The same number of threads for short jobs, which long ones would delay.
        short: Arc<Threads>,
    },
    /// The calling task.
    Caller,
}

/// Why a job has no result.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CpuError {
    /// The job panicked: a bug, of this server or of a library that meets hostile data.
    #[error("panicked: {0}")]
    Panicked(String),
    /// The pool has shut down.
    #[error("the server is shutting down")]
    Gone,
}

impl CpuError {
    /// The error of a caught panic.
    pub fn of_panic(panic: &(dyn std::any::Any + Send)) -> Self {
        Self::Panicked(panic_text(panic))
    }

    /// Describes the file whose decoder failed.
    pub fn of_damage(&self) -> String {
        match self {
            Self::Panicked(reason) => format!("its parts contradict each other ({reason})"),
            Self::Gone => self.to_string(),
        }
    }
}

impl CpuPool {
    /// A pool with this number of threads; 0: one per core.
    pub fn new(threads: usize) -> io::Result<Self> {
        let count = if threads == 0 { available_parallelism().map_or(1, NonZero::get) } else { threads };
        let start = |name| Threads::start(count, name).map(Arc::new);
        let workers = Workers::Threads { long: start(THREAD_NAME)?, short: start(SHORT_THREAD_NAME)? };
        Ok(Self { workers, waiting: Arc::default(), queued: None })
    }

    /// A pool without threads: each job runs in the calling task. For simulations, in which threads would make time and
    /// the order of events random.
    pub fn inline() -> Self {
        Self { workers: Workers::Caller, waiting: Arc::default(), queued: None }
    }

    /// The same pool, through a handle that measures how long its jobs wait for a thread.
    #[must_use]
    pub fn timed(&self) -> Self {
        Self { queued: Some(Arc::default()), ..self.clone() }
    }

    /// The time that jobs of this handle and its clones waited for a thread, since the last call. Jobs that wait
    /// concurrently add up. Zero unless the handle is [timed](Self::timed).
    pub fn take_queued(&self) -> Duration {
        self.queued.as_ref().map_or(Duration::ZERO, |queued| Duration::from_nanos(queued.swap(0, Ordering::Relaxed)))
    }

    /// The number of threads.
    pub fn threads(&self) -> usize {
        match &self.workers {
            Workers::Threads { long, .. } => long.count(),
            Workers::Caller => 1,
        }
    }

    /// The number of jobs that wait for a thread.
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// The time that the job which waits longest for a thread has waited.
    pub fn longest_wait(&self) -> Duration {
        match &self.workers {
            Workers::Threads { long, short } => long.longest_wait().max(short.longest_wait()),
            Workers::Caller => Duration::ZERO,
        }
    }

    /// Runs a job on the pool in the caller's tracing span, and waits for its result without blocking a thread. Where the
    /// future is dropped, the job is [abandoned](is_abandoned).
    pub async fn run<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> Result<T, CpuError> {
        match &self.workers {
            Workers::Threads { long, .. } => self.run_on(long, job).await,
            Workers::Caller => run_here(job).await,
        }
    }

    /// Runs a job of about a millisecond that a client waits for, on separate threads: work ahead does not delay
    /// finished batches. The operating system schedules both on the same cores.
    pub async fn run_short<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> Result<T, CpuError> {
        match &self.workers {
            Workers::Threads { short, .. } => self.run_on(short, job).await,
            Workers::Caller => run_here(job).await,
        }
    }

    async fn run_on<T: Send + 'static>(
        &self,
        threads: &Threads,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, CpuError> {
        let (sender, receiver) = oneshot::channel();
        let (waiting, span) = (Arc::clone(&self.waiting), Span::current());
        let queued = self.queued.as_ref().map(|queued| (Arc::clone(queued), Instant::now()));
        let abandonment = Abandonment::default();
        let _caller = abandonment.caller();
        waiting.fetch_add(1, Ordering::Relaxed);
        let job = move || {
            waiting.fetch_sub(1, Ordering::Relaxed);
            if let Some((queued, start)) = queued {
                queued.fetch_add(u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
            }
            // The caller was dropped while the job was queued.
            if abandonment.is_set() {
                return;
            }
            // Fails if the caller was dropped meanwhile.
            let _ = sender.send(abandonment.during(|| outcome(|| span.in_scope(job))));
        };
        threads.spawn(&Tenant::current(), Box::new(job));
        receiver.await.map_err(|_| CpuError::Gone)?
    }
}

/// Runs a job in the calling task. Yields first, as waiting for a thread would.
async fn run_here<T>(job: impl FnOnce() -> T) -> Result<T, CpuError> {
    tokio::task::yield_now().await;
    outcome(job)
}

fn outcome<T>(job: impl FnOnce() -> T) -> Result<T, CpuError> {
    catch_unwind(AssertUnwindSafe(job)).map_err(|panic| CpuError::of_panic(&*panic))
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("no message")
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::{CpuError, CpuPool, in_parallel, is_abandoned};

    #[tokio::test]
    async fn a_panic_fails_its_job_only() {
        for pool in [CpuPool::new(1).unwrap(), CpuPool::inline()] {
            let error = pool.run(|| panic!("on purpose")).await.unwrap_err();
            assert!(matches!(error, CpuError::Panicked(text) if text == "on purpose"));
            assert_eq!(pool.run(|| 7).await.unwrap(), 7);
        }
    }

    #[tokio::test]
    async fn a_timed_handle_measures_the_wait_for_a_thread() {
        let pool = CpuPool::new(1).unwrap();
        let timed = pool.timed();
        let (begun, is_begun) = tokio::sync::oneshot::channel();
        let (release, gate) = std::sync::mpsc::channel::<()>();
        let busy = pool.run(move || {
            begun.send(()).unwrap();
            gate.recv().unwrap();
        });
        let queued = async {
            is_begun.await.unwrap();
            let waiting = timed.run(std::time::Instant::now);
            let submitted = std::time::Instant::now();
            let release = async {
                while pool.waiting() == 0 {
                    tokio::task::yield_now().await;
                }
                release.send(()).unwrap();
            };
            let (started, ()) = tokio::join!(waiting, release);
            started.unwrap() - submitted
        };
        let (busy, waited) = tokio::join!(busy, queued);
        busy.unwrap();
        let measured = timed.take_queued();
        assert!(!measured.is_zero() && measured <= waited, "{measured:?} of {waited:?}");
        assert_eq!((timed.take_queued(), pool.take_queued()), (std::time::Duration::ZERO, std::time::Duration::ZERO));
    }

    #[tokio::test]
    async fn a_job_whose_caller_leaves_is_abandoned() {
        let pool = CpuPool::new(2).unwrap();
        let (begun, is_begun) = tokio::sync::oneshot::channel();
        let (ended, has_ended) = tokio::sync::oneshot::channel();
        let job = pool.run(move || {
            let before = is_abandoned();
            begun.send(()).unwrap();
            // Ends because the caller leaves, in all parts of the job.
            let wait = |()| {
                while !is_abandoned() {
                    std::thread::yield_now();
                }
            };
            in_parallel(vec![(); 2], wait);
            ended.send(before).unwrap();
        });
        tokio::select! {
            _ = job => unreachable!("the job waits until its caller leaves"),
            begun = is_begun => begun.unwrap(),
        }
        assert!(!has_ended.await.unwrap() && !is_abandoned());
    }

    #[tokio::test]
    async fn an_inline_pool_runs_jobs_in_the_calling_task() {
        let pool = CpuPool::inline();
        let here = std::thread::current().id();
        let threads = pool.run(|| in_parallel(vec![(); 8], |()| std::thread::current().id())).await.unwrap();
        assert!(threads.iter().all(|thread| *thread == here));
        assert_eq!(pool.run_short(|| std::thread::current().id()).await.unwrap(), here);
        assert_eq!(pool.threads(), 1);
    }
}
