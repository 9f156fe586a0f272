//! Tickets: self-contained, so that any replica can serve the rank that a ticket names.

use arrow_flight::Ticket;
use bytes::Bytes;
use forebay_proto::{
    Encoding,
    v1::{self, Reason},
};
use tonic::Status;

use super::status;

/// The first bytes of every generated ticket: format 1. A ticket written by hand, in JSON, starts with `{`.
const MAGIC: &[u8] = b"FBT1";

/// A ticket for `steps` steps of a rank, or for all if `steps` is 0.
pub(super) fn stream(request: &v1::StreamRequest, rank: u64, steps: u64, encoding: Encoding) -> Ticket {
    let encoding = wire_encoding(encoding).into();
    let read = v1::StreamRead { request: Some(request.clone()), rank, encoding, steps };
    write(v1::ticket::Read::Stream(read))
}

/// A ticket for rows by their numbers.
pub(super) fn take(request: v1::TakeRequest, encoding: Encoding) -> Ticket {
    let read = v1::TakeRead { request: Some(request), encoding: wire_encoding(encoding).into() };
    write(v1::ticket::Read::Take(read))
}

/// A ticket for rows of a raw table.
pub(super) fn table(read: v1::TableRead) -> Ticket {
    write(v1::ticket::Read::Table(read))
}

/// The encoded message of a ticket.
pub(super) fn message(ticket: &Ticket) -> &[u8] {
    ticket.ticket.strip_prefix(MAGIC).unwrap_or(&ticket.ticket)
}

/// Reads a generated ticket, one in JSON, or a `TakeRequest` in JSON.
pub(super) fn read(ticket: &Ticket) -> Result<v1::ticket::Read, Status> {
    let unknown = || {
        status::refusal(
            Reason::InvalidRequest,
            "ticket: not issued by this service: use the tickets of GetFlightInfo's endpoints unchanged",
        )
    };
    let bytes = match ticket.ticket.strip_prefix(MAGIC) {
        Some(bytes) => bytes,
        None if ticket.ticket.starts_with(b"{") => &ticket.ticket,
        None => return Err(unknown()),
    };
    match forebay_proto::decode::<v1::Ticket>(bytes) {
        Ok((message, _)) => message.read.ok_or_else(unknown),
        Err(error) => match take_request(bytes) {
            Some(request) => Ok(v1::ticket::Read::Take(v1::TakeRead { request: Some(request), ..Default::default() })),
            None => Err(status::of_bytes(&error)),
        },
    }
}

/// Reads a `TakeRequest` in JSON that names rows: no field of another message has such a name.
pub(super) fn take_request(bytes: &[u8]) -> Option<v1::TakeRequest> {
    if !bytes.starts_with(b"{") {
        return None;
    }
    let (request, _) = forebay_proto::decode::<v1::TakeRequest>(bytes).ok()?;
    (!request.row_ids.is_empty() || !request.positions.is_empty()).then_some(request)
}

fn wire_encoding(encoding: Encoding) -> v1::Encoding {
    match encoding {
        Encoding::Json => v1::Encoding::Json,
        Encoding::Protobuf => v1::Encoding::Protobuf,
    }
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
    fn reads_its_tickets_and_rejects_other_bytes() {
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
            (br#"{"dataset": "t", "plan_id": "ab", "row_ids": [7, 3]}"#.to_vec(), true),
            (br#"{"dataset": "t", "plan_id": "ab", "positions": [0]}"#.to_vec(), true),
            (br#"{"dataset": "t", "plan_id": "ab"}"#.to_vec(), false),
            (br#"{"dataset": "t", "row_ids": [-1]}"#.to_vec(), false),
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
