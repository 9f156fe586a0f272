//! Places of connections. A new connection always gets one: if all are in use, another connection is closed for it.
//!
//! Connections that wait for a request are closed before those that are answered, and of both, the one that made no
//! request for the longest time. A client that sends requests is therefore answered however many others hold connections
//! open: its request arrives with its connection, and it is the last to be closed.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::sync::Notify;

/// The places of the open connections.
#[derive(Debug)]
pub(super) struct Places {
    limit: usize,
    open: Mutex<OpenPlaces>,
}

/// The connections by the order of their last request, or of their acceptance.
#[derive(Debug, Default)]
struct OpenPlaces {
    next: u64,
    waiting: BTreeMap<u64, Arc<Notify>>,
    answering: BTreeMap<u64, Arc<Notify>>,
}

/// The place of a connection; dropping it frees the place.
#[derive(Debug)]
pub(super) struct ConnectionPlace {
    places: Arc<Places>,
    number: Mutex<u64>,
    closing: Arc<Notify>,
}

/// A request that is being answered, until this is dropped.
#[derive(Debug)]
pub(super) struct Answering<'a>(&'a ConnectionPlace);

// === impl Places ===

impl Places {
    pub(super) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { limit, open: Mutex::default() })
    }

    /// A place for a new connection.
    pub(super) fn take(self: &Arc<Self>) -> ConnectionPlace {
        let closing = Arc::new(Notify::new());
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if open.waiting.len() + open.answering.len() >= self.limit {
            open.close_one();
        }
        let number = open.number();
        open.waiting.insert(number, Arc::clone(&closing));
        ConnectionPlace { places: Arc::clone(self), number: Mutex::new(number), closing }
    }

    /// Closes a connection, if any is open: it frees a file descriptor.
    pub(super) fn close_one(&self) {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).close_one();
    }
}

impl OpenPlaces {
    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn close_one(&mut self) {
        if let Some((_, closing)) = self.waiting.pop_first().or_else(|| self.answering.pop_first()) {
            closing.notify_one();
        }
    }
}

// === impl ConnectionPlace ===

impl ConnectionPlace {
    /// Completes when the connection has to be closed for another.
    pub(super) async fn is_taken(&self) {
        self.closing.notified().await;
    }

    /// Notes that a whole request has arrived.
    pub(super) fn answering(&self) -> Answering<'_> {
        self.renumber(|open| &mut open.waiting, |open| &mut open.answering);
        Answering(self)
    }

    /// Moves the connection from one state to another, as the last one. It stays closed if it was.
    fn renumber(
        &self,
        from: impl FnOnce(&mut OpenPlaces) -> &mut BTreeMap<u64, Arc<Notify>>,
        to: impl FnOnce(&mut OpenPlaces) -> &mut BTreeMap<u64, Arc<Notify>>,
    ) {
        let mut number = self.number.lock().unwrap_or_else(PoisonError::into_inner);
        let mut open = self.places.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(closing) = from(&mut open).remove(&number) {
            *number = open.number();
            to(&mut open).insert(*number, closing);
        }
    }
}

impl Drop for ConnectionPlace {
    fn drop(&mut self) {
        let number = self.number.lock().unwrap_or_else(PoisonError::into_inner);
        let mut open = self.places.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.waiting.remove(&number);
        open.answering.remove(&number);
    }
}

impl Drop for Answering<'_> {
    fn drop(&mut self) {
        self.0.renumber(|open| &mut open.answering, |open| &mut open.waiting);
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    fn is_closed(place: &ConnectionPlace) -> bool {
        place.is_taken().now_or_never().is_some()
    }

    #[test]
    fn the_connection_without_a_request_for_the_longest_time_gives_way() {
        let places = Places::new(3);
        let [first, second, third] = [places.take(), places.take(), places.take()];
        // Its request makes the first the last to be closed.
        drop(first.answering());
        let fourth = places.take();
        assert_eq!([&first, &second, &third].map(is_closed), [false, true, false]);
        drop(second);
        let fifth = places.take();
        assert_eq!([&first, &third, &fourth].map(is_closed), [false, true, false]);
        drop((third, fifth));
        // A place is free.
        let sixth = places.take();
        assert_eq!([&first, &fourth, &sixth].map(is_closed), [false, false, false]);
    }

    #[test]
    fn answered_requests_give_way_last() {
        let places = Places::new(2);
        let [first, second] = [places.take(), places.take()];
        let answering = first.answering();
        let third = places.take();
        assert_eq!([&first, &second].map(is_closed), [false, true]);
        let _third_too = third.answering();
        let _fourth = places.take();
        assert!(is_closed(&first));
        // A connection that was closed for another gets no second place.
        drop(answering);
        assert_eq!(places.open.lock().unwrap().waiting.len(), 1);
    }
}
