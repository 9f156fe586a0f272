//! `abs`: the absolute value. Bit-equal to `numpy.abs`.
//!
//! - Integers stay integers; −2^63, whose absolute value does not fit, is unchanged, as in NumPy. −0.0 becomes 0.0, NaN
//!   stays NaN; null stays null.

use super::number_op::NumberOp;
use crate::vector::tile::Tile;

/// |x|.
#[derive(Debug)]
pub(crate) struct Abs;

impl NumberOp for Abs {
    fn apply(&self, tile: &mut Tile) {
        if tile.number().is_float() {
            tile.map_floats(f32::abs, f64::abs);
        } else {
            tile.map_ints(i64::wrapping_abs, |value| value);
        }
    }

    #[cfg(feature = "cuda")]
    fn write(&self, writer: &mut crate::cuda::writer::Writer) {
        writer.assign(&format!("absolute({})", writer.value()));
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::UInt64Array;

    use crate::{
        Op,
        testing::{assert_doubles, assert_ints, doubles, evaluate, ints},
    };

    #[test]
    fn matches_numpy() {
        let column = ints(&[Some(-3), None, Some(i64::MIN), Some(i64::MAX)]);
        assert_ints(&evaluate(&[Op::Abs], column), &[Some(3), None, Some(i64::MIN), Some(i64::MAX)]);
        let column = [-1.5, -0.0, f64::NEG_INFINITY, f64::NAN].map(Some);
        assert_doubles(&evaluate(&[Op::Abs], doubles(&column)), &[1.5, 0.0, f64::INFINITY, f64::NAN].map(Some));
        let column = UInt64Array::from(vec![u64::MAX, 0]);
        assert_eq!(evaluate(&[Op::Abs], column.clone()).as_ref(), &column as &dyn arrow::array::Array);
    }
}
