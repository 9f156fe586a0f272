//! Flight messages → the body of a gRPC response, without copying the large buffers: the socket reads the memory that
//! the kernels wrote.
//!
//! A gRPC message is a prefix of 5 bytes and a `FlightData` in protobuf: the Arrow metadata, the application metadata
//! and, last, the Arrow body. Everything before the body is one small chunk.

use std::{
    collections::VecDeque,
    mem,
    pin::Pin,
    task::{Context, Poll, ready},
};

use arrow::buffer::Buffer;
use bytes::{BufMut, Bytes, BytesMut};
use forebay_proto::v1::Reason;
use futures::{Stream, StreamExt, stream::BoxStream};
use hyper::{
    HeaderMap, Response,
    body::{Body, Frame},
    header,
};
use prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint, key_len};
use tonic::Status;

use super::encode::{Message, shared};
use crate::flight::status;

/// Alignment of the Arrow body in its message. Receivers keep the message in one buffer, and readers of its arrays need
/// them aligned.
const BODY_ALIGNMENT: usize = 64;

/// gRPC's prefix: the compressed flag and the length in four bytes.
const PREFIX_BYTES: usize = 5;

/// Buffers up to this size are copied into one chunk: a separate chunk costs a frame, more than the copy.
const CHUNK_BYTES_MIN: usize = 4 << 10;

/// Protobuf field numbers of `FlightData`.
const DATA_HEADER: u32 = 2;
const APP_METADATA: u32 = 3;
const DATA_BODY: u32 = 1000;

/// The body of a response: the messages of a stream, then the status as trailers.
pub(super) struct MessageBody {
    /// None once the status has been sent.
    messages: Option<BoxStream<'static, Result<Message, Status>>>,
    chunks: VecDeque<Bytes>,
}

/// A gRPC response with these messages.
pub fn response(messages: impl Stream<Item = Result<Message, Status>> + Send + 'static) -> Response<tonic::body::Body> {
    let body = MessageBody { messages: Some(messages.boxed()), chunks: VecDeque::new() };
    let mut response = Response::new(tonic::body::Body::new(body));
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/grpc"));
    response
}

impl Body for MessageBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        loop {
            if let Some(chunk) = self.chunks.pop_front() {
                return Poll::Ready(Some(Ok(Frame::data(chunk))));
            }
            let Some(messages) = &mut self.messages else { return Poll::Ready(None) };
            let status = match ready!(messages.poll_next_unpin(context)) {
                Some(Ok(message)) => match chunks(message) {
                    Ok(chunks) => {
                        self.chunks = chunks;
                        continue;
                    }
                    Err(status) => status,
                },
                Some(Err(status)) => status,
                None => Status::ok(""),
            };
            // Releases the resources of the stream before the client receives its end.
            self.messages = None;
            let mut trailers = HeaderMap::new();
            status.add_header(&mut trailers)?;
            return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
        }
    }

    fn is_end_stream(&self) -> bool {
        self.messages.is_none() && self.chunks.is_empty()
    }
}

/// The chunks of a message, in order. None is empty.
fn chunks(message: Message) -> Result<VecDeque<Bytes>, Status> {
    let body_bytes = message.body_bytes();
    let mut small = head(&message.header, &message.metadata, body_bytes)?;
    let mut chunks = VecDeque::new();
    for buffer in message.body {
        if buffer.len() <= CHUNK_BYTES_MIN {
            small.extend_from_slice(&buffer);
            continue;
        }
        if !small.is_empty() {
            chunks.push_back(mem::take(&mut small).freeze());
        }
        chunks.push_back(shared(buffer));
    }
    if !small.is_empty() {
        chunks.push_back(small.freeze());
    }
    Ok(chunks)
}

