//! Rewrites schemas in footers of old writers into the form that the Parquet library reads, with the meaning that other
//! readers give them. Values, their levels and their order stay the same.
//!
//! - A converted type that no version of the format has: it is left out. parquet-cpp before 1.6 marked columns of nulls
//!   with one, which become such columns.
//! - A decimal without a scale: the scale is 0, as the format has it.
//! - A list whose items are maps without a group around each item, as parquet-avro wrote them.

use forebay_pages::thrift::{BINARY, CompactReader, I32, InvalidThrift, LIST, STRUCT};

use super::thrift_writer;

/// The footer field that lists the schema elements.
const SCHEMA: i64 = 2;

// ElementFields of an element.
const REPETITION: i64 = 3;
const NAME: i64 = 4;
const CHILDREN: i64 = 5;
const CONVERTED: i64 = 6;
const SCALE: i64 = 7;
const LOGICAL: i64 = 10;

// Repetitions.
const REQUIRED: i64 = 0;
const REPEATED: i64 = 2;

// Converted types.
const MAP: i64 = 1;
const LIST_OF_ITEMS: i64 = 3;
const DECIMAL: i64 = 5;
const LAST: i64 = 21;
/// Columns of nulls: parquet-cpp 1.3 to 1.5.
const NULLS: [i64; 2] = [24, 25];

/// The logical type of columns of nulls: a union whose field 11 is an empty struct.
const LOGICAL_UNKNOWN: [u8; 3] = [0xbc, 0x00, 0x00];

/// A struct as its fields: id, type, and the bytes of the value.
type ElementFields<'a> = Vec<(i64, u8, FieldBytes<'a>)>;

enum FieldBytes<'a> {
    /// As stored.
    Stored(&'a [u8]),
    New(Vec<u8>),
}

/// The footer with a schema that the library reads; `None` if nothing needs rewriting.
pub(super) fn rewritten(footer: &[u8]) -> Option<Vec<u8>> {
    let mut reader = CompactReader::new(footer);
    let mut fields = fields(&mut reader).ok()?;
    let rest = reader.rest();
    let (_, _, schema) = fields.iter_mut().find(|(id, kind, _)| (*id, *kind) == (SCHEMA, LIST))?;
    let elements = elements(schema.bytes()).ok()?;
    *schema = FieldBytes::New(rewrite(elements)?);
    let mut bytes = Vec::with_capacity(footer.len() + 64);
    write(&fields, &mut bytes);
    bytes.extend(rest);
    Some(bytes)
}

/// The fields of a struct, up to its end.
fn fields<'a>(reader: &mut CompactReader<'a>) -> Result<ElementFields<'a>, InvalidThrift> {
    let (mut fields, mut last) = (Vec::new(), 0);
    while let Some((id, kind)) = reader.field(&mut last)? {
        let before = reader.rest();
        reader.skip(kind)?;
        fields.push((id, kind, FieldBytes::Stored(&before[..before.len() - reader.rest().len()])));
    }
    Ok(fields)
}

fn elements(list: &[u8]) -> Result<Vec<ElementFields<'_>>, InvalidThrift> {
    let mut reader = CompactReader::new(list);
    let (count, kind) = reader.list()?;
    if kind != STRUCT {
        return Err(InvalidThrift);
    }
    (0..count).map(|_| fields(&mut reader)).collect()
}

/// The list of the rewritten elements; `None` if they are as they were.
fn rewrite(elements: Vec<ElementFields<'_>>) -> Option<Vec<u8>> {
    let (mut changed, mut is_changed) = (Vec::with_capacity(elements.len()), false);
    let mut is_of_list = false;
    for mut element in elements {
        is_changed |= retype(&mut element) | add_scale(&mut element);
        let converted = integer(&element, CONVERTED);
        let is_group = integer(&element, CHILDREN).is_some_and(|children| children > 0);
        if is_of_list && is_group && converted == Some(MAP) && integer(&element, REPETITION) == Some(REPEATED) {
            set(&mut element, REPETITION, REQUIRED);
            changed.push(wrapper());
            is_changed = true;
        }
        is_of_list = is_group && converted == Some(LIST_OF_ITEMS);
        changed.push(element);
    }
    if !is_changed {
        return None;
    }
    let mut bytes = Vec::new();
    thrift_writer::list(changed.len() as u64, STRUCT, &mut bytes);
    for element in &changed {
        write(element, &mut bytes);
    }
    Some(bytes)
}

