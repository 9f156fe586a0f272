//! Decimals → the nearest float, ties to even. The only place where decimals become floats.
//!
//! An unscaled value within ±2^53 and a power of ten up to 10^22 are exact as f64, and IEEE division rounds once. Other
//! values are divided as integers, with a remainder that decides ties. What is too long for that is parsed as text.

use arrow::{
    array::{Array, Float32Array, Float64Array},
    datatypes::i256,
};

use super::{
    decimal::{self, Decimals},
    exact_decimal::ExactDecimal,
};
use crate::vector::tile::convert;

/// The largest magnitude up to which f64 holds every integer.
const EXACT_MAX: u64 = 1 << f64::MANTISSA_DIGITS;

/// The largest exponent of a power of ten that f64 holds.
const EXACT_SCALE_MAX: u8 = 22;

/// The scale of a column of decimals.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DecimalScale {
    scale: i8,
    /// 10^|scale|, rounded.
    power: f64,
}

/// The nearest float64 of each decimal; `None` for an array of another type.
pub fn float64_of_decimals(array: &dyn Array) -> Option<Float64Array> {
    let (values, scale) = (Decimals::new(array)?, DecimalScale::of(array)?);
    let doubles = (0..array.len()).map(|row| scale.double_of_wide(values.get(row)));
    Some(Float64Array::new(doubles.collect(), array.nulls().cloned()))
}

/// The nearest float32 of each decimal; `None` for an array of another type.
pub fn float32_of_decimals(array: &dyn Array) -> Option<Float32Array> {
    let (values, scale) = (Decimals::new(array)?, DecimalScale::of(array)?);
    let singles = (0..array.len()).map(|row| scale.single_of_wide(values.get(row)));
    Some(Float32Array::new(singles.collect(), array.nulls().cloned()))
}

// === impl DecimalScale ===

impl DecimalScale {
    pub(crate) fn new(scale: i8) -> Self {
        // The parser rounds correctly, which powi does not guarantee; |scale| ≤ 128, so the power is finite.
        let power = format!("1e{}", scale.unsigned_abs()).parse().unwrap_or(f64::NAN);
        Self { scale, power }
    }

    fn of(array: &dyn Array) -> Option<Self> {
        decimal::scale(array.data_type()).map(Self::new)
    }

    /// Converts unscaled values: all by one division, and then again those for which that is inexact.
    pub(crate) fn doubles<T: Copy + Into<i128>>(self, unscaled: &[T], near: impl Fn(T) -> f64, target: &mut [f64]) {
        convert(unscaled, target, |value| self.divided(near(value)));
        let is_long = |value: T| value.into().unsigned_abs() > u128::from(EXACT_MAX);
        if self.is_exact() && !unscaled.iter().any(|value| is_long(*value)) {
            return;
        }
        for (double, value) in target.iter_mut().zip(unscaled) {
            if !self.is_exact() || is_long(*value) {
                *double = self.double((*value).into());
            }
        }
    }

    /// The nearest double of an unscaled value.
    fn double(self, unscaled: i128) -> f64 {
        if self.is_exact() && unscaled.unsigned_abs() <= u128::from(EXACT_MAX) {
            return self.divided(unscaled as f64);
        }
        let magnitude = self.rounded(unscaled.unsigned_abs(), f64::MANTISSA_DIGITS);
        magnitude.map_or_else(|| self.parsed(i256::from_i128(unscaled)), |magnitude| signed(magnitude, unscaled < 0))
    }

    /// The nearest double of a long unscaled value.
    pub(crate) fn double_of_wide(self, unscaled: i256) -> f64 {
        unscaled.to_i128().map_or_else(|| self.parsed(unscaled), |short| self.double(short))
    }

    fn single_of_wide(self, unscaled: i256) -> f32 {
        let short = unscaled.to_i128();
        let rounded = short.and_then(|short| self.rounded(short.unsigned_abs(), f32::MANTISSA_DIGITS));
        // Smaller floats have fewer digits.
        match rounded.filter(|rounded| *rounded >= f64::from(f32::MIN_POSITIVE)) {
            Some(magnitude) => signed(magnitude, unscaled < i256::ZERO) as f32,
            None => self.text(unscaled).parse().unwrap_or(f32::NAN),
        }
    }

    fn is_exact(self) -> bool {
        self.scale.unsigned_abs() <= EXACT_SCALE_MAX
    }

    fn divided(self, unscaled: f64) -> f64 {
        if self.scale < 0 { unscaled * self.power } else { unscaled / self.power }
    }

    fn parsed(self, unscaled: i256) -> f64 {
        self.text(unscaled).parse().unwrap_or(f64::NAN)
    }

