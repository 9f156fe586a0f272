//! Phases of a shutdown, from serving to closed, and what each of them waits for.

use std::{sync::Arc, time::Duration};

use tokio::{sync::watch, time};

/// Time for ended streams to send their final status.
const STATUS_TIME: Duration = Duration::from_secs(2);

/// A phase of the shutdown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// New calls are accepted.
    Serving,
    /// Running calls continue, new ones are refused.
    Draining,
    /// No call runs; connections close once their clients have received what was sent.
    Drained,
    /// The time is up: running streams end, and report the position to resume from.
    Ended,
    /// Open connections are closed.
    Closed,
}

/// Takes the server through the phases; not cloneable.
#[derive(Debug)]
pub struct Shutdown {
    phase: watch::Sender<Phase>,
    calls: Counted,
    connections: Counted,
}

/// Observes the phase and registers what a drain waits for; cheap to clone.
#[derive(Clone, Debug)]
pub struct ShutdownWatch {
    phase: watch::Receiver<Phase>,
    calls: Counted,
    connections: Counted,
}

/// A running call or an open connection, for which a drain waits until this is dropped.
#[derive(Debug)]
pub struct Registered(#[expect(dead_code, reason = "dropping it is its only use")] watch::Receiver<()>);

/// The channel whose receivers are counted: no value is ever sent.
type Counted = Arc<watch::Sender<()>>;

impl Shutdown {
    /// Creates both ends, in the phase [`Phase::Serving`].
    pub fn new() -> (Self, ShutdownWatch) {
        let (sender, receiver) = watch::channel(Phase::Serving);
        let counted = || Arc::new(watch::Sender::new(()));
        let (calls, connections) = (counted(), counted());
        let watch = ShutdownWatch { phase: receiver, calls: Arc::clone(&calls), connections: Arc::clone(&connections) };
        (Self { phase: sender, calls, connections }, watch)
    }

    /// Drains the server, and returns when its connections may be closed: once no call runs and no registered
    /// connection is open, or a little after `cut`, which ends the running streams.
    pub async fn drain(&self, cut: impl Future<Output = ()>) {
        self.enter(Phase::Draining);
        let drained = async {
            self.calls.closed().await;
            self.enter(Phase::Drained);
            self.connections.closed().await;
        };
        let is_cut = tokio::select! {
            biased;
            () = drained => false,
            () = cut => true,
        };
        if is_cut {
            self.enter(Phase::Ended);
            let _ = time::timeout(STATUS_TIME, self.connections.closed()).await;
        }
        self.enter(Phase::Closed);
    }

    /// Waits until no call runs. A call on a connection that was closed ends a little later.
    pub async fn idle(&self) {
        self.calls.closed().await;
    }

    /// Enters a phase; an earlier one than the current is ignored.
    pub fn enter(&self, phase: Phase) {
        self.phase.send_if_modified(|current| {
            let later = phase > *current;
            *current = phase.max(*current);
            later
        });
    }
}

impl ShutdownWatch {
    /// Returns the current phase.
    pub fn phase(&self) -> Phase {
        *self.phase.borrow()
    }

    /// Waits until the server is in this phase or a later one.
    pub async fn reached(&self, phase: Phase) {
        let mut receiver = self.phase.clone();
        // An error means that the sender was dropped because the server has ended.
        let _ = receiver.wait_for(|current| *current >= phase).await;
    }

    /// Registers a call; none if the server accepts no new ones.
    pub fn call(&self) -> Option<Registered> {
        // Registered before the phase is read: a drain that begins in between waits for it.
        let registered = Registered(self.calls.subscribe());
        (self.phase() == Phase::Serving).then_some(registered)
    }

    /// Registers a connection; none if all calls have ended, so that new clients cannot delay the end.
    pub fn connection(&self) -> Option<Registered> {
        let registered = Registered(self.connections.subscribe());
        (self.phase() < Phase::Drained).then_some(registered)
    }
}

#[cfg(test)]
mod tests {
    use std::future;

    use super::*;

    #[tokio::test]
    async fn a_drain_waits_for_calls_then_for_connections() {
        let (shutdown, watch) = Shutdown::new();
        let (call, connection) = (watch.call().unwrap(), watch.connection().unwrap());
        let drain = shutdown.drain(future::pending());
        let observe = async {
            watch.reached(Phase::Draining).await;
            assert!(watch.call().is_none());
            assert!(watch.connection().is_some());
            assert_eq!(watch.phase(), Phase::Draining);
            drop(call);
            watch.reached(Phase::Drained).await;
            assert!(watch.connection().is_none());
            assert_eq!(watch.phase(), Phase::Drained);
            drop(connection);
        };
        tokio::join!(drain, observe);
        assert_eq!(watch.phase(), Phase::Closed);
    }

    #[tokio::test]
    async fn a_cut_ends_running_calls() {
        let (shutdown, watch) = Shutdown::new();
        let (_call, connection) = (watch.call().unwrap(), watch.connection().unwrap());
        let observe = async {
            watch.reached(Phase::Ended).await;
            assert_eq!(watch.phase(), Phase::Ended);
            drop(connection);
        };
        tokio::join!(shutdown.drain(future::ready(())), observe);
        assert_eq!(watch.phase(), Phase::Closed);
    }
}