/// The part of a gRPC message before its Arrow body.
fn head(header: &Buffer, metadata: &Bytes, body_bytes: usize) -> Result<BytesMut, Status> {
    let field_bytes = |field, length: usize| match length {
        0 => 0,
        _ => key_len(field) + encoded_len_varint(length as u64) + length,
    };
    let body_field_bytes = field_bytes(DATA_BODY, body_bytes);
    // The flatbuffer contains its own length, so zeros after the Arrow metadata are ignored.
    let before_body = |padding| {
        let before = field_bytes(DATA_HEADER, header.len() + padding) + field_bytes(APP_METADATA, metadata.len());
        before + body_field_bytes - body_bytes
    };
    let is_aligned = |padding: &usize| before_body(*padding).is_multiple_of(BODY_ALIGNMENT);
    let padding = match (header.len(), body_bytes) {
        (0, _) | (_, 0) => 0,
        // When a length needs one more byte, one multiple can be skipped, but not two.
        _ => (0..=2 * BODY_ALIGNMENT).find(is_aligned).unwrap_or(0),
    };
    let message_bytes = before_body(padding) + body_bytes;
    let length = message_length(message_bytes)?;
    let mut head = BytesMut::with_capacity(PREFIX_BYTES + before_body(padding) + CHUNK_BYTES_MIN);
    head.put_u8(0);
    head.put_u32(length);
    put_field(&mut head, DATA_HEADER, header, padding);
    put_field(&mut head, APP_METADATA, metadata, 0);
    if body_bytes > 0 {
        encode_key(DATA_BODY, WireType::LengthDelimited, &mut head);
        encode_varint(body_bytes as u64, &mut head);
    }
    Ok(head)
}

/// The length of a message in a prefix of four bytes, which the ring has, too.
pub(crate) fn message_length(message_bytes: usize) -> Result<u32, Status> {
    u32::try_from(message_bytes).map_err(|_| {
        let text = format!(
            "a batch of {message_bytes} bytes exceeds the 4 GiB of a gRPC message: request a smaller batch_size"
        );
        status::refusal(Reason::Limit, &text)
    })
}

/// Writes a field of bytes and padding, unless there are no bytes.
fn put_field(into: &mut BytesMut, field: u32, bytes: &[u8], padding: usize) {
    if bytes.is_empty() {
        return;
    }
    encode_key(field, WireType::LengthDelimited, into);
    encode_varint((bytes.len() + padding) as u64, into);
    into.put_slice(bytes);
    into.put_bytes(0, padding);
}

#[cfg(test)]
mod tests {
    use arrow_flight::FlightData;
    use prost::Message as _;

    use super::*;

    #[test]
    fn chunks_are_a_grpc_message_with_an_aligned_body() {
        for header_bytes in [0, 1, 100, 120, 127, 128, 200, 16_370, 16_384] {
            for metadata_bytes in [0, 7, 130] {
                for body in [vec![], vec![1], vec![64, 8], vec![10_000], vec![5, 9_000, 59, 4_096, 4_097, 63]] {
                    check(header_bytes, metadata_bytes, &body);
                }
            }
        }
    }

    fn check(header_bytes: usize, metadata_bytes: usize, body: &[usize]) {
        let filled = |length: usize| (0..length).map(|index| index as u8 | 1).collect::<Vec<u8>>();
        let message = Message {
            header: filled(header_bytes).into(),
            metadata: filled(metadata_bytes).into(),
            body: body.iter().map(|length| filled(*length).into()).collect(),
        };
        let expected = FlightData::from(message.clone());
        let large: Vec<_> = message.body.iter().filter(|buffer| buffer.len() > CHUNK_BYTES_MIN).cloned().collect();
        let chunks = chunks(message).unwrap();
        let case = format!("{header_bytes}, {metadata_bytes}, {body:?}");
        assert!(chunks.iter().all(|chunk| !chunk.is_empty()), "{case}");
        for buffer in large {
            assert!(chunks.iter().any(|chunk| chunk.as_ptr() == buffer.as_ptr()), "{case}: copied");
        }
        let sent = chunks.iter().flatten().copied().collect::<Vec<u8>>();
        let (prefix, sent) = sent.split_at(PREFIX_BYTES);
        assert_eq!(prefix[0], 0);
        assert_eq!(u32::from_be_bytes(prefix[1..].try_into().unwrap()) as usize, sent.len(), "{case}");
        if !expected.data_body.is_empty() {
            assert!(
                (sent.len() - expected.data_body.len()).is_multiple_of(BODY_ALIGNMENT) || header_bytes == 0,
                "{case}"
            );
        }
        let mut read = FlightData::decode(sent).unwrap();
        assert!(read.data_header[header_bytes..].iter().all(|byte| *byte == 0));
        read.data_header.truncate(header_bytes);
        assert_eq!(read, expected, "{case}");
    }
}
