//! Messages of the type `tf.train.Example`: features by name, each a list of bytes, floats or integers. Anything else
//! in a message is an error, so that records of another schema are not read as rows without values.

use crate::tfrecord::wire::{Wire, WireValue};

/// Features of a record.
const FEATURES_MAX: usize = 100_000;

/// The type of the values of a feature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ValueKind {
    /// Bytes or text.
    Bytes,
    /// Floating-point numbers of 32 bits.
    Floats,
    /// Integers of 64 bits.
    Integers,
}

/// The values of a feature.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Values<'a> {
    /// Of [`ValueKind::Bytes`].
    Bytes(Vec<&'a [u8]>),
    /// Of [`ValueKind::Floats`].
    Floats(Vec<f32>),
    /// Of [`ValueKind::Integers`].
    Integers(Vec<i64>),
}

/// A feature without a list has no values.
pub(crate) type Feature<'a> = (&'a str, Option<Values<'a>>);

// === impl ValueKind ===

impl ValueKind {
    /// The name in messages, as in TensorFlow.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Bytes => "a bytes_list",
            Self::Floats => "a float_list",
            Self::Integers => "an int64_list",
        }
    }
}

// === impl Values ===

impl Values<'_> {
    pub(crate) fn kind(&self) -> ValueKind {
        match self {
            Self::Bytes(_) => ValueKind::Bytes,
            Self::Floats(_) => ValueKind::Floats,
            Self::Integers(_) => ValueKind::Integers,
        }
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Bytes(values) => values.len(),
            Self::Floats(values) => values.len(),
            Self::Integers(values) => values.len(),
        }
    }
}

/// Parses a record.
pub(crate) fn parse(record: &[u8]) -> Result<Vec<Feature<'_>>, String> {
    let mut features = Vec::new();
    let parsed = parse_example(record, &mut features);
    parsed.map(|()| features).map_err(|reason| format!("it is not a tf.train.Example: it has {reason}"))
}

fn parse_example<'a>(record: &'a [u8], features: &mut Vec<Feature<'a>>) -> Result<(), String> {
    let mut example = Wire(record);
    while let Some(field) = example.next_field()? {
        let (1, WireValue::Bytes(map)) = field else {
            let other = if field.0 == 2 { ", as a tf.train.SequenceExample" } else { "" };
            return Err(format!("the field {}{other}", field.0));
        };
        let mut map = Wire(map);
        while let Some(field) = map.next_field()? {
            let (1, WireValue::Bytes(entry)) = field else {
                return Err(format!("the field {} in its features", field.0));
            };
            if features.len() == FEATURES_MAX {
                return Err(format!("more than {FEATURES_MAX} features"));
            }
            features.push(parse_entry(entry)?);
        }
    }
    Ok(())
}

fn parse_entry(entry: &[u8]) -> Result<Feature<'_>, String> {
    let (mut name, mut feature) = ("", None);
    let mut fields = Wire(entry);
    while let Some(field) = fields.next_field()? {
        match field {
            (1, WireValue::Bytes(bytes)) => {
                name = std::str::from_utf8(bytes).map_err(|_| "a name that is not UTF-8")?;
            }
            (2, WireValue::Bytes(bytes)) => add_lists(bytes, &mut feature)?,
            (number, _) => return Err(format!("the field {number} next to a feature")),
        }
    }
    Ok((name, feature))
}

fn add_lists<'a>(feature: &'a [u8], values: &mut Option<Values<'a>>) -> Result<(), String> {
    let mut lists = Wire(feature);
    while let Some(field) = lists.next_field()? {
        let (number @ 1..=3, WireValue::Bytes(list)) = field else {
            return Err(format!("the field {} in a feature", field.0));
        };
        let values = values.get_or_insert_with(|| match number {
            1 => Values::Bytes(Vec::new()),
            2 => Values::Floats(Vec::new()),
            _ => Values::Integers(Vec::new()),
        });
        match (number, values) {
            (1, Values::Bytes(values)) => add_bytes(list, values)?,
            (2, Values::Floats(values)) => add_floats(list, values)?,
            (3, Values::Integers(values)) => add_integers(list, values)?,
            _ => return Err("two lists in a feature".to_owned()),
        }
    }
    Ok(())
}