/// A repeated group of one child.
fn wrapper() -> ElementFields<'static> {
    let mut wrapper = vec![(NAME, BINARY, FieldBytes::New(b"\x04list".to_vec()))];
    set(&mut wrapper, REPETITION, REPEATED);
    set(&mut wrapper, CHILDREN, 1);
    wrapper
}

/// Removes an unknown converted type.
fn retype(element: &mut ElementFields<'_>) -> bool {
    let Some(unknown) = integer(element, CONVERTED).filter(|kind| !(0..=LAST).contains(kind)) else { return false };
    element.retain(|(id, ..)| *id != CONVERTED);
    if NULLS.contains(&unknown) && element.iter().all(|(id, ..)| *id != LOGICAL) {
        element.push((LOGICAL, STRUCT, FieldBytes::New(LOGICAL_UNKNOWN.to_vec())));
    }
    true
}

fn add_scale(element: &mut ElementFields<'_>) -> bool {
    let lacks_scale = integer(element, CONVERTED) == Some(DECIMAL) && integer(element, SCALE).is_none();
    if lacks_scale {
        set(element, SCALE, 0);
    }
    lacks_scale
}

fn integer(element: &ElementFields<'_>, id: i64) -> Option<i64> {
    let (_, _, value) = element.iter().find(|(known, kind, _)| (*known, *kind) == (id, I32))?;
    CompactReader::new(value.bytes()).signed().ok()
}

fn set(element: &mut ElementFields<'_>, id: i64, value: i64) {
    let mut bytes = Vec::new();
    thrift_writer::signed(value, &mut bytes);
    element.retain(|(known, ..)| *known != id);
    element.push((id, I32, FieldBytes::New(bytes)));
    element.sort_by_key(|(id, ..)| *id);
}

fn write(fields: &ElementFields<'_>, bytes: &mut Vec<u8>) {
    let mut last = 0;
    for (id, kind, value) in fields {
        thrift_writer::field(*id, *kind, &mut last, bytes);
        bytes.extend(value.bytes());
    }
    bytes.push(0);
}

// === impl FieldBytes ===

impl FieldBytes<'_> {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Stored(bytes) => bytes,
            Self::New(bytes) => bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A footer of these elements, each the bytes of its fields, and a later field.
    fn footer(elements: &[&[u8]]) -> Vec<u8> {
        let mut bytes = vec![0x15, 0x02, 0x19, (elements.len() as u8) << 4 | STRUCT];
        for element in elements {
            bytes.extend(*element);
            bytes.push(0);
        }
        [bytes, vec![0x16, 0x02, 0x00]].concat()
    }

    #[test]
    fn unknown_types_are_left_out_and_scales_are_added() {
        // A name and a converted type: an unknown one, that of nulls, a decimal of precision 4, and text.
        let unknown: &[u8] = &[0x48, 1, b'a', 0x25, 100];
        let nulls: &[u8] = &[0x48, 1, b'b', 0x25, 48];
        let decimal: &[u8] = &[0x48, 1, b'c', 0x25, 10, 0x25, 8];
        let text: &[u8] = &[0x48, 1, b'd', 0x25, 0];
        assert_eq!(rewritten(&footer(&[text])), None);
        let want: [&[u8]; 4] =
            [&[0x48, 1, b'a'], &[0x48, 1, b'b', 0x6c, 0xbc, 0, 0], &[0x48, 1, b'c', 0x25, 10, 0x15, 0, 0x15, 8], text];
        assert_eq!(rewritten(&footer(&[unknown, nulls, decimal, text])), Some(footer(&want)));
    }

    #[test]
    fn maps_that_are_items_get_a_group_around_each() {
        // Repetition, name, children, converted type.
        let list: &[u8] = &[0x35, 0, 0x18, 1, b'l', 0x15, 2, 0x15, 6];
        let map: &[u8] = &[0x35, 4, 0x18, 1, b'm', 0x15, 2, 0x15, 2];
        let entries: &[u8] = &[0x35, 4, 0x18, 1, b'e', 0x15, 4];
        let item: &[u8] = &[0x35, 0, 0x18, 1, b'm', 0x15, 2, 0x15, 2];
        let group: &[u8] = &[0x35, 4, 0x18, 4, b'l', b'i', b's', b't', 0x15, 2];
        assert_eq!(rewritten(&footer(&[list, map, entries])), Some(footer(&[list, group, item, entries])));
        assert_eq!(rewritten(&footer(&[map, entries])), None);
        for length in 0..footer(&[list, map]).len() - 1 {
            assert_eq!(rewritten(&footer(&[list, map])[..length]), None);
        }
    }
}
