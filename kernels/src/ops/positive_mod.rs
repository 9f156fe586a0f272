//! `positive_mod`: x modulo `modulus`, from 0 to modulus − 1 even for negative x. `numpy.mod` with a positive divisor;
//! the `PositiveModulus` of Meta's preprocessing.
//!
//! - Integers stay integers. Floats are computed in their own precision; ±inf and NaN give NaN. Null stays null.
//! - `modulus` is from 1 to 2^63 − 1.

use super::number_op::NumberOp;
use crate::{error::OpProblem, vector::tile::Tile};

/// The modulus.
#[derive(Debug)]
pub(crate) struct PositiveMod {
    modulus: i64,
}

impl PositiveMod {
    pub(crate) fn compile(modulus: i64) -> Result<Self, OpProblem> {
        if modulus < 1 {
            return Err(OpProblem::Parameter(format!("modulus must be at least 1, not {modulus}")));
        }
        Ok(Self { modulus })
    }
}

impl NumberOp for PositiveMod {
    fn apply(&self, tile: &mut Tile) {
        let modulus = self.modulus;
        if !tile.number().is_float() {
            return tile.map_ints(move |value| value.rem_euclid(modulus), move |value| value % modulus.unsigned_abs());
        }
        let (single, double) = (modulus as f32, modulus as f64);
        // As in NumPy: one addition corrects the remainder's sign, and zeros are +0.
        tile.map_floats(
            |value| {
                let rest = value % single;
                if rest < 0.0 { rest + single } else { rest.abs() }
            },
            |value| {
                let rest = value % double;
                if rest < 0.0 { rest + double } else { rest.abs() }
            },
        );
    }

    #[cfg(feature = "cuda")]
    fn write(&self, writer: &mut crate::cuda::writer::Writer) {
        let modulus = writer.int(self.modulus);
        writer.assign(&format!("positive_mod({}, {modulus})", writer.value()));
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::UInt64Array;

    use crate::{
        Op,
        testing::{assert_doubles, assert_ints, compile_error, doubles, evaluate, ints},
    };

    fn positive_mod(modulus: i64) -> [Op; 1] {
        [Op::PositiveMod { modulus }]
    }

    /// `np.mod(x, 7)`
    #[test]
    fn matches_numpy() {
        let column = ints(&[Some(-1), Some(7), Some(13), None, Some(i64::MIN)]);
        assert_ints(&evaluate(&positive_mod(7), column), &[Some(6), Some(0), Some(6), None, Some(6)]);
        let column = UInt64Array::from(vec![u64::MAX]);
        assert_eq!(
            evaluate(&positive_mod(7), column).as_ref(),
            &UInt64Array::from(vec![1]) as &dyn arrow::array::Array
        );
        let column = [-0.5, 7.5, -0.0, -7.0, f64::INFINITY, f64::NAN].map(Some);
        let expected = [6.5, 0.5, 0.0, 0.0, f64::NAN, f64::NAN].map(Some);
        assert_doubles(&evaluate(&positive_mod(7), doubles(&column)), &expected);
    }

    #[test]
    fn rejects_a_modulus_below_one() {
        assert!(compile_error(&positive_mod(0), ints(&[None])).ends_with("modulus must be at least 1, not 0"));
    }
}
