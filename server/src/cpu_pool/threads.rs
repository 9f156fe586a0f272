//! Threads that run jobs first in, first out.
//!
//! A thread without a job sleeps at once. Work stealing would keep it looking for work for a while, which costs more
//! than the many short jobs of a stream.

use std::{
    cell::RefCell,
    collections::VecDeque,
    io,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak},
    thread,
};

/// Stack of a thread: expression trees are walked recursively, to a depth of `expr::OPERATORS_MAX` (256), with up to
/// 64 KiB a level in an unoptimized build.
const STACK_BYTES: usize = 32 << 20;

pub(super) type PoolJob = Box<dyn FnOnce() + Send>;

thread_local! {
    /// The queue that this thread works for.
    static OWN: RefCell<Weak<Queue>> = const { RefCell::new(Weak::new()) };
}

/// Threads of one name. They end when this is dropped, after the jobs that they are running; waiting jobs are dropped.
#[derive(Debug)]
pub(super) struct Threads {
    queue: Arc<Queue>,
    count: usize,
}

/// The jobs of threads of one name.
#[derive(Debug, Default)]
pub(super) struct Queue {
    state: Mutex<QueueState>,
    changed: Condvar,
}

#[derive(Default)]
struct QueueState {
    jobs: VecDeque<PoolJob>,
    /// Threads that wait for a job.
    idle: usize,
    is_closed: bool,
}

impl std::fmt::Debug for QueueState {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("QueueState").field("jobs", &self.jobs.len()).finish_non_exhaustive()
    }
}

impl Threads {
    /// Starts threads that are named by the prefix and their number.
    pub(super) fn start(count: usize, name: &'static str) -> io::Result<Self> {
        // Dropped on an error, which ends those already started.
        let threads = Self { queue: Arc::default(), count };
        for index in 0..count {
            let queue = Arc::clone(&threads.queue);
            let builder = thread::Builder::new().name(format!("{name}{index}")).stack_size(STACK_BYTES);
            builder.spawn(move || queue.work())?;
        }
        Ok(threads)
    }

    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Adds a job, which must not panic.
    pub(super) fn spawn(&self, job: PoolJob) {
        self.queue.lock().jobs.push_back(job);
        self.queue.changed.notify_one();
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        let jobs = {
            let mut state = self.queue.lock();
            state.is_closed = true;
            std::mem::take(&mut state.jobs)
        };
        self.queue.changed.notify_all();
        // Not under the lock: the end of a job may wake its caller, which may submit another one.
        drop(jobs);
    }
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs jobs until the threads end.
    fn work(self: Arc<Self>) {
        OWN.set(Arc::downgrade(&self));
        while let Some(job) = self.next() {
            job();
        }
    }

    fn next(&self) -> Option<PoolJob> {
        let mut state = self.lock();
        loop {
            if state.is_closed {
                return None;
            }
            if let Some(job) = state.jobs.pop_front() {
                return Some(job);
            }
            state.idle += 1;
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.idle -= 1;
        }
    }

    /// The queue of the calling thread, if it is one of a pool's.
    pub(super) fn own() -> Option<Arc<Self>> {
        OWN.with_borrow(Weak::upgrade)
    }

    /// Adds a job for each of at most `count` idle threads.
    pub(super) fn assist(&self, count: usize, job: impl Fn() -> PoolJob) {
        let mut state = self.lock();
        // A waiting job has an idle thread that is about to take it.
        let idle = state.idle.saturating_sub(state.jobs.len());
        for _ in 0..count.min(idle) {
            state.jobs.push_back(job());
            self.changed.notify_one();
        }
    }
}

#[cfg(test)]
impl Queue {
    /// The number of threads that wait for a job.
    pub(super) fn idle(&self) -> usize {
        self.lock().idle
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, time::Duration};

    use super::*;

    const PATIENCE: Duration = Duration::from_mins(1);

    #[test]
    fn jobs_run_in_order() {
        let threads = Threads::start(1, "test-").unwrap();
        let (sender, results) = mpsc::channel();
        for number in 0..100 {
            let sender = sender.clone();
            threads.spawn(Box::new(move || sender.send(number).unwrap()));
        }
        assert!((0..100).all(|number| results.recv_timeout(PATIENCE) == Ok(number)));
    }

    #[test]
    fn waiting_jobs_are_dropped_with_the_threads() {
        let threads = Threads::start(1, "test-").unwrap();
        let (release, gate) = mpsc::channel::<()>();
        let (begun, is_begun) = mpsc::channel();
        threads.spawn(Box::new(move || {
            begun.send(()).unwrap();
            _ = gate.recv();
        }));
        is_begun.recv_timeout(PATIENCE).unwrap();
        let (sender, receiver) = mpsc::channel::<()>();
        threads.spawn(Box::new(move || sender.send(()).unwrap()));
        drop(threads);
        assert!(receiver.recv_timeout(PATIENCE).is_err());
        drop(release);
    }
}
