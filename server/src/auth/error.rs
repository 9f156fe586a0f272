//! Errors of credential files, and refusals of calls.

use std::{io, path::PathBuf, sync::Arc};

/// A file of principals, certificates or keys that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum AuthError {
    /// The file cannot be read.
    #[error("cannot read \"{}\": {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The content is invalid.
    #[error("\"{}\": {reason}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// The mistake, without any secret of the file.
        reason: String,
    },
}

/// The reason why a call is refused.
#[derive(Clone, Debug, thiserror::Error)]
pub enum AccessError {
    /// The call has no credentials.
    #[error(
        "this server requires credentials: send the header \"authorization: Bearer TOKEN\" with every call{}",
        if *.with_certificates { ", or use a client certificate named in --principals" } else { "" }
    )]
    Anonymous {
        /// Whether a client certificate would be accepted.
        with_certificates: bool,
    },
    /// The header is not a bearer token.
    #[error("the header \"authorization\" must be \"Bearer\" followed by a token")]
    Scheme,
    /// No principal has the token.
    #[error("unknown token: no principal of this server has it; it may have been revoked")]
    UnknownToken,
    /// No principal has a name of the certificate.
    #[error("unknown client certificate: no principal of this server has one of its names")]
    UnknownCertificate,
    /// The principal exceeds its limit of calls.
    #[error(
        "{name} exceeds {calls_per_second} calls per second (calls_per_second in --principals): try again in {retry_ms} ms"
    )]
    Rate {
        /// The principal.
        name: Arc<str>,
        /// Its limit.
        calls_per_second: f64,
        /// Milliseconds until the next call is allowed.
        retry_ms: u64,
    },
    /// A limit of open streams is reached.
    #[error("{open} streams {whose} are open, the limit is {limit} ({flag}): end one, or try again in {retry_ms} ms")]
    Streams {
        /// Open streams.
        open: usize,
        /// The caller or the server that the limit applies to.
        whose: String,
        /// The limit.
        limit: usize,
        /// The setting of the limit.
        flag: &'static str,
        /// Milliseconds after which to retry.
        retry_ms: u64,
    },
}

impl AccessError {
    /// Returns the principal that a call is refused to, if its credentials are valid.
    pub fn principal(&self) -> Option<&Arc<str>> {
        match self {
            Self::Rate { name, .. } => Some(name),
            Self::Anonymous { .. }
            | Self::Scheme
            | Self::UnknownToken
            | Self::UnknownCertificate
            | Self::Streams { .. } => None,
        }
    }
}
