//! Connections to a ring: one call each, from its hello to the last slot that its client returns.

use std::{collections::HashMap, io, os::fd::AsFd, time::Duration};

use arrow_flight::Ticket;
use forebay_proto::{
    Encoding,
    v1::{self, Reason},
};
use forebay_runtime::{
    budget::Budget,
    metrics::{self, ConnectionGuard},
    shutdown::{Phase, ShutdownWatch},
};
use futures::StreamExt;
use tokio::{
    net::{UnixListener, UnixStream},
    time,
};
use tonic::{Status, metadata::KeyAndValueRef};

use super::{
    frames::{self, Place},
    hello::Hello,
    link::{Departure, FromClient, ToClient, split},
    memory::{RingMemory, slot_bytes},
    slots::Slots,
};
use crate::{
    auth::Peer,
    flight::{
        access_log::AccessEntry,
        call::{Call, name_of},
        call_memory::CallBudget,
        rpc::do_get::Messages,
        status,
        transport::{
            accept::accept_connections,
            goaway,
            permits::{ConnectionPermit, ConnectionPermits, REJECTED_TIME},
            router::Router,
        },
        wire::Message,
    },
};

/// Settings of a ring's connections.
#[derive(Clone, Copy, Debug)]
pub struct RingSettings {
    /// Time for the hello.
    pub handshake: Duration,
}

