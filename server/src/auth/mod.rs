//! Who may call, and how much: bearer tokens and client certificates → a `Caller` with its grants and caps; tickets signed.
//!
//! It knows nothing of gRPC: tokens and certificates come in as text and bytes, refusals go out as `Refused`. It keeps
//! digests of tokens, never tokens, and no `Debug` of it shows a key.

mod admission;
mod principals;
mod signing;
mod tls;
mod watched;

use std::{fmt, io, net::IpAddr, path::PathBuf, sync::Arc};

use rustls::pki_types::CertificateDer;

pub use admission::{Admission, StreamLimits, StreamPermit};
pub use principals::{Principal, PrincipalsFile};
pub use signing::{KEY_BYTES, TicketFault, TicketKey, random_secret};
pub use tls::Tls;

use admission::Rates;

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

/// The other end of a connection.
#[derive(Clone, Debug, Default)]
pub struct Peer {
    /// Where it calls from; none on a Unix socket.
    pub address: Option<IpAddr>,
    /// The certificate that it proved to hold, checked against `--tls-client-ca`.
    pub certificate: Option<CertificateDer<'static>>,
}

/// Who calls.
#[derive(Clone, Debug)]
pub struct Caller {
    /// A principal's name; without authentication, where the call comes from.
    name: Arc<str>,
    /// What it may do; none: everything.
    principal: Option<Arc<Principal>>,
}

/// A call that is not answered.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Refused {
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

/// Who may call. Cheap to clone.
#[derive(Clone)]
pub struct Auth {
    shared: Arc<Shared>,
}

struct Shared {
    principals: Option<PrincipalsFile>,
    /// Every holder of a certificate that the listener took may call.
    takes_certificates: bool,
    key: TicketKey,
    rates: Rates,
}

impl Auth {
    /// Calls are answered for principals of the file; without one and where listeners check certificates, for whoever holds
    /// one; else for everybody. Tickets are signed with the key, and taken for so long.
    pub fn new(principals: Option<PrincipalsFile>, checks_certificates: bool, key: TicketKey) -> Self {
        let shared = Shared {
            takes_certificates: checks_certificates && principals.is_none(),
            principals,
            key,
            rates: Rates::default(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Nobody is asked who they are.
    pub fn off() -> Self {
        Self::new(None, false, TicketKey::throwaway())
    }

    /// Whether callers must say who they are.
    pub fn is_on(&self) -> bool {
        self.shared.principals.is_some() || self.shared.takes_certificates
    }

    /// Signs tickets, where callers are known.
    pub fn ticket_key(&self) -> Option<&TicketKey> {
        self.is_on().then_some(&self.shared.key)
    }

    /// Who calls, by the value of the header `authorization` and by the connection.
    pub fn caller(&self, authorization: Option<&[u8]>, peer: &Peer) -> Result<Caller, Refused> {
        let Some(file) = &self.shared.principals else { return self.without_principals(peer) };
        let principals = file.current();
        let principal = match authorization {
            Some(value) => principals.by_token(bearer(value)?).ok_or(Refused::UnknownToken)?,
            None => match &peer.certificate {
                Some(certificate) => principals.by_certificate(certificate).ok_or(Refused::UnknownCertificate)?,
                None => return Err(Refused::Anonymous { with_certificates: principals.has_certificates() }),
            },
        };
        self.shared.rates.take(principal)?;
        Ok(Caller { name: Arc::clone(&principal.name), principal: Some(Arc::clone(principal)) })
    }

    fn without_principals(&self, peer: &Peer) -> Result<Caller, Refused> {
        let name = match (&peer.certificate, peer.address) {
            (Some(certificate), _) if self.shared.takes_certificates => signing::certificate_name(certificate),
            _ if self.shared.takes_certificates => return Err(Refused::Anonymous { with_certificates: true }),
            (_, Some(address)) => address.to_canonical().to_string(),
            (_, None) => "unix".to_owned(),
        };
        Ok(Caller { name: name.into(), principal: None })
    }
}

impl fmt::Debug for Auth {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Auth").field("is_on", &self.is_on()).finish_non_exhaustive()
    }
}

// === impl Caller ===

impl Caller {
    /// Somebody who may do everything: calls from within.
    pub fn anyone() -> Self {
        Self { name: "anyone".into(), principal: None }
    }

    /// A principal's name; without authentication, where the call comes from.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Whether it may read every dataset.
    pub fn reads_everything(&self) -> bool {
        self.principal.as_ref().is_none_or(|principal| principal.reads_everything())
    }

    /// Whether it may read a dataset of this name.
    pub fn may_read(&self, dataset: &str) -> bool {
        self.principal.as_ref().is_none_or(|principal| principal.may_read(dataset))
    }

    /// The streams that it may have open, where its principal says.
    fn streams_max(&self) -> Option<usize> {
        self.principal.as_ref()?.streams_max
    }
}

/// The token of an `authorization` header (RFC 6750): the scheme's case means nothing.
fn bearer(value: &[u8]) -> Result<&[u8], Refused> {
    match value.split_at_checked(b"bearer ".len()) {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case(b"bearer ") && !token.trim_ascii().is_empty() => {
            Ok(token.trim_ascii())
        }
        _ => Err(Refused::Scheme),
    }
}

#[cfg(test)]
mod tests;
