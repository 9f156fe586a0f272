//! Signed tickets (HMAC-SHA-256): only this service can issue them, each for one caller and a limited time.
//!
//! A signed ticket is `MAGIC | tag (32) | expiry, Unix seconds (8, little-endian) | length of the name (2) | name |
//! ticket`; the tag covers the magic and everything after the tag.

use std::{
    fmt::{self, Write as _},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use ring::{
    hmac,
    rand::{SecureRandom, SystemRandom},
};
use rustls::pki_types::CertificateDer;
use sha2::{Digest, Sha256};

/// Starts every signed ticket: format 1.
const MAGIC: &[u8] = b"FBS1";

const TAG_BYTES: usize = 32;
const EXPIRY_BYTES: usize = 8;
const LENGTH_BYTES: usize = 2;

/// Bytes of a key.
pub const KEY_BYTES: usize = 32;

/// Signs tickets and verifies them.
pub struct TicketKey {
    key: hmac::Key,
    lifetime: Duration,
}

/// The reason why a ticket is rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TicketFault {
    /// The signature does not match.
    #[error(
        "ticket: not signed by this service, or modified since: use the tickets of GetFlightInfo's endpoints unchanged; replicas must \
         share --state or --ticket-key"
    )]
    Foreign,
    /// It was issued to another caller.
    #[error("ticket: issued to another caller: call GetFlightInfo for your own")]
    Another,
    /// It has expired.
    #[error("ticket: expired {seconds} s ago: call GetFlightInfo for a new one")]
    Expired {
        /// Seconds since it expired.
        seconds: u64,
    },
}

impl TicketKey {
    /// Creates a key from at least [`KEY_BYTES`] random bytes; tickets are valid for `lifetime`.
    pub fn new(secret: &[u8], lifetime: Duration) -> Self {
        Self { key: hmac::Key::new(hmac::HMAC_SHA256, secret), lifetime }
    }

    /// Creates a random key for a service that signs nothing.
    pub(super) fn throwaway() -> Self {
        Self::new(&random_secret().unwrap_or_default(), Duration::ZERO)
    }

    /// Returns whether a ticket has the format of a signed one.
    pub fn is_signed(ticket: &[u8]) -> bool {
        ticket.starts_with(MAGIC)
    }

    /// Signs a ticket for a caller; its lifetime starts now. Returns its expiry in Unix seconds, too.
    pub fn sign(&self, ticket: &[u8], caller: &str) -> (Vec<u8>, u64) {
        let expiry = unix_seconds().saturating_add(self.lifetime.as_secs());
        let mut body = expiry.to_le_bytes().to_vec();
        // A principal's name is short.
        body.extend((caller.len() as u16).to_le_bytes());
        body.extend(caller.as_bytes());
        body.extend(ticket);
        let tag = hmac::sign(&self.key, &[MAGIC, &body].concat());
        ([MAGIC, tag.as_ref(), &body].concat(), expiry)
    }

    /// Verifies a signed ticket and returns its content.
    pub fn open<'a>(&self, signed: &'a [u8], caller: &str) -> Result<&'a [u8], TicketFault> {
        let (tag, body) =
            signed.strip_prefix(MAGIC).and_then(|rest| rest.split_at_checked(TAG_BYTES)).ok_or(TicketFault::Foreign)?;
        hmac::verify(&self.key, &[MAGIC, body].concat(), tag).map_err(|_| TicketFault::Foreign)?;
        let (expiry, rest) = body.split_first_chunk::<EXPIRY_BYTES>().ok_or(TicketFault::Foreign)?;
        let (length, rest) = rest.split_first_chunk::<LENGTH_BYTES>().ok_or(TicketFault::Foreign)?;
        let name_bytes = usize::from(u16::from_le_bytes(*length));
        let (name, ticket) = rest.split_at_checked(name_bytes).ok_or(TicketFault::Foreign)?;
        if name != caller.as_bytes() {
            return Err(TicketFault::Another);
        }
        match unix_seconds().checked_sub(u64::from_le_bytes(*expiry)) {
            Some(seconds) if seconds > 0 => Err(TicketFault::Expired { seconds }),
            _ => Ok(ticket),
        }
    }
}

impl fmt::Debug for TicketKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("TicketKey").field("lifetime", &self.lifetime).finish_non_exhaustive()
    }
}

/// Returns random bytes for a new key.
pub fn random_secret() -> Option<[u8; KEY_BYTES]> {
    let mut secret = [0; KEY_BYTES];
    SystemRandom::new().fill(&mut secret).ok()?;
    Some(secret)
}

/// Returns a name for the holder of a certificate that no principal has.
pub(super) fn certificate_name(certificate: &CertificateDer<'_>) -> String {
    let digest = Sha256::digest(certificate);
    digest[..8].iter().fold("certificate-".to_owned(), |mut name, byte| {
        // Writing to a String cannot fail.
        let _ = write!(name, "{byte:02x}");
        name
    })
}

fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
