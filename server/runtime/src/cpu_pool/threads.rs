//! Threads that run jobs, those of the tenant that has used the least CPU time first.
//!
//! A thread without a job sleeps at once. Work stealing would keep it looking for work for a while, which costs more
//! than the many short jobs of a stream.
//!
//! Jobs cannot be interrupted, and some take long. A tenant none of whose jobs runs therefore waits for [`PATIENCE`] at
//! most: after it, a reserve thread runs its next job, and the operating system divides the cores among the threads.

use std::{
    cell::RefCell,
    io,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak},
    thread,
    time::{Duration, Instant},
};

use super::schedule::{Schedule, StartedJob};
use crate::tenant::Tenant;

/// Stack of a thread: expression trees are walked recursively, to a depth of `expr::OPERATORS_MAX` (256), with up to
/// 64 KiB a level in an unoptimized build.
const STACK_BYTES: usize = 32 << 20;

/// The time that a tenant waits for its only job to start while other tenants have all threads: several times that of a
/// usual job, so that reserve threads run only during long ones.
const PATIENCE: Duration = Duration::from_millis(20);

/// Reserve threads that run jobs at once. Each needs a tenant whose jobs are long; beyond them, jobs wait for a thread.
const RESERVE_MAX: usize = 32;

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
#[derive(Debug)]
pub(super) struct Queue {
    state: Mutex<QueueState>,
    changed: Condvar,
    /// Wakes the reserve thread.
    reserve: Condvar,
    created: Instant,
    /// Prefix of the names of its threads.
    name: &'static str,
}

#[derive(Default)]
struct QueueState {
    jobs: Schedule<PoolJob>,
    /// Threads that wait for a job.
    idle: usize,
    reserve: Reserve,
    is_closed: bool,
}

/// The reserve threads of a queue.
#[derive(Debug, Default)]
struct Reserve {
    /// Whether one is idle.
    stands_by: bool,
    /// Whether it sleeps until a job has no thread.
    sleeps: bool,
    /// Those that run a job.
    running: usize,
}

impl std::fmt::Debug for QueueState {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("QueueState").field("jobs", &self.jobs.waiting()).finish_non_exhaustive()
    }
}

impl Threads {
    /// Starts threads that are named by the prefix and their number.
    pub(super) fn start(count: usize, name: &'static str) -> io::Result<Self> {
        // Dropped on an error, which ends those already started.
        let threads = Self { queue: Arc::new(Queue::new(name)), count };
        for index in 0..count {
            let queue = Arc::clone(&threads.queue);
            spawn(format!("{name}{index}"), move || queue.work())?;
        }
        threads.queue.lock().reserve.stands_by = true;
        threads.queue.start_reserve()?;
        Ok(threads)
    }

    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Adds a job of a tenant, which must not panic.
    pub(super) fn spawn(&self, tenant: &Tenant, job: PoolJob) {
        self.queue.push(&mut self.queue.lock(), tenant, job);
    }

    /// The time that the job which waits longest has waited.
    pub(super) fn longest_wait(&self) -> Duration {
        Duration::from_nanos(self.queue.lock().jobs.longest_wait(self.queue.now()))
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        let jobs = {
            let mut state = self.queue.lock();
            state.is_closed = true;
            state.jobs.take_waiting()
        };
        self.queue.changed.notify_all();
        self.queue.reserve.notify_all();
        // Not under the lock: the end of a job may wake its caller, which may submit another one.
        drop(jobs);
    }
}

fn spawn(name: String, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new().name(name).stack_size(STACK_BYTES).spawn(work).map(drop)
}

