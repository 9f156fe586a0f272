//! Arrow arrays of text or bytes in any encoding, read as bytes by row.

use std::ops::Range;

use arrow::{
    array::{
        Array, ArrayAccessor, AsArray, BinaryArray, BinaryViewArray, FixedSizeBinaryArray, LargeBinaryArray,
        LargeStringArray, OffsetSizeTrait, StringArray, StringViewArray,
    },
    buffer::NullBuffer,
    datatypes::DataType,
};

use crate::{
    ops::hash::{self, ByEnds},
    vector::simd,
};

/// A column of text or bytes, borrowed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Strings<'a> {
    Utf8(&'a StringArray),
    LargeUtf8(&'a LargeStringArray),
    Utf8View(&'a StringViewArray),
    Binary(&'a BinaryArray),
    LargeBinary(&'a LargeBinaryArray),
    BinaryView(&'a BinaryViewArray),
    FixedSizeBinary(&'a FixedSizeBinaryArray),
}

impl<'a> Strings<'a> {
    /// Borrows an array of text or bytes; `None` for other arrays.
    pub(crate) fn new(array: &'a dyn Array) -> Option<Self> {
        Some(match array.data_type() {
            DataType::Utf8 => Self::Utf8(array.as_string()),
            DataType::LargeUtf8 => Self::LargeUtf8(array.as_string()),
            DataType::Utf8View => Self::Utf8View(array.as_string_view()),
            DataType::Binary => Self::Binary(array.as_binary()),
            DataType::LargeBinary => Self::LargeBinary(array.as_binary()),
            DataType::BinaryView => Self::BinaryView(array.as_binary_view()),
            DataType::FixedSizeBinary(_) => Self::FixedSizeBinary(array.as_fixed_size_binary()),
            _ => return None,
        })
    }

    pub(crate) fn nulls(&self) -> Option<&'a NullBuffer> {
        match *self {
            Self::Utf8(array) => array.nulls(),
            Self::LargeUtf8(array) => array.nulls(),
            Self::Utf8View(array) => array.nulls(),
            Self::Binary(array) => array.nulls(),
            Self::LargeBinary(array) => array.nulls(),
            Self::BinaryView(array) => array.nulls(),
            Self::FixedSizeBinary(array) => array.nulls(),
        }
    }

    /// The row's bytes; `None` for a null or a row out of range.
    pub(crate) fn get(&self, row: usize) -> Option<&'a [u8]> {
        match self {
            Self::Utf8(array) => get(array, row).map(str::as_bytes),
            Self::LargeUtf8(array) => get(array, row).map(str::as_bytes),
            Self::Utf8View(array) => get(array, row).map(str::as_bytes),
            Self::Binary(array) => get(array, row),
            Self::LargeBinary(array) => get(array, row),
            Self::BinaryView(array) => get(array, row),
            Self::FixedSizeBinary(array) => get(array, row),
        }
    }

    /// The row's text; `None` for a null, a row out of range, or bytes.
    pub(crate) fn get_text(&self, row: usize) -> Option<&'a str> {
        match self {
            Self::Utf8(array) => get(array, row),
            Self::LargeUtf8(array) => get(array, row),
            Self::Utf8View(array) => get(array, row),
            _ => None,
        }
    }

    /// Writes the XXH3-64 of each row's bytes; the result for a null is arbitrary.
    pub(crate) fn hash(&self, rows: Range<usize>, seed: u64, target: &mut [i64]) {
        let ends = rows.start..rows.end + 1;
        match self {
            Self::Utf8(array) => hash_end_to_end(&array.value_offsets()[ends], array.value_data(), seed, target),
            Self::LargeUtf8(array) => hash_end_to_end(&array.value_offsets()[ends], array.value_data(), seed, target),
            Self::Binary(array) => hash_end_to_end(&array.value_offsets()[ends], array.value_data(), seed, target),
            Self::LargeBinary(array) => hash_end_to_end(&array.value_offsets()[ends], array.value_data(), seed, target),
            Self::Utf8View(array) => each(array, rows, target, |bytes, _| hash::bytes(bytes, seed) as i64),
            Self::BinaryView(array) => each(array, rows, target, |bytes, _| hash::bytes(bytes, seed) as i64),
            Self::FixedSizeBinary(array) => each(array, rows, target, |bytes, _| hash::bytes(bytes, seed) as i64),
        }
    }

    /// Replaces each value of the target with the result of `code` for the row's bytes and that value; the result for a
    /// null is arbitrary.
    pub(crate) fn encode(&self, rows: Range<usize>, target: &mut [i64], code: impl Fn(&[u8], i64) -> i64) {
        match self {
            Self::Utf8(array) => each(array, rows, target, code),
            Self::LargeUtf8(array) => each(array, rows, target, code),
            Self::Utf8View(array) => each(array, rows, target, code),
            Self::Binary(array) => each(array, rows, target, code),
            Self::LargeBinary(array) => each(array, rows, target, code),
            Self::BinaryView(array) => each(array, rows, target, code),
            Self::FixedSizeBinary(array) => each(array, rows, target, code),
        }
    }
}

fn get<A: ArrayAccessor>(array: &A, row: usize) -> Option<A::Item> {
    (row < array.len() && array.is_valid(row)).then(|| array.value(row))
}

#[inline(always)]
fn each<A>(array: &A, rows: Range<usize>, target: &mut [i64], code: impl Fn(&[u8], i64) -> i64)
where
    A: ArrayAccessor<Item: AsRef<[u8]>>,
{
    for (target, row) in target.iter_mut().zip(rows) {
        *target = code(array.value(row).as_ref(), *target);
    }
}

/// The number of values that are hashed at once.
const BLOCK: usize = 128;
/// The distance of prefetches: one page, since hardware prefetchers stop at page boundaries.
const PREFETCH_AHEAD_BYTES: usize = 4096;

/// Hashes values that are stored end to end. For each block of values it first loads the beginnings and ends, and then
/// computes all hashes at once.
fn hash_end_to_end<O: OffsetSizeTrait>(offsets: &[O], bytes: &[u8], seed: u64, target: &mut [i64]) {
    let by_ends = ByEnds::new(seed);
    let (mut firsts, mut lasts) = ([0; BLOCK], [0; BLOCK]);
    let blocks = offsets.chunks(BLOCK).zip(offsets[1..].chunks(BLOCK)).zip(target.chunks_mut(BLOCK));
    for ((starts, ends), hashes) in blocks {
        let (starts, mut has_others) = (&starts[..ends.len()], false);
        for ((start, end), (first, last)) in starts.iter().zip(ends).zip(firsts.iter_mut().zip(&mut lasts)) {
            if let Some((first_eight, last_eight)) = end_bytes(start.as_usize(), end.as_usize(), bytes) {
                (*first, *last) = (u64::from_le_bytes(*first_eight), u64::from_le_bytes(*last_eight));
            } else {
                has_others = true;
            }
        }
        if let (Some(start), Some(end)) = (starts.first(), ends.last()) {
            let (start, end) = (start.as_usize(), end.as_usize());
            simd::prefetch(
                bytes.as_ptr().wrapping_add(end + PREFETCH_AHEAD_BYTES),
                end.wrapping_sub(start).min(PREFETCH_AHEAD_BYTES),
            );
            simd::prefetch(ends.as_ptr().cast::<u8>().wrapping_add(PREFETCH_AHEAD_BYTES), size_of_val(ends));
        }
        has_others |= hash_block(by_ends, (starts, ends), (&firsts, &lasts), hashes);
        for (hash, (start, end)) in hashes.iter_mut().zip(starts.iter().zip(ends)).filter(|_| has_others) {
            let (start, end) = (start.as_usize(), end.as_usize());
            if !is_by_ends(len(start, end)) || end_bytes(start, end, bytes).is_none() {
                *hash = hash::bytes(bytes.get(start..end).unwrap_or_default(), seed) as i64;
            }
        }
    }
}

/// Hashes a block; returns whether it has values of other lengths than 4 to 16 bytes.
fn hash_block<O: OffsetSizeTrait>(
    by_ends: ByEnds,
    (starts, ends): (&[O], &[O]),
    (firsts, lasts): (&[u64; BLOCK], &[u64; BLOCK]),
    hashes: &mut [i64],
) -> bool {
    simd::run(
        #[inline(always)]
        move || {
            let mut has_others = false;
            let values = starts.iter().zip(ends).zip(firsts.iter().zip(lasts));
            for (hash, ((start, end), (first, last))) in hashes.iter_mut().zip(values) {
                let len = len(start.as_usize(), end.as_usize());
                has_others |= !is_by_ends(len);
                *hash = by_ends.hash(*first, *last, len) as i64;
            }
            has_others
        },
    )
}

/// The eight bytes at the start of a value and the eight before its end, if the buffer has as many.
#[inline(always)]
fn end_bytes(start: usize, end: usize, bytes: &[u8]) -> Option<(&[u8; 8], &[u8; 8])> {
    Some((bytes.get(start..)?.first_chunk()?, bytes.get(..end)?.last_chunk()?))
}

#[inline(always)]
fn len(start: usize, end: usize) -> u64 {
    end.wrapping_sub(start) as u64
}

/// Whether the hash of a value of this length depends on those bytes alone.
#[inline(always)]
fn is_by_ends(len: u64) -> bool {
    len.wrapping_sub(4) <= 12
}

#[cfg(test)]
mod tests {
    use xxhash_rust::xxh3::xxh3_64_with_seed;

    use super::*;
    use crate::vector::{simd::testing::under_each_level, tiling::TILE_ROWS};

    #[test]
    fn hashes_values_of_every_length() {
        for (rows, longest) in [(0, 1), (1, 3), (1, 5), (1, 9), (300, 13), (TILE_ROWS, 40), (TILE_ROWS, 17)] {
            let words = (0..rows).map(|row| (0..row * 7 % longest).map(|at| (row + at * 3) as u8).collect::<Vec<_>>());
            let words = words.collect::<Vec<_>>();
            let array = BinaryArray::from_iter_values(&words);
            for (seed, (level, hashes)) in [0, 0x8000_0000_0000_004d].into_iter().flat_map(|seed| {
                let hashes = under_each_level(|| {
                    let mut hashes = vec![0; rows];
                    Strings::Binary(&array).hash(0..rows, seed, &mut hashes);
                    hashes
                });
                hashes.into_iter().map(move |hashes| (seed, hashes))
            }) {
                let expected: Vec<_> = words.iter().map(|word| xxh3_64_with_seed(word, seed) as i64).collect();
                assert_eq!(hashes, expected, "{rows} rows of up to {longest} bytes, seed {seed}, {level:?}");
            }
        }
    }
}
