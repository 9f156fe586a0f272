//! Errors of credential files, and refusals of calls.

use std::{io, path::PathBuf, sync::Arc};

/// A file that says who may call, or with which key, cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum AuthError {
    /// It cannot be read.
    #[error("cannot read \"{}\": {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It does not hold what it should.
    #[error("\"{}\": {reason}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong, without the file's secrets.
        reason: String,
    },
}

/// A call that is not answered.
#[derive(Clone, Debug, thiserror::Error)]
pub enum AccessError {
    /// Nobody says who calls.
    #[error(
        "this server asks who calls: send the header \"authorization: Bearer TOKEN\" with every call{}",
        if *.with_certificates { ", or a client certificate that --principals names" } else { "" }
    )]
    Anonymous {
        /// Whether a certificate would do.
        with_certificates: bool,
    },
    /// The header is no bearer token.
    #[error("the header \"authorization\" must be \"Bearer\" and a token")]
    Scheme,
    /// A token that no principal has.
    #[error("no principal of this server has this token: it may have been withdrawn")]
    UnknownToken,
    /// A certificate that no principal has.
    #[error("no principal of this server has a name of this client certificate")]
    UnknownCertificate,
    /// Too many calls.
    #[error(
        "{name} makes more than {calls_per_second} calls a second (calls_per_second of --principals): try again in {retry_ms} ms"
    )]
    Rate {
        /// Who.
        name: Arc<str>,
        /// The cap.
        calls_per_second: f64,
        /// When it will be answered.
        retry_ms: u64,
    },
    /// Too many streams.
    #[error("{open} streams {whose} are open, the limit is {limit} ({flag}): end one, or try again in {retry_ms} ms")]
    Streams {
        /// How many.
        open: usize,
        /// Of whom.
        whose: String,
        /// The limit.
        limit: usize,
        /// What sets it.
        flag: &'static str,
        /// When to ask again.
        retry_ms: u64,
    },
}
