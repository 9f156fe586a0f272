//! `robust`: (x − center) / scale, learned as the median and the interquartile range. scikit-learn's `RobustScaler`.
//!
//! - A scale below 10 · 2^−52 divides by 1, as in scikit-learn. A negative scale and non-finite parameters are errors.
//! - For arithmetic, NaN, infinities and nulls, see [`super::scale`]. Bit-equal to scikit-learn on f64 and integers.

use super::{
    parameter::finite,
    scale::{Scale, divisor},
};
use crate::error::OpProblem;

/// Compiles to a scale, after checking the parameters.
pub(crate) fn compile(center: f64, scale: f64) -> Result<Scale, OpProblem> {
    let (center, scale) = (finite("center", center)?, finite("scale", scale)?);
    if scale < 0.0 {
        return Err(OpProblem::Parameter(format!("scale must not be negative, but is {scale}")));
    }
    Ok(Scale::new(center, divisor(scale)))
}

#[cfg(test)]
mod tests {
    use crate::{
        Op,
        testing::{assert_doubles, compile_error, doubles, evaluate, ints},
    };

    fn robust(center: f64, scale: f64) -> [Op; 1] {
        [Op::Robust { center, scale }]
    }

    /// `sklearn.preprocessing.RobustScaler().fit_transform([[1], [2], [4], [9], [100]])`: center 4, scale 7.
    #[test]
    fn matches_sklearn() {
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
    fn rejects_invalid_parameters() {
        assert!(compile_error(&robust(0.0, -1.0), ints(&[None])).ends_with("scale must not be negative, but is -1"));
        assert!(
            compile_error(&robust(f64::INFINITY, 1.0), ints(&[None]))
                .ends_with("center must be a finite number, not inf")
        );
    }
}
