//! The link between the thread of a connection and the reader: a bounded queue of messages, and a signal to stop.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
    mpsc,
};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use crate::{Message, ReceiveError};

/// Messages that wait for the reader. The next one is received meanwhile.
const WAITING_MAX: usize = 2;

/// What the thread hands over.
pub(crate) enum Event {
    /// A message, and its place in the queue.
    Message { message: Message, _place: OwnedSemaphorePermit },
    /// The end of the stream.
    End(Result<(), ReceiveError>),
}

/// The thread's side.
pub(crate) struct Sender {
    events: mpsc::Sender<Event>,
    places: Arc<Semaphore>,
    stop: Arc<Stop>,
}

/// The reader's signal that it wants no more.
#[derive(Debug, Default)]
pub(crate) struct Stop {
    is_set: AtomicBool,
    notify: Notify,
}

/// Both ends of a link.
pub(crate) fn link(stop: Arc<Stop>) -> (Sender, mpsc::Receiver<Event>) {
    let (events, received) = mpsc::channel();
    (Sender { events, places: Arc::new(Semaphore::new(WAITING_MAX)), stop }, received)
}

// === impl Sender ===

impl Sender {
    /// Hands a message over as soon as the reader has taken the one before the last.
    pub(crate) async fn send(&self, message: Message) -> Result<(), ReceiveError> {
        let place = Arc::clone(&self.places).acquire_owned().await.map_err(|_| ReceiveError::Closed)?;
        self.events.send(Event::Message { message, _place: place }).map_err(|_| ReceiveError::Closed)
    }

    /// Hands the end over; never waits.
    pub(crate) fn end(&self, end: Result<(), ReceiveError>) {
        // The reader may be gone.
        self.events.send(Event::End(end)).ok();
    }

    /// Awaits the result, or the reader's signal to stop.
    pub(crate) async fn unless_stopped<T>(
        &self,
        work: impl Future<Output = Result<T, ReceiveError>>,
    ) -> Result<T, ReceiveError> {
        tokio::select! {
            biased;
            () = self.stop.wait() => Err(ReceiveError::Closed),
            result = work => result,
        }
    }
}

// === impl Stop ===

impl Stop {
    pub(crate) fn set(&self) {
        self.is_set.store(true, Ordering::SeqCst);
        self.notify.notify_one();
    }

    async fn wait(&self) {
        if !self.is_set.load(Ordering::SeqCst) {
            self.notify.notified().await;
        }
    }
}
