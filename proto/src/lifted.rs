//! Long arrays of strings, such as vocabularies, taken out of a JSON text before its fields are interpreted, and put
//! into the message afterwards: interpreting each string as a value of any field costs several times its parsing.

use std::{
    borrow::Cow,
    hash::{BuildHasher, Hasher, RandomState},
    ops::Range,
};

use prost::{
    bytes::{Buf, BufMut},
    encoding::{self, DecodeContext, WireType, encode_key, encode_varint, encoded_len_varint, key_len, skip_field},
};
use prost_reflect::{Kind, MessageDescriptor};
use serde::Deserialize;

/// Bytes of an array in JSON from which it is removed.
const ARRAY_BYTES_MIN: usize = 16 << 10;

/// A JSON text without its long arrays of strings.
#[derive(Debug)]
pub(crate) struct Lifted<'a> {
    /// The text, with the name of an array in place of its strings.
    pub text: Vec<u8>,
    /// What names start with, which no text contains by chance.
    prefix: String,
    arrays: Vec<Vec<Text<'a>>>,
}

/// A string, copied only if it has escapes.
#[derive(Debug, Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

/// A field of an encoded message.
struct Encoded<'a> {
    tag: u32,
    /// All of its bytes.
    whole: &'a [u8],
    /// Its value, if it has a length.
    value: Option<&'a [u8]>,
}

/// What a field is with its arrays.
enum Restored<'l, 'a> {
    Message(MessageDescriptor, &'a [u8]),
    Strings(&'l [Text<'l>]),
    Unchanged,
}

impl<'a> Lifted<'a> {
    /// Takes the long arrays out of a text; `None` if there are none.
    pub(crate) fn new(bytes: &'a [u8]) -> Option<Self> {
        let prefix = format!("{:016x}-", RandomState::new().build_hasher().finish());
        let (mut text, mut arrays) = (Vec::new(), Vec::new());
        let (mut at, mut copied) = (0, 0);
        while at < bytes.len() {
            match bytes[at] {
                b'"' => at = string_end(bytes, at)?,
                b'[' => {
                    let array = string_array(bytes, at).filter(|array| array.len() >= ARRAY_BYTES_MIN);
                    let Some(array) = array else {
                        at += 1;
                        continue;
                    };
                    text.extend_from_slice(&bytes[copied..array.start]);
                    text.extend_from_slice(format!("[\"{prefix}{}\"]", arrays.len()).as_bytes());
                    arrays.push(serde_json::from_slice(&bytes[array.clone()]).ok()?);
                    (at, copied) = (array.end, array.end);
                }
                _ => at += 1,
            }
        }
        text.extend_from_slice(&bytes[copied..]);
        (!arrays.is_empty()).then_some(Self { text, prefix, arrays })
    }

    /// Puts the arrays into an encoded message, in place of their names.
    pub(crate) fn restore(&self, encoded: &[u8], message: &MessageDescriptor) -> Option<Vec<u8>> {
        // Its size first: the arrays are copied once, however deep they are.
        let mut restored = Vec::with_capacity(self.size(encoded, message)?);
        self.write(encoded, message, &mut restored)?;
        Some(restored)
    }

    fn size(&self, mut encoded: &[u8], message: &MessageDescriptor) -> Option<usize> {
        let mut size = 0;
        while encoded.has_remaining() {
            let field = next_field(&mut encoded)?;
            size += match self.restored(&field, message) {
                Restored::Message(inner, value) => {
                    let inner = self.size(value, &inner)?;
                    key_len(field.tag) + encoded_len_varint(inner as u64) + inner
                }
                Restored::Strings(strings) => strings.iter().map(|text| text.size(field.tag)).sum(),
                Restored::Unchanged => field.whole.len(),
            };
        }
        Some(size)
    }

    fn write(&self, mut encoded: &[u8], message: &MessageDescriptor, restored: &mut Vec<u8>) -> Option<()> {
        while encoded.has_remaining() {
            let field = next_field(&mut encoded)?;
            match self.restored(&field, message) {
                Restored::Message(inner, value) => {
                    encode_key(field.tag, WireType::LengthDelimited, restored);
                    encode_varint(self.size(value, &inner)? as u64, restored);
                    self.write(value, &inner, restored)?;
                }
                Restored::Strings(strings) => strings.iter().for_each(|text| text.write(field.tag, restored)),
                Restored::Unchanged => restored.put_slice(field.whole),
            }
        }
        Some(())
    }

    fn restored<'e>(&self, field: &Encoded<'e>, message: &MessageDescriptor) -> Restored<'_, 'e> {
        let Some(value) = field.value else { return Restored::Unchanged };
        match message.get_field(field.tag).map(|field| field.kind()) {
            Some(Kind::Message(inner)) => Restored::Message(inner, value),
            Some(Kind::String) => self.array(value).map_or(Restored::Unchanged, Restored::Strings),
            _ => Restored::Unchanged,
        }
    }

    /// The array of a name.
    fn array(&self, name: &[u8]) -> Option<&[Text<'_>]> {
        let index = name.strip_prefix(self.prefix.as_bytes())?;
        self.arrays.get(std::str::from_utf8(index).ok()?.parse::<usize>().ok()?).map(Vec::as_slice)
    }
}

