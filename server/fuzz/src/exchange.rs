//! The bytes of a client's gRPC stream to `DoExchange`.

use bytes::Bytes;

use crate::server::with_tables;

/// The bytes are messages in gRPC frames.
pub fn exchange(data: &[u8]) {
    with_tables(|server| {
        let _ = server.exchange(Bytes::copy_from_slice(data));
    });
}
