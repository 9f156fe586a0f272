//! Arrow arrays of text or bytes, in any of their encodings, read as bytes by row.

use std::ops::Range;

use arrow::array::{
    Array, ArrayAccessor, AsArray, BinaryArray, BinaryViewArray, FixedSizeBinaryArray, LargeBinaryArray,
    LargeStringArray, OffsetSizeTrait, StringArray, StringViewArray,
};
use arrow::buffer::NullBuffer;
use arrow::datatypes::DataType;

use crate::ops::hash;

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
    /// Borrows an array of text or bytes; none for other arrays.
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

    /// The row's bytes; none for a null and for a row that is not there.
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

    /// The row's text; none for a null, for a row that is not there, and for bytes.
    pub(crate) fn get_text(&self, row: usize) -> Option<&'a str> {
        match self {
            Self::Utf8(array) => get(array, row),
            Self::LargeUtf8(array) => get(array, row),
            Self::Utf8View(array) => get(array, row),
            _ => None,
        }
    }

    /// Writes the XXH3-64 of each row's bytes; under a null is anything.
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

    /// Gives `code` the bytes of each row and what the target holds, and writes what it makes of them; under a null is anything.
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

fn hash_end_to_end<O: OffsetSizeTrait>(offsets: &[O], bytes: &[u8], seed: u64, target: &mut [i64]) {
    let mut start = offsets.first().map_or(0, |offset| offset.as_usize());
    for (target, end) in target.iter_mut().zip(offsets.iter().skip(1)) {
        let end = end.as_usize();
        *target = hash::end_to_end(start, end, bytes, seed) as i64;
        start = end;
    }
}
