//! Why the client could not do what it was asked.

use arrow::error::ArrowError;
use arrow_flight::error::FlightError;
use forebay_proto::v1::Reason;
use tonic::{Code, Status};

use crate::CursorError;

/// The outcome of a call.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a call failed. The source of each error, where there is one, is not repeated in its message.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server's URL is not one that this client can use.
    #[error("{url:?} is no server to connect to: {reason}")]
    Url {
        /// The URL as it was given.
        url: String,
        /// What is wrong, and what is allowed.
        reason: String,
    },

    /// A token that cannot be sent.
    #[error("the token is empty, or has letters that no header can carry")]
    Token,

    /// Nothing answers at the URL.
    #[error("cannot reach {url}; is forebay-server running? start it with `forebay-server --dataset NAME=URL`")]
    Unreachable {
        /// The server's URL.
        url: String,
        /// What the transport says.
        source: tonic::transport::Error,
    },

    /// The connection broke while a call was under way.
    #[error("lost the connection to {url}: {}", status.message())]
    Disconnected {
        /// The server's URL.
        url: String,
        /// What the transport says.
        status: Box<Status>,
    },

    /// The server answered with an error: its code and its words.
    #[error("{}: {}", code_name(.0.code()), .0.message())]
    Status(Box<Status>),

    /// The server's bytes are not the message that the call promises.
    #[error("{what} from the server")]
    Message {
        /// Which field of which call.
        what: &'static str,
        /// What is wrong with it.
        source: forebay_proto::DecodeError,
    },

    /// The server's answer lacks something that the call promises.
    #[error("the server's answer to {call} has no {missing}")]
    Incomplete {
        /// The call.
        call: &'static str,
        /// What is missing.
        missing: &'static str,
    },

    /// The server's bytes are not an Arrow schema.
    #[error("the schema from the server cannot be read")]
    Schema(#[source] ArrowError),

    /// The server's bytes are not Arrow data.
    #[error("the stream from the server cannot be decoded")]
    Data(#[source] Box<FlightError>),

    /// A batch and its header do not agree, or batches are missing or out of order.
    #[error("step {step}: {reason}")]
    Header {
        /// The step that the header names; the expected one where there is no header.
        step: u64,
        /// What does not agree.
        reason: HeaderError,
    },

    /// The stream ended without the batch that says it is the last.
    #[error("the stream ended after {batches} batches without its last one; resume at step {next_step}")]
    Truncated {
        /// Batches that were read.
        batches: u64,
        /// The first step that is missing.
        next_step: u64,
    },

    /// A plan's text is not a plan.
    #[error("not a plan")]
    Plan(#[source] forebay_proto::DecodeError),

    /// A file of a fit's result cannot be trusted to be that result.
    #[error("not a fit's result to go by: {0}")]
    FitResult(String),

    /// A cursor is not one that the request can go on from.
    #[error(transparent)]
    Cursor(#[from] CursorError),

    /// The epoch has no such rank.
    #[error("rank {rank} is none of the {world_size} ranks, which are counted from 0")]
    Rank {
        /// The rank that was asked for.
        rank: u64,
        /// Ranks of the epoch.
        world_size: u64,
    },

    /// No replica gave the next batch, however often they were asked.
    #[error("gave up after {tries} tries: {replicas}; resume at start_position {position}")]
    GaveUp {
        /// Calls and streams that failed since the last batch.
        tries: u32,
        /// Each replica's URL and what was wrong with it at last.
        replicas: String,
        /// Global position of the first batch that is missing.
        position: u64,
        /// The last trouble.
        source: Box<Self>,
    },
}

/// What does not agree between a batch, its header and the batches before it.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// The batch carries no header.
    #[error("the batch has no header")]
    Missing,
    /// The batch follows one that said it was the last.
    #[error("a batch follows the last one")]
    AfterLast,
    /// The batch belongs to another epoch than the one before it.
    #[error("the batch is of epoch {found}, the stream of epoch {expected}")]
    Epoch {
        /// Epoch of the first batch.
        expected: u64,
        /// Epoch of this one.
        found: u64,
    },
    /// A step was left out or sent twice.
    #[error("expected step {expected}")]
    Step {
        /// The step that follows the one before.
        expected: u64,
    },
    /// The batch begins elsewhere than the stream has come to.
    #[error("expected position {expected}, the header says {found}")]
    Position {
        /// Global position behind the batch before.
        expected: u64,
        /// Position by the header.
        found: u64,
    },
    /// The header counts other rows than the batch has.
    #[error("the header says {header} rows, the batch has {batch}")]
    Rows {
        /// Rows by the header.
        header: u64,
        /// Rows of the batch.
        batch: u64,
    },
    /// More rows are said to repeat others than there are rows.
    #[error("{padding_rows} of {rows} rows are said to be padding")]
    Padding {
        /// Padding by the header.
        padding_rows: u64,
        /// Rows by the header.
        rows: u64,
    },
    /// The body is not the one that the server sent.
    #[error(
        "the checksum of the body is {found:016x}, the header says {expected:016x}: the batch was damaged on its way"
    )]
    Checksum {
        /// XXH3-64 by the header.
        expected: u64,
        /// XXH3-64 of the body as received.
        found: u64,
    },
}

impl Error {
    /// The gRPC status code when the server answered with an error.
    pub fn code(&self) -> Option<Code> {
        match self {
            Self::Status(status) => Some(status.code()),
            _ => None,
        }
    }

    /// The server's reason when it answered with an error; messages may be reworded between versions, reasons stay.
    pub fn reason(&self) -> Reason {
        match self {
            Self::Status(status) => Reason::split(status.message()).0,
            _ => Reason::Unspecified,
        }
    }

    /// A failed call: the server's own status is kept, one that the transport made up says that the connection broke.
    pub(crate) fn from_status(status: Status, url: &str) -> Self {
        // What tonic says of a stream that was closed in the middle of a message, without a source.
        let is_cut = status.code() == Code::Internal && status.message() == "Unexpected EOF decoding stream.";
        if is_cut || std::error::Error::source(&status).is_some() {
            Self::Disconnected { url: url.to_owned(), status: Box::new(status) }
        } else {
            Self::Status(Box::new(status))
        }
    }
}

/// The name that gRPC's documents give a status code: `INVALID_ARGUMENT`.
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
