//! Single values of a plan: names, and numbers at the edges of arithmetic.

use arbitrary::{Result, Unstructured};

use crate::tables::COLUMNS;

pub(super) type Bytes<'a, 'b> = &'a mut Unstructured<'b>;

/// The name of the derived column.
pub(super) const DERIVED_NAME: &str = "derived";

/// Tables to join, and columns of theirs.
pub(super) const TABLES: [&str; 3] = ["u", "t", "missing"];
pub(super) const KEYS: [&str; 5] = ["key", "word", "weight", "id", "amount"];

/// Edge cases of arithmetic.
const NUMBERS: [f64; 16] = [
    0.0,
    1.0,
    -1.0,
    0.5,
    -0.0,
    2.0,
    100.0,
    -3.5,
    f64::NAN,
    f64::INFINITY,
    f64::NEG_INFINITY,
    f64::MAX,
    f64::MIN_POSITIVE,
    5e-324,
    9_007_199_254_740_993.0,
    3.5e38,
];

const INTEGERS: [i64; 12] = [1, 2, 3, 0, -1, 10, 255, 65_536, i32::MAX as i64, u32::MAX as i64 + 1, i64::MAX, i64::MIN];

const SIZES: [u32; 10] = [1, 2, 4, 0, 7, 64, 256, 65_536, 65_537, u32::MAX];

pub(super) fn column(bytes: Bytes<'_, '_>) -> Result<String> {
    let index = bytes.int_in_range(0..=COLUMNS.len())?;
    Ok(COLUMNS.get(index).copied().unwrap_or(DERIVED_NAME).to_owned())
}

pub(super) fn number(bytes: Bytes<'_, '_>) -> Result<f64> {
    // The index after the last selects an arbitrary number.
    let index = bytes.int_in_range(0..=NUMBERS.len())?;
    NUMBERS.get(index).map_or_else(|| bytes.arbitrary(), |number| Ok(*number))
}

pub(super) fn integer(bytes: Bytes<'_, '_>) -> Result<i64> {
    let index = bytes.int_in_range(0..=INTEGERS.len())?;
    INTEGERS.get(index).map_or_else(|| bytes.arbitrary(), |number| Ok(*number))
}

pub(super) fn size(bytes: Bytes<'_, '_>) -> Result<u32> {
    bytes.choose(&SIZES).copied()
}

pub(super) fn maybe<T>(bytes: Bytes<'_, '_>, value: impl FnOnce(Bytes<'_, '_>) -> Result<T>) -> Result<Option<T>> {
    if bytes.ratio(1_u8, 2)? { value(bytes).map(Some) } else { Ok(None) }
}
