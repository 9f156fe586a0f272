//! The processes of a Unix socket: how many calls they take at once, and for how long.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::sync::Semaphore;

/// Calls of one socket at once, at most, however many processes it has.
const CALLS_MAX: usize = 256;

/// The processes of a socket. Functions of one socket share them.
#[derive(Debug)]
pub(super) struct FunctionSocket {
    path: PathBuf,
    /// The longest time of a call.
    timeout: Duration,
    /// Permits for as many calls as there are processes, and that number; none before a function was described.
    permits: Mutex<Option<(usize, Arc<Semaphore>)>>,
}

// === impl FunctionSocket ===

impl FunctionSocket {
    /// The processes on a socket. A call that takes longer than `timeout` fails.
    pub(super) fn new(path: PathBuf, timeout: Duration) -> Self {
        Self { path, timeout, permits: Mutex::new(None) }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Permits to call its functions: as many as it has processes.
    pub(super) fn permits(&self, processes: usize) -> Arc<Semaphore> {
        let count = processes.clamp(1, CALLS_MAX);
        let mut permits = self.permits.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, semaphore)) = permits.as_ref()
            && *known == count
        {
            return Arc::clone(semaphore);
        }
        let semaphore = Arc::new(Semaphore::new(count));
        *permits = Some((count, Arc::clone(&semaphore)));
        semaphore
    }
}
