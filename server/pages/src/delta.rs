//! Integers stored as differences (`DELTA_BINARY_PACKED`), decoded a page at a time.

use crate::{error::PageError, spread::Word, thrift::CompactReader, unpack::unpack};

/// Values of a block are a multiple of this.
const BLOCK_VALUES: u64 = 128;

/// Values of each of its parts are a multiple of this.
const PART_VALUES: u64 = 32;

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
    let mut rest = CompactReader::new(bytes);
    let mut number = || rest.number().map_err(|_| invalid());
    let (block, parts, declared) = (number()?, number()?, number()?);
    let is_word = |number: &i64| bits_max == u64::BITS || i32::try_from(*number).is_ok();
    let mut last = rest.signed().ok().filter(is_word).ok_or_else(invalid)?;
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

#[cfg(test)]
mod tests {
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
}
