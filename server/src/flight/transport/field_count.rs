//! Counts the fields of protobuf messages as their bytes arrive. A field of two bytes may decode to a hundred, so the
//! count is limited before anything is decoded.

use forebay_proto::v1::Reason;
use tonic::Status;

use crate::flight::status;

/// The most fields of a message of Flight. Its messages have less than ten, and few parts of a path.
const FIELDS_MAX: usize = 1000;

/// The fields of one message so far.
#[derive(Clone, Debug)]
pub(super) struct FieldCount {
    /// The field that holds a message, whose fields count, too.
    nested: Option<u64>,
    fields: usize,
    next: NextBytes,
}

/// What the next byte belongs to.
#[derive(Clone, Copy, Debug)]
enum NextBytes {
    Key(Varint),
    /// The value of a field.
    Value,
    /// The length of a field.
    Length(u64, Varint),
    Payload(u64),
}

/// A varint so far.
#[derive(Clone, Copy, Debug, Default)]
struct Varint {
    value: u64,
    shift: u32,
}

impl FieldCount {
    pub(super) fn new(nested: Option<u64>) -> Self {
        Self { nested, fields: 0, next: NextBytes::Key(Varint::default()) }
    }

    /// Counts the fields in the next bytes of a message. Malformed bytes are left to the decoder.
    pub(super) fn add(&mut self, mut bytes: &[u8]) -> Result<(), Status> {
        while let Some((first, rest)) = bytes.split_first() {
            let skipped;
            (self.next, skipped) = match self.next {
                NextBytes::Key(mut key) => (key.add(*first).map_or(NextBytes::Key(key), |key| self.after_key(key)), 1),
                NextBytes::Value if *first < 0x80 => (NextBytes::Key(Varint::default()), 1),
                NextBytes::Value => (NextBytes::Value, 1),
                NextBytes::Length(field, mut length) => {
                    let next = match length.add(*first) {
                        None => NextBytes::Length(field, length),
                        Some(_) if self.nested == Some(field) => NextBytes::Key(Varint::default()),
                        Some(length) => after_bytes(length),
                    };
                    (next, 1)
                }
                NextBytes::Payload(left) => {
                    let here = left.min(rest.len() as u64 + 1);
                    (after_bytes(left - here), here as usize)
                }
            };
            bytes = &bytes[skipped..];
            if self.fields > FIELDS_MAX {
                let text = format!("the message has more than {FIELDS_MAX} fields: no message of Flight has as many");
                return Err(status::refusal(Reason::Limit, &text));
            }
        }
        Ok(())
    }

    fn after_key(&mut self, key: u64) -> NextBytes {
        self.fields += 1;
        match key & 7 {
            0 => NextBytes::Value,
            1 => NextBytes::Payload(8),
            2 => NextBytes::Length(key >> 3, Varint::default()),
            5 => NextBytes::Payload(4),
            // The start or the end of a group has no value.
            3 | 4 => NextBytes::Key(Varint::default()),
            // The decoder stops here.
            _ => NextBytes::Payload(u64::MAX),
        }
    }
}

fn after_bytes(left: u64) -> NextBytes {
    if left == 0 { NextBytes::Key(Varint::default()) } else { NextBytes::Payload(left) }
}

impl Varint {
    /// Adds a byte; the value, if it is the last one.
    fn add(&mut self, byte: u8) -> Option<u64> {
        self.value |= u64::from(byte & 0x7f).checked_shl(self.shift).unwrap_or(0);
        self.shift += 7;
        (byte < 0x80).then_some(self.value)
    }
}

#[cfg(test)]
mod tests {
    use arrow_flight::{FlightData, FlightDescriptor};
    use prost::Message as _;

    use super::*;

    fn descriptor(parts: usize) -> FlightDescriptor {
        FlightDescriptor::new_path(vec![String::new(); parts])
    }

    /// Whether a message has too many fields, in chunks of any size.
    fn is_refused(nested: Option<u64>, message: &[u8]) -> bool {
        let refused = [1, 7, message.len()].map(|size| {
            let mut count = FieldCount::new(nested);
            message.chunks(size).any(|chunk| count.add(chunk).is_err())
        });
        assert!(refused.iter().all(|each| *each == refused[0]), "{refused:?}");
        refused[0]
    }

    #[test]
    fn fields_are_counted_wherever_they_are_and_content_is_not() {
        let data = |parts, body_bytes| FlightData {
            flight_descriptor: Some(descriptor(parts)),
            data_body: vec![10; body_bytes].into(),
            data_header: vec![10; 3000].into(),
            ..FlightData::default()
        };
        assert!(!is_refused(None, &descriptor(FIELDS_MAX - 1).encode_to_vec()));
        assert!(is_refused(None, &descriptor(FIELDS_MAX + 1).encode_to_vec()));
        // Bytes that would be fields by themselves.
        assert!(!is_refused(None, &FlightDescriptor::new_cmd([10, 0].repeat(5000)).encode_to_vec()));
        assert!(!is_refused(Some(1), &data(900, 50_000).encode_to_vec()));
        assert!(is_refused(Some(1), &data(FIELDS_MAX, 0).encode_to_vec()));
        assert!(is_refused(Some(1), &[data(600, 0).encode_to_vec(), data(600, 0).encode_to_vec()].concat()));
    }
}