fn add_bytes<'a>(list: &'a [u8], values: &mut Vec<&'a [u8]>) -> Result<(), String> {
    let mut list = Wire(list);
    while let Some(field) = list.next_field()? {
        match field {
            (1, WireValue::Bytes(value)) => values.push(value),
            (number, _) => return Err(format!("the field {number} in a list of bytes")),
        }
    }
    Ok(())
}

fn add_floats(list: &[u8], values: &mut Vec<f32>) -> Result<(), String> {
    let mut list = Wire(list);
    while let Some(field) = list.next_field()? {
        match field {
            (1, WireValue::Bytes(packed)) => {
                let (chunks, rest) = packed.as_chunks::<4>();
                if !rest.is_empty() {
                    return Err("floats of fewer than four bytes".to_owned());
                }
                values.extend(chunks.iter().map(|chunk| f32::from_le_bytes(*chunk)));
            }
            (1, WireValue::Fixed32(value)) => values.push(f32::from_le_bytes(value)),
            (number, _) => return Err(format!("the field {number} in a list of floats")),
        }
    }
    Ok(())
}

fn add_integers(list: &[u8], values: &mut Vec<i64>) -> Result<(), String> {
    let mut list = Wire(list);
    while let Some(field) = list.next_field()? {
        match field {
            (1, WireValue::Bytes(packed)) => {
                let mut packed = Wire(packed);
                while !packed.0.is_empty() {
                    values.push(packed.varint()?.cast_signed());
                }
            }
            (1, WireValue::Varint(value)) => values.push(value.cast_signed()),
            (number, _) => return Err(format!("the field {number} in a list of integers")),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
        [&[number << 3 | 2, bytes.len() as u8], bytes].concat()
    }

    fn example(name: &str, feature: &[u8]) -> Vec<u8> {
        field(1, &field(1, &[field(1, name.as_bytes()), field(2, feature)].concat()))
    }

    #[test]
    fn features_have_their_values() {
        let bytes = field(1, &[field(1, b"x"), field(1, b"")].concat());
        let floats = field(2, &field(1, &[1.5_f32.to_le_bytes(), 2.0_f32.to_le_bytes()].concat()));
        let packed = field(3, &field(1, &[1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]));
        let unpacked = field(3, &[0x08, 5, 0x08, 6]);
        let one_float = field(2, &[&[0x0d][..], &1.0_f32.to_le_bytes()].concat());
        for (feature, values) in [
            (bytes, Some(Values::Bytes(vec![b"x", b""]))),
            (floats, Some(Values::Floats(vec![1.5, 2.0]))),
            (one_float, Some(Values::Floats(vec![1.0]))),
            (packed, Some(Values::Integers(vec![1, -1]))),
            (unpacked, Some(Values::Integers(vec![5, 6]))),
            (field(3, &[]), Some(Values::Integers(Vec::new()))),
            (Vec::new(), None),
        ] {
            assert_eq!(parse(&example("n", &feature)), Ok(vec![("n", values)]));
        }
        assert_eq!(parse(&[]), Ok(Vec::new()));
    }

    #[test]
    fn messages_of_other_types_are_refused() {
        let floats = field(2, &field(1, &[0; 3]));
        for (record, reason) in [
            (field(2, b""), "the field 2, as a tf.train.SequenceExample"),
            (field(7, b"x"), "the field 7"),
            (vec![0x08, 1], "the field 1"),
            (field(1, &field(2, b"")), "the field 2 in its features"),
            (example("n", &field(4, b"")), "the field 4 in a feature"),
            (example("n", &[field(1, b""), field(3, b"")].concat()), "two lists"),
            (example("n", &floats), "fewer than four bytes"),
            (example("n", &field(1, &[0x08, 1])), "in a list of bytes"),
            (b"just text".to_vec(), "it is not a tf.train.Example"),
        ] {
            let error = parse(&record).unwrap_err();
            assert!(error.contains(reason), "{record:?}: {error}");
        }
    }
}
