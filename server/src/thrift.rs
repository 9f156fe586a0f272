//! Thrift's compact protocol, as far as Parquet's footers and page headers need it to be looked at before a library reads
//! them: fields are found or skipped, nothing is kept, and no count is believed.

/// Structs and lists within each other that are skipped; Parquet's own nest four deep.
const STRUCTS_MAX: usize = 16;

// Types of Thrift's compact protocol.
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

/// Bytes that break off, or are no Thrift.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it breaks off or is no Thrift")]
pub struct Broken;

/// What is left to be read.
#[derive(Debug)]
pub struct Compact<'a>(&'a [u8]);

impl<'a> Compact<'a> {
    /// Reads from the beginning of the bytes.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// What has not been read yet.
    pub fn rest(&self) -> &'a [u8] {
        self.0
    }

    fn byte(&mut self) -> Result<u8, Broken> {
        let (first, rest) = self.0.split_first().ok_or(Broken)?;
        self.0 = rest;
        Ok(*first)
    }

    /// Leaves so many bytes out.
    pub fn advance(&mut self, count: u64) -> Result<(), Broken> {
        let count = usize::try_from(count).map_err(|_| Broken)?;
        self.0 = self.0.get(count..).ok_or(Broken)?;
        Ok(())
    }

    /// A varint.
    pub fn number(&mut self) -> Result<u64, Broken> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(Broken)
    }

    /// A zigzag varint.
    pub fn signed(&mut self) -> Result<i64, Broken> {
        let number = self.number()?;
        Ok((number >> 1) as i64 ^ -((number & 1) as i64))
    }

    /// The next field of a struct and its type; none at its end.
    pub fn field(&mut self, last: &mut i64) -> Result<Option<(i64, u8)>, Broken> {
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

    /// How many items a list has, and of which type.
    pub fn list(&mut self) -> Result<(u64, u8), Broken> {
        let head = self.byte()?;
        let count = match head >> 4 {
            15 => self.number()?,
            count => u64::from(count),
        };
        Ok((count, head & 0x0f))
    }

    /// A field's value. What a bool says stands in its field's head.
    pub fn skip(&mut self, kind: u8) -> Result<(), Broken> {
        self.skip_within(kind, STRUCTS_MAX)
    }

    fn skip_within(&mut self, kind: u8, levels: usize) -> Result<(), Broken> {
        match kind {
            TRUE | FALSE => Ok(()),
            _ => self.skip_item(kind, levels),
        }
    }

    fn skip_item(&mut self, kind: u8, levels: usize) -> Result<(), Broken> {
        let levels = levels.checked_sub(1).ok_or(Broken)?;
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
            _ => Err(Broken),
        }
    }
}
