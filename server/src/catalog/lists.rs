//! Footers whose lists are headed by another element type than Parquet's: some writers head an empty list with no type at
//! all, others a list of integers with a wider or narrower one. Readers made by Thrift's own compiler do not look at it;
//! the Parquet library refuses such a footer. Here the heads are set right, and nothing else is changed.

use crate::thrift::{BINARY, Broken, Compact, I16, I32, I64, LIST, STRUCT};

/// The fields of a struct that are lists or hold some.
struct Message(&'static [(i64, Field)]);

enum Field {
    Struct(&'static Message),
    /// A list of values of a type, whose fields are these if it is a struct.
    List(u8, &'static Message),
}

const NO_LISTS: Message = Message(&[]);
const FILE: Message = Message(&[
    (2, Field::List(STRUCT, &NO_LISTS)),
    (4, Field::List(STRUCT, &ROW_GROUP)),
    (5, Field::List(STRUCT, &NO_LISTS)),
    (7, Field::List(STRUCT, &NO_LISTS)),
]);
const ROW_GROUP: Message = Message(&[(1, Field::List(STRUCT, &CHUNK)), (4, Field::List(STRUCT, &NO_LISTS))]);
const CHUNK: Message = Message(&[(3, Field::Struct(&COLUMN))]);
const COLUMN: Message = Message(&[
    (2, Field::List(I32, &NO_LISTS)),
    (3, Field::List(BINARY, &NO_LISTS)),
    (8, Field::List(STRUCT, &NO_LISTS)),
    (13, Field::List(STRUCT, &NO_LISTS)),
    (16, Field::Struct(&SIZES)),
    (17, Field::Struct(&GEOMETRY)),
]);
const SIZES: Message = Message(&[(2, Field::List(I64, &NO_LISTS)), (3, Field::List(I64, &NO_LISTS))]);
const GEOMETRY: Message = Message(&[(2, Field::List(I32, &NO_LISTS))]);

/// The footer with Parquet's element types; none where it has them already, or where a list holds other values.
pub(super) fn with_element_types(footer: &[u8]) -> Option<Vec<u8>> {
    let mut heads = Heads { footer_bytes: footer.len(), wrong: Vec::new() };
    heads.message(&mut Compact::new(footer), &FILE).ok()?;
    if heads.wrong.is_empty() {
        return None;
    }
    let mut footer = footer.to_vec();
    for (place, kind) in heads.wrong {
        let head = footer.get_mut(place)?;
        *head = (*head & 0xf0) | kind;
    }
    Some(footer)
}

/// Heads of lists that name the wrong type: where they are, and the right one.
struct Heads {
    footer_bytes: usize,
    wrong: Vec<(usize, u8)>,
}

impl Heads {
    fn message(&mut self, bytes: &mut Compact<'_>, message: &Message) -> Result<(), Broken> {
        let mut last = 0;
        while let Some((number, kind)) = bytes.field(&mut last)? {
            let known = message.0.iter().find(|(known, _)| *known == number).map(|(_, field)| field);
            match (known, kind) {
                (Some(Field::List(item, message)), LIST) => self.list(bytes, *item, message)?,
                (Some(Field::Struct(message)), STRUCT) => self.message(bytes, message)?,
                _ => bytes.skip(kind)?,
            }
        }
        Ok(())
    }

    fn list(&mut self, bytes: &mut Compact<'_>, kind: u8, message: &Message) -> Result<(), Broken> {
        let place = self.footer_bytes - bytes.rest().len();
        let (count, found) = bytes.list()?;
        if found != kind {
            // Integers of every width are the same varints.
            let are_alike = is_integer(found) && is_integer(kind);
            if count > 0 && !are_alike {
                return Err(Broken);
            }
            self.wrong.push((place, kind));
        }
        let is_struct = kind == STRUCT;
        (0..count).try_for_each(|_| if is_struct { self.message(bytes, message) } else { bytes.skip(kind) })
    }
}

fn is_integer(kind: u8) -> bool {
    matches!(kind, I16 | I32 | I64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A footer of one row group with one chunk, whose encodings are headed by this byte.
    fn footer(encodings: &[u8], key_values: u8) -> Vec<u8> {
        let column = [[0x29].as_slice(), encodings, &[0x00]].concat();
        let chunk = [[0x3c].as_slice(), &column, &[0x00]].concat();
        let group = [[0x19, 0x1c].as_slice(), &chunk, &[0x00]].concat();
        // Field 4: the row groups; field 5: pairs of keys and values, none.
        [[0x49, 0x1c].as_slice(), &group, &[0x19, key_values, 0x00]].concat()
    }

    #[test]
    fn only_wrong_heads_are_changed() {
        let right = footer(&[0x25, 0x00, 0x06], 0x0c);
        assert_eq!(with_element_types(&right), None);
        for wrong in
            [footer(&[0x24, 0x00, 0x06], 0x0c), footer(&[0x26, 0x00, 0x06], 0x00), footer(&[0x25, 0x00, 0x06], 0x08)]
        {
            assert_eq!(with_element_types(&wrong).as_deref(), Some(right.as_slice()));
        }
    }

    #[test]
    fn other_values_and_broken_footers_are_left_to_the_library() {
        // Two bytes, two texts.
        assert_eq!(with_element_types(&footer(&[0x23, 0x00, 0x06], 0x0c)), None);
        assert_eq!(with_element_types(&footer(&[0x28, 0x00, 0x00], 0x0c)), None);
        let whole = footer(&[0x24, 0x00, 0x06], 0x00);
        for length in 0..whole.len() {
            assert_eq!(with_element_types(&whole[..length]), None, "{length}");
        }
        // More items than bytes.
        assert_eq!(with_element_types(&footer(&[0xf4, 0xff, 0xff, 0xff, 0x7f], 0x0c)), None);
    }
}
