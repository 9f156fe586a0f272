//! `robust`: (x − center) / scale, learned as the median and the distance between the quartiles. scikit-learn's `RobustScaler`.
//!
//! - A scale below 10 · 2^−52 divides by 1, as scikit-learn does. A negative scale, and parameters that are not finite, are errors.
//! - Arithmetic, NaN, infinities and nulls: [`super::scale`]. Bit-equal to scikit-learn on f64 and integers.

use super::parameter::finite;
use super::scale::{Scale, divisor};
use crate::error::OpProblem;

/// The step, its parameters checked.
pub(crate) fn compile(center: f64, scale: f64) -> Result<Scale, OpProblem> {
    let (center, scale) = (finite("center", center)?, finite("scale", scale)?);
    if scale < 0.0 {
        return Err(OpProblem::Parameter(format!("scale must not be negative, but is {scale}")));
    }
    Ok(Scale::new(center, divisor(scale)))
}

#[cfg(test)]
mod tests {
    use crate::Op;
    use crate::testing::{assert_doubles, doubles, evaluate, ints, refusal};

    fn robust(center: f64, scale: f64) -> [Op; 1] {
        [Op::Robust { center, scale }]
    }

    /// `sklearn.preprocessing.RobustScaler().fit_transform([[1], [2], [4], [9], [100]])`: center 4, scale 7.
    #[test]
    fn centers_and_scales_as_sklearn_does() {
        let column = ints(&[Some(1), Some(4), Some(100), None]);
        let expected = [Some(-0.428_571_428_571_428_55), Some(0.0), Some(13.714_285_714_285_714), None];
        assert_doubles(&evaluate(&robust(4.0, 7.0), column), &expected);
    }

    #[test]
    fn a_scale_of_zero_divides_by_one() {
        assert_doubles(&evaluate(&robust(3.0, 0.0), doubles(&[Some(3.0), Some(5.0)])), &[0.0, 2.0].map(Some));
        assert_doubles(&evaluate(&robust(0.0, 1e-17), doubles(&[Some(1e-17)])), &[Some(1e-17)]);
    }

    #[test]
    fn parameters_that_make_no_sense_are_refused() {
        assert!(refusal(&robust(0.0, -1.0), ints(&[None])).ends_with("scale must not be negative, but is -1"));
        assert!(
            refusal(&robust(f64::INFINITY, 1.0), ints(&[None])).ends_with("center must be a finite number, not inf")
        );
    }
}