/// The source of a call's messages.
enum RingSource<'a, F> {
    /// The `DoGet` of a router.
    Router(&'a Router),
    /// A function of the ticket, with the budget of the slots.
    Prepared(F, &'a Budget),
}

/// A function of a ticket.
type Prepare = fn(&Ticket) -> Result<Messages, Status>;

/// A running call.
struct RingCall {
    call: Call,
    entry: AccessEntry,
    encoding: Encoding,
    to_client: ToClient,
    shutdown: ShutdownWatch,
    /// None until the first batch; also none if its body is empty.
    memory: Option<RingMemory>,
}

/// Why a call ends before its last message.
enum Cut {
    /// The client is sent this status.
    Refused(Status),
    /// The client cannot be reached.
    Unreachable,
}

impl From<Status> for Cut {
    fn from(status: Status) -> Self {
        Self::Refused(status)
    }
}

impl From<io::Error> for Cut {
    /// An error of the socket.
    fn from(_: io::Error) -> Self {
        Self::Unreachable
    }
}

/// Serves a ring's connections until the server has drained.
pub(in crate::flight::transport) async fn serve_rings(
    router: Router,
    listener: UnixListener,
    settings: RingSettings,
    permits: &ConnectionPermits,
    shutdown: &ShutdownWatch,
) {
    let accept = async move || listener.accept().await.map(|(stream, _)| (None, stream));
    let serve = |stream, permit: ConnectionPermit| {
        let (router, shutdown) = (router.clone(), shutdown.clone());
        async move {
            match permit.rejection() {
                Some(status) => {
                    let _ = time::timeout(REJECTED_TIME, reject(stream, status, shutdown)).await;
                }
                None => serve_ring(router, stream, settings, shutdown).await,
            }
            drop(permit);
        }
    };
    accept_connections(accept, permits, shutdown, serve).await;
}

/// Answers a connection over the limit.
async fn reject(stream: UnixStream, status: &Status, shutdown: ShutdownWatch) {
    let _open = ConnectionGuard::open();
    let (from_client, to_client) = split(stream);
    let call = Call::new("DoGet", None);
    let running = RingCall::begin(call, Encoding::Json, to_client, shutdown);
    let refused = running.call.error(status);
    metrics::request(running.call.method, name_of(refused.code()));
    running.end(&refused).await;
    from_client.closed().await;
}

/// Serves one connection of a ring: its hello, its call, and its memory until the client closes the connection.
pub async fn serve_ring(router: Router, stream: UnixStream, settings: RingSettings, shutdown: ShutdownWatch) {
    let _open = ConnectionGuard::open();
    let (mut from_client, mut to_client) = split(stream);
    let resources = router.resources();
    let memory = resources.calls.unauthenticated_request();
    let hello = from_client.hello(resources.message_limits.bytes_max, &memory);
    let hello = match time::timeout(settings.handshake, hello).await {
        Ok(Ok(Some(hello))) => hello,
        Ok(Ok(None)) => return,
        Ok(Err(refused)) => {
            tracing::debug!(error = refused.message(), "ring closed: invalid hello");
            let _ = time::timeout(settings.handshake, send_end(&mut to_client, &refused, Encoding::Json)).await;
            return;
        }
        Err(_) => {
            tracing::debug!("ring closed: no hello");
            return;
        }
    };
    // From here on the memory is the call's.
    drop(memory);
    let registered = shutdown.connection();
    let running = RingCall::begin(Call::of(&hello.request), hello.encoding, to_client, shutdown);
    let source = RingSource::<Prepare>::Router(&router);
    let slots = running.run(source, hello, &mut from_client).await.flatten();
    // The call is over, but its client may still use slots.
    drop(registered);
    if let Some(slots) = slots {
        from_client.closed().await;
        drop(slots);
    }
}

/// Serves one connection of a ring with messages that are a function of the ticket: to measure the transport alone.
pub async fn serve_prepared<F>(stream: UnixStream, budget: &Budget, shutdown: ShutdownWatch, prepare: F)
where
    F: FnOnce(&Ticket) -> Result<Messages, Status> + Send,
{
    let (mut from_client, to_client) = split(stream);
    let memory = CallBudget::new(budget).unauthenticated_request();
    let Ok(Some(hello)) = from_client.hello(usize::MAX, &memory).await else { return };
    drop(memory);
    let running = RingCall::begin(Call::of(&hello.request), hello.encoding, to_client, shutdown);
    let ended = running.run(RingSource::Prepared(prepare, budget), hello, &mut from_client).await;
    from_client.closed().await;
    drop(ended);
}

/// Sends the status of a call.
async fn send_end(to_client: &mut ToClient, status: &Status, encoding: Encoding) -> Result<(), Cut> {
    let frame = frames::end(&encoded_end(status, encoding))?;
    Ok(to_client.send(&frame).await?)
}

fn encoded_end(status: &Status, encoding: Encoding) -> Vec<u8> {
    let trailers = status.metadata().iter().filter_map(|entry| match entry {
        KeyAndValueRef::Ascii(name, value) => Some((name.to_string(), value.to_str().ok()?.to_owned())),
        KeyAndValueRef::Binary(..) => None,
    });
    let (code, message) = (status.code() as u32, status.message().to_owned());
    forebay_proto::encode(&v1::RingEnd { code, message, trailers: trailers.collect() }, encoding)
}

// === impl RingCall ===

impl RingCall {
    fn begin(call: Call, encoding: Encoding, to_client: ToClient, shutdown: ShutdownWatch) -> Self {
        let entry = AccessEntry::begin(call.clone(), &Peer::default(), shutdown.clone());
        Self { call, entry, encoding, to_client, shutdown, memory: None }
    }

    /// Runs the call and ends the server's side of the connection. Returns the memory that the client may still use; none
    /// if it closed the connection.
    async fn run<F>(
        mut self,
        source: RingSource<'_, F>,
        hello: Hello,
        from_client: &mut FromClient,
    ) -> Option<Option<RingMemory>>
    where
        F: FnOnce(&Ticket) -> Result<Messages, Status>,
    {
        let slots = Slots::new();
        let sent = tokio::select! {
            // Polled in this order, so that a slot that was returned twice ends the stream before it is used.
            biased;
            departure = from_client.returns(&slots) => Err(departure),
            sent = self.send(source, hello, &slots) => Ok(sent),
        };
        let end = match sent {
            Ok(Ok(())) => Status::ok(""),
            Ok(Err(Cut::Refused(status))) => status,
            Err(Departure::Foreign(foreign)) => {
                self.call.error(&status::refusal(Reason::InvalidRequest, &foreign.to_string()))
            }
            Ok(Err(Cut::Unreachable)) | Err(Departure::Closed) => return None,
            // The entry is dropped without a status: a cancelled call.
            Err(Departure::Cancelled) => return Some(self.memory),
        };
        self.end(&end).await
    }

    /// Sends the status, and then ends the call.
    async fn end(mut self, status: &Status) -> Option<Option<RingMemory>> {
        let sent = send_end(&mut self.to_client, status, self.encoding).await;
        if sent.is_ok() {
            self.entry.end(status);
        }
        sent.is_ok().then_some(self.memory)
    }

    /// Sends the messages of the ticket. On return, the stream's resources are released.
    async fn send<F>(&mut self, source: RingSource<'_, F>, hello: Hello, slots: &Slots) -> Result<(), Cut>
    where
        F: FnOnce(&Ticket) -> Result<Messages, Status>,
    {
        let Hello { request, ticket, slots: wanted, .. } = hello;
        let (mut messages, budget) = match source {
            RingSource::Router(router) => {
                let (headers, peer) = (request.headers(), Peer::default());
                let opened = router.get(headers, &ticket, &self.call, &peer, &mut self.entry).await?;
                (opened, router.resources().streams.budget())
            }
            RingSource::Prepared(prepare, budget) => (prepare(&ticket)?, budget),
        };
        let first = first_batch(&mut messages).await?;
        let answer = self.allocate(budget, &first, wanted, slots)?;
        let frame = frames::answer(&forebay_proto::encode(&answer, self.encoding))?;
        match &self.memory {
            Some(memory) => self.to_client.send_with(&frame, memory.as_fd()).await?,
            None => self.to_client.send(&frame).await?,
        }
        for message in first {
            self.send_message(message, slots).await?;
        }
        while let Some(message) = messages.next().await {
            self.send_message(message?, slots).await?;
        }
        Ok(())
    }

    /// Reserves and creates the slots, by the size of the first batch.
    fn allocate(
        &mut self,
        budget: &Budget,
        first: &[Message],
        wanted: u32,
        slots: &Slots,
    ) -> Result<v1::RingAnswer, Status> {
        let headers = HashMap::from([("x-request-id".to_owned(), self.call.id.to_string())]);
        let batch = first.iter().find(|message| is_batch(message));
        let slot_bytes = batch.map_or(0, |batch| slot_bytes(batch.body_bytes()));
        if slot_bytes == 0 {
            return Ok(v1::RingAnswer { slots: 0, slot_bytes: 0, headers });
        }
        let count = slots.allocate(wanted);
        let bytes = slot_bytes.saturating_mul(count.into());
        let reserved = self.entry.tenant().run(|| budget.reserve(bytes));
        let reserved = reserved.map_err(|error| self.call.error(&status::of(&error.into())))?;
        self.memory = Some(RingMemory::create(count, slot_bytes, reserved).map_err(|error| self.broken(&error))?);
        Ok(v1::RingAnswer { slots: count.into(), slot_bytes, headers })
    }

    /// Sends a message, its body through a slot if it is a batch's and fits one. A dictionary's is not: the client keeps
    /// it for the batches that follow.
    async fn send_message(&mut self, message: Message, slots: &Slots) -> Result<(), Cut> {
        let bytes = message.byte_count() as u64;
        match &self.memory {
            Some(memory) if is_batch(&message) && memory.fits(message.body_bytes()) && message.body_bytes() > 0 => {
                let slot = tokio::select! {
                    biased;
                    slot = slots.take() => slot,
                    () = self.shutdown.reached(Phase::Ended) => {
                        let ended = status::refusal(Reason::ShuttingDown, goaway::TEXT);
                        return Err(self.call.error(&ended).into());
                    }
                };
                memory.write(slot, &message.body).await.map_err(|error| self.broken(&error))?;
                let frame = frames::message(&message, Place::Slot(slot))?;
                // The batch's own memory is free as soon as it is in the slot.
                drop(message);
                self.to_client.send(&frame).await?;
            }
            _ => {
                let frame = frames::message(&message, Place::Inline)?;
                self.to_client.send_inline(&frame, &message.body).await?;
            }
        }
        self.entry.sent(bytes);
        Ok(())
    }

    fn broken(&self, error: &io::Error) -> Status {
        let text = format!("cannot use shared memory: {error}; resume, or read over Flight (FOREBAY_RING=off)");
        self.call.error(&status::refusal(Reason::Interrupted, &text))
    }
}

/// Reads the messages up to the first batch.
async fn first_batch(messages: &mut Messages) -> Result<Vec<Message>, Status> {
    let mut first = Vec::new();
    while let Some(message) = messages.next().await {
        let message = message?;
        let is_batch = is_batch(&message);
        first.push(message);
        if is_batch {
            break;
        }
    }
    Ok(first)
}

/// Whether a message is a batch; schemas and dictionaries have no header.
fn is_batch(message: &Message) -> bool {
    !message.metadata.is_empty()
}
