//! The access log: one line for each call at its end, also for calls that are refused or cancelled.
//!
//! The router begins an entry and hands it to the body of the response, whose end or drop ends the call; the ring keeps
//! it until it sends the status. The modules of `rpc` add what they learn from the request (`Call::note`). The log escapes
//! control characters in texts of clients, and `refusal_sample` leaves out most lines of a client that is refused often.
//!
//! A line has the text of an error only if that has no value of a row and no text of the request, or at level debug.

use std::{
    borrow::Cow,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use forebay_proto::v1::Reason;
use forebay_runtime::{
    error::Disclosure,
    log::ACCESS,
    metrics::{self, FailedCall, Stage},
    shutdown::{Phase, Registered, ShutdownWatch},
    tenant::Tenant,
};
use hyper::{
    HeaderMap, Response,
    body::{Body as ResponseBody, Frame, SizeHint},
};
use tonic::{Code, Status, body::Body};
use tracing::Level;

use super::{
    call::{Call, name_of},
    call_facts::{CallFacts, truncated},
    call_memory::RequestMemory,
    refusal_sample, status,
};
use crate::auth::Peer;

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
    /// Whom the body of the response works for.
    tenant: Tenant,
    /// Released when the call has ended.
    memory: Option<RequestMemory>,
}

/// How a call ended.
#[derive(Debug)]
struct CallEnd {
    code: Code,
    error: Option<CallError>,
}

/// Why a call ended.
#[derive(Debug, PartialEq, Eq)]
struct CallError {
    reason: Reason,
    /// The text for the caller.
    text: String,
    /// What of it others may see.
    disclosure: Disclosure,
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
        Self { call, shutdown, bytes: 0, end: None, running: None, tenant: Tenant::current(), memory: None }
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
    pub(super) fn until_end_of(mut self, mut response: Response<Body>) -> Response<Body> {
        self.end = CallEnd::in_headers(response.headers(), &self.call);
        response.headers_mut().remove(status::DISCLOSURE);
        response.map(|body| Body::new(RecordedBody { body, entry: self }))
    }

    /// Accounts the rest of the call to a caller.
    pub(super) fn set_tenant(&mut self, tenant: Tenant) {
        self.tenant = tenant;
    }

    /// Whom the call works for.
    pub(super) fn tenant(&self) -> &Tenant {
        &self.tenant
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
        // A stream that was interrupted is not a refusal.
        let is_refused = end.error.is_some() && facts.batches.is_none();
        if is_refused && !refusal_sample::admits(facts.source()) {
            return;
        }
        let _in_call = self.call.span.enter();
        let method = self.call.method;
        let call = facts.action.map_or_else(|| method.to_owned(), |action| format!("{method}/{action}"));
        let is_debug = tracing::enabled!(target: ACCESS, Level::DEBUG);
        let (reason, error) =
            end.error.as_ref().map(|error| (error.reason.as_str_name(), error.shown(is_debug))).unzip();
        let error = error.as_deref();
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
            if let Some(CallError { reason, disclosure, .. }) = &end.error
                && *reason != Reason::Cancelled
            {
                let dataset = facts.dataset.as_deref();
                let failed = FailedCall::now(self.call.method, dataset, &facts.principal_label, *reason);
                metrics::refused(FailedCall { column: disclosure.column.clone(), ..failed });
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
            let text = truncated(call.without_id(text), ERROR_LENGTH_MAX).unwrap_or_default();
            CallError { reason, text, disclosure: status::disclosure_of(status) }
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
        Self { code, error: Some(CallError { reason, text: text.to_owned(), disclosure: Disclosure::plain() }) }
    }
}

impl CallError {
    /// The text for the log: at level debug, that for the caller.
    fn shown(&self, is_debug: bool) -> Cow<'_, str> {
        if self.disclosure.is_plain || is_debug {
            return self.text.as_str().into();
        }
        let meaning = self.reason.meaning();
        match &self.disclosure.column {
            Some(column) => format!("{meaning} (column \"{column}\"; the caller has the details)").into(),
            None => format!("{meaning} (the caller has the details)").into(),
        }
    }
}

impl ResponseBody for RecordedBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let Self { body, entry } = &mut *self;
        let mut frame = ready!(entry.tenant.run(|| Pin::new(body).poll_frame(context)));
        if let Some(Ok(frame)) = &mut frame {
            if let Some(data) = frame.data_ref() {
                self.entry.bytes += data.len() as u64;
            } else if let Some(trailers) = frame.trailers_mut() {
                self.entry.end = CallEnd::in_headers(trailers, &self.entry.call);
                trailers.remove(status::DISCLOSURE);
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
        let reason = |phase| CallEnd::cut(phase).error.map(|error| error.reason);
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
        let error = end.error.unwrap();
        assert_eq!((end.code, error.reason, &*error.text), (Code::FailedPrecondition, Reason::NotFitted, "fit it"));
        assert!(CallEnd::in_headers(&HeaderMap::new(), &call).is_none());
    }

    #[test]
    fn texts_with_values_are_shown_at_level_debug_only() {
        let error = |disclosure: Disclosure| {
            let (reason, text) = (Reason::InvalidValue, "card 4111".to_owned());
            CallError { reason, text, disclosure }
        };
        let hidden = error(Disclosure::hidden().of_column("card"));
        assert_eq!(hidden.shown(true), "card 4111");
        assert!(!hidden.shown(false).contains("4111") && hidden.shown(false).contains("column \"card\""));
        assert_eq!(error(Disclosure::plain()).shown(false), "card 4111");
    }
}
