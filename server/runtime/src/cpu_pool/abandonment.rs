//! Tells a running job that no caller waits for its result any more.

use std::{
    cell::RefCell,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

thread_local! {
    /// The job that this thread runs now.
    static CURRENT: RefCell<Option<Abandonment>> = const { RefCell::new(None) };
}

/// Whether the caller of a job has left. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct Abandonment(Arc<AtomicBool>);

/// The caller of a job; dropping it abandons the job.
#[derive(Debug)]
pub(super) struct JobCaller(Abandonment);

/// Restores the thread's job on drop.
struct PreviousJob(Option<Abandonment>);

/// Whether no caller waits for the result of the running job: long loops check it between steps, and end with any
/// error, which is never seen.
pub fn is_abandoned() -> bool {
    CURRENT.with_borrow(|current| current.as_ref().is_some_and(Abandonment::is_set))
}

impl Abandonment {
    /// That of the job that this thread runs; one that is never set outside of jobs.
    pub(super) fn current() -> Self {
        CURRENT.with_borrow(Clone::clone).unwrap_or_default()
    }

    pub(super) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Runs a job, or a part of it.
    pub(super) fn during<T>(&self, job: impl FnOnce() -> T) -> T {
        let _restored = PreviousJob(CURRENT.replace(Some(self.clone())));
        job()
    }

    /// The caller that waits for the job.
    pub(super) fn caller(&self) -> JobCaller {
        JobCaller(self.clone())
    }
}

impl Drop for JobCaller {
    fn drop(&mut self) {
        self.0.0.store(true, Ordering::Relaxed);
    }
}

impl Drop for PreviousJob {
    fn drop(&mut self) {
        CURRENT.set(self.0.take());
    }
}
