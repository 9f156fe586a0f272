//! One call: its id, which is in every log line and stream error, what is known about it, and the code of its response.

use std::{
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Instant, SystemTime, UNIX_EPOCH},
};

use forebay_runtime::{log, metrics::CALLS};
use hyper::{HeaderMap, Request, Response, header::HeaderValue};
use tonic::{Code, Status};
use tracing::{Span, field::Empty};

use super::{call_facts::CallFacts, status};

/// The header with the id of a call. A client may send its own; the response returns it.
const REQUEST_ID: &str = "x-request-id";

/// Start of the paths of gRPC's health service.
pub(super) const HEALTH: &str = "/grpc.health.v1.Health/";

/// The longest id that a client may send.
const ID_BYTES_MAX: usize = 64;

/// A call in progress. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Call {
    /// Unique in this process, unless the client chose it.
    pub id: Arc<str>,
    /// The method's name, or "other".
    pub method: &'static str,
    /// The time of its arrival.
    pub received: Instant,
    /// The span of its log lines.
    pub span: Span,
    /// Whether it is a call of the health service.
    pub is_health_check: bool,
    facts: Arc<Mutex<CallFacts>>,
}

impl Call {
    pub(super) fn of<B>(request: &Request<B>) -> Self {
        let named = request.uri().path().rsplit('/').next().unwrap_or_default();
        let method = CALLS.into_iter().find(|method| *method == named).unwrap_or("other");
        let is_health_check = request.uri().path().starts_with(HEALTH);
        let call = Self { is_health_check, ..Self::new(method, client_id(request.headers())) };
        log::join(&call.span, method, |name| Some(request.headers().get(name)?.to_str().ok()?.to_owned()));
        call
    }

    pub(super) fn new(method: &'static str, client_id: Option<Arc<str>>) -> Self {
        let id = client_id.unwrap_or_else(next_id);
        // `log::join` fills in the empty fields.
        let span = tracing::info_span!(
            "call",
            request = %id,
            method,
            trace_id = Empty,
            otel.name = Empty,
            otel.kind = Empty
        );
        Self { id, method, received: Instant::now(), span, is_health_check: false, facts: Arc::default() }
    }

    /// Adds facts for the call's line in the access log.
    pub(super) fn note(&self, add: impl FnOnce(&mut CallFacts)) {
        add(&mut self.facts.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Adds the id to a response.
    pub(super) fn add_id<B>(&self, response: &mut Response<B>) {
        if let Ok(id) = HeaderValue::from_str(&self.id) {
            response.headers_mut().insert(REQUEST_ID, id);
        }
    }

    /// The error with the id in its message, because clients show the message but not the headers.
    pub(super) fn error(&self, status: &Status) -> Status {
        status::reworded(status, |text| format!("{text}{}", self.id_note()))
    }

    /// A message without the id that [`Self::error`] adds.
    pub(super) fn without_id<'a>(&self, message: &'a str) -> &'a str {
        message.strip_suffix(&self.id_note()).unwrap_or(message)
    }

    fn id_note(&self) -> String {
        format!(" [request {}]", self.id)
    }
}

/// The id that the client sent, if it is safe in logs and metric labels.
fn client_id(headers: &HeaderMap) -> Option<Arc<str>> {
    let id = headers.get(REQUEST_ID)?.to_str().ok()?;
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    (!id.is_empty() && id.len() <= ID_BYTES_MAX && id.bytes().all(fits)).then(|| id.into())
}

/// An id that is unique in this process, and most likely among processes.
fn next_id() -> Arc<str> {
    static STARTED: OnceLock<u64> = OnceLock::new();
    static NUMBER: AtomicU64 = AtomicU64::new(1);
    let since = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
    let started = STARTED.get_or_init(since);
    format!("{:x}-{}", started & 0xff_ffff_ffff, NUMBER.fetch_add(1, Ordering::Relaxed)).into()
}

/// The name of the code in a response's headers. OK, if the code follows in the trailers.
pub(super) fn code_name<B>(response: &Response<B>) -> &'static str {
    name_of(response.headers().get("grpc-status").map_or(Code::Ok, |code| Code::from_bytes(code.as_bytes())))
}

/// The name of a code.
pub(super) fn name_of(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "CANCELLED",
        Code::Unknown => "UNKNOWN",
        Code::InvalidArgument => "INVALID_ARGUMENT",
        Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
        Code::NotFound => "NOT_FOUND",
        Code::AlreadyExists => "ALREADY_EXISTS",
        Code::PermissionDenied => "PERMISSION_DENIED",
        Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Code::FailedPrecondition => "FAILED_PRECONDITION",
        Code::Aborted => "ABORTED",
        Code::OutOfRange => "OUT_OF_RANGE",
        Code::Unimplemented => "UNIMPLEMENTED",
        Code::Internal => "INTERNAL",
        Code::Unavailable => "UNAVAILABLE",
        Code::DataLoss => "DATA_LOSS",
        Code::Unauthenticated => "UNAUTHENTICATED",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(path: &str, id: Option<&[u8]>) -> Call {
        let mut request = Request::builder().uri(path).body(()).unwrap();
        if let Some(id) = id {
            request.headers_mut().insert(REQUEST_ID, HeaderValue::from_bytes(id).unwrap());
        }
        Call::of(&request)
    }

    #[test]
    fn accepts_safe_ids_of_clients() {
        assert_eq!(&*call("/a/DoGet", Some(b"job-7.step_3")).id, "job-7.step_3");
        let odd: [&[u8]; 4] = [b"", b"a b", "ä".as_bytes(), &[b'a'; 65]];
        for id in odd {
            assert_ne!(call("/a/DoGet", Some(id)).id.as_bytes(), id);
        }
        assert_ne!(call("/a/DoGet", None).id, call("/a/DoGet", None).id);
    }

    #[test]
    fn groups_unknown_methods() {
        assert_eq!(call("/arrow.flight.protocol.FlightService/DoGet", None).method, "DoGet");
        assert_eq!(call("/x/y\"z", None).method, "other");
        assert_eq!(call("/", None).method, "other");
    }

    #[test]
    fn adds_the_id_to_an_error() {
        let error = call("/a/DoGet", Some(b"q1")).error(&Status::not_found("no such thing"));
        assert_eq!((error.code(), error.message()), (Code::NotFound, "UNKNOWN_DATASET: no such thing [request q1]"));
    }
}
