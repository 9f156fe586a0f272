//! The body of an answer: encoded messages are part of the memory budget until they are sent, and are dropped if the
//! client does not read them.
//!
//! HTTP/2 takes one chunk of a body and keeps it until the client's window has room, which may be never. So a long
//! message is handed over in pieces, and the rest can be dropped without the connection.

use std::{
    mem,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::{Buf, Bytes};
use forebay_proto::v1::Reason;
use hyper::{
    HeaderMap,
    body::{Body as ResponseBody, Frame, SizeHint},
};
use tokio::{
    task::AbortHandle,
    time::{Instant, sleep},
};
use tonic::{Status, body::Body};

use crate::flight::{
    call::Call,
    call_memory::{CallBudget, CallReservation},
    limits::RATE_MIN,
    status,
};

/// Bytes of a piece, of which each call may have one that is not counted: the rest of its message is.
const PIECE_BYTES: usize = 16 << 10;

/// The body of an answer.
pub(super) struct AnswerBody {
    body: Body,
    call: Call,
    calls: CallBudget,
    /// None: what computes the messages limits their memory and their time.
    reading: Option<ReadingTime>,
    /// The message that is being sent.
    long: Option<LongMessage>,
}

/// How long a client may take to read.
#[derive(Clone, Copy, Debug)]
pub(super) enum ReadingTime {
    /// This long without reading anything, and in sum beyond the lowest rate.
    Rate(Duration),
    /// This long without reading anything; zero: any time.
    Idle(Duration),
}

/// A message that is sent in pieces. Dropping it ends the watch.
struct LongMessage {
    unsent: Arc<Mutex<UnsentBytes>>,
    reading: ReadingTime,
    watch: AbortHandle,
}

/// What is not yet handed over.
struct UnsentBytes {
    bytes: Bytes,
    /// None once the client was too slow.
    reservation: Option<CallReservation>,
    taken: usize,
}

/// Bytes of a chunk, and their part of the budget.
struct CountedBytes {
    bytes: Bytes,
    _reservation: CallReservation,
}

impl AsRef<[u8]> for CountedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl AnswerBody {
    pub(super) fn new(body: Body, call: Call, calls: CallBudget, reading: Option<ReadingTime>) -> Self {
        Self { body, call, calls, reading, long: None }
    }

    /// Ends the answer with a status.
    fn end(&mut self, status: &Status) -> Result<Frame<Bytes>, Status> {
        (self.body, self.long) = (Body::empty(), None);
        let mut trailers = HeaderMap::new();
        self.call.error(status).add_header(&mut trailers)?;
        Ok(Frame::trailers(trailers))
    }

    /// The next piece of the long message; none after the last one.
    fn piece(&mut self) -> Option<Result<Frame<Bytes>, Status>> {
        let long = self.long.as_ref()?;
        let (piece, expired) = (long.piece(), long.reading.expired());
        match piece {
            Some(piece) if piece.is_empty() => {
                self.long = None;
                None
            }
            Some(piece) => Some(Ok(Frame::data(piece))),
            None => Some(self.end(&expired)),
        }
    }

    /// A short message, or the first piece of a long one, if there is room for it.
    fn message(&mut self, data: Bytes) -> Result<Frame<Bytes>, Status> {
        let bytes = data.len() as u64;
        let reservation = match self.reading {
            None => self.calls.count(bytes),
            Some(_) => match self.calls.reserve(bytes) {
                Ok(reservation) => reservation,
                Err(refused) => return self.end(&refused),
            },
        };
        let Some(reading) = self.reading.filter(|_| data.len() > PIECE_BYTES) else {
            return Ok(Frame::data(Bytes::from_owner(CountedBytes { bytes: data, _reservation: reservation })));
        };
        self.long = Some(LongMessage::watched(data, reservation, reading));
        self.piece().unwrap_or_else(|| Ok(Frame::data(Bytes::new())))
    }
}

impl ResponseBody for AnswerBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if let Some(piece) = self.piece() {
            return Poll::Ready(Some(piece));
        }
        let frame = match ready!(Pin::new(&mut self.body).poll_frame(context)) {
            Some(Ok(frame)) => frame,
            other => return Poll::Ready(other),
        };
        match frame.into_data() {
            Ok(data) => Poll::Ready(Some(self.message(data))),
            Err(trailers) => Poll::Ready(Some(Ok(trailers))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.long.is_none() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        if self.long.is_none() { self.body.size_hint() } else { SizeHint::default() }
    }
}

// === impl ReadingTime ===

impl ReadingTime {
    fn seconds(self) -> Duration {
        match self {
            Self::Rate(time) | Self::Idle(time) => time,
        }
    }

    fn expired(self) -> Status {
        let seconds = self.seconds().as_secs_f64();
        let text = match self {
            Self::Rate(_) => format!(
                "the client read nothing of the answer for {seconds} s, or less than 1 MiB/s (--handshake-seconds): \
                 call again"
            ),
            Self::Idle(_) => {
                format!("the client read nothing of the answer for {seconds} s (--stream-idle-seconds): call again")
            }
        };
        status::refusal(Reason::Deadline, &text)
    }
}

// === impl LongMessage ===

impl LongMessage {
    fn watched(bytes: Bytes, reservation: CallReservation, reading: ReadingTime) -> Self {
        let unsent = UnsentBytes { bytes, reservation: Some(reservation), taken: 0 };
        let unsent = Arc::new(Mutex::new(unsent));
        let watch = tokio::spawn(drop_unread(Arc::clone(&unsent), reading)).abort_handle();
        Self { unsent, reading, watch }
    }

    /// A copy of the next piece, empty after the last one; none if the client was too slow.
    fn piece(&self) -> Option<Bytes> {
        let mut unsent = locked(&self.unsent);
        unsent.reservation.as_ref()?;
        let length = unsent.bytes.len().min(PIECE_BYTES);
        let piece = Bytes::copy_from_slice(&unsent.bytes[..length]);
        unsent.bytes.advance(length);
        unsent.taken += length;
        Some(piece)
    }
}

impl Drop for LongMessage {
    fn drop(&mut self) {
        self.watch.abort();
        // The task may hold its part a moment longer.
        locked(&self.unsent).release();
    }
}

impl UnsentBytes {
    fn release(&mut self) {
        (self.bytes, self.reservation) = (Bytes::new(), None);
    }
}

/// Drops a message whose client does not read it in time.
async fn drop_unread(unsent: Arc<Mutex<UnsentBytes>>, reading: ReadingTime) {
    // The first piece is taken at once.
    let (begun, mut before) = (Instant::now(), PIECE_BYTES);
    if reading.seconds().is_zero() {
        return;
    }
    loop {
        sleep(reading.seconds()).await;
        let mut unsent = locked(&unsent);
        let taken = mem::replace(&mut before, unsent.taken);
        let is_slow = match reading {
            ReadingTime::Idle(_) => false,
            ReadingTime::Rate(time) => {
                let allowed = time + Duration::from_secs_f64(unsent.taken as f64 / RATE_MIN);
                begun.elapsed() > allowed
            }
        };
        if is_slow || taken == unsent.taken {
            unsent.release();
            return;
        }
    }
}

fn locked(unsent: &Mutex<UnsentBytes>) -> MutexGuard<'_, UnsentBytes> {
    unsent.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