    fn text(self, unscaled: i256) -> String {
        ExactDecimal::new(unscaled, self.scale).text()
    }

    /// A magnitude rounded to a number of binary digits, by integer division; `None` if 128 bits are not enough.
    fn rounded(self, magnitude: u128, digits: u32) -> Option<f64> {
        if magnitude == 0 {
            return Some(0.0);
        }
        let scale = u32::from(self.scale.unsigned_abs());
        // 10^scale = 5^scale × 2^scale: the second factor only changes the exponent.
        let fives = 5_u128.checked_pow(scale)?;
        if self.scale < 0 {
            return Some(to_digits(magnitude.checked_mul(fives)?, false, digits, scale.cast_signed()));
        }
        // The quotient has at least two digits more than the result.
        let shift = (digits + 3 + bits(fives)).saturating_sub(bits(magnitude));
        if bits(magnitude) + shift > u128::BITS {
            return None;
        }
        let dividend = magnitude << shift;
        let exponent = -(shift.cast_signed() + scale.cast_signed());
        Some(to_digits(dividend / fives, !dividend.is_multiple_of(fives), digits, exponent))
    }
}

/// `value` × 2^`exponent`, rounded to a number of binary digits. `has_more` adds a fraction below the last digit.
fn to_digits(value: u128, has_more: bool, digits: u32, exponent: i32) -> f64 {
    let dropped = bits(value).saturating_sub(digits);
    let kept = value >> dropped;
    let rest = value - (kept << dropped);
    let half = if dropped == 0 { 1 } else { 1 << (dropped - 1) };
    let is_up = rest > half || (rest == half && dropped > 0 && (has_more || kept % 2 == 1));
    // At most 2^53, and a power of two: both are exact.
    (kept + u128::from(is_up)) as f64 * 2_f64.powi(exponent + dropped.cast_signed())
}

fn bits(value: u128) -> u32 {
    u128::BITS - value.leading_zeros()
}

fn signed(magnitude: f64, is_negative: bool) -> f64 {
    if is_negative { -magnitude } else { magnitude }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Decimal64Array, Decimal128Array, Decimal256Array};
    use proptest::prelude::*;

    use super::*;

    /// The oracle is Rust's parser, which rounds correctly.
    fn check(unscaled: i128, scale: i8) {
        let text = format!("{unscaled}e{}", -i32::from(scale));
        let array: ArrayRef = Arc::new(
            Decimal128Array::from(vec![unscaled]).with_data_type(arrow::datatypes::DataType::Decimal128(38, scale)),
        );
        let double = float64_of_decimals(&array).unwrap().value(0);
        assert_eq!(double.to_bits(), (text.parse::<f64>().unwrap() + 0.0).to_bits(), "{text}");
        let single = float32_of_decimals(&array).unwrap().value(0);
        assert_eq!(single.to_bits(), (text.parse::<f32>().unwrap() + 0.0).to_bits(), "{text}");
    }

    #[test]
    fn ties_go_to_the_even_neighbour() {
        for unscaled in [(1 << 53) + 1, (1 << 53) + 3, -(1 << 54) - 2, (1 << 24) + 1, (1 << 25) + 2] {
            check(unscaled, 0);
            // 5 × 2^n + 2.5 and the decimals next to it.
            for near in -1..=1 {
                check(unscaled * 1000 + near, 3);
            }
        }
        check(i128::MAX, 38);
        check(10_i128.pow(38) - 1, -37);
        check(0, 5);
    }

    proptest! {
        #[test]
        fn every_decimal_is_the_nearest_float(unscaled in any::<i128>(), drop in 0..127_u32, scale in -37..=38_i8) {
            check(unscaled >> drop, scale);
        }
    }

    #[test]
    fn every_width_is_converted() {
        let short: ArrayRef = Arc::new(
            Decimal64Array::from(vec![Some(987_654_321_012_345_678), None])
                .with_data_type(arrow::datatypes::DataType::Decimal64(18, 4)),
        );
        assert_eq!(
            float64_of_decimals(&short).unwrap(),
            Float64Array::from(vec!["98765432101234.5678".parse().ok(), None])
        );
        let digits = "1234567890".repeat(7);
        let wide: ArrayRef = Arc::new(
            Decimal256Array::from(vec![i256::from_string(&digits)])
                .with_data_type(arrow::datatypes::DataType::Decimal256(76, 60)),
        );
        assert_eq!(float64_of_decimals(&wide).unwrap(), Float64Array::from(vec![1_234_567_890.123_456_8]));
        assert!(float64_of_decimals(&Float64Array::from(vec![1.0])).is_none());
    }
}
