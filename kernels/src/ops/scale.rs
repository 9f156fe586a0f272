//! What `standardize`, `min_max`, `max_abs` and `robust` share: (x − shift) / divisor.
//!
//! - f64 and integers compute in f64, bit-equal to numpy's `(x - shift) / divisor`. f32 stays f32, but each element is computed in f64
//!   and rounded once: a mean such as 2013.2 is no f32, and its rounding would be a relative error of every small difference.
//! - NaN stays NaN, infinities stay infinite; null stays null.

use crate::cpu::tile::Tile;

/// scikit-learn takes a scale below this, ten times the spacing of doubles at 1, for a constant column and divides by 1.
const LEAST_SCALE: f64 = 10.0 * f64::EPSILON;

/// The constants.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale {
    pub(crate) shift: f64,
    pub(crate) divisor: f64,
}

impl Scale {
    pub(crate) fn apply(self, tile: &mut Tile) {
        let Self { shift, divisor } = self;
        tile.map_floats(
            #[inline(always)]
            move |value| ((f64::from(value) - shift) / divisor) as f32,
            #[inline(always)]
            move |value| (value - shift) / divisor,
        );
    }
}

/// A scale as scikit-learn uses it.
pub(crate) fn divisor(scale: f64) -> f64 {
    if scale < LEAST_SCALE { 1.0 } else { scale }
}
