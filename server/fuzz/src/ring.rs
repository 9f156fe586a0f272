//! The bytes of a client's connection to a ring: a hello, and returned slots.

use std::time::Duration;

use forebay_proto::v1;
use forebay_server::flight::{RingSettings, serve_ring};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::UnixStream,
};
use tonic::{Code, Status};

use crate::server::{Server, with_tables};

/// Batches in slots that are read before the connection is dropped: a stream has at least this many slots, and the
/// server waits for one that is never returned.
const SLOTS_MIN: usize = 4;

/// Bytes before the hello.
const PREFIX_BYTES: usize = 8;

const ANSWER: u8 = 1;
const MESSAGE: u8 = 2;

/// The bytes are all that a client sends.
pub fn ring(data: &[u8]) {
    with_tables(|server| {
        // The invariants of an error have been checked.
        let _ = server.ring(data);
    });
}

impl Server {
    /// A connection to the ring; returns the number of messages received.
    fn ring(&self, data: &[u8]) -> Result<usize, Status> {
        let (router, watch, data) = (self.router().clone(), self.watch().clone(), data.to_vec());
        self.run(async move {
            let (server, client) = UnixStream::pair().expect("a pair of sockets");
            let settings = RingSettings { handshake: Duration::from_secs(5) };
            let serving = tokio::spawn(serve_ring(router, server, settings, watch));
            let result = exchange(client, &data).await;
            // The client has closed its end.
            serving.await.expect("no panic");
            result
        })
    }
}

/// Sends the bytes and reads until the call ends, or until it waits for a slot.
async fn exchange(mut client: UnixStream, data: &[u8]) -> Result<usize, Status> {
    // The server may have closed the connection.
    let _ = client.write_all(data).await;
    if !is_complete(data) {
        let _ = client.shutdown().await;
    }
    let (mut messages, mut in_slots) = (0, 0);
    while in_slots < SLOTS_MIN
        && let Some((kind, is_in_slot, metadata)) = frame(&mut client).await
    {
        match kind {
            ANSWER => assert!(forebay_proto::decode::<v1::RingAnswer>(&metadata).is_ok()),
            MESSAGE => messages += 1,
            _ => return end(&metadata).map(|()| messages),
        }
        in_slots += usize::from(is_in_slot);
    }
    Ok(messages)
}

/// Whether the bytes have a whole hello, as far as the server can tell before it reads it.
fn is_complete(data: &[u8]) -> bool {
    let Some((prefix, rest)) = data.split_at_checked(PREFIX_BYTES) else { return false };
    let length = u32::from_le_bytes([prefix[4], prefix[5], prefix[6], prefix[7]]) as usize;
    !prefix.starts_with(b"FBR1") || rest.len() >= length
}

/// Kind, place and metadata of the next frame, whose body is skipped; none at the end.
async fn frame(client: &mut UnixStream) -> Option<(u8, bool, Vec<u8>)> {
    let (kind, place) = (client.read_u8().await.ok()?, client.read_u8().await.ok()?);
    client.read_u16_le().await.ok()?;
    let mut lengths = [0; 3];
    for length in &mut lengths {
        *length = client.read_u32_le().await.ok()? as usize;
    }
    let inline = if place == 0 { lengths[2] } else { 0 };
    let mut rest = vec![0; lengths[0] + lengths[1] + inline];
    client.read_exact(&mut rest).await.ok()?;
    rest.truncate(lengths[0]);
    Some((kind, place == 1, rest))
}

fn end(metadata: &[u8]) -> Result<(), Status> {
    let (end, _) = forebay_proto::decode::<v1::RingEnd>(metadata).expect("a RingEnd");
    match Code::from_i32(end.code.cast_signed()) {
        Code::Ok => Ok(()),
        code => Err(Status::new(code, end.message)),
    }
}

/// A hello with a ticket, and the bytes that follow it.
#[cfg(test)]
fn hello(ticket: &[u8], slots: u32) -> Vec<u8> {
    let hello = v1::RingHello { version: 1, slots, ticket: ticket.to_vec(), ..v1::RingHello::default() };
    let message = forebay_proto::encode(&hello, forebay_proto::Encoding::Protobuf);
    [b"FBR1", &u32::try_from(message.len()).expect("short").to_le_bytes()[..], &message].concat()
}

#[cfg(test)]
mod tests {
    use arrow_flight::FlightDescriptor;

    use super::*;

    #[test]
    fn reads_a_table_through_the_ring() {
        with_tables(|server| {
            let info = server.info(&FlightDescriptor::new_path(vec!["t".to_owned()])).unwrap();
            let ticket = &info.endpoint[0].ticket.as_ref().unwrap().ticket;
            // A schema and the batches of four slots.
            assert!(server.ring(&hello(ticket, 4)).unwrap() > SLOTS_MIN);
            let foreign = [hello(ticket, 4), vec![9, 0, 0, 0]].concat();
            assert_eq!(server.ring(&foreign).unwrap_err().code(), Code::InvalidArgument);
            assert_eq!(server.ring(b"PRI * HTTP/2.0").unwrap_err().code(), Code::InvalidArgument);
            assert_eq!(server.ring(b"FBR1\xff\xff\xff\x7f").unwrap_err().code(), Code::ResourceExhausted);
        });
    }
}
