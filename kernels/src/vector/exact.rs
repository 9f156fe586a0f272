//! Exact conversions of doubles to integers.

/// The integer equal to a double, if an i64 holds it.
pub(crate) fn exact_i64(value: f64) -> Option<i64> {
    // 2^63 is the smallest double above the largest i64.
    ((-TWO_63..TWO_63).contains(&value) && value.fract() == 0.0).then_some(value as i64)
}

/// The unsigned integer equal to a double, if a u64 holds it.
pub(crate) fn exact_u64(value: f64) -> Option<u64> {
    ((0.0..2.0 * TWO_63).contains(&value) && value.fract() == 0.0).then_some(value as u64)
}

/// 2^63.
pub(crate) const TWO_63: f64 = 9_223_372_036_854_775_808.0;
