//! The pool that all work of more than half a millisecond runs on, so that the threads that move data never wait for it.
//!
//! It knows nothing of what it runs. A panic in a job ends that job with an error and nothing else.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use rayon::iter::{IntoParallelRefMutIterator, ParallelIterator};
use tokio::sync::oneshot;
use tracing::Span;

/// Stack of a pool thread: expressions are trees that are walked by recursion, at most
/// `expr::OPERATORS_MAX` (256) deep, at up to 64 KiB a level in an unoptimized build.
const STACK_BYTES: usize = 32 << 20;

/// What the names of the pool's threads begin with.
pub const THREAD_NAME: &str = "cpu-";

/// The same of those for short jobs.
const SHORT_THREAD_NAME: &str = "cpu-short-";

/// A pool of threads for CPU work.
#[derive(Clone, Debug)]
pub struct CpuPool {
    workers: Workers,
    /// Jobs that no thread has taken yet.
    waiting: Arc<AtomicUsize>,
}

/// Where jobs run.
#[derive(Clone, Debug)]
enum Workers {
    Threads {
        long: Arc<rayon::ThreadPool>,
        /// As many threads for short jobs, which would stand in the queue behind long ones.
        short: Arc<rayon::ThreadPool>,
    },
    /// In the task that asks.
    Caller,
}

/// Why a job has no result.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CpuError {
    /// The job panicked: a bug, or a library's bug met by hostile data.
    #[error("panicked: {0}")]
    Panicked(String),
    /// The pool is gone.
    #[error("the server is shutting down")]
    Gone,
}

impl CpuError {
    /// The error of what panicked.
    pub fn of_panic(panic: &(dyn std::any::Any + Send)) -> Self {
        Self::Panicked(panic_text(panic))
    }

    /// What a decoder that gave up on a file says of the file.
    pub fn of_damage(&self) -> String {
        match self {
            Self::Panicked(reason) => format!("its parts contradict each other ({reason})"),
            Self::Gone => self.to_string(),
        }
    }
}

impl CpuPool {
    /// A pool of so many threads; 0: one a core.
    pub fn new(threads: usize) -> Result<Self, rayon::ThreadPoolBuildError> {
        let pool = |name: &'static str| {
            let builder = rayon::ThreadPoolBuilder::new().num_threads(threads).stack_size(STACK_BYTES);
            builder.thread_name(move |index| format!("{name}{index}")).build().map(Arc::new)
        };
        let workers = Workers::Threads { long: pool(THREAD_NAME)?, short: pool(SHORT_THREAD_NAME)? };
        Ok(Self { workers, waiting: Arc::default() })
    }

    /// No threads: each job runs in the task that asks for it. For simulations, whose time and order of events threads
    /// would leave to chance.
    pub fn inline() -> Self {
        Self { workers: Workers::Caller, waiting: Arc::default() }
    }

    /// Its threads.
    pub fn threads(&self) -> usize {
        match &self.workers {
            Workers::Threads { long, .. } => long.current_num_threads(),
            Workers::Caller => 1,
        }
    }

    /// Jobs that wait for a thread.
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Runs a job on the pool, in the caller's span of the log, and waits for its result without holding a thread.
    pub async fn run<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> Result<T, CpuError> {
        match &self.workers {
            Workers::Threads { long, .. } => self.run_on(long, job).await,
            Workers::Caller => run_here(job).await,
        }
    }

    /// The same for a job of about a millisecond that a client waits for, on threads of its own: what a stream makes ahead
    /// does not hold up what it has made. The system shares the cores out.
    pub async fn run_short<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> Result<T, CpuError> {
        match &self.workers {
            Workers::Threads { short, .. } => self.run_on(short, job).await,
            Workers::Caller => run_here(job).await,
        }
    }

    async fn run_on<T: Send + 'static>(
        &self,
        pool: &rayon::ThreadPool,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, CpuError> {
        let (sender, receiver) = oneshot::channel();
        let (waiting, span) = (Arc::clone(&self.waiting), Span::current());
        waiting.fetch_add(1, Ordering::Relaxed);
        pool.spawn(move || {
            waiting.fetch_sub(1, Ordering::Relaxed);
            // Nobody waits any more: the stream was dropped while the job stood in the queue.
            if sender.is_closed() {
                return;
            }
            // The receiver is gone when the stream was dropped: nobody wants the result.
            let _ = sender.send(outcome(|| span.in_scope(job)));
        });
        receiver.await.map_err(|_| CpuError::Gone)?
    }
}

/// Runs a job without a pool. Others have their turn before it, as they have where one waits for a thread.
async fn run_here<T>(job: impl FnOnce() -> T) -> Result<T, CpuError> {
    tokio::task::yield_now().await;
    outcome(job)
}

fn outcome<T>(job: impl FnOnce() -> T) -> Result<T, CpuError> {
    catch_unwind(AssertUnwindSafe(job)).map_err(|panic| CpuError::of_panic(&*panic))
}

/// Calls with every item, from a job of the pool: on the pool's threads that have nothing else to do, or here. Results
/// are in the items' order.
pub fn in_parallel<Item: Send, T: Send>(items: &mut [Item], call: impl Fn(&mut Item) -> T + Send + Sync) -> Vec<T> {
    match items {
        [one] => vec![call(one)],
        // Not on a pool's thread: rayon would make threads of its own.
        many if rayon::current_thread_index().is_none() => many.iter_mut().map(call).collect(),
        many => many.par_iter_mut().map(call).collect(),
    }
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
    use super::{CpuError, CpuPool, in_parallel};

    #[tokio::test]
    async fn a_panic_is_an_error_and_the_pool_goes_on() {
        for pool in [CpuPool::new(1).unwrap(), CpuPool::inline()] {
            let error = pool.run(|| panic!("on purpose")).await.unwrap_err();
            assert!(matches!(error, CpuError::Panicked(text) if text == "on purpose"));
            assert_eq!(pool.run(|| 7).await.unwrap(), 7);
        }
    }

    #[tokio::test]
    async fn an_inline_pool_has_no_thread() {
        let pool = CpuPool::inline();
        let here = std::thread::current().id();
        let threads = pool.run(|| in_parallel(&mut [(); 8], |()| std::thread::current().id())).await.unwrap();
        assert!(threads.iter().all(|thread| *thread == here));
        assert_eq!(pool.run_short(|| std::thread::current().id()).await.unwrap(), here);
        assert_eq!(pool.threads(), 1);
    }
}
