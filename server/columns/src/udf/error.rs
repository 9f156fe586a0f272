//! Errors of calls, worded for the author of the function and for the operator of its processes.

use std::{io, path::PathBuf, time::Duration};

use forebay_runtime::{budget::BudgetError, cpu_pool::CpuError};

/// Why a function has no result.
#[derive(Debug, thiserror::Error)]
pub enum UdfError {
    /// The server has no such function.
    #[error("no function \"{name}\": {near}; the operator of the server adds one with --udf NAME=unix:PATH")]
    Unknown {
        /// The name.
        name: String,
        /// Names to suggest.
        near: String,
    },
    /// Nothing listens on the socket.
    #[error(
        "function \"{name}\": nothing serves it on unix:{} ({source}): start python -m forebay.udf MODULE:{name} --listen \
         unix:{0}",
        .path.display()
    )]
    Unreachable {
        /// The function.
        name: String,
        /// The socket.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The call took too long.
    #[error("function \"{name}\" did not return within {} s (--udf-timeout-seconds): its process is ended", .limit.as_secs())]
    TimedOut {
        /// The function.
        name: String,
        /// The limit.
        limit: Duration,
    },
    /// The function raised an exception.
    #[error("function \"{name}\" raised an exception: {traceback}")]
    Raised {
        /// The function.
        name: String,
        /// The end of its traceback.
        traceback: String,
    },
    /// Its process ended during the call.
    #[error("function \"{name}\": {reason}; other streams continue, and another process takes its place")]
    Died {
        /// The function.
        name: String,
        /// How it ended.
        reason: String,
    },
    /// The result contradicts the declaration of the function.
    #[error("function \"{name}\": {reason}")]
    Result {
        /// The function.
        name: String,
        /// The contradiction, and what to do.
        reason: String,
    },
    /// The function is another one than the plan names.
    #[error(
        "function \"{name}\" has changed: the plan was made with digest {expected}, and {found}: restart its processes with \
         the earlier source, or fit the plan again"
    )]
    Changed {
        /// The function.
        name: String,
        /// The digest in the plan.
        expected: String,
        /// What its process reports.
        found: String,
    },
    /// The process does not use the protocol.
    #[error("function \"{name}\": unix:{} does not answer as python -m forebay.udf does: {reason}", .path.display())]
    Protocol {
        /// The function.
        name: String,
        /// The socket.
        path: PathBuf,
        /// The contradiction.
        reason: String,
    },
    /// A call or a result is larger than a frame.
    #[error(
        "function \"{name}\": {what} has {bytes} bytes, the limit is {limit}: use smaller row groups, or return less per row"
    )]
    TooLarge {
        /// The function.
        name: String,
        /// The call or the result.
        what: &'static str,
        /// Its size.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
    /// The memory budget has no room for the result.
    #[error("function \"{name}\": its result {source}")]
    Memory {
        /// The function.
        name: String,
        /// The numbers.
        source: BudgetError,
    },
    /// Encoding or decoding on the CPU pool ended without a result.
    #[error(transparent)]
    Cpu(#[from] CpuError),
}

impl UdfError {
    /// The label `status` of the metric of calls.
    pub(super) fn status(&self) -> &'static str {
        match self {
            Self::Raised { .. } | Self::Result { .. } => "failed",
            Self::Died { .. } => "died",
            Self::TimedOut { .. } => "timeout",
            Self::Unknown { .. } | Self::Unreachable { .. } => "unreachable",
            Self::Changed { .. } | Self::Protocol { .. } => "refused",
            Self::TooLarge { .. } | Self::Memory { .. } | Self::Cpu(_) => "limit",
        }
    }
}
