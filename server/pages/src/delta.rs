//! Integers stored as differences (`DELTA_BINARY_PACKED`): decoded a page at a time, or one after another without memory,
//! to measure what the Parquet library will decode.

use crate::{
    error::PageError,
    spread::Word,
    thrift::{CompactReader, InvalidThrift},
    unpack::unpack,
};

/// Values of a block are a multiple of this.
const BLOCK_VALUES: u64 = 128;

/// Values of each of its parts are a multiple of this.
const PART_VALUES: u64 = 32;

/// What precedes the differences.
struct Start<'a> {
    /// Values of a block, and its parts.
    block: u64,
    parts: u64,
    /// The number of values.
    declared: u64,
    first: i64,
    rest: CompactReader<'a>,
}

/// A `DELTA_BINARY_PACKED` block whose values are read one after another, as strictly as the library reads them: a first
/// value, then differences in parts (Parquet's miniblocks) of one bit width each.
#[derive(Debug)]
pub struct Deltas<'a> {
    rest: CompactReader<'a>,
    /// Values per part.
    part: u64,
    parts: usize,
    remaining: u64,
    last: i64,
    has_begun: bool,
    /// The smallest difference of the current parts.
    min_delta: i64,
    /// Bits per difference of the following parts.
    widths: &'a [u8],
    packed: &'a [u8],
    width: u32,
    /// Differences of the current part already read.
    read: u64,
}

impl<'a> Deltas<'a> {
    /// Reads the start of a block.
    pub fn new(bytes: &'a [u8]) -> Result<Self, InvalidThrift> {
        let Start { block, parts, declared: remaining, first: last, rest } = Start::read(bytes)?;
        let part = block.checked_div(parts).ok_or(InvalidThrift)?;
        let parts = usize::try_from(parts).map_err(|_| InvalidThrift)?;
        let (widths, packed): (&[u8], &[u8]) = (&[], &[]);
        Ok(Self {
            rest,
            part,
            parts,
            remaining,
            last,
            has_begun: false,
            min_delta: 0,
            widths,
            packed,
            width: 0,
            read: part,
        })
    }

    /// The number of values that are left.
    pub fn remaining(&self) -> u64 {
        self.remaining
    }

    /// The bytes after the block.
    pub fn skip(mut self) -> Result<&'a [u8], InvalidThrift> {
        // The header holds the first value.
        let mut remaining = self.remaining.saturating_sub(1);
        while remaining > 0 {
            self.next_part()?;
            remaining = remaining.saturating_sub(self.part);
        }
        Ok(self.rest.rest())
    }

    /// The next value; `None` after the last one.
    pub fn next_value(&mut self) -> Result<Option<i64>, InvalidThrift> {
        if self.remaining == 0 {
            return Ok(None);
        }
        self.remaining -= 1;
        if self.has_begun {
            if self.read == self.part {
                self.next_part()?;
            }
            let above = bits(self.packed, self.read * u64::from(self.width), self.width);
            self.last = self.last.wrapping_add(self.min_delta).wrapping_add(above as i64);
            self.read += 1;
        }
        self.has_begun = true;
        Ok(Some(self.last))
    }

    fn next_part(&mut self) -> Result<(), InvalidThrift> {
        if self.part == 0 {
            return Err(InvalidThrift);
        }
        if self.widths.is_empty() {
            self.min_delta = self.rest.signed()?;
            self.widths = self.rest.rest().get(..self.parts).ok_or(InvalidThrift)?;
            self.rest.advance(self.parts as u64)?;
        }
        let (width, widths) = self.widths.split_first().ok_or(InvalidThrift)?;
        let bytes = self.part.checked_mul(u64::from(*width)).ok_or(InvalidThrift)?.div_ceil(8);
        self.packed = self.rest.rest();
        self.rest.advance(bytes)?;
        (self.widths, self.width, self.read) = (widths, u32::from(*width), 0);
        Ok(())
    }
}

/// The `width` bits (at most 64) at bit offset `at`, least significant bit first.
pub fn bits(packed: &[u8], at: u64, width: u32) -> u64 {
    let (from, shift) = ((at / 8) as usize, at % 8);
    let bytes = packed.get(from..).unwrap_or_default().iter().take(9).enumerate();
    let word = bytes.fold(0_u128, |word, (index, byte)| word | u128::from(*byte) << (8 * index));
    (word >> shift & !(u128::MAX << width.min(64))) as u64
}

/// The first `count` values of a page of differences.
pub(crate) fn words<W: Word>(bytes: &[u8], count: usize) -> Result<Vec<W>, PageError> {
    let (values, ..) = decode(bytes, count, 8 * W::BYTES as u32)?;
    Ok(values.into_iter().map(W::of_low_bytes).collect())
}

