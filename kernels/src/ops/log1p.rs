//! `log1p`: ln(1 + x). `numpy.log1p`.
//!
//! - x < −1 gives NaN, −1 gives −inf, inf gives inf, NaN stays NaN, −0.0 stays −0.0; null stays null.
//! - f32 is computed in f32, everything else in f64: within 1 ulp of the exact value, so within 2 ulp of NumPy.

use super::number_op::NumberOp;
use crate::vector::{math, tile::Tile};

/// ln(1 + x); integers convert to f64.
#[derive(Debug)]
pub(crate) struct Log1p;

impl NumberOp for Log1p {
    fn apply(&self, tile: &mut Tile) {
        tile.map_floats(math::ln_1p_single, math::ln_1p);
    }

    #[cfg(feature = "cuda")]
    fn write(&self, writer: &mut crate::cuda::writer::Writer) {
        writer.call("ln_1p");
    }
}

#[cfg(test)]
mod tests {
    use arrow::{array::AsArray, datatypes::Float64Type};

    use crate::{
        Op,
        testing::{assert_singles, doubles, evaluate, ints, singles},
    };

    /// `np.log1p(np.array([0, -0.0, 1, -0.5, -1, -2, 1e-30, 1e10, inf, -inf, nan], 'f4'))`
    #[test]
    fn f32_matches_numpy() {
        let column = [0.0, -0.0, 1.0, -0.5, -1.0, -2.0, 1e-30, 1e10, f32::INFINITY, f32::NEG_INFINITY, f32::NAN];
        let (nan, inf, ln_2) = (f32::NAN, f32::INFINITY, std::f32::consts::LN_2);
        let expected = [0.0, -0.0, ln_2, -ln_2, -inf, nan, 1e-30, 23.025_85, inf, nan, nan];
        assert_singles(&evaluate(&[Op::Log1p], singles(&column.map(Some))), &expected.map(Some));
    }

    /// `np.log1p` of f64, within 2 ulp; null stays null.
    #[test]
    fn f64_is_within_2_ulp_of_numpy() {
        let column = [Some(1.0), Some(-0.5), Some(1e-30), Some(1e10), None, Some(5e-324)];
        let numpy = [std::f64::consts::LN_2, -std::f64::consts::LN_2, 1e-30, 23.025_850_930_040_455, 0.0, 5e-324];
        let logs = evaluate(&[Op::Log1p], doubles(&column));
        for (row, (value, expected)) in logs.as_primitive::<Float64Type>().iter().zip(numpy).enumerate() {
            assert_eq!(value.is_none(), row == 4);
            let bits = value.unwrap_or(0.0).to_bits();
            assert!(bits.abs_diff(expected.to_bits()) <= 2, "{value:?} is not {expected}");
        }
    }

    #[test]
    fn integers_convert_to_f64() {
        let logs = evaluate(&[Op::Log1p], ints(&[Some(0), Some(-1)]));
        crate::testing::assert_doubles(&logs, &[Some(0.0), Some(f64::NEG_INFINITY)]);
    }
}
