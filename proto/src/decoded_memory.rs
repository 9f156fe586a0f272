//! The memory that a message takes once it is decoded, from its bytes alone: a field of two bytes may become a thousand.
//!
//! A server reserves it before it decodes what a client sends. It is an estimate from above, for messages of any shape.

use prost::{
    bytes::Buf,
    encoding::{WireType, decode_key, decode_varint},
};
use prost_reflect::{Kind, MessageDescriptor};

use crate::{Message, encoding::descriptor};

/// Bytes of a message among others, in a vector that may have doubled.
const MESSAGE_BYTES: u64 = 1024;

/// Bytes of a string or of bytes, without its content, in a vector that may have doubled.
const TEXT_BYTES: u64 = 64;

/// Bytes of a number in a vector that may have doubled.
const NUMBER_BYTES: u64 = 16;

/// Bytes of a value of JSON, while it is read and afterwards.
const JSON_VALUE_BYTES: u64 = 100;

/// Nesting beyond which the decoder refuses a message.
const DEPTH_MAX: u32 = 100;

/// Returns the most memory of a message that is decoded from JSON or protobuf bytes, besides these bytes.
pub fn decoded_bytes<M: Message>(bytes: &[u8]) -> u64 {
    if bytes.first() == Some(&b'{') {
        return of_json(bytes);
    }
    descriptor::<M>().map_or(0, |descriptor| MESSAGE_BYTES + of_fields(bytes, &descriptor, DEPTH_MAX))
}

/// The memory of the fields of a message, up to the first malformed one.
fn of_fields(mut bytes: &[u8], descriptor: &MessageDescriptor, depth: u32) -> u64 {
    let mut sum = 0_u64;
    while !bytes.is_empty() {
        let Ok((tag, wire_type)) = decode_key(&mut bytes) else { break };
        let skipped = match wire_type {
            WireType::Varint => decode_varint(&mut bytes).ok().map(|_| 0),
            WireType::SixtyFourBit => Some(8),
            WireType::ThirtyTwoBit => Some(4),
            WireType::StartGroup | WireType::EndGroup => Some(0),
            WireType::LengthDelimited => decode_varint(&mut bytes).ok().and_then(|length| usize::try_from(length).ok()),
        };
        let Some(value) = skipped.and_then(|length| bytes.get(..length)) else { break };
        let field = descriptor.get_field(tag);
        sum = sum.saturating_add(match (wire_type, field.map(|field| field.kind())) {
            // Unknown fields are skipped.
            (_, None) => 0,
            (WireType::LengthDelimited, Some(Kind::Message(inner))) if depth > 0 => {
                MESSAGE_BYTES.saturating_add(of_fields(value, &inner, depth - 1))
            }
            (WireType::LengthDelimited, Some(Kind::String | Kind::Bytes)) => TEXT_BYTES + value.len() as u64,
            // Packed numbers, which have at least one byte each.
            (WireType::LengthDelimited, Some(_)) => NUMBER_BYTES.saturating_mul(value.len() as u64),
            _ => NUMBER_BYTES,
        });
        bytes.advance(value.len());
    }
    sum
}

/// The memory of a JSON text's values: one for each opening bracket and comma outside strings.
fn of_json(bytes: &[u8]) -> u64 {
    let (mut objects, mut values, mut in_string, mut escaped) = (0_u64, 0_u64, false, false);
    for byte in bytes {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b'{' if !in_string => objects += 1,
            b'[' | b',' if !in_string => values += 1,
            _ => {}
        }
    }
    // The names and texts are copied into the message, and long texts of rewritten fields once before.
    2 * bytes.len() as u64 + objects * MESSAGE_BYTES + values * JSON_VALUE_BYTES
}

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::*;
    use crate::{
        Encoding, encode,
        v1::{Derive, MixtureSource, Op, Output, Part, Plan, StreamRequest, TakeRequest},
    };

    #[test]
    fn messages_of_a_vector_fit_their_estimate() {
        let sizes = [size_of::<Derive>(), size_of::<Output>(), size_of::<Part>(), size_of::<Op>()];
        for bytes in sizes.into_iter().chain([size_of::<MixtureSource>(), size_of::<String>() * 16]) {
            assert!(2 * bytes as u64 <= MESSAGE_BYTES, "{bytes}");
        }
    }

    #[test]
    fn empty_messages_and_texts_count_more_than_their_bytes() {
        let parts = vec![Part { columns: vec![String::new(); 100], ..Part::default() }; 100];
        let plan = Plan { outputs: vec![Output { parts, ..Output::default() }; 10], ..Plan::default() };
        let request = StreamRequest { plan: Some(plan), ..StreamRequest::default() };
        for encoding in [Encoding::Protobuf, Encoding::Json] {
            let bytes = decoded_bytes::<StreamRequest>(&encode(&request, encoding));
            assert!(bytes >= 1000 * MESSAGE_BYTES + 100_000 * TEXT_BYTES, "{encoding:?}: {bytes}");
        }
        let take = TakeRequest { row_ids: vec![1; 1000], ..TakeRequest::default() };
        assert!(decoded_bytes::<TakeRequest>(&take.encode_to_vec()) >= 8000);
        let long = StreamRequest { dataset: "d".repeat(100_000), ..StreamRequest::default() };
        assert!((100_000..200_000).contains(&decoded_bytes::<StreamRequest>(&long.encode_to_vec())));
    }

    #[test]
    fn malformed_bytes_are_counted_up_to_the_mistake() {
        for odd in [&b""[..], b"\xff", b"\x0a\xff\xff\xff\xff\x7f", b"\x0a\x05a", b"{", b"{\"a\": \"\\"] {
            assert!(decoded_bytes::<StreamRequest>(odd) <= 2 * MESSAGE_BYTES);
        }
    }
}
