//! Detects connections whose client makes no authenticated call, where calls need credentials. Such a client could hold
//! connections indefinitely, and health checks and pings need none.

use std::{
    future,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::time;

/// The first authenticated call of a connection. Each of its calls carries this. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct FirstCall(Arc<AtomicBool>);

impl FirstCall {
    /// Notes that a call has been authenticated.
    pub(super) fn arrived(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Completes when no call has been authenticated within the time; never, if one has. Zero: calls need no credentials.
    pub(super) async fn is_missing(&self, within: Duration) {
        if within.is_zero() {
            return future::pending().await;
        }
        time::sleep(within).await;
        if self.0.load(Ordering::Relaxed) {
            future::pending::<()>().await;
        }
    }
}
