//! Numbers of so many bits each, as Parquet's pages hold lengths and indices.

use crate::thrift::{Broken, Compact};

/// The numbers of a delta-encoded block: the first, then the differences, packed in parts with so many bits for each.
pub(super) struct Deltas<'a> {
    rest: Compact<'a>,
    /// Numbers of a part.
    part: u64,
    parts: usize,
    /// Numbers that have not come.
    pub(super) due: u64,
    last: i64,
    has_begun: bool,
    /// What every difference of the parts at hand is above.
    least: i64,
    /// Bits of a difference, for the parts that follow.
    widths: &'a [u8],
    packed: &'a [u8],
    width: u32,
    /// Differences of the part that have come.
    taken: u64,
}

impl<'a> Deltas<'a> {
    pub(super) fn new(mut bytes: Compact<'a>) -> Result<Self, Broken> {
        let (block, parts, due, last) = (bytes.number()?, bytes.number()?, bytes.number()?, bytes.signed()?);
        let part = block.checked_div(parts).ok_or(Broken)?;
        let parts = usize::try_from(parts).map_err(|_| Broken)?;
        let (widths, packed): (&[u8], &[u8]) = (&[], &[]);
        Ok(Self {
            rest: bytes,
            part,
            parts,
            due,
            last,
            has_begun: false,
            least: 0,
            widths,
            packed,
            width: 0,
            taken: part,
        })
    }

    /// What lies behind it.
    pub(super) fn skip(mut self) -> Result<&'a [u8], Broken> {
        // The first number stands in the head.
        let mut due = self.due.saturating_sub(1);
        while due > 0 {
            self.next_part()?;
            due = due.saturating_sub(self.part);
        }
        Ok(self.rest.rest())
    }

    pub(super) fn next(&mut self) -> Result<Option<i64>, Broken> {
        if self.due == 0 {
            return Ok(None);
        }
        self.due -= 1;
        if self.has_begun {
            if self.taken == self.part {
                self.next_part()?;
            }
            let above = bits(self.packed, self.taken * u64::from(self.width), self.width);
            self.last = self.last.wrapping_add(self.least).wrapping_add(above as i64);
            self.taken += 1;
        }
        self.has_begun = true;
        Ok(Some(self.last))
    }

    fn next_part(&mut self) -> Result<(), Broken> {
        if self.part == 0 {
            return Err(Broken);
        }
        if self.widths.is_empty() {
            self.least = self.rest.signed()?;
            self.widths = self.rest.rest().get(..self.parts).ok_or(Broken)?;
            self.rest.advance(self.parts as u64)?;
        }
        let (width, widths) = self.widths.split_first().ok_or(Broken)?;
        let bytes = self.part.checked_mul(u64::from(*width)).ok_or(Broken)?.div_ceil(8);
        self.packed = self.rest.rest();
        self.rest.advance(bytes)?;
        (self.widths, self.width, self.taken) = (widths, u32::from(*width), 0);
        Ok(())
    }
}

/// A number of so many bits, at most 64, from the least significant one on.
pub(super) fn bits(packed: &[u8], at: u64, width: u32) -> u64 {
    let (from, shift) = ((at / 8) as usize, at % 8);
    let bytes = packed.get(from..).unwrap_or_default().iter().take(9).enumerate();
    let word = bytes.fold(0_u128, |word, (place, byte)| word | u128::from(*byte) << (8 * place));
    (word >> shift & !(u128::MAX << width.min(64))) as u64
}

#[cfg(test)]
mod tests {
    use std::iter;

    use super::*;

    /// A block of 8 numbers in 2 parts of 4: the head, then for each block a least difference, widths, and the parts.
    fn block(count: u8, rest: &[u8]) -> Vec<u8> {
        [&[8, 2, count, 0], rest].concat()
    }

    fn skipped(bytes: &[u8]) -> Option<(u64, usize)> {
        let block = Deltas::new(Compact::new(bytes)).ok()?;
        Some((block.due, block.skip().ok()?.len()))
    }

    fn numbers(bytes: &[u8]) -> Option<Vec<i64>> {
        let mut block = Deltas::new(Compact::new(bytes)).ok()?;
        iter::from_fn(|| block.next().transpose()).collect::<Result<_, _>>().ok()
    }

    #[test]
    fn a_block_is_left_behind_to_the_byte() {
        // One number stands in the head alone.
        assert_eq!(skipped(&block(1, b"rest")), Some((1, 4)));
        // Four differences of 8 bits in the first part; the second part has none, and no bytes.
        assert_eq!(skipped(&block(5, &[0, 8, 8, 1, 2, 3, 4, 9, 9])), Some((5, 2)));
        // Widths of 0 take no bytes.
        assert_eq!(skipped(&block(9, &[0, 0, 0, 7])), Some((9, 1)));
    }

    #[test]
    fn a_block_that_breaks_off_is_found_out() {
        assert_eq!(skipped(&block(5, &[0, 8, 8, 1, 2])), None);
        assert_eq!(skipped(&block(5, &[])), None);
        // No parts; parts without end; parts of nothing.
        assert_eq!(skipped(&[8, 0, 5, 0, 0]), None);
        assert_eq!(skipped(&[0xff, 0xff, 0xff, 0xff, 0x0f, 1, 9, 0, 0, 255]), None);
        assert_eq!(skipped(&[1, 2, 5, 0, 0, 0, 0]), None);
    }

    #[test]
    fn the_numbers_of_a_block_are_the_sums_of_its_differences() {
        // From 0 on (a zigzag varint), each at least 1 above the last; the second part has 4 bits for each.
        let differences = [2, 8, 4, 1, 2, 3, 4, 0x10, 0x32];
        assert_eq!(numbers(&block(9, &differences)), Some(vec![0, 2, 5, 9, 14, 15, 17, 20, 24]));
        assert_eq!(numbers(&block(1, &[])), Some(vec![0]));
        assert_eq!(numbers(&block(3, &[])), None);
        assert_eq!(bits(&[0xff; 9], 7, 64), u64::MAX);
        assert_eq!(bits(&[0b1010_0000, 0b1], 5, 4), 0b1101);
    }
}