/// The lengths at the start of a page, one per value, and the number of bytes that they take.
pub(crate) fn lengths(bytes: &[u8], count: usize) -> Result<(Vec<u32>, usize), PageError> {
    let (values, declared, rest) = decode(bytes, count, u32::BITS)?;
    if declared != count as u64 {
        return Err(PageError::new("a page of strings has another number of lengths than strings"));
    }
    let lengths =
        values.into_iter().map(|value| i32::try_from(value as i64).ok().and_then(|length| u32::try_from(length).ok()));
    let lengths = lengths.collect::<Option<_>>();
    Ok((lengths.ok_or_else(|| PageError::new("a string has a negative length"))?, bytes.len() - rest))
}

fn invalid() -> PageError {
    PageError::new("a page of differences is truncated or contradicts itself")
}

/// The values, the number of values that the page declares, and the bytes left.
fn decode(bytes: &[u8], count: usize, bits_max: u32) -> Result<(Vec<u64>, u64, usize), PageError> {
    let Start { block, parts, declared, first, mut rest } = Start::read(bytes).map_err(|_| invalid())?;
    let is_word = |number: &i64| bits_max == u64::BITS || i32::try_from(*number).is_ok();
    let mut last = Some(first).filter(is_word).ok_or_else(invalid)?;
    let part = block.checked_div(parts).filter(|part| part.is_multiple_of(PART_VALUES));
    let (Some(part), Ok(parts)) = (part, usize::try_from(parts)) else { return Err(invalid()) };
    if part.checked_mul(parts as u64) != Some(block) || !block.is_multiple_of(BLOCK_VALUES) || declared < count as u64 {
        return Err(invalid());
    }
    let mut values = Vec::with_capacity(count);
    if count > 0 {
        values.push(last as u64);
    }
    let mut unpacked = Vec::new();
    while values.len() < count {
        let min_delta = rest.signed().ok().filter(|delta| is_word(delta) && part > 0).ok_or_else(invalid)?;
        let widths = rest.rest().get(..parts).ok_or_else(invalid)?;
        rest.advance(parts as u64).map_err(|_| invalid())?;
        for width in widths {
            let needed = (count - values.len()).min(usize::try_from(part).unwrap_or(usize::MAX));
            if needed == 0 {
                break;
            }
            let width = u32::from(*width);
            let stored = part.checked_mul(u64::from(width)).filter(|_| width <= bits_max).ok_or_else(invalid)? / 8;
            let packed = rest.rest();
            // The last part may be cut after its last value.
            if packed.len() < (needed * width as usize).div_ceil(8) {
                return Err(invalid());
            }
            differences(packed, width, needed, &mut unpacked);
            for difference in &unpacked {
                last = last.wrapping_add(min_delta).wrapping_add(*difference as i64);
                values.push(last as u64);
            }
            rest.advance(stored.min(packed.len() as u64)).map_err(|_| invalid())?;
        }
    }
    Ok((values, declared, rest.rest().len()))
}

/// Packed integers of up to 64 bits: the lower and the upper halves of wide ones one after the other.
fn differences(packed: &[u8], width: u32, count: usize, into: &mut Vec<u64>) {
    into.clear();
    if width <= u32::BITS {
        let mut narrow = vec![0; count];
        unpack(packed, 0, width, &mut narrow);
        into.extend(narrow.into_iter().map(u64::from));
        return;
    }
    for index in 0..count {
        let bit = index * width as usize;
        let (mut low, mut high) = ([0], [0]);
        unpack(packed, bit, u32::BITS, &mut low);
        unpack(packed, bit + 32, width - u32::BITS, &mut high);
        into.push(u64::from(low[0]) | u64::from(high[0]) << 32);
    }
}

// === impl Start ===

impl<'a> Start<'a> {
    fn read(bytes: &'a [u8]) -> Result<Self, InvalidThrift> {
        let mut rest = CompactReader::new(bytes);
        let (block, parts, declared, first) = (rest.number()?, rest.number()?, rest.number()?, rest.signed()?);
        Ok(Self { block, parts, declared, first, rest })
    }
}

#[cfg(test)]
mod tests {
    use std::iter;

    use super::*;

    /// Blocks of 128 values in 2 parts of 64.
    fn page(count: u8, rest: &[u8]) -> Vec<u8> {
        [&[0x80, 1, 2, count, 0], rest].concat()
    }

    #[test]
    fn values_are_sums_of_differences() {
        // A smallest difference of 1; 8 bits per difference in the first part, 4 in the second.
        let first: Vec<u8> = (1..=64).collect();
        let bytes = page(70, &[&[2, 8, 4], first.as_slice(), &[0x10, 0x32, 0x54]].concat());
        let values = words::<u64>(&bytes, 70).unwrap();
        assert_eq!(values[..5], [0, 2, 5, 9, 14]);
        assert_eq!(values[64], 64 * 65 / 2 + 64);
        assert_eq!(values[65..], [1, 3, 6, 10, 15].map(|sum| 2144 + sum));
        assert_eq!(words::<u32>(&bytes, 3).unwrap(), [0, 2, 5]);
        assert_eq!(words::<u64>(&page(1, &[]), 1).unwrap(), [0]);
    }

