//! The body of a request: it arrives within a time, into memory that is reserved as it arrives.
//!
//! An interrupted request ends with CANCELLED, where tonic would report an error of the server.

use std::{
    fmt::Display,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use forebay_proto::v1::Reason;
use hyper::body::{Body, Frame, SizeHint};
use tokio::time::{Instant, Sleep, sleep};
use tonic::Status;

use super::{field_count::FieldCount, message_bounds::MessageBounds};
use crate::flight::{
    call_memory::RequestMemory,
    limits::{MessageLimits, RATE_MIN},
    status,
};

/// Bytes of a message that needs no credentials, or only names something.
const SMALL_MESSAGE_BYTES_MAX: u64 = 4 << 10;

/// Reservations grow in steps, so that most frames change none.
const STEP_BYTES: u64 = 64 << 10;

/// The body of a request.
pub(super) struct ReceivedBody<B> {
    body: B,
    memory: RequestMemory,
    /// Time in which a request must arrive, and after which a client that sends nothing more is late.
    arrival: Duration,
    /// Whether the client may wait between messages.
    is_stream: bool,
    /// Whether only small messages are accepted. The decoder has the limit of others.
    is_small: bool,
    bounds: MessageBounds,
    /// Bytes that the decoder may hold.
    held: u64,
    /// Whether a message has ended since the decoder last requested bytes.
    has_whole: bool,
    wait: Wait,
}

/// The time that a client lets the server wait.
#[derive(Default)]
struct Wait {
    /// The sum of earlier waits.
    before: Duration,
    since: Option<Instant>,
    deadline: Option<Pin<Box<Sleep>>>,
}

impl<B> ReceivedBody<B> {
    /// A request of one message, all of which must arrive in time.
    pub(super) fn whole(body: B, limits: &MessageLimits, memory: RequestMemory) -> Self {
        Self {
            body,
            memory,
            arrival: limits.arrival,
            is_stream: false,
            is_small: false,
            bounds: MessageBounds::new(FieldCount::new(None)),
            held: 0,
            has_whole: false,
            wait: Wait::default(),
        }
    }

    /// A request of several messages, each of which must arrive in time once it has begun. The fields of the field
    /// `nested` count as those of its message.
    pub(super) fn stream(body: B, limits: &MessageLimits, memory: RequestMemory, nested: Option<u64>) -> Self {
        let bounds = MessageBounds::new(FieldCount::new(nested));
        Self { is_stream: true, bounds, ..Self::whole(body, limits, memory) }
    }

    /// The same body, with small messages only.
    pub(super) fn small(self) -> Self {
        Self { is_small: true, ..self }
    }

    /// Reserves what a frame adds, and counts its fields.
    fn received(&mut self, data: &[u8]) -> Result<(), Status> {
        self.held += data.len() as u64;
        let has_ended = self.bounds.add(data)?;
        self.has_whole |= has_ended;
        self.wait.received(has_ended && self.is_stream);
        let announced = self.bounds.announced();
        if self.is_small && announced.max(if self.is_stream { 0 } else { self.held }) > SMALL_MESSAGE_BYTES_MAX {
            let text = format!(
                "the message exceeds {SMALL_MESSAGE_BYTES_MAX} bytes, which are enough for a health check or a reflection"
            );
            return Err(status::refusal(Reason::Limit, &text));
        }
        self.memory.arrived(self.held.next_multiple_of(STEP_BYTES).min(announced.max(self.held)))
    }

    /// Releases the messages that the decoder has returned: it requests more bytes when it has no whole message left,
    /// and its caller requests more when the last message is done with.
    fn release_decoded(&mut self) -> Result<(), Status> {
        if !self.is_stream || !self.has_whole {
            return Ok(());
        }
        (self.held, self.has_whole) = (self.bounds.arrived(), false);
        self.memory.arrived(self.held)
    }

    /// Whether the client may take any time.
    fn is_idle(&self) -> bool {
        self.is_stream && self.bounds.arrived() == 0
    }

    fn late(&self) -> Status {
        let seconds = self.arrival.as_secs_f64();
        let text = if self.is_stream {
            format!(
                "{} of {} bytes of the message arrived, and then nothing for {seconds} s, or less than 1 MiB/s \
                 (--handshake-seconds)",
                self.bounds.arrived(),
                self.bounds.announced()
            )
        } else {
            format!("the request did not arrive within {seconds} s (--handshake-seconds)")
        };
        status::refusal(Reason::Deadline, &text)
    }
}

/// The status of a request that was reset, truncated or in violation of HTTP/2. tonic would take it for a complete
/// request without a message.
fn incomplete(error: &impl Display) -> Status {
    status::refusal(Reason::Cancelled, &format!("client disconnected before the request completed: {error}"))
}

impl<B: Body<Data = Bytes, Error: Display> + Unpin> Body for ReceivedBody<B> {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        self.release_decoded()?;
        match Pin::new(&mut self.body).poll_frame(context) {
            Poll::Ready(Some(Ok(frame))) => {
                if let Some(data) = frame.data_ref() {
                    self.received(data)?;
                }
                return Poll::Ready(Some(Ok(frame)));
            }
            Poll::Ready(Some(Err(error))) => return Poll::Ready(Some(Err(incomplete(&error)))),
            Poll::Ready(None) => return Poll::Ready(None),
            Poll::Pending if self.is_idle() => return Poll::Pending,
            Poll::Pending => {}
        }
        let (arrival, is_stream, arrived) = (self.arrival, self.is_stream, self.bounds.arrived());
        ready!(self.wait.poll_late(arrival, is_stream.then_some(arrived), context));
        Poll::Ready(Some(Err(self.late())))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

// === impl Wait ===

impl Wait {
    /// Ends a wait for bytes. `begins`: the next wait is for another message.
    fn received(&mut self, begins: bool) {
        let waited = self.since.take().map_or(Duration::ZERO, |since| since.elapsed());
        self.before = if begins { Duration::ZERO } else { self.before + waited };
    }

    /// Completes when the client is late. Only waiting counts, and not the time in which the server requests nothing.
    ///
    /// A request of one message has `arrival` in total. A message of a stream has it for each wait, and for their sum
    /// beyond the time that its `arrived` bytes take at the lowest rate.
    fn poll_late(&mut self, arrival: Duration, arrived: Option<u64>, context: &mut Context<'_>) -> Poll<()> {
        if self.since.is_none() {
            let allowed =
                arrival + arrived.map_or(Duration::ZERO, |bytes| Duration::from_secs_f64(bytes as f64 / RATE_MIN));
            let left = allowed.saturating_sub(self.before).min(arrival);
            let now = Instant::now();
            self.since = Some(now);
            match &mut self.deadline {
                Some(deadline) => deadline.as_mut().reset(now + left),
                None => self.deadline = Some(Box::pin(sleep(left))),
            }
        }
        self.deadline.as_mut().map_or(Poll::Pending, |deadline| deadline.as_mut().poll(context))
    }
}

#[cfg(test)]
mod tests;
