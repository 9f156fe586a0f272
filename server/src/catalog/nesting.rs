//! How deep a footer's schema nests, found out before anything walks it by recursion and overflows its stack.
//!
//! A footer is a struct in Thrift's compact protocol whose second field lists the schema's elements, depth first, each
//! with the number of its children. Just that is read here, and the rest is left to the Parquet library.

use crate::thrift::{Broken, Compact, LIST, STRUCT};

/// Groups within groups that are read. Nobody writes a dozen.
pub(super) const LEVELS_MAX: usize = 64;

/// The field of a footer that lists the schema's elements.
const SCHEMA: i64 = 2;

/// The field of an element that counts its children.
const CHILDREN: i64 = 5;

/// Why a footer is not read.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum NestingError {
    #[error("its schema nests more than {LEVELS_MAX} levels deep, the most that are read")]
    TooDeep,
    #[error(transparent)]
    Broken(#[from] Broken),
}

/// Checks the depth of the schema of a footer.
pub(super) fn check(footer: &[u8]) -> Result<(), NestingError> {
    let mut bytes = Compact::new(footer);
    let mut last = 0;
    while let Some((field, kind)) = bytes.field(&mut last)? {
        if field == SCHEMA && kind == LIST {
            return check_elements(&mut bytes);
        }
        bytes.skip(kind)?;
    }
    // A footer without a schema is the library's to refuse.
    Ok(())
}

fn check_elements(bytes: &mut Compact<'_>) -> Result<(), NestingError> {
    let (count, kind) = bytes.list()?;
    if kind != STRUCT {
        return Err(Broken.into());
    }
    // Children that are still to come, of each group that is open.
    let mut open: Vec<u64> = Vec::new();
    for _ in 0..count {
        while open.last() == Some(&0) {
            open.pop();
        }
        if let Some(due) = open.last_mut() {
            *due -= 1;
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
fn children(bytes: &mut Compact<'_>) -> Result<u64, Broken> {
    let (mut last, mut children) = (0, 0);
    while let Some((field, kind)) = bytes.field(&mut last)? {
        // The library reads a varint, whatever type the field is said to have.
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

    /// A footer of so many groups, each within the one before, and a column in the last; counts of children are headed by
    /// this byte.
    fn footer_of(groups: usize, head: u8) -> Vec<u8> {
        // Field 1 (version), field 2: a list of structs, its length as a number of its own.
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
    fn depth_is_bounded() {
        assert_eq!(check(&footer(1)), Ok(()));
        assert_eq!(check(&footer(LEVELS_MAX)), Ok(()));
        assert_eq!(check(&footer(LEVELS_MAX + 1)), Err(NestingError::TooDeep));
        assert_eq!(check(&footer(1_000_000)), Err(NestingError::TooDeep));
        // Whatever width the counts are said to have.
        for head in [0x13, 0x14, 0x16] {
            assert_eq!(check(&footer_of(LEVELS_MAX + 1, head)), Err(NestingError::TooDeep));
        }
    }

    #[test]
    fn what_breaks_off_is_refused() {
        let whole = footer(3);
        // The last byte ends the footer, behind the schema.
        for length in 0..whole.len() - 1 {
            assert_eq!(check(&whole[..length]), Err(Broken.into()), "{length}");
        }
        assert_eq!(check(&[0x19; 100]), Err(Broken.into()));
        // Lists of lists of lists.
        assert_eq!(check(&[[0x39].as_slice(), &[0x19; 100]].concat()), Err(Broken.into()));
        // A list of more items than there are bytes.
        assert_eq!(check(&[0x29, 0xfc, 0xff, 0xff, 0xff, 0xff, 0x0f]), Err(Broken.into()));
    }
}
