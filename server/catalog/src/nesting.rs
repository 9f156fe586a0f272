//! Bounds the nesting depth of a footer's schema before recursive code overflows the stack on it.
//!
//! A footer is a struct in Thrift's compact protocol. Its second field lists the schema elements depth first, each with
//! the number of its children. This module reads only that list; the Parquet library reads the rest.

use forebay_pages::thrift::{CompactReader, InvalidThrift, LIST, STRUCT};

/// The most levels of nested groups. Schemas in practice have fewer than a dozen.
pub(super) const LEVELS_MAX: usize = 64;

/// The footer field that lists the schema elements.
const SCHEMA: i64 = 2;

/// The element field with the number of children.
const CHILDREN: i64 = 5;

/// Why a footer is rejected.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum NestingError {
    #[error("its schema is nested more than {LEVELS_MAX} levels deep, which is the limit")]
    TooDeep,
    #[error(transparent)]
    InvalidThrift(#[from] InvalidThrift),
}

/// Checks the schema depth of a footer.
pub(super) fn check(footer: &[u8]) -> Result<(), NestingError> {
    let mut bytes = CompactReader::new(footer);
    let mut last = 0;
    while let Some((field, kind)) = bytes.field(&mut last)? {
        if field == SCHEMA && kind == LIST {
            return check_elements(&mut bytes);
        }
        bytes.skip(kind)?;
    }
    // The library rejects a footer without a schema.
    Ok(())
}

fn check_elements(bytes: &mut CompactReader<'_>) -> Result<(), NestingError> {
    let (count, kind) = bytes.list()?;
    if kind != STRUCT {
        return Err(InvalidThrift.into());
    }
    // Remaining children of each open group.
    let mut open: Vec<u64> = Vec::new();
    for _ in 0..count {
        while open.last() == Some(&0) {
            open.pop();
        }
        if let Some(remaining) = open.last_mut() {
            *remaining -= 1;
        }
        let children = children(bytes)?;
        if children > 0 {
            open.push(children);
        }
        if open.len() > LEVELS_MAX {
            return Err(NestingError::TooDeep);
        }
    }
    Ok(())
}

/// Reads an element to its end and returns how many children it has.
fn children(bytes: &mut CompactReader<'_>) -> Result<u64, InvalidThrift> {
    let (mut last, mut children) = (0, 0);
    while let Some((field, kind)) = bytes.field(&mut last)? {
        // Like the library, reads a varint for any declared type.
        if field == CHILDREN {
            children = u64::try_from(bytes.signed()?).unwrap_or(0);
        } else {
            bytes.skip(kind)?;
        }
    }
    Ok(children)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn footer(groups: usize) -> Vec<u8> {
        footer_of(groups, 0x15)
    }

    /// A footer of nested groups with a column in the innermost; `head` is the field header of the child counts.
    fn footer_of(groups: usize, head: u8) -> Vec<u8> {
        // Field 1: the version; field 2: a list of structs, with a separate varint length.
        let mut bytes = vec![0x15, 0x02, 0x19, 0xfc];
        let mut count = groups as u64 + 1;
        while count > 0x7f {
            bytes.push(count as u8 | 0x80);
            count >>= 7;
        }
        bytes.push(count as u8);
        for _ in 0..groups {
            // Field 4: the name "g"; field 5: one child.
            bytes.extend([0x48, 0x01, b'g', head, 0x02, 0x00]);
        }
        bytes.extend([0x48, 0x01, b'c', 0x00, 0x00]);
        bytes
    }

    #[test]
    fn rejects_schemas_deeper_than_the_limit() {
        assert_eq!(check(&footer(1)), Ok(()));
        assert_eq!(check(&footer(LEVELS_MAX)), Ok(()));
        assert_eq!(check(&footer(LEVELS_MAX + 1)), Err(NestingError::TooDeep));
        assert_eq!(check(&footer(1_000_000)), Err(NestingError::TooDeep));
        // Any declared width of the counts.
        for head in [0x13, 0x14, 0x16] {
            assert_eq!(check(&footer_of(LEVELS_MAX + 1, head)), Err(NestingError::TooDeep));
        }
    }

    #[test]
    fn rejects_truncated_footers() {
        let whole = footer(3);
        // The last byte ends the footer, after the schema.
        for length in 0..whole.len() - 1 {
            assert_eq!(check(&whole[..length]), Err(InvalidThrift.into()), "{length}");
        }
        assert_eq!(check(&[0x19; 100]), Err(InvalidThrift.into()));
        // Lists of lists of lists.
        assert_eq!(check(&[[0x39].as_slice(), &[0x19; 100]].concat()), Err(InvalidThrift.into()));
        // A list of more items than there are bytes.
        assert_eq!(check(&[0x29, 0xfc, 0xff, 0xff, 0xff, 0xff, 0x0f]), Err(InvalidThrift.into()));
    }
}
