//! What `standardize`, `min_max`, `max_abs` and `robust` share: (x − shift) / divisor, held within bounds where a `clip` follows.
//!
//! - f64 and integers compute in f64, bit-equal to numpy's `(x - shift) / divisor`. f32 stays f32, but each element is computed in f64
//!   and rounded to f32 at the end: a mean such as 2013.2 is no f32, and its rounding would be a relative error of every small
//!   difference. There it is multiplied with the divisor's inverse: within 0.5 ulp and 2^-27 of one of the exact value.
//! - NaN stays NaN, infinities stay infinite; null stays null.

use super::clip::clip;
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

/// The constants for f32, whose bounds are rounded to it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Single {
    shift: f64,
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

    /// What an f32's difference is multiplied with: one over the divisor, where that is a normal number.
    pub(crate) fn inverse(self) -> Option<f64> {
        (-1000..1000).contains(&exponent(self.divisor)).then_some(1.0 / self.divisor)
    }

    /// The scale of f32, if it is a multiplication.
    pub(crate) fn single(self) -> Option<Single> {
        let (low, high) = (self.min as f32, self.max as f32);
        self.inverse().map(|inverse| Single { shift: self.shift, inverse, low, high })
    }

    /// Of f32 this is for the divisors that have no inverse; the others go through [`Single`].
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
    #[inline(always)]
    pub(crate) fn apply(self, value: f32) -> f32 {
        clip(((f64::from(value) - self.shift) * self.inverse) as f32, self.low, self.high)
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
