//! Permits for open connections. A few connections over the limit are accepted, so that their calls are rejected with a reason.

use std::{sync::Arc, time::Duration};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::Status;

use crate::flight::status;

/// Connections over the limit that are answered at a time.
const REJECTED_MAX: usize = 64;

/// Lifetime of such a connection, and the time after which its client may retry.
pub(super) const REJECTED_TIME: Duration = Duration::from_secs(2);

/// Permits for open connections. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ConnectionPermits {
    limit: usize,
    free: Arc<Semaphore>,
    rejected: Arc<Semaphore>,
}

/// The permit of a new connection.
pub(super) enum ConnectionPermit {
    Taken(#[expect(dead_code, reason = "held until the connection closes")] OwnedSemaphorePermit),
    /// No permit is free: its calls are rejected.
    Rejected(#[expect(dead_code, reason = "held until the connection closes")] OwnedSemaphorePermit),
}

impl ConnectionPermits {
    /// Permits for `limit` connections.
    pub fn new(limit: usize) -> Self {
        let limit = limit.min(Semaphore::MAX_PERMITS);
        Self { limit, free: Arc::new(Semaphore::new(limit)), rejected: Arc::new(Semaphore::new(REJECTED_MAX)) }
    }

    /// A permit for a connection; none if many connections over the limit are being answered.
    pub(super) fn acquire(&self) -> Option<ConnectionPermit> {
        let free = Arc::clone(&self.free).try_acquire_owned().map(ConnectionPermit::Taken);
        free.or_else(|_| Arc::clone(&self.rejected).try_acquire_owned().map(ConnectionPermit::Rejected)).ok()
    }

    /// The status of a call on a connection over the limit.
    pub(super) fn rejection(&self) -> Status {
        let reason = format!(
            "{0} connections are open, the limit is {0} (--connections-max): close one, or try again in {1} s",
            self.limit,
            REJECTED_TIME.as_secs()
        );
        status::overloaded(&reason, REJECTED_TIME.as_millis() as u64)
    }
}

impl ConnectionPermit {
    /// Whether the connection is over the limit.
    pub(super) fn is_rejected(&self) -> bool {
        matches!(self, Self::Rejected(_))
    }
}
