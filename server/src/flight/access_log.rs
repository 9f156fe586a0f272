//! The access log: one line for each call at its end, also for calls that are refused or cancelled.
//!
//! The router begins an entry and hands it to the body of the response, whose end or drop ends the call; the ring keeps
//! it until it sends the status. The modules of `rpc` add what they learn from the request (`Call::note`). The log escapes
//! control characters in texts of clients, and `refusal_sample` leaves out most lines of a client that is refused often.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use forebay_proto::v1::Reason;
use hyper::{
    HeaderMap, Response,
    body::{Body as ResponseBody, Frame, SizeHint},
};
use tonic::{Code, Status, body::Body};

use super::{
    call::{Call, name_of},
    call_facts::{CallFacts, truncated},
    call_memory::RequestMemory,
    refusal_sample, status,
};
use crate::{
    auth::Peer,
    log::ACCESS,
    metrics::{self, FailedCall, Stage},
    shutdown::{Phase, Registered, ShutdownWatch},
};

/// The longest error in a line, in characters.
const ERROR_LENGTH_MAX: usize = 512;

/// A running call. Dropping it writes the line.
#[derive(Debug)]
pub(super) struct AccessEntry {
    call: Call,
    shutdown: ShutdownWatch,
    /// Bytes of the response's messages so far.
    bytes: u64,
    /// None until the response or its trailers tell it.
    end: Option<CallEnd>,
    /// Delays a drain until the call has ended.
    running: Option<Registered>,
    /// Released when the call has ended.
    memory: Option<RequestMemory>,
}

/// How a call ended.
#[derive(Debug)]
struct CallEnd {
    code: Code,
    /// Reason and text of an error.
    error: Option<(Reason, String)>,
}

/// The body of a response whose end ends the call.
struct RecordedBody {
    body: Body,
    // Dropped after the body, whose stream adds its counts when it is dropped.
    entry: AccessEntry,
}

// === impl AccessEntry ===

impl AccessEntry {
    /// Begins the entry of a call from a peer.
    pub(super) fn begin(call: Call, peer: &Peer, shutdown: ShutdownWatch) -> Self {
        call.note(|facts| facts.peer = peer.to_string());
        Self { call, shutdown, bytes: 0, end: None, running: None, memory: None }
    }

    /// Registers the call with the drain; false if the server accepts no new calls.
    pub(super) fn register(&mut self) -> bool {
        self.running = self.shutdown.call();
        self.running.is_some()
    }

    /// Keeps the memory of the call's request until the call ends.
    pub(super) fn keep(&mut self, memory: RequestMemory) {
        self.memory = Some(memory);
    }

    /// The response, whose end ends the call.
    pub(super) fn until_end_of(mut self, response: Response<Body>) -> Response<Body> {
        self.end = CallEnd::in_headers(response.headers(), &self.call);
        response.map(|body| Body::new(RecordedBody { body, entry: self }))
    }

    /// Counts bytes of the response's messages, for a call without a response body.
    pub(super) fn sent(&mut self, bytes: u64) {
        self.bytes += bytes;
    }

    /// Ends a call without a response body.
    pub(super) fn end(mut self, status: &Status) {
        self.end = Some(CallEnd::of(status, &self.call));
    }

