//! Tickets that only this service makes: signed (HMAC-SHA-256), for one caller, for a time.
//!
//! A signed ticket is `MAGIC | tag (32) | expiry, Unix seconds (8, little-endian) | length of the name (2) | name | ticket`;
//! the tag is over all that follows it, with the magic before it.

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

/// Signs tickets, and tells its own from others.
pub struct TicketKey {
    key: hmac::Key,
    lifetime: Duration,
}

/// Why a ticket is not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TicketFault {
    /// Nobody who has the key made it as it is.
    #[error(
        "ticket: not signed by this service, or changed since: take the tickets of GetFlightInfo's endpoints as they are; replicas \
         must share --state or --ticket-key"
    )]
    Foreign,
    /// It was made for another caller.
    #[error("ticket: made for another caller: ask GetFlightInfo yourself")]
    Another,
    /// It is too old.
    #[error("ticket: expired {seconds} s ago: ask GetFlightInfo for a new one")]
    Expired {
        /// Since when.
        seconds: u64,
    },
}

impl TicketKey {
    /// A key of [`KEY_BYTES`] random bytes, or any more; tickets are taken for the time given.
    pub fn new(secret: &[u8], lifetime: Duration) -> Self {
        Self { key: hmac::Key::new(hmac::HMAC_SHA256, secret), lifetime }
    }

    /// A key that nobody keeps, where nothing is signed.
    pub(super) fn throwaway() -> Self {
        Self::new(&random_secret().unwrap_or_default(), Duration::ZERO)
    }

    /// Whether a ticket says that it is signed.
    pub fn is_signed(ticket: &[u8]) -> bool {
        ticket.starts_with(MAGIC)
    }

    /// The ticket, for a caller, from now on.
    pub fn sign(&self, ticket: &[u8], caller: &str) -> Vec<u8> {
        let expiry = unix_seconds().saturating_add(self.lifetime.as_secs());
        let mut body = expiry.to_le_bytes().to_vec();
        // A principal's name is short.
        body.extend((caller.len() as u16).to_le_bytes());
        body.extend(caller.as_bytes());
        body.extend(ticket);
        let tag = hmac::sign(&self.key, &[MAGIC, &body].concat());
        [MAGIC, tag.as_ref(), &body].concat()
    }

    /// What was signed, for the caller that it was signed for.
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

/// Random bytes for a new key.
pub fn random_secret() -> Option<[u8; KEY_BYTES]> {
    let mut secret = [0; KEY_BYTES];
    SystemRandom::new().fill(&mut secret).ok()?;
    Some(secret)
}

/// What a certificate's holder is called where nobody named it.
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