impl Queue {
    fn new(name: &'static str) -> Self {
        let (changed, reserve) = (Condvar::new(), Condvar::new());
        Self { state: Mutex::default(), changed, reserve, created: Instant::now(), name }
    }

    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nanoseconds since its creation.
    fn now(&self) -> u64 {
        u64::try_from(self.created.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn push(&self, state: &mut QueueState, tenant: &Tenant, job: PoolJob) {
        state.jobs.push(tenant, job, self.now());
        self.changed.notify_one();
        self.wake_reserve(state);
    }

    /// Wakes the reserve thread if a job waits that no idle thread is about to take.
    fn wake_reserve(&self, state: &mut QueueState) {
        if state.reserve.sleeps && state.jobs.waiting() > state.idle {
            state.reserve.sleeps = false;
            self.reserve.notify_one();
        }
    }

    /// Runs jobs until the threads end.
    fn work(self: Arc<Self>) {
        OWN.set(Arc::downgrade(&self));
        let mut state = self.lock();
        while !state.is_closed {
            if let Some((job, started)) = state.jobs.start(self.now()) {
                drop(state);
                state = self.run(job, started);
            } else {
                state.idle += 1;
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                state.idle -= 1;
            }
        }
    }

    fn run(&self, job: PoolJob, started: StartedJob) -> MutexGuard<'_, QueueState> {
        started.tenant.run(job);
        let mut state = self.lock();
        state.jobs.end(started, self.now());
        // The tenant may have other jobs, and none that runs now.
        self.wake_reserve(&mut state);
        state
    }

    fn start_reserve(self: &Arc<Self>) -> io::Result<()> {
        let queue = Arc::clone(self);
        spawn(format!("{}reserve", self.name), move || queue.stand_by())
    }

    /// Waits until a tenant starves, and runs its next job while another reserve thread is idle.
    fn stand_by(self: Arc<Self>) {
        OWN.set(Arc::downgrade(&self));
        let patience = PATIENCE.as_nanos() as u64;
        let mut state = self.lock();
        while !state.is_closed {
            let mut next = state.jobs.start_starved(self.now(), patience);
            if next.is_some() {
                state.reserve.running += 1;
                // Where no thread can be started, this one is idle again after the job.
                state.reserve.stands_by = state.reserve.running < RESERVE_MAX && self.start_reserve().is_ok();
                while let Some((job, started)) = next {
                    drop(state);
                    state = self.run(job, started);
                    next = state.jobs.start_starved(self.now(), patience);
                }
                state.reserve.running -= 1;
                if state.reserve.stands_by {
                    return;
                }
                state.reserve.stands_by = true;
            } else if let Some(from) = state.jobs.starves_from(patience) {
                let wait = Duration::from_nanos(from.saturating_sub(self.now()));
                state = self.reserve.wait_timeout(state, wait).unwrap_or_else(PoisonError::into_inner).0;
            } else {
                state.reserve.sleeps = true;
                state = self.reserve.wait(state).unwrap_or_else(PoisonError::into_inner);
                state.reserve.sleeps = false;
            }
        }
    }

    /// The queue of the calling thread, if it is one of a pool's.
    pub(super) fn own() -> Option<Arc<Self>> {
        OWN.with_borrow(Weak::upgrade)
    }

    /// Adds a job for each of at most `count` idle threads.
    pub(super) fn assist(&self, count: usize, job: impl Fn() -> PoolJob) {
        let tenant = Tenant::current();
        let mut state = self.lock();
        // A waiting job has an idle thread that is about to take it.
        let idle = state.idle.saturating_sub(state.jobs.waiting());
        for _ in 0..count.min(idle) {
            self.push(&mut state, &tenant, job());
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
    use std::sync::mpsc;

    use super::*;

    /// Longer than any job takes.
    const DEADLINE: Duration = Duration::from_mins(1);

    #[test]
    fn jobs_run_in_order() {
        let (threads, tenant) = (Threads::start(1, "test-").unwrap(), Tenant::current());
        let (sender, results) = mpsc::channel();
        for number in 0..100 {
            let sender = sender.clone();
            threads.spawn(&tenant, Box::new(move || sender.send(number).unwrap()));
        }
        assert!((0..100).all(|number| results.recv_timeout(DEADLINE) == Ok(number)));
    }

    #[test]
    fn waiting_jobs_are_dropped_with_the_threads() {
        let (threads, tenant) = (Threads::start(1, "test-").unwrap(), Tenant::current());
        let (release, gate) = mpsc::channel::<()>();
        let (begun, is_begun) = mpsc::channel();
        threads.spawn(
            &tenant,
            Box::new(move || {
                begun.send(()).unwrap();
                _ = gate.recv();
            }),
        );
        is_begun.recv_timeout(DEADLINE).unwrap();
        let (sender, receiver) = mpsc::channel::<()>();
        threads.spawn(&tenant, Box::new(move || sender.send(()).unwrap()));
        drop(threads);
        assert!(receiver.recv_timeout(DEADLINE).is_err());
        drop(release);
    }

    #[test]
    fn jobs_that_never_end_do_not_keep_another_tenant_from_running() {
        // More jobs than threads, none of which ends before those of the other tenants have run.
        let threads = Threads::start(2, "test-").unwrap();
        let greedy = Tenant::new(&"greedy".into());
        let (releases, gates): (Vec<_>, Vec<_>) = (0..8).map(|_| mpsc::channel::<()>()).unzip();
        for gate in gates {
            threads.spawn(&greedy, Box::new(move || _ = gate.recv()));
        }
        let (sender, results) = mpsc::channel();
        for name in ["one", "two", "three"] {
            let (tenant, sender) = (Tenant::new(&name.into()), sender.clone());
            let expected = tenant.clone();
            let job = move || sender.send(Tenant::current() == expected).unwrap();
            threads.spawn(&tenant, Box::new(job));
            assert_eq!(results.recv_timeout(DEADLINE), Ok(true), "{name}");
        }
        assert!(threads.longest_wait() > Duration::ZERO);
        drop(releases);
    }
}
