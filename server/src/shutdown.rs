//! The phases of a server's end: serving, draining (no new streams), ended (running streams are cut), closed
//! (connections are, too).

use tokio::sync::watch;

/// Where the server is on its way out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Everything is taken.
    Serving,
    /// Running streams go on, new ones are refused.
    Draining,
    /// Running streams end now, with the place to resume.
    Ended,
    /// Connections that are still open are closed.
    Closed,
}

/// Sets the phase; there is one.
#[derive(Debug)]
pub struct Shutdown {
    sender: watch::Sender<Phase>,
}

/// Sees the phase; cheap to clone.
#[derive(Clone, Debug)]
pub struct ShutdownWatch {
    receiver: watch::Receiver<Phase>,
}

impl Shutdown {
    /// A server that is serving.
    pub fn new() -> (Self, ShutdownWatch) {
        let (sender, receiver) = watch::channel(Phase::Serving);
        (Self { sender }, ShutdownWatch { receiver })
    }

    /// Moves on to a phase; never back.
    pub fn enter(&self, phase: Phase) {
        self.sender.send_if_modified(|current| {
            let later = phase > *current;
            *current = phase.max(*current);
            later
        });
    }
}

impl ShutdownWatch {
    /// The present phase.
    pub fn phase(&self) -> Phase {
        *self.receiver.borrow()
    }

    /// Waits until the server is in this phase or a later one.
    pub async fn reached(&self, phase: Phase) {
        let mut receiver = self.receiver.clone();
        // An error means that the sender is gone, and with it the server.
        let _ = receiver.wait_for(|current| *current >= phase).await;
    }
}
