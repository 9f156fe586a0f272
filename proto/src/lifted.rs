//! Long arrays of strings, such as vocabularies, taken out of a JSON text before its fields are interpreted, and put
//! into the message afterwards: interpreting each string as a value of any field costs several times its parsing.

use std::{
    hash::{BuildHasher, Hasher, RandomState},
    ops::Range,
};

use prost::{
    bytes::Buf,
    encoding::{self, DecodeContext, WireType, skip_field},
};
use prost_reflect::{Kind, MessageDescriptor};

/// Bytes of an array in JSON from which it is taken out.
const ARRAY_BYTES_MIN: usize = 16 << 10;

/// A JSON text without its long arrays of strings.
#[derive(Debug)]
pub(crate) struct Lifted {
    /// The text, with the name of an array in place of its strings.
    pub text: Vec<u8>,
    /// What names start with, which no text contains by chance.
    prefix: String,
    arrays: Vec<Vec<String>>,
}

impl Lifted {
    /// Takes the long arrays out of a text; `None` if there are none.
    pub(crate) fn new(bytes: &[u8]) -> Option<Self> {
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
    pub(crate) fn restore(&self, mut encoded: &[u8], message: &MessageDescriptor) -> Option<Vec<u8>> {
        let mut restored = Vec::with_capacity(encoded.len());
        while encoded.has_remaining() {
            let whole = encoded;
            let (tag, wire_type) = encoding::decode_key(&mut encoded).ok()?;
            if wire_type != WireType::LengthDelimited {
                skip_field(wire_type, tag, &mut encoded, DecodeContext::default()).ok()?;
                restored.extend_from_slice(&whole[..whole.len() - encoded.len()]);
                continue;
            }
            let length = usize::try_from(encoding::decode_varint(&mut encoded).ok()?).ok()?;
            let value = encoded.get(..length)?;
            encoded.advance(length);
            match message.get_field(tag).map(|field| field.kind()) {
                Some(Kind::Message(inner)) => {
                    encoding::bytes::encode(tag, &self.restore(value, &inner)?, &mut restored);
                }
                Some(Kind::String) => match self.array(value) {
                    Some(strings) => encoding::string::encode_repeated(tag, strings, &mut restored),
                    None => restored.extend_from_slice(&whole[..whole.len() - encoded.len()]),
                },
                _ => restored.extend_from_slice(&whole[..whole.len() - encoded.len()]),
            }
        }
        Some(restored)
    }

    /// The array of a name.
    fn array(&self, name: &[u8]) -> Option<&Vec<String>> {
        let index = name.strip_prefix(self.prefix.as_bytes())?;
        self.arrays.get(std::str::from_utf8(index).ok()?.parse::<usize>().ok()?)
    }
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
