//! Writes values of Thrift's compact protocol, for footers that are rewritten.

/// The header of a field; `last` is the id of the one before.
pub(super) fn field(id: i64, kind: u8, last: &mut i64, bytes: &mut Vec<u8>) {
    if let Ok(step @ 1..=15) = u8::try_from(id - *last) {
        bytes.push(step << 4 | kind);
    } else {
        bytes.push(kind);
        signed(id, bytes);
    }
    *last = id;
}

/// The header of a list.
pub(super) fn list(count: u64, kind: u8, bytes: &mut Vec<u8>) {
    if let Ok(count @ ..15) = u8::try_from(count) {
        bytes.push(count << 4 | kind);
    } else {
        bytes.push(0xf0 | kind);
        number(count, bytes);
    }
}

/// A zigzag varint.
pub(super) fn signed(value: i64, bytes: &mut Vec<u8>) {
    number(((value << 1) ^ (value >> 63)) as u64, bytes);
}

fn number(mut value: u64, bytes: &mut Vec<u8>) {
    while value > 0x7f {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}