    #[test]
    fn rejects_what_contradicts_itself() {
        for (bytes, count) in [
            (page(5, &[0, 8, 8, 1, 2]), 5),
            (page(5, &[]), 5),
            (page(3, &[0, 8, 8, 1, 2, 3]), 4),
            // No parts, parts that are not equal, a block of another size.
            (vec![0x80, 1, 0, 5, 0], 2),
            (vec![0x80, 1, 3, 5, 0], 2),
            (vec![96, 1, 5, 0, 0, 0], 2),
            (vec![0xff; 12], 2),
            (page(9, &[0, 65, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9]), 2),
        ] {
            assert!(words::<u64>(&bytes, count).is_err(), "{bytes:?}");
        }
        // A first value and a difference of more than 32 bits, and differences without a block size.
        assert!(words::<u32>(&[0x80, 1, 2, 1, 0x80, 0x80, 0x80, 0x80, 0x20], 1).is_err());
        assert!(words::<u32>(&page(2, &[0x80, 0x80, 0x80, 0x80, 0x20, 0, 0]), 2).is_err());
        assert!(words::<u64>(&[0, 2, 2, 0, 0, 0, 0], 2).is_err());
        assert_eq!(words::<u64>(&[0, 2, 2, 8, 0, 0, 0], 1).unwrap(), [4]);
        assert!(words::<u32>(&page(9, &[0, 33, 0, 1, 2, 3, 4, 5, 6, 7, 8]), 2).is_err());
    }

    #[test]
    fn wide_differences_are_read_in_halves() {
        let mut into = Vec::new();
        let packed: Vec<u8> = (1..=40).map(|byte| byte * 5).collect();
        differences(&packed, 40, 8, &mut into);
        let expected = packed
            .chunks_exact(5)
            .map(|bytes| bytes.iter().rev().fold(0_u64, |value, byte| value << 8 | u64::from(*byte)));
        assert_eq!(into, expected.collect::<Vec<_>>());
    }

    /// A block of 8 values in 2 parts of 4: the header, then the smallest difference, the widths and the parts.
    fn block(count: u8, rest: &[u8]) -> Vec<u8> {
        [&[8, 2, count, 0], rest].concat()
    }

    fn skipped(bytes: &[u8]) -> Option<(u64, usize)> {
        let block = Deltas::new(bytes).ok()?;
        Some((block.remaining(), block.skip().ok()?.len()))
    }

    fn numbers(bytes: &[u8]) -> Option<Vec<i64>> {
        let mut block = Deltas::new(bytes).ok()?;
        iter::from_fn(|| block.next_value().transpose()).collect::<Result<_, _>>().ok()
    }

    #[test]
    fn skips_exactly_one_block() {
        // A single value is in the header.
        assert_eq!(skipped(&block(1, b"rest")), Some((1, 4)));
        // Four differences of 8 bits in the first part; the second part has none, and no bytes.
        assert_eq!(skipped(&block(5, &[0, 8, 8, 1, 2, 3, 4, 9, 9])), Some((5, 2)));
        // Widths of 0 take no bytes.
        assert_eq!(skipped(&block(9, &[0, 0, 0, 7])), Some((9, 1)));
    }

    #[test]
    fn a_truncated_block_has_no_end() {
        assert_eq!(skipped(&block(5, &[0, 8, 8, 1, 2])), None);
        assert_eq!(skipped(&block(5, &[])), None);
        // No parts; too many parts; empty parts.
        assert_eq!(skipped(&[8, 0, 5, 0, 0]), None);
        assert_eq!(skipped(&[0xff, 0xff, 0xff, 0xff, 0x0f, 1, 9, 0, 0, 255]), None);
        assert_eq!(skipped(&[1, 2, 5, 0, 0, 0, 0]), None);
    }

    #[test]
    fn values_are_read_one_after_another() {
        // Starts at 0 (a zigzag varint) with a smallest difference of 1; the second part has 4 bits per difference.
        let differences = [2, 8, 4, 1, 2, 3, 4, 0x10, 0x32];
        assert_eq!(numbers(&block(9, &differences)), Some(vec![0, 2, 5, 9, 14, 15, 17, 20, 24]));
        assert_eq!(numbers(&block(1, &[])), Some(vec![0]));
        assert_eq!(numbers(&block(3, &[])), None);
        assert_eq!(bits(&[0xff; 9], 7, 64), u64::MAX);
        assert_eq!(bits(&[0b1010_0000, 0b1], 5, 4), 0b1101);
    }
}
