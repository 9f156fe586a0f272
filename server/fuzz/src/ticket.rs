//! The bytes of a `DoGet` ticket.

use arrow_flight::Ticket;
use bytes::Bytes;

use crate::server::with_tables;

/// The bytes are a ticket.
pub fn ticket(data: &[u8]) {
    with_tables(|server| {
        let _ = server.get(&Ticket { ticket: Bytes::copy_from_slice(data) });
    });
}
