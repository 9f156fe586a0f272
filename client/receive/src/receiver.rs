//! The reader's side of a call, and the thread that drives its connection.

use std::{
    mem, process,
    sync::{
        Arc, Mutex,
        mpsc::{self, RecvTimeoutError},
    },
    thread,
    time::Duration,
};

use tokio::runtime::Builder;

use crate::{
    Call, Message, ReceiveError,
    body::BodyPool,
    connect::SocketNumber,
    link::{Event, Sender, Stop, link},
};

/// A call that is under way. Dropping it ends the call; bodies that were received stay valid.
#[derive(Debug)]
pub struct Receiver {
    /// The process that has the thread. A forked one has only a copy of this value.
    process: u32,
    /// Always there until this value is dropped.
    inner: Option<Inner>,
}

#[derive(Debug)]
struct Inner {
    events: Mutex<mpsc::Receiver<Event>>,
    stop: Arc<Stop>,
    number: Arc<SocketNumber>,
    pool: Arc<BodyPool>,
}

/// The outcome of waiting for a message.
#[derive(Debug)]
pub enum Received {
    /// The next message.
    Message(Message),
    /// The stream is complete.
    End,
    /// None arrived within the time.
    Nothing,
}

// === impl Receiver ===

impl Receiver {
    /// Begins a call, without waiting for anything. Its errors are those of the first message.
    ///
    /// # Errors
    ///
    /// If the system has no resources for another thread.
    pub fn open(call: Call) -> Result<Self, ReceiveError> {
        let (stop, number, pool) = (Arc::new(Stop::default()), Arc::default(), Arc::default());
        let (sender, events) = link(Arc::clone(&stop));
        let inner = Inner { events: Mutex::new(events), stop, number, pool };
        let (number, pool) = (Arc::clone(&inner.number), Arc::clone(&inner.pool));
        thread::Builder::new()
            .name("forebay-receive".to_owned())
            .spawn(move || drive(&call, number, &pool, &sender))
            .map_err(|error| ReceiveError::Unreached(format!("cannot start a thread: {error}")))?;
        Ok(Self { process: process::id(), inner: Some(inner) })
    }

    /// Waits for a message, as long as given or without a limit. One thread at a time receives.
    ///
    /// # Errors
    ///
    /// If the call failed, if it was closed, or in a forked process.
    pub fn next(&self, limit: Option<Duration>) -> Result<Received, ReceiveError> {
        let inner = self.own().ok_or_else(|| ReceiveError::Lost("the call is that of another process".to_owned()))?;
        let events = inner.events.lock().map_err(|_| ReceiveError::Closed)?;
        let event = match limit {
            None => events.recv().map_err(|_| ReceiveError::Closed)?,
            Some(limit) => match events.recv_timeout(limit) {
                Ok(event) => event,
                Err(RecvTimeoutError::Timeout) => return Ok(Received::Nothing),
                Err(RecvTimeoutError::Disconnected) => return Err(ReceiveError::Closed),
            },
        };
        match event {
            Event::Message { message, .. } => Ok(Received::Message(message)),
            Event::End(end) => end.map(|()| Received::End),
        }
    }

    /// Ends the call, also one that another thread waits for. Never waits.
    pub fn close(&self) {
        if let Some(inner) = self.own() {
            inner.stop.set();
            inner.pool.close();
        }
    }

    /// The number of the connection's socket while it is open, for a forked process to close its copy.
    pub fn socket(&self) -> Option<i32> {
        self.inner.as_ref()?.number.get()
    }

    /// The parts, in the process that made them.
    fn own(&self) -> Option<&Inner> {
        self.inner.as_ref().filter(|_| process::id() == self.process)
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.close();
        if process::id() != self.process {
            // A thread that this process does not have may have held a lock of the queue.
            mem::forget(self.inner.take());
        }
    }
}

/// Drives the connection of a call to its end.
fn drive(call: &Call, number: Arc<SocketNumber>, pool: &Arc<BodyPool>, sender: &Sender) {
    let runtime = match Builder::new_current_thread().enable_io().enable_time().build() {
        Ok(runtime) => runtime,
        Err(error) => return sender.end(Err(ReceiveError::unreached(&error))),
    };
    if let Err(error) = runtime.block_on(call.run(number, Arc::clone(pool), sender)) {
        sender.end(Err(error));
    }
    pool.close();
    // Does not wait for the name server.
    runtime.shutdown_background();
}
