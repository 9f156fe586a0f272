//! Bytes ↔ messages, in the two encodings that a client may choose.
//!
//! JSON follows the proto3 JSON mapping: `snake_case` and `camelCase` names are accepted, and unknown fields are
//! errors. Written JSON has `snake_case` names, plain numbers, and every field. A first byte `{` means JSON, any other
//! protobuf.

use std::sync::OnceLock;

use prost::Message as _;
use prost_reflect::{
    DescriptorPool, DeserializeOptions, DynamicMessage, Kind, MessageDescriptor, ReflectMessage as _, SerializeOptions,
};
use serde_json::ser::{CompactFormatter, Formatter, PrettyFormatter};
use serde_path_to_error::Track;

use crate::{DESCRIPTORS, Message, derive, exact, lifted::Lifted, spelling};

/// Limit of the bytes of a message: enough for a plan with a vocabulary of several hundred thousand words.
pub const JSON_BYTES_MAX: usize = 64 << 20;

/// Limit of nested JSON values; `forebay.v1` itself nests 6 deep.
const JSON_DEPTH_MAX: usize = 64;

/// Size from which long arrays in JSON are read separately.
const LIFTED_BYTES_MIN: usize = 32 << 10;

/// The encoding of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// proto3 JSON.
    Json,
    /// Protobuf bytes.
    Protobuf,
}

/// The reason why bytes are not the expected message.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    /// The message is too large.
    #[error("a {message} of {bytes} bytes: the limit is {JSON_BYTES_MAX}; fit the plan and send its plan_id")]
    TooLarge {
        /// The expected message.
        message: &'static str,
        /// Its size in bytes.
        bytes: usize,
    },
    /// The JSON is malformed, or has a field or value that is not part of the message.
    #[error("malformed {message} in JSON: {reason}")]
    Json {
        /// The expected message.
        message: &'static str,
        /// The field with the mistake, such as `outputs[0].name`, also if the message has none of this name. Empty if the
        /// text is not JSON.
        path: String,
        /// The mistake, with field, line and column.
        reason: String,
    },
    /// The bytes are not a protobuf encoding of the message.
    #[error("malformed {message}: not JSON, which starts with an opening brace, and not valid protobuf ({reason})")]
    Protobuf {
        /// The expected message.
        message: &'static str,
        /// The error of the decoder.
        reason: String,
    },
}

/// Reads a message from JSON or protobuf bytes, and returns its encoding.
pub fn decode<M: Message>(bytes: &[u8]) -> Result<(M, Encoding), DecodeError> {
    if bytes.len() > JSON_BYTES_MAX {
        return Err(DecodeError::TooLarge { message: M::NAME, bytes: bytes.len() });
    }
    if bytes.first() == Some(&b'{') {
        decode_json(bytes).map(|message| (message, Encoding::Json))
    } else {
        decode_protobuf(bytes).map(|message| (message, Encoding::Protobuf))
    }
}

/// Writes a message.
pub fn encode<M: Message>(message: &M, encoding: Encoding) -> Vec<u8> {
    match encoding {
        Encoding::Json => to_json(message).into_bytes(),
        Encoding::Protobuf => message.encode_to_vec(),
    }
}

/// Writes a message as one line of JSON.
pub fn to_json<M: Message>(message: &M) -> String {
    written(message, CompactFormatter)
}

/// Writes a message as indented JSON with one field or value per line. Fields are ordered by number, so equal messages
/// have equal texts and differences are single lines.
pub fn to_pretty_json<M: Message>(message: &M) -> String {
    written(message, PrettyFormatter::new())
}

fn written<M: Message>(message: &M, formatter: impl Formatter) -> String {
    let options =
        SerializeOptions::new().use_proto_field_name(true).stringify_64_bit_integers(false).skip_default_fields(false);
    let mut text = Vec::with_capacity(256);
    let written = descriptor::<M>().and_then(|descriptor| {
        let mut dynamic = DynamicMessage::new(descriptor);
        dynamic.transcode_from(message).ok()?;
        let mut writer = serde_json::Serializer::with_formatter(&mut text, formatter);
        dynamic.serialize_with_options(&mut writer, &options).ok()
    });
    debug_assert!(written.is_some(), "{} is in the descriptors and always has a JSON form", M::NAME);
    String::from_utf8(text).unwrap_or_default()
}

fn decode_json<M: Message>(bytes: &[u8]) -> Result<M, DecodeError> {
    let error = |reason: String| DecodeError::Json { message: M::NAME, path: String::new(), reason };
    if json_depth(bytes) > JSON_DEPTH_MAX {
        return Err(error(format!("nested more than {JSON_DEPTH_MAX} deep")));
    }
    let descriptor = descriptor::<M>().ok_or_else(|| error("unknown message".to_owned()))?;
    let bytes = &*spelling::upper_case(derive::with_lists(bytes));
    if let Some(message) = decode_lifted(bytes, &descriptor) {
        return Ok(message);
    }
    let options = DeserializeOptions::new().deny_unknown_fields(true);
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let mut track = Track::new();
    let tracked = serde_path_to_error::Deserializer::new(&mut reader, &mut track);
    let message = DynamicMessage::deserialize_with_options(descriptor, tracked, &options);
    let message = message.map_err(|source| mistake::<M>(&track.path().to_string(), &source))?;
    reader.end().map_err(|source| error(source.to_string()))?;
    if let Some(reason) = exact::rounded(bytes, &message.descriptor()) {
        let path = reason.split(':').next().unwrap_or_default().to_owned();
        return Err(DecodeError::Json { message: M::NAME, path, reason });
    }
    message.transcode_to().map_err(|source| error(source.to_string()))
}

