//! Phases of a shutdown: serving, draining (no new streams), ended (running streams end), closed (connections close).

use tokio::sync::watch;

/// A phase of the shutdown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// New streams are accepted.
    Serving,
    /// Running streams continue, new ones are refused.
    Draining,
    /// Running streams end, and report the position to resume from.
    Ended,
    /// Open connections are closed.
    Closed,
}

/// Sets the phase; not cloneable.
#[derive(Debug)]
pub struct Shutdown {
    sender: watch::Sender<Phase>,
}

/// Observes the phase; cheap to clone.
#[derive(Clone, Debug)]
pub struct ShutdownWatch {
    receiver: watch::Receiver<Phase>,
}

impl Shutdown {
    /// Creates both ends, in the phase [`Phase::Serving`].
    pub fn new() -> (Self, ShutdownWatch) {
        let (sender, receiver) = watch::channel(Phase::Serving);
        (Self { sender }, ShutdownWatch { receiver })
    }

    /// Enters a phase; an earlier one than the current is ignored.
    pub fn enter(&self, phase: Phase) {
        self.sender.send_if_modified(|current| {
            let later = phase > *current;
            *current = phase.max(*current);
            later
        });
    }
}

impl ShutdownWatch {
    /// Returns the current phase.
    pub fn phase(&self) -> Phase {
        *self.receiver.borrow()
    }

    /// Waits until the server is in this phase or a later one.
    pub async fn reached(&self, phase: Phase) {
        let mut receiver = self.receiver.clone();
        // An error means that the sender was dropped because the server has ended.
        let _ = receiver.wait_for(|current| *current >= phase).await;
    }
}
