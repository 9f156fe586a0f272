//! Reasons for which a call ends early.

use std::error::Error;

/// Why a call ended before its stream was complete.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReceiveError {
    /// The server ended the call with an error.
    #[error("{message}")]
    Status {
        /// gRPC's code.
        code: i32,
        /// The server's message.
        message: String,
    },
    /// The server sent something other than Flight messages.
    #[error("malformed message: {0}")]
    Malformed(String),
    /// There is no connection to a Flight server.
    #[error("{0}")]
    Unreached(String),
    /// The connection broke during the call.
    #[error("{0}")]
    Lost(String),
    /// The certificates or headers cannot be used.
    #[error("{0}")]
    Options(String),
    /// The reader closed the call.
    #[error("the call was closed")]
    Closed,
}

impl ReceiveError {
    /// A failed connection.
    pub(crate) fn unreached(error: &(dyn Error + 'static)) -> Self {
        Self::Unreached(root_cause(error))
    }

    /// A broken connection. TLS 1.3 rejects a client's certificate after the handshake.
    pub(crate) fn lost(error: &(dyn Error + 'static)) -> Self {
        let cause = root_cause(error);
        if cause.starts_with("received fatal alert") { Self::Unreached(cause) } else { Self::Lost(cause) }
    }

    /// A message that is not a `FlightData` of gRPC.
    pub(crate) fn malformed(what: impl Into<String>) -> Self {
        Self::Malformed(what.into())
    }
}

/// The message of the innermost source of an error.
fn root_cause(error: &(dyn Error + 'static)) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn a_rejected_certificate_is_no_connection_that_broke() {
        let alert = io::Error::other(io::Error::other("received fatal alert: CertificateRequired"));
        assert_eq!(
            ReceiveError::lost(&alert),
            ReceiveError::Unreached("received fatal alert: CertificateRequired".to_owned())
        );
        let reset = io::Error::other(io::Error::other("connection reset"));
        assert_eq!(ReceiveError::lost(&reset), ReceiveError::Lost("connection reset".to_owned()));
    }
}