    fn write(&self, end: &CallEnd, facts: &CallFacts) {
        // A stream that was interrupted is no refusal.
        let is_refused = end.error.is_some() && facts.batches.is_none();
        if is_refused && !refusal_sample::admits(facts.source()) {
            return;
        }
        let _in_call = self.call.span.enter();
        let method = self.call.method;
        let call = facts.action.map_or_else(|| method.to_owned(), |action| format!("{method}/{action}"));
        let (reason, error) = end.error.as_ref().map(|(reason, text)| (reason.as_str_name(), text.as_str())).unzip();
        let seconds = |stage: Stage| facts.stage_seconds.map(|seconds| seconds[stage as usize]);
        macro_rules! line {
            ($level:ident) => {
                tracing::$level!(
                    target: ACCESS,
                    principal = &*facts.principal,
                    peer = facts.peer,
                    call,
                    dataset = facts.dataset.as_deref(),
                    plan_id = facts.plan_id.as_deref(),
                    rank = facts.rank.map(signed),
                    epoch = facts.epoch.map(signed),
                    position = facts.position.map(signed),
                    batches = facts.batches.map(signed),
                    rows = facts.rows.map(signed),
                    bytes = signed(self.bytes),
                    seconds = self.call.received.elapsed().as_secs_f64(),
                    fetch_seconds = seconds(Stage::Fetch),
                    queue_seconds = seconds(Stage::Queue),
                    decode_seconds = seconds(Stage::Decode),
                    transform_seconds = seconds(Stage::Transform),
                    udf_seconds = seconds(Stage::Udf),
                    assemble_seconds = seconds(Stage::Assemble),
                    send_wait_seconds = seconds(Stage::SendWait),
                    code = name_of(end.code),
                    reason,
                    error,
                    "call ended"
                )
            };
        }
        // Probes check the health every few seconds.
        if self.call.is_health_check && end.error.is_none() { line!(debug) } else { line!(info) }
    }
}

impl Drop for AccessEntry {
    fn drop(&mut self) {
        let end = self.end.take().unwrap_or_else(|| CallEnd::cut(self.shutdown.phase()));
        self.call.note(|facts| {
            self.write(&end, facts);
            if let Some((reason, text)) = &end.error
                && *reason != Reason::Cancelled
            {
                let error = (reason.as_str_name(), text.as_str());
                let dataset = facts.dataset.as_deref();
                metrics::refused(FailedCall::now(self.call.method, dataset, &facts.principal_label, error));
            }
        });
    }
}

// === impl CallEnd ===

impl CallEnd {
    /// The status in headers or trailers, if they have one.
    fn in_headers(headers: &HeaderMap, call: &Call) -> Option<Self> {
        Status::from_header_map(headers).map(|status| Self::of(&status, call))
    }

    fn of(status: &Status, call: &Call) -> Self {
        let error = (status.code() != Code::Ok).then(|| {
            let (reason, text) = status::reason_of(status);
            (reason, truncated(call.without_id(text), ERROR_LENGTH_MAX).unwrap_or_default())
        });
        Self { code: status.code(), error }
    }

    /// The end of a call that was dropped before its status was sent.
    fn cut(phase: Phase) -> Self {
        if phase >= Phase::Ended {
            return Self::failed(Code::Unavailable, Reason::ShuttingDown, "the server has shut down");
        }
        Self::failed(Code::Cancelled, Reason::Cancelled, "the client cancelled the call or disconnected")
    }

    fn failed(code: Code, reason: Reason, text: &str) -> Self {
        Self { code, error: Some((reason, text.to_owned())) }
    }
}

impl ResponseBody for RecordedBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        if let Some(Ok(frame)) = &frame {
            if let Some(data) = frame.data_ref() {
                self.entry.bytes += data.len() as u64;
            } else if let Some(trailers) = frame.trailers_ref() {
                self.entry.end = CallEnd::in_headers(trailers, &self.entry.call);
            }
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Traces have no unsigned numbers.
fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_without_a_status_was_cancelled_or_cut() {
        let reason = |phase| CallEnd::cut(phase).error.map(|(reason, _)| reason);
        assert_eq!(reason(Phase::Serving), Some(Reason::Cancelled));
        assert_eq!(reason(Phase::Draining), Some(Reason::Cancelled));
        assert_eq!(reason(Phase::Ended), Some(Reason::ShuttingDown));
    }

    #[test]
    fn errors_have_the_reason_of_their_status() {
        let mut trailers = HeaderMap::new();
        let call = Call::new("DoGet", None);
        let status = call.error(&status::refusal(Reason::NotFitted, "fit it"));
        status.add_header(&mut trailers).unwrap();
        let end = CallEnd::in_headers(&trailers, &call).unwrap();
        assert_eq!((end.code, end.error), (Code::FailedPrecondition, Some((Reason::NotFitted, "fit it".to_owned()))));
        assert!(CallEnd::in_headers(&HeaderMap::new(), &call).is_none());
    }
}