/// An error at a path of the reader: that of the value, or around an unknown name.
fn mistake<M: Message>(path: &str, source: &serde_json::Error) -> DecodeError {
    let path = if path == "." { "" } else { path };
    let text = source.to_string();
    let colon = if path.is_empty() { "" } else { ": " };
    let reason = format!("{path}{colon}{text}{}", allowed(&text, path));
    let path = match unknown_name(&text) {
        Some(name) if path.is_empty() => name.to_owned(),
        Some(name) => format!("{path}.{name}"),
        None => path.to_owned(),
    };
    DecodeError::Json { message: M::NAME, path, reason }
}

/// The name in the reader's error about an unknown field.
fn unknown_name(reason: &str) -> Option<&str> {
    reason.split("unrecognized field name '").nth(1).and_then(|rest| rest.split('\'').next())
}

/// Reads a message with long arrays of strings; `None` if it has none, or has a mistake, which the caller finds.
fn decode_lifted<M: Message>(bytes: &[u8], descriptor: &MessageDescriptor) -> Option<M> {
    if bytes.len() < LIFTED_BYTES_MIN {
        return None;
    }
    let lifted = Lifted::new(bytes)?;
    let options = DeserializeOptions::new().deny_unknown_fields(true);
    let mut reader = serde_json::Deserializer::from_slice(&lifted.text);
    let message = DynamicMessage::deserialize_with_options(descriptor.clone(), &mut reader, &options).ok()?;
    reader.end().ok()?;
    if exact::rounded(&lifted.text, descriptor).is_some() {
        return None;
    }
    M::decode(lifted.restore(&message.encode_to_vec(), descriptor)?.as_slice()).ok()
}

/// Returns suggestions for an unknown field or enum value, as the end of a sentence.
fn allowed(reason: &str, path: &str) -> String {
    let pool = pool();
    if let Some(name) = unknown_name(reason) {
        let fields = pool.all_messages().flat_map(|message| message.fields().collect::<Vec<_>>());
        let near = fields.map(|field| (strsim::jaro_winkler(name, field.name()), field.name().to_owned()));
        let best = near.max_by(|a, b| a.0.total_cmp(&b.0)).filter(|(score, _)| *score > 0.8);
        // The name itself is a field of another message.
        let best = best.filter(|(_, field)| field != name);
        return best.map(|(_, field)| format!("; did you mean \"{field}\"?")).unwrap_or_default();
    }
    if reason.contains("unrecognized enum value") {
        let last = path.rsplit('.').next().unwrap_or_default();
        let kinds = pool.all_messages().find_map(|message| match message.get_field_by_name(last)?.kind() {
            Kind::Enum(values) => Some(values),
            _ => None,
        });
        let names =
            kinds.map(|kinds| kinds.values().map(|value| value.name().to_owned()).collect::<Vec<_>>().join(", "));
        return names.map(|names| format!("; expected one of {names}")).unwrap_or_default();
    }
    String::new()
}

fn decode_protobuf<M: Message>(bytes: &[u8]) -> Result<M, DecodeError> {
    M::decode(bytes).map_err(|source| DecodeError::Protobuf { message: M::NAME, reason: source.to_string() })
}

