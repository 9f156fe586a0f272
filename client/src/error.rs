//! Errors of the client library.

use arrow::error::ArrowError;
use arrow_flight::error::FlightError;
use forebay_proto::{
    protocol::{PROTOCOL_OLDEST, VERSION},
    v1::Reason,
};
use tonic::{Code, Status};

use crate::{
    CursorError,
    handshake::{Mismatch, root_cause},
};

/// Result of a call.
pub type Result<T> = std::result::Result<T, Error>;

/// Error of a call. Messages do not repeat their source.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Unsupported server URL.
    #[error("invalid server URL {url:?}: {reason}")]
    Url {
        /// The URL as given.
        url: String,
        /// What is wrong, and the allowed forms.
        reason: String,
    },

    /// Token that no header can carry.
    #[error("the token is empty or has characters that a header cannot carry")]
    Token,

    /// The server cannot be reached.
    #[error("cannot reach {url}; is forebay-server running? start it with `forebay-server --dataset NAME=URL`")]
    Unreachable {
        /// The server's URL.
        url: String,
        /// The transport's error.
        source: tonic::transport::Error,
    },

    /// Client and server disagree on TLS or on certificates.
    #[error("cannot connect to {url}: {mismatch}")]
    Handshake {
        /// The server's URL.
        url: String,
        /// What they disagree on.
        mismatch: Mismatch,
    },

    /// The server's protocol is older than those that this client supports. A newer server refuses this client, with
    /// the reason `INCOMPATIBLE_VERSION`.
    #[error(
        "{url} is forebay-server {server}, which supports protocol {protocol}, and this client, forebay {VERSION}, \
         needs protocol {PROTOCOL_OLDEST}: upgrade the server, or use the client of its version"
    )]
    IncompatibleVersion {
        /// The server's URL.
        url: String,
        /// The server's version.
        server: String,
        /// The newest protocol that it supports.
        protocol: u32,
    },

    /// The connection broke during a call.
    #[error("lost the connection to {url}: {}", lost(url, status))]
    Disconnected {
        /// The server's URL.
        url: String,
        /// The transport's error.
        status: Box<Status>,
    },

    /// Error status from the server.
    #[error("{}", status_text(.0))]
    Status(Box<Status>),

    /// Malformed message from the server.
    #[error("malformed {what} from the server")]
    Message {
        /// The message.
        what: &'static str,
        /// The decoding error.
        source: forebay_proto::DecodeError,
    },

    /// The server's response lacks a required part.
    #[error("the server's response to {call} has no {missing}")]
    Incomplete {
        /// The call.
        call: &'static str,
        /// The missing part.
        missing: &'static str,
    },

    /// Malformed Arrow schema from the server.
    #[error("cannot decode the server's schema")]
    Schema(#[source] ArrowError),

    /// Malformed Arrow data from the server.
    #[error("cannot decode the server's stream")]
    Data(#[source] Box<FlightError>),

    /// A batch contradicts its header, or batches are missing or out of order.
    #[error("step {step}: {reason}")]
    Header {
        /// Step in the header, or the expected step if there is no header.
        step: u64,
        /// The mismatch.
        reason: HeaderError,
    },

    /// The stream ended before the batch marked as the last.
    #[error("the stream ended after {batches} batches, before its last one; resume at step {next_step}")]
    Truncated {
        /// Batches read.
        batches: u64,
        /// First missing step.
        next_step: u64,
    },

    /// Malformed plan.
    #[error("not a plan")]
    Plan(#[source] forebay_proto::DecodeError),

    /// Invalid file of a fit's result.
    #[error("invalid fit result: {0}")]
    FitResult(String),

    /// The request cannot resume from the cursor.
    #[error(transparent)]
    Cursor(#[from] CursorError),

    /// Rank outside the world size.
    #[error("rank {rank} is out of range: the epoch has {world_size} ranks, counted from 0")]
    Rank {
        /// Requested rank.
        rank: u64,
        /// Ranks of the epoch.
        world_size: u64,
    },

    /// No replica served the next batch within the retry limits.
    #[error("gave up after {tries} tries: {replicas}; resume at start_position {position}")]
    GaveUp {
        /// Failed calls and streams since the last batch.
        tries: u32,
        /// Each replica's URL and its latest error.
        replicas: String,
        /// Global position of the first missing batch.
        position: u64,
        /// The last error.
        source: Box<Self>,
    },
}

/// Mismatch between a batch, its header and the preceding batches.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// Missing header.
    #[error("the batch has no header")]
    Missing,
    /// Batch after the last one.
    #[error("a batch follows the last one")]
    AfterLast,
    /// Epoch that differs from the preceding batch's.
    #[error("expected epoch {expected}, found {found}")]
    Epoch {
        /// Epoch of the first batch.
        expected: u64,
        /// Epoch of this one.
        found: u64,
    },
    /// Skipped or repeated step.
    #[error("expected step {expected}")]
    Step {
        /// The preceding batch's step plus one.
        expected: u64,
    },
    /// Position that does not continue the stream.
    #[error("expected position {expected}, found {found}")]
    Position {
        /// Global position after the preceding batch.
        expected: u64,
        /// Position in the header.
        found: u64,
    },
    /// Row count that differs from the batch's.
    #[error("the header counts {header} rows, the batch has {batch}")]
    Rows {
        /// Rows according to the header.
        header: u64,
        /// Rows in the batch.
        batch: u64,
    },
    /// More padding rows than rows.
    #[error("the header counts {padding_rows} padding rows among {rows} rows")]
    Padding {
        /// Padding rows according to the header.
        padding_rows: u64,
        /// Rows according to the header.
        rows: u64,
    },
    /// Body that differs from the one the server sent.
    #[error("the checksum of the body is {found:016x}, expected {expected:016x}: the batch was corrupted in transit")]
    Checksum {
        /// XXH3-64 in the header.
        expected: u64,
        /// XXH3-64 of the received body.
        found: u64,
    },
}

impl Error {
    /// The gRPC code of an error status from the server.
    pub fn code(&self) -> Option<Code> {
        match self {
            Self::Status(status) => Some(status.code()),
            _ => None,
        }
    }

    /// The reason of an error status from the server. Messages may change between versions, reasons do not.
    pub fn reason(&self) -> Reason {
        match self {
            Self::Status(status) => Reason::split(status.message()).0,
            Self::IncompatibleVersion { .. } => Reason::IncompatibleVersion,
            _ => Reason::Unspecified,
        }
    }

    /// Converts a failed call: a status made by the transport means that the connection broke.
    pub(crate) fn from_status(status: Status, url: &str) -> Self {
        // tonic's error for a stream that closed within a message; it has no source.
        let is_cut = status.code() == Code::Internal && status.message() == "Unexpected EOF decoding stream.";
        if is_cut || std::error::Error::source(&status).is_some() {
            match Mismatch::of(&status, url) {
                Some(mismatch) => Self::Handshake { url: url.to_owned(), mismatch },
                None => Self::Disconnected { url: url.to_owned(), status: Box::new(status) },
            }
        } else {
            Self::Status(Box::new(status))
        }
    }

    /// The message without the server's URL, for a list of servers.
    pub(crate) fn brief(&self) -> String {
        match self {
            Self::Unreachable { source, .. } => root_cause(source),
            Self::Handshake { mismatch, .. } => mismatch.to_string(),
            Self::Disconnected { url, status } => format!("lost the connection: {}", lost(url, status)),
            other => other.to_string(),
        }
    }
}

/// Why a connection broke. TLS 1.3 rejects a client without a certificate after its handshake, and the alert may arrive
/// after the end of the connection.
fn lost(url: &str, status: &Status) -> String {
    let cause = root_cause(status);
    let is_closed = ["connection closed", "broken pipe", "reset by peer"].iter().any(|text| cause.contains(text));
    if is_closed && url.starts_with("grpc+tls") {
        return cause + "; if the server requires client certificates, give --cert FILE and --key FILE";
    }
    cause
}

/// The code and the message of a status, and how to give credentials if it requires them.
fn status_text(status: &Status) -> String {
    let code = code_name(status.code());
    // A reason may have the name of its code.
    let message = status.message().strip_prefix(code).and_then(|rest| rest.strip_prefix(": "));
    let text = format!("{code}: {}", message.unwrap_or(status.message()));
    if status.code() == Code::Unauthenticated {
        return text + "; give a token with --token-file FILE or FOREBAY_TOKEN_FILE (Credentials::with_token)";
    }
    text
}

/// Name of a status code in the gRPC specification, such as `INVALID_ARGUMENT`.
pub fn code_name(code: Code) -> &'static str {
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

    #[test]
    fn a_status_names_its_code_once_and_how_to_give_a_token() {
        let text = |code, message: &str| Error::Status(Box::new(Status::new(code, message))).to_string();
        assert_eq!(text(Code::NotFound, "UNKNOWN_PLAN: no plan"), "NOT_FOUND: UNKNOWN_PLAN: no plan");
        assert_eq!(text(Code::PermissionDenied, "PERMISSION_DENIED: no"), "PERMISSION_DENIED: no");
        let refused = text(Code::Unauthenticated, "UNAUTHENTICATED: unknown token");
        assert!(
            refused.starts_with("UNAUTHENTICATED: unknown token; give a token with --token-file FILE"),
            "{refused}"
        );
    }
}
