//! The pool that all work of more than half a millisecond runs on, so that the threads that move data never wait for it.
//!
//! It knows nothing of what it runs. A panic in a job ends that job with an error and nothing else.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use rayon::iter::{IntoParallelRefMutIterator, ParallelIterator};
use tokio::sync::oneshot;

/// Stack of a pool thread: expressions are trees that are walked by recursion, at most
/// `expr::OPERATORS_MAX` (256) deep, at up to 64 KiB a level in an unoptimized build.
const STACK_BYTES: usize = 32 << 20;

/// A pool of threads for CPU work.
#[derive(Clone, Debug)]
pub struct CpuPool {
    pool: Arc<rayon::ThreadPool>,
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
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .stack_size(STACK_BYTES)
            .thread_name(|index| format!("cpu-{index}"))
            .build()?;
        Ok(Self { pool: Arc::new(pool) })
    }

    /// Its threads.
    pub fn threads(&self) -> usize {
        self.pool.current_num_threads()
    }

    /// Runs a job on the pool and waits for its result without holding a thread.
    pub async fn run<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> Result<T, CpuError> {
        let (sender, receiver) = oneshot::channel();
        self.pool.spawn(move || {
            // Nobody waits any more: the stream was dropped while the job stood in the queue.
            if sender.is_closed() {
                return;
            }
            let outcome = catch_unwind(AssertUnwindSafe(job)).map_err(|panic| CpuError::of_panic(&*panic));
            // The receiver is gone when the stream was dropped: nobody wants the result.
            let _ = sender.send(outcome);
        });
        receiver.await.map_err(|_| CpuError::Gone)?
    }
}

/// Calls with every item, from a job of the pool: on the pool's threads that have nothing else to do, or here. Results
/// are in the items' order.
pub fn in_parallel<Item: Send, T: Send>(items: &mut [Item], call: impl Fn(&mut Item) -> T + Send + Sync) -> Vec<T> {
    match items {
        [one] => vec![call(one)],
        many => many.par_iter_mut().map(call).collect(),
    }
}

/// Does both, from a job of the pool: the second on a thread of the pool that has nothing else to do, or here.
pub fn both<A: Send, B: Send>(first: impl FnOnce() -> A + Send, second: impl FnOnce() -> B + Send) -> (A, B) {
    rayon::join(first, second)
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
    use super::{CpuError, CpuPool};

    #[tokio::test]
    async fn a_panic_is_an_error_and_the_pool_goes_on() {
        let pool = CpuPool::new(1).unwrap();
        let error = pool.run(|| panic!("on purpose")).await.unwrap_err();
        assert!(matches!(error, CpuError::Panicked(text) if text == "on purpose"));
        assert_eq!(pool.run(|| 7).await.unwrap(), 7);
    }
}
