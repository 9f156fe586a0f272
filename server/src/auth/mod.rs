//! Authentication and limits: bearer tokens and client certificates → a `Caller` with its grants and limits; signed
//! tickets.
//!
//! This module does not depend on gRPC: it receives tokens and certificates as text and bytes, and returns
//! `AccessError`. It stores digests of tokens, never tokens, and no `Debug` output shows a key.

mod admission;
mod caller;
mod error;
mod principals;
mod signing;
mod tls;
mod watched;

use std::{fmt, sync::Arc};

pub use admission::{Admission, StreamLimits, StreamPermit};
pub use caller::{ANONYMOUS, Caller, Peer, UNKNOWN};
pub use error::{AccessError, AuthError};
pub use principals::{Principal, PrincipalsFile};
pub use signing::{KEY_BYTES, TicketFault, TicketKey, random_secret};
pub use tls::Tls;

use admission::Rates;

/// Authenticates callers. Cheap to clone.
#[derive(Clone)]
pub struct Auth {
    shared: Arc<Shared>,
}

struct Shared {
    principals: Option<PrincipalsFile>,
    /// Any client whose certificate the listener verified may call.
    allows_any_certificate: bool,
    key: TicketKey,
    rates: Rates,
}

impl Auth {
    /// Allows the principals of the file; without a file, clients with a verified certificate if listeners check
    /// certificates, else all clients. The key signs tickets.
    pub fn new(principals: Option<PrincipalsFile>, checks_certificates: bool, key: TicketKey) -> Self {
        let shared = Shared {
            allows_any_certificate: checks_certificates && principals.is_none(),
            principals,
            key,
            rates: Rates::default(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Allows every call without credentials.
    pub fn off() -> Self {
        Self::new(None, false, TicketKey::throwaway())
    }

    /// Replaces the principals for new calls, if there are any: a reload does not turn authentication on.
    pub fn replace_principals(&self, new: PrincipalsFile) {
        if let Some(principals) = &self.shared.principals {
            principals.replace(new);
        }
    }

    /// Returns whether calls need credentials.
    pub fn is_on(&self) -> bool {
        self.shared.principals.is_some() || self.shared.allows_any_certificate
    }

    /// Returns the key that signs tickets; none if calls need no credentials.
    pub fn ticket_key(&self) -> Option<&TicketKey> {
        self.is_on().then_some(&self.shared.key)
    }

    /// Authenticates a call by the value of its `authorization` header and by its connection.
    pub fn caller(&self, authorization: Option<&[u8]>, peer: &Peer) -> Result<Caller, AccessError> {
        let Some(file) = &self.shared.principals else { return self.without_principals(peer) };
        let principals = file.current();
        let principal = match authorization {
            Some(value) => principals.by_token(bearer(value)?).ok_or(AccessError::UnknownToken)?,
            None => match &peer.certificate {
                Some(certificate) => principals.by_certificate(certificate).ok_or(AccessError::UnknownCertificate)?,
                None => return Err(AccessError::Anonymous { with_certificates: principals.has_certificates() }),
            },
        };
        self.shared.rates.take(principal)?;
        Ok(Caller { name: Arc::clone(&principal.name), principal: Some(Arc::clone(principal)), is_authenticated: true })
    }

    fn without_principals(&self, peer: &Peer) -> Result<Caller, AccessError> {
        let name = match (&peer.certificate, peer.address) {
            (Some(certificate), _) if self.shared.allows_any_certificate => signing::certificate_name(certificate),
            _ if self.shared.allows_any_certificate => return Err(AccessError::Anonymous { with_certificates: true }),
            (_, Some(address)) => address.ip().to_canonical().to_string(),
            (_, None) => "unix".to_owned(),
        };
        Ok(Caller { name: name.into(), principal: None, is_authenticated: self.shared.allows_any_certificate })
    }
}

impl fmt::Debug for Auth {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Auth").field("is_on", &self.is_on()).finish_non_exhaustive()
    }
}

/// Returns the token of an `authorization` header (RFC 6750); the scheme is case-insensitive.
fn bearer(value: &[u8]) -> Result<&[u8], AccessError> {
    match value.split_at_checked(b"bearer ".len()) {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case(b"bearer ") && !token.trim_ascii().is_empty() => {
            Ok(token.trim_ascii())
        }
        _ => Err(AccessError::Scheme),
    }
}

#[cfg(test)]
mod tests;
