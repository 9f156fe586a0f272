//! Bit-packed and delta-encoded integers, as Parquet pages store lengths and indices.

use forebay_pages::thrift::{CompactReader, InvalidThrift};

/// A `DELTA_BINARY_PACKED` block: a first value, then differences in parts (Parquet's miniblocks) of one bit width
/// each.
pub(super) struct Deltas<'a> {
    rest: CompactReader<'a>,
    /// Values per part.
    part: u64,
    parts: usize,
    /// Values not read yet.
    pub(super) remaining: u64,
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
    pub(super) fn new(mut bytes: CompactReader<'a>) -> Result<Self, InvalidThrift> {
        let (block, parts, remaining, last) = (bytes.number()?, bytes.number()?, bytes.number()?, bytes.signed()?);
        let part = block.checked_div(parts).ok_or(InvalidThrift)?;
        let parts = usize::try_from(parts).map_err(|_| InvalidThrift)?;
        let (widths, packed): (&[u8], &[u8]) = (&[], &[]);
        Ok(Self {
            rest: bytes,
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

    /// The bytes after the block.
    pub(super) fn skip(mut self) -> Result<&'a [u8], InvalidThrift> {
        // The header holds the first value.
        let mut remaining = self.remaining.saturating_sub(1);
        while remaining > 0 {
            self.next_part()?;
            remaining = remaining.saturating_sub(self.part);
        }
        Ok(self.rest.rest())
    }

    pub(super) fn next(&mut self) -> Result<Option<i64>, InvalidThrift> {
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
pub(super) fn bits(packed: &[u8], at: u64, width: u32) -> u64 {
    let (from, shift) = ((at / 8) as usize, at % 8);
    let bytes = packed.get(from..).unwrap_or_default().iter().take(9).enumerate();
    let word = bytes.fold(0_u128, |word, (index, byte)| word | u128::from(*byte) << (8 * index));
    (word >> shift & !(u128::MAX << width.min(64))) as u64
}

#[cfg(test)]
mod tests {
    use std::iter;

    use super::*;

    /// A block of 8 values in 2 parts of 4: the header, then the smallest difference, the widths and the parts.
    fn block(count: u8, rest: &[u8]) -> Vec<u8> {
        [&[8, 2, count, 0], rest].concat()
    }

    fn skipped(bytes: &[u8]) -> Option<(u64, usize)> {
        let block = Deltas::new(CompactReader::new(bytes)).ok()?;
        Some((block.remaining, block.skip().ok()?.len()))
    }

    fn numbers(bytes: &[u8]) -> Option<Vec<i64>> {
        let mut block = Deltas::new(CompactReader::new(bytes)).ok()?;
        iter::from_fn(|| block.next().transpose()).collect::<Result<_, _>>().ok()
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
    fn rejects_a_truncated_block() {
        assert_eq!(skipped(&block(5, &[0, 8, 8, 1, 2])), None);
        assert_eq!(skipped(&block(5, &[])), None);
        // No parts; too many parts; empty parts.
        assert_eq!(skipped(&[8, 0, 5, 0, 0]), None);
        assert_eq!(skipped(&[0xff, 0xff, 0xff, 0xff, 0x0f, 1, 9, 0, 0, 255]), None);
        assert_eq!(skipped(&[1, 2, 5, 0, 0, 0, 0]), None);
    }

    #[test]
    fn values_are_sums_of_differences() {
        // Starts at 0 (a zigzag varint) with a smallest difference of 1; the second part has 4 bits per difference.
        let differences = [2, 8, 4, 1, 2, 3, 4, 0x10, 0x32];
        assert_eq!(numbers(&block(9, &differences)), Some(vec![0, 2, 5, 9, 14, 15, 17, 20, 24]));
        assert_eq!(numbers(&block(1, &[])), Some(vec![0]));
        assert_eq!(numbers(&block(3, &[])), None);
        assert_eq!(bits(&[0xff; 9], 7, 64), u64::MAX);
        assert_eq!(bits(&[0b1010_0000, 0b1], 5, 4), 0b1101);
    }
}
