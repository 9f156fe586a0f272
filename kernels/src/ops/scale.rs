//! What `standardize`, `min_max`, `max_abs` and `robust` share: (x − shift) / divisor, held within bounds where a `clip` follows.
//!
//! - f64 and integers compute in f64, bit-equal to numpy's `(x - shift) / divisor`. f32 stays f32, but each element is computed in f64
//!   and rounded once: a mean such as 2013.2 is no f32, and its rounding would be a relative error of every small difference.
//! - NaN stays NaN, infinities stay infinite; null stays null.

use super::clip::clip;
use crate::cpu::simd;
use crate::cpu::tile::Tile;

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

impl Scale {
    pub(crate) fn new(shift: f64, divisor: f64) -> Self {
        Self { shift, divisor, min: f64::NEG_INFINITY, max: f64::INFINITY }
    }

    /// Whether no bounds were given yet.
    pub(crate) fn is_open(self) -> bool {
        self.min == f64::NEG_INFINITY && self.max == f64::INFINITY
    }

    pub(crate) fn apply(self, tile: &mut Tile) {
        let Self { shift, divisor, min, max } = self;
        let (low, high) = (min as f32, max as f32);
        // Far from where a quotient of what an f32 can hold would leave the normal numbers.
        let is_moderate = (-100..100).contains(&exponent(divisor)) && exponent(shift) < 100;
        if simd::fuses() && is_moderate {
            let inverse = 1.0 / divisor;
            tile.map_floats(
                #[inline(always)]
                move |value| clip(divide(f64::from(value) - shift, divisor, inverse) as f32, low, high),
                #[inline(always)]
                move |value| clip((value - shift) / divisor, min, max),
            );
        } else {
            tile.map_floats(
                #[inline(always)]
                move |value| clip(((f64::from(value) - shift) / divisor) as f32, low, high),
                #[inline(always)]
                move |value| clip((value - shift) / divisor, min, max),
            );
        }
    }
}

/// value / divisor, rounded as IEEE division rounds, by the divisor's inverse and two fused operations (Markstein, 1990).
#[inline(always)]
fn divide(value: f64, divisor: f64, inverse: f64) -> f64 {
    let near = value * inverse;
    let rest = (-near).mul_add(divisor, value);
    let exact = rest.mul_add(inverse, near);
    // Zeros keep their sign; infinities and NaN have no rest.
    if near.abs() < f64::INFINITY && near != 0.0 { exact } else { near }
}

/// The power of two below a number.
fn exponent(value: f64) -> i32 {
    ((value.to_bits() >> 52) & 0x7ff) as i32 - 1023
}

/// A scale as scikit-learn uses it.
pub(crate) fn divisor(scale: f64) -> f64 {
    if scale < LEAST_SCALE { 1.0 } else { scale }
}