impl Text<'_> {
    fn size(&self, tag: u32) -> usize {
        key_len(tag) + encoded_len_varint(self.0.len() as u64) + self.0.len()
    }

    fn write(&self, tag: u32, buffer: &mut Vec<u8>) {
        encode_key(tag, WireType::LengthDelimited, buffer);
        encode_varint(self.0.len() as u64, buffer);
        buffer.put_slice(self.0.as_bytes());
    }
}

fn next_field<'a>(encoded: &mut &'a [u8]) -> Option<Encoded<'a>> {
    let start = *encoded;
    let (tag, wire_type) = encoding::decode_key(encoded).ok()?;
    let value = if wire_type == WireType::LengthDelimited {
        let length = usize::try_from(encoding::decode_varint(encoded).ok()?).ok()?;
        let (value, rest) = encoded.split_at_checked(length)?;
        *encoded = rest;
        Some(value)
    } else {
        skip_field(wire_type, tag, encoded, DecodeContext::default()).ok()?;
        None
    };
    Some(Encoded { tag, whole: &start[..start.len() - encoded.len()], value })
}

/// The end of the string that starts here, after its closing quote.
fn string_end(bytes: &[u8], start: usize) -> Option<usize> {
    let mut at = start + 1;
    loop {
        match bytes.get(at)? {
            b'"' => return Some(at + 1),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

/// The array that starts here, if it has only strings.
fn string_array(bytes: &[u8], start: usize) -> Option<Range<usize>> {
    let space = |mut at: usize| {
        while bytes.get(at).is_some_and(u8::is_ascii_whitespace) {
            at += 1;
        }
        at
    };
    let mut at = space(start + 1);
    loop {
        if bytes.get(at) != Some(&b'"') {
            return None;
        }
        at = space(string_end(bytes, at)?);
        match bytes.get(at)? {
            b']' => return Some(start..at + 1),
            b',' => at = space(at + 1),
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Encoding, decode, encode,
        v1::{Op, Output, Part, Plan, StreamRequest, Vocab, VocabValues, op},
    };

    fn request(strings: Vec<String>) -> StreamRequest {
        let values = Some(VocabValues { strings, ..VocabValues::default() });
        let op = Op { op: Some(op::Op::Vocab(Vocab { values, ..Vocab::default() })) };
        let parts = vec![Part { columns: vec!["a".into(), "b".into()], ops: vec![op] }];
        let output = Output { name: "[\"x".into(), parts, ..Output::default() };
        let plan = Plan { filter: "a > ']'".into(), outputs: vec![output.clone(), output], ..Plan::default() };
        StreamRequest { dataset: "d".into(), plan: Some(plan), seed: u64::MAX, ..StreamRequest::default() }
    }

    #[test]
    fn messages_with_long_arrays_round_trip() {
        let awkward = ["", "\"", "\\", "\\\"", "]", ",", "\u{0}\n\u{7f}", "é𝄞", "[\"a\"]", "0123456789abcdef-0"];
        for count in [0, 1, 10_000] {
            let strings = (0..count).map(|index| format!("{}{index}", awkward[index % awkward.len()])).collect();
            let request = request(strings);
            let text = encode(&request, Encoding::Json);
            assert_eq!(Lifted::new(&text).map(|lifted| lifted.arrays.len()), (count == 10_000).then_some(2));
            assert_eq!(decode::<StreamRequest>(&text).unwrap().0, request, "{count}");
        }
    }

    #[test]
    fn mistakes_beside_a_long_array_are_reported_as_in_any_message() {
        let text = String::from_utf8(encode(&request(vec!["w".to_owned(); 10_000]), Encoding::Json)).unwrap();
        let refused = |from: &str, to: &str| {
            assert!(text.contains(from), "{from}");
            decode::<StreamRequest>(text.replacen(from, to, 1).as_bytes()).unwrap_err().to_string()
        };
        let error = refused("\"vocab\":", "\"vocabs\":");
        assert!(error.contains("plan.outputs[0].parts[0].ops[0]") && error.contains("\"vocab\"?"), "{error}");
        assert!(refused("\"w\",\"w\"", "\"w\",7").contains("values.strings[1]"));
        assert!(refused("\"strings\":", "\"integers\":").contains("integers"));
        assert!(decode::<StreamRequest>(&text.as_bytes()[..text.len() - 1]).is_err());
        assert!(decode::<StreamRequest>(&text.as_bytes()[..text.len() / 2]).is_err());
    }
}
