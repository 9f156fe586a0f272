//! Tickets: everything that a replica must know to serve a rank, and no state of the server that made it.

use arrow_flight::Ticket;
use bytes::Bytes;
use forebay_proto::{Encoding, v1};
use tonic::Status;

use super::status;

/// Starts every ticket that we make: format 1. (A ticket in JSON, written by hand, starts with `{`.)
const MAGIC: &[u8] = b"FBT1";

/// A ticket for a rank of a stream; `steps` of it, or all where that is 0.
pub(super) fn stream(request: &v1::StreamRequest, rank: u64, steps: u64, encoding: Encoding) -> Ticket {
    let encoding = match encoding {
        Encoding::Json => v1::Encoding::Json,
        Encoding::Protobuf => v1::Encoding::Protobuf,
    };
    let read = v1::StreamRead { request: Some(request.clone()), rank, encoding: encoding.into(), steps };
    write(v1::ticket::Read::Stream(read))
}

/// A ticket for a raw table.
pub(super) fn table(dataset: &str, snapshot: &str) -> Ticket {
    write(v1::ticket::Read::Table(v1::TableRead { dataset: dataset.to_owned(), snapshot: snapshot.to_owned() }))
}

/// Reads a ticket of ours, or one in JSON.
pub(super) fn read(ticket: &Ticket) -> Result<v1::ticket::Read, Status> {
    let strange = || {
        Status::invalid_argument(
            "ticket: not one of this service; tickets come in the endpoints that GetFlightInfo returns and are sent back \
             as they are",
        )
    };
    let bytes = match ticket.ticket.strip_prefix(MAGIC) {
        Some(bytes) => bytes,
        None if ticket.ticket.starts_with(b"{") => &ticket.ticket,
        None => return Err(strange()),
    };
    let (message, _) = forebay_proto::decode::<v1::Ticket>(bytes).map_err(|error| status::of_bytes(&error))?;
    message.read.ok_or_else(strange)
}

fn write(read: v1::ticket::Read) -> Ticket {
    let mut bytes = MAGIC.to_vec();
    bytes.extend(forebay_proto::encode(&v1::Ticket { read: Some(read) }, Encoding::Protobuf));
    Ticket { ticket: Bytes::from(bytes) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tickets_are_read_back_and_strange_bytes_refused() {
        let request = v1::StreamRequest {
            dataset: "t".into(),
            plan_id: "ab".into(),
            snapshot: "cd".into(),
            ..Default::default()
        };
        let v1::ticket::Read::Stream(stream) = read(&stream(&request, 3, 0, Encoding::Json)).unwrap() else {
            unreachable!("a stream's ticket")
        };
        assert_eq!((stream.rank, stream.request.unwrap().snapshot.as_str()), (3, "cd"));
        let by_hand = r#"{"stream": {"request": {"dataset": "t"}, "rank": 5}}"#;
        for (bytes, good) in [
            (by_hand.as_bytes().to_vec(), true),
            (b"".to_vec(), false),
            (b"\x00\xff\x13garbage".to_vec(), false),
            (b"FBT1\xff\xff\xff".to_vec(), false),
            (b"FBT1".to_vec(), false),
            (b"{".to_vec(), false),
        ] {
            assert_eq!(read(&Ticket { ticket: bytes.clone().into() }).is_ok(), good, "{bytes:?}");
        }
    }
}
