//! What `standardize`, `min_max`, `max_abs` and `robust` share: (x − shift) / divisor, held within bounds where a `clip` follows.
//!
//! - f64 and integers compute in f64, bit-equal to numpy's `(x - shift) / divisor`. f32 stays f32, but each element is computed in f64
//!   and rounded once: a mean such as 2013.2 is no f32, and its rounding would be a relative error of every small difference.
//! - NaN stays NaN, infinities stay infinite; null stays null.

use super::clip::clip;
use crate::vector::simd;
use crate::vector::tile::Tile;

/// scikit-learn takes a scale below this, ten times the spacing of doubles at 1, for a constant column and divides by 1.
const LEAST_SCALE: f64 = 10.0 * f64::EPSILON;

/// The constants.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale {
    pub(crate) shift: f64,
    pub(crate) divisor: f64,
    /// What a `clip` behind it holds the result within.
    pub(crate) min: f64,
    pub(crate) max: f64,
}

/// The constants for f32 where a division goes without dividing: bounds are rounded to f32, and the divisor has an inverse.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Single {
    shift: f64,
    divisor: f64,
    inverse: f64,
    low: f32,
    high: f32,
}

impl Scale {
    pub(crate) fn new(shift: f64, divisor: f64) -> Self {
        Self { shift, divisor, min: f64::NEG_INFINITY, max: f64::INFINITY }
    }

    /// Whether no bounds were given yet.
    pub(crate) fn is_open(self) -> bool {
        self.min == f64::NEG_INFINITY && self.max == f64::INFINITY
    }

    /// The scale of f32 without a division, if there is one: where multiplications are fused with additions, and far from where a
    /// quotient of what an f32 can hold would leave the normal numbers.
    pub(crate) fn single(self) -> Option<Single> {
        let Self { shift, divisor, min, max } = self;
        let is_moderate = divisor > 0.0 && (-100..100).contains(&exponent(divisor)) && exponent(shift) < 100;
        let single = Single { shift, divisor, inverse: 1.0 / divisor, low: min as f32, high: max as f32 };
        (simd::fuses() && is_moderate).then_some(single)
    }

    /// Of f32 this is for what has no [`Single`].
    pub(crate) fn apply(self, tile: &mut Tile) {
        let Self { shift, divisor, min, max } = self;
        let (low, high) = (min as f32, max as f32);
        tile.map_floats(
            #[inline(always)]
            move |value| clip(((f64::from(value) - shift) / divisor) as f32, low, high),
            #[inline(always)]
            move |value| clip((value - shift) / divisor, min, max),
        );
    }
}

impl Single {
    /// The difference / divisor, rounded as IEEE division rounds, by the divisor's inverse and two fused operations (Markstein, 1990).
    #[inline(always)]
    pub(crate) fn apply(self, value: f32) -> f32 {
        let difference = f64::from(value) - self.shift;
        let near = difference * self.inverse;
        // With these signs, a zero keeps its own.
        let beyond = near.mul_add(self.divisor, -difference);
        let quotient = (-beyond).mul_add(self.inverse, near) as f32;
        // Infinities have nothing beyond them; a NaN is a quiet one behind any operation.
        let quotient = if value.abs() < f32::INFINITY { quotient } else { value + value };
        clip(quotient, self.low, self.high)
    }
}

/// The power of two below a number.
fn exponent(value: f64) -> i32 {
    ((value.to_bits() >> 52) & 0x7ff) as i32 - 1023
}

/// A scale as scikit-learn uses it.
pub(crate) fn divisor(scale: f64) -> f64 {
    if scale < LEAST_SCALE { 1.0 } else { scale }
}