/// Returns the deepest nesting of brackets outside strings. Checked before a recursive parser reads the text.
fn json_depth(bytes: &[u8]) -> usize {
    let (mut depth, mut deepest, mut in_string, mut escaped) = (0_usize, 0, false, false);
    for byte in bytes {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b'{' | b'[' if !in_string => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b'}' | b']' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

/// Returns the descriptor of a message.
pub fn descriptor<M: Message>() -> Option<MessageDescriptor> {
    pool().get_message_by_name(&M::full_name())
}

fn pool() -> &'static DescriptorPool {
    static POOL: OnceLock<DescriptorPool> = OnceLock::new();
    POOL.get_or_init(|| DescriptorPool::decode(DESCRIPTORS).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::v1::{BatchHeader, Op, Plan, StreamRequest, op};

    #[test]
    fn both_encodings_carry_the_same_message() {
        let request =
            StreamRequest { dataset: "flights".into(), batch_size: Some(7), seed: u64::MAX, ..Default::default() };
        for encoding in [Encoding::Json, Encoding::Protobuf] {
            let (read, seen) = decode::<StreamRequest>(&encode(&request, encoding)).unwrap();
            assert_eq!((read, seen), (request.clone(), encoding));
        }
    }

    #[test]
    fn protobuf_that_starts_like_json_is_protobuf() {
        // Field 1 is tagged 0x0a (a line feed), and a length of 123 is a brace.
        let request = StreamRequest { dataset: "x".repeat(123), ..Default::default() };
        assert_eq!(
            decode::<StreamRequest>(&encode(&request, Encoding::Protobuf)).unwrap(),
            (request, Encoding::Protobuf)
        );
    }

    #[test]
    fn json_names_are_accepted_in_both_cases() {
        for text in [r#"{"batch_size": 5, "dataset": "a"}"#, r#"{"batchSize": "5", "dataset": "a"}"#] {
            assert_eq!(decode::<StreamRequest>(text.as_bytes()).unwrap().0.batch_size, Some(5));
        }
        let error = decode::<StreamRequest>(br#"{"batchsize": 5}"#).unwrap_err().to_string();
        assert!(error.contains("batchsize"), "{error}");
        let error = decode::<StreamRequest>(br#"{"plan": {"outputs": [{"name": 3}]}}"#).unwrap_err().to_string();
        assert!(error.contains("plan.outputs[0].name: "), "{error}");
        let error =
            decode::<Plan>(br#"{"outputs": [{"parts": [{"ops": [{"standardise": {}}]}]}]}"#).unwrap_err().to_string();
        assert!(error.contains("did you mean \"standardize\"?"), "{error}");
        let error = decode::<Plan>(br#"{"outputs": [{"dtype": "FLOAT8"}]}"#).unwrap_err().to_string();
        assert!(error.contains("one of FLOAT32, FLOAT16, "), "{error}");
        assert!(decode::<StreamRequest>(br#"{"dataset": "a"} x"#).is_err());
    }

    #[test]
    fn written_json_has_snake_case_plain_numbers_and_every_field() {
        let header = BatchHeader { checksum: u64::MAX, ..Default::default() };
        assert_eq!(
            to_json(&header),
            r#"{"epoch":0,"step":0,"position":0,"rows":0,"padding_rows":0,"last":false,"checksum":18446744073709551615}"#
        );
    }

    #[test]
    fn an_op_is_named_by_its_field() {
        let text = br#"{"outputs": [{"name": "x", "parts": [{"columns": ["a"], "ops": [{"standardize": {}}, {"fill_null": {"stat": "MEDIAN"}}]}]}]}"#;
        let (plan, _) = decode::<Plan>(text).unwrap();
        assert!(matches!(plan.outputs[0].parts[0].ops[0], Op { op: Some(op::Op::Standardize(_)) }));
    }

    #[test]
    fn doubles_round_trip_through_json() {
        // A parser that takes shortcuts returns some of these one unit in the last place off.
        let mut bits = 0x3ff0_0000_0000_0000_u64;
        for _ in 0..20_000 {
            bits = bits.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let mean = f64::from_bits(bits);
            if mean.is_finite() {
                let op = crate::v1::Standardize { mean: Some(mean), ..crate::v1::Standardize::default() };
                assert_eq!(decode::<crate::v1::Standardize>(to_json(&op).as_bytes()).unwrap().0.mean, Some(mean));
            }
        }
    }

    #[test]
    fn integers_that_a_double_would_round_are_errors() {
        let clip = |bound: &str| {
            let text = format!(r#"{{"outputs": [{{"parts": [{{"ops": [{{"clip": {{"max": {bound}}}}}]}}]}}]}}"#);
            decode::<Plan>(text.as_bytes()).map(|(plan, _)| plan).map_err(|error| error.to_string())
        };
        for bound in ["9007199254740993", "-9007199254740993", "9223372036854775807", "18446744073709551615"] {
            let error = clip(bound).unwrap_err();
            assert!(error.contains("outputs[0].parts[0].ops[0].clip.max: ") && error.contains(bound), "{error}");
        }
        // Doubles in any spelling; the last one is padded with zeros.
        for bound in ["9007199254740992", "9007199254740993.0", "9223372036854775808", "1e22", "1234567890123456800"] {
            assert!(clip(bound).is_ok(), "{bound}");
        }
        let integers = r#"{"outputs": [{"parts": [{"ops": [{"clip": {"max_integer": 9007199254740993}}]}]}]}"#;
        assert!(decode::<Plan>(integers.as_bytes()).is_ok());
        let text = r#"{"outputs": [{"parts": [{"ops": [{"fill_null": {"text": "9007199254740993"}}]}]}]}"#;
        assert!(decode::<Plan>(text.as_bytes()).is_ok());
    }

    #[test]
    fn malformed_bytes_are_errors() {
        let deep = [b"{\"plan\":".repeat(100_000), b"[".repeat(100_000)].concat();
        for bytes in [b"{".as_slice(), b"{\"dataset\": 3}", b"\xff\xfe\x00garbage", &deep, b"{} {}"] {
            assert!(decode::<StreamRequest>(bytes).is_err());
        }
    }
}
