//! A reader of Thrift's compact protocol, to check Parquet footers and page headers before the Parquet library parses
//! them. Finds or skips fields, stores nothing, and allocates nothing for declared counts.

/// The deepest nesting of structs and lists that is skipped; Parquet's own have four levels.
const STRUCTS_MAX: usize = 16;

// Type codes.
const TRUE: u8 = 1;
const FALSE: u8 = 2;
const BYTE: u8 = 3;
/// A 16-bit integer, as a zigzag varint.
pub const I16: u8 = 4;
/// A 32-bit integer, as a zigzag varint.
pub const I32: u8 = 5;
/// A 64-bit integer, as a zigzag varint.
pub const I64: u8 = 6;
const DOUBLE: u8 = 7;
/// Bytes or text.
pub const BINARY: u8 = 8;
/// A list.
pub const LIST: u8 = 9;
const SET: u8 = 10;
const MAP: u8 = 11;
/// A struct.
pub const STRUCT: u8 = 12;
const UUID: u8 = 13;

/// Truncated or invalid bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is truncated or invalid Thrift")]
pub struct InvalidThrift;

/// A reader over the unread bytes.
#[derive(Debug)]
pub struct CompactReader<'a>(&'a [u8]);

impl<'a> CompactReader<'a> {
    /// A reader from the start of the bytes.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// The unread bytes.
    pub fn rest(&self) -> &'a [u8] {
        self.0
    }

    fn byte(&mut self) -> Result<u8, InvalidThrift> {
        let (first, rest) = self.0.split_first().ok_or(InvalidThrift)?;
        self.0 = rest;
        Ok(*first)
    }

    /// Skips `count` bytes.
    pub fn advance(&mut self, count: u64) -> Result<(), InvalidThrift> {
        let count = usize::try_from(count).map_err(|_| InvalidThrift)?;
        self.0 = self.0.get(count..).ok_or(InvalidThrift)?;
        Ok(())
    }

    /// A varint.
    pub fn number(&mut self) -> Result<u64, InvalidThrift> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(InvalidThrift)
    }

    /// A zigzag varint.
    pub fn signed(&mut self) -> Result<i64, InvalidThrift> {
        let number = self.number()?;
        Ok((number >> 1) as i64 ^ -((number & 1) as i64))
    }

    /// The id and type of the next field of a struct; `None` at its end. `last` is the previous id.
    pub fn field(&mut self, last: &mut i64) -> Result<Option<(i64, u8)>, InvalidThrift> {
        let head = self.byte()?;
        let kind = head & 0x0f;
        if kind == 0 {
            return Ok(None);
        }
        *last = match head >> 4 {
            0 => self.signed()?,
            step => *last + i64::from(step),
        };
        Ok(Some((*last, kind)))
    }

    /// The number of items of a list and their type.
    pub fn list(&mut self) -> Result<(u64, u8), InvalidThrift> {
        let head = self.byte()?;
        let count = match head >> 4 {
            15 => self.number()?,
            count => u64::from(count),
        };
        Ok((count, head & 0x0f))
    }

    /// Skips the value of a field. The value of a bool is in its field header.
    pub fn skip(&mut self, kind: u8) -> Result<(), InvalidThrift> {
        self.skip_within(kind, STRUCTS_MAX)
    }

    fn skip_within(&mut self, kind: u8, levels: usize) -> Result<(), InvalidThrift> {
        match kind {
            TRUE | FALSE => Ok(()),
            _ => self.skip_item(kind, levels),
        }
    }

    fn skip_item(&mut self, kind: u8, levels: usize) -> Result<(), InvalidThrift> {
        let levels = levels.checked_sub(1).ok_or(InvalidThrift)?;
        match kind {
            TRUE | FALSE | BYTE => self.advance(1),
            I16 | I32 | I64 => self.number().map(drop),
            DOUBLE => self.advance(8),
            UUID => self.advance(16),
            BINARY => {
                let length = self.number()?;
                self.advance(length)
            }
            LIST | SET => {
                let (count, kind) = self.list()?;
                (0..count).try_for_each(|_| self.skip_item(kind, levels))
            }
            MAP => {
                let count = self.number()?;
                let kinds = if count == 0 { 0 } else { self.byte()? };
                (0..count).try_for_each(|_| {
                    self.skip_item(kinds >> 4, levels)?;
                    self.skip_item(kinds & 0x0f, levels)
                })
            }
            STRUCT => {
                let mut last = 0;
                while let Some((_, kind)) = self.field(&mut last)? {
                    self.skip_within(kind, levels)?;
                }
                Ok(())
            }
            _ => Err(InvalidThrift),
        }
    }
}
