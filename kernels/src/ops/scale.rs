//! The common form of `standardize`, `min_max`, `max_abs` and `robust`: (x − shift) / divisor, limited to the bounds of
//! a following `clip`.
//!
//! - f64 and integers are computed in f64, bit-equal to NumPy's `(x - shift) / divisor`. f32 stays f32, but each
//!   element is computed in f64 and rounded once: a mean such as 2013.2 is not exact in f32, and rounding it would make
//!   small differences inaccurate.
//! - NaN stays NaN, infinities stay infinite; null stays null.

use super::{clip::clip, number_op::NumberOp};
use crate::vector::{simd, tile::Tile};

/// scikit-learn treats a column with a smaller scale, ten times the spacing of doubles at 1, as constant, and divides
/// by 1.
const LEAST_SCALE: f64 = 10.0 * f64::EPSILON;

/// The constants.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale {
    pub(crate) shift: f64,
    pub(crate) divisor: f64,
    /// The lower bound of a following `clip`.
    pub(crate) min: f64,
    pub(crate) max: f64,
}

/// The constants for f32 if the division can be replaced by a multiplication: the bounds rounded to f32, and the
/// divisor's inverse.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SingleScale {
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

    /// Whether no bounds are set.
    pub(crate) fn is_unbounded(self) -> bool {
        self.min == f64::NEG_INFINITY && self.max == f64::INFINITY
    }

    /// The scale of f32 without a division. `None` without fused multiply-add, and for constants so extreme that the
    /// quotient of an f32 could leave the range of normal numbers.
    pub(crate) fn single(self) -> Option<SingleScale> {
        let Self { shift, divisor, min, max } = self;
        let is_moderate = divisor > 0.0 && (-100..100).contains(&exponent(divisor)) && exponent(shift) < 100;
        let single = SingleScale { shift, divisor, inverse: 1.0 / divisor, low: min as f32, high: max as f32 };
        (simd::has_fused_multiply_add() && is_moderate).then_some(single)
    }
}

impl NumberOp for Scale {
    /// Runs over f32 only if there is no [`SingleScale`].
    fn apply(&self, tile: &mut Tile) {
        let Self { shift, divisor, min, max } = *self;
        let (low, high) = (min as f32, max as f32);
        tile.map_floats(
            #[inline(always)]
            move |value| clip(((f64::from(value) - shift) / divisor) as f32, low, high),
            #[inline(always)]
            move |value| clip((value - shift) / divisor, min, max),
        );
    }

    #[cfg(feature = "cuda")]
    fn write(&self, writer: &mut crate::cuda::writer::Writer) {
        writer.make_floats();
        let (shift, divisor) = (writer.double(self.shift), writer.double(self.divisor));
        writer.assign(&format!("shift_and_divide({}, {shift}, {divisor})", writer.value()));
        if !self.is_unbounded() {
            super::clip::Clip::Float { min: self.min, max: self.max }.write(writer);
        }
    }
}

impl SingleScale {
    /// The difference / divisor, rounded as IEEE division rounds, computed with the divisor's inverse and two fused
    /// operations (Markstein, 1990).
    #[inline(always)]
    pub(crate) fn apply(self, value: f32) -> f32 {
        let difference = f64::from(value) - self.shift;
        let near = difference * self.inverse;
        // These signs preserve the sign of zero.
        let beyond = near.mul_add(self.divisor, -difference);
        let quotient = (-beyond).mul_add(self.inverse, near) as f32;
        // Infinities have no remainder; any operation turns a NaN into a quiet one.
        let quotient = if value.abs() < f32::INFINITY { quotient } else { value + value };
        clip(quotient, self.low, self.high)
    }
}

/// The exponent of the largest power of two that does not exceed a number.
fn exponent(value: f64) -> i32 {
    ((value.to_bits() >> 52) & 0x7ff) as i32 - 1023
}

/// The divisor that scikit-learn uses for a scale.
pub(crate) fn divisor(scale: f64) -> f64 {
    if scale < LEAST_SCALE { 1.0 } else { scale }
}
