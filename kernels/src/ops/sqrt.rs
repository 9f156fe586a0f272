//! `sqrt`: the square root. Bit-equal to `numpy.sqrt`.
//!
//! - x < 0 gives NaN, −0.0 stays −0.0, inf gives inf, NaN stays NaN; null stays null.
//! - f32 is computed in f32, everything else in f64.

use super::number_op::NumberOp;
use crate::vector::tile::Tile;

/// √x; integers convert to f64.
#[derive(Debug)]
pub(crate) struct Sqrt;

impl NumberOp for Sqrt {
    fn apply(&self, tile: &mut Tile) {
        tile.map_floats(f32::sqrt, f64::sqrt);
    }

    #[cfg(feature = "cuda")]
    fn write(&self, writer: &mut crate::cuda::writer::Writer) {
        writer.call("square_root");
    }
}

#[cfg(test)]
mod tests {
    use crate::{
        Op,
        testing::{assert_doubles, assert_singles, evaluate, ints, singles},
    };

    /// `np.sqrt(np.array([2, 0, -0.0, -1, inf, nan, 1e-45], 'f4'))`
    #[test]
    fn matches_numpy() {
        let column = [2.0, 0.0, -0.0, -1.0, f32::INFINITY, f32::NAN, 1e-45].map(Some);
        let expected =
            [std::f32::consts::SQRT_2, 0.0, -0.0, f32::NAN, f32::INFINITY, f32::NAN, 3.743_392e-23].map(Some);
        assert_singles(&evaluate(&[Op::Sqrt], singles(&column)), &expected);
        assert_doubles(
            &evaluate(&[Op::Sqrt], ints(&[Some(2), None, Some(-4)])),
            &[Some(std::f64::consts::SQRT_2), None, Some(f64::NAN)],
        );
    }
}
