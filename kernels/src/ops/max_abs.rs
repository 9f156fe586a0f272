//! `max_abs`: x / the largest absolute value. scikit-learn's `MaxAbsScaler`.
//!
//! - A largest value below 10 · 2^−52 divides by 1, as in scikit-learn. Negative values, NaN and infinity are errors.
//! - For arithmetic, NaN, infinities and nulls, see [`super::scale`]. Bit-equal to scikit-learn on f64 and integers.

use super::{
    parameter::finite,
    scale::{Scale, divisor},
};
use crate::error::OpProblem;

/// Compiles to a scale, after checking the parameter.
pub(crate) fn compile(max_abs: f64) -> Result<Scale, OpProblem> {
    let max_abs = finite("max_abs", max_abs)?;
    if max_abs < 0.0 {
        return Err(OpProblem::Parameter(format!("max_abs must not be negative, but is {max_abs}")));
    }
    Ok(Scale::new(0.0, divisor(max_abs)))
}

#[cfg(test)]
mod tests {
    use crate::{
        Op,
        testing::{assert_doubles, assert_singles, compile_error, doubles, evaluate, ints, singles},
    };

    fn max_abs(max_abs: f64) -> [Op; 1] {
        [Op::MaxAbs { max_abs }]
    }

    /// `sklearn.preprocessing.MaxAbsScaler().fit_transform([[1], [-4], [0], [3]])`
    #[test]
    fn matches_sklearn() {
        assert_doubles(
            &evaluate(&max_abs(4.0), ints(&[Some(1), Some(-4), Some(0), None])),
            &[Some(0.25), Some(-1.0), Some(0.0), None],
        );
        let column = [3.0, -0.0, f32::INFINITY, f32::NAN].map(Some);
        assert_singles(&evaluate(&max_abs(4.0), singles(&column)), &[0.75, -0.0, f32::INFINITY, f32::NAN].map(Some));
    }

    #[test]
    fn a_negligible_maximum_divides_by_one() {
        assert_doubles(&evaluate(&max_abs(0.0), doubles(&[Some(0.0)])), &[Some(0.0)]);
        assert_doubles(&evaluate(&max_abs(2e-15), doubles(&[Some(2e-15)])), &[Some(2e-15)]);
        assert_doubles(&evaluate(&max_abs(4e-15), doubles(&[Some(2e-15)])), &[Some(0.5)]);
    }

    #[test]
    fn rejects_invalid_parameters() {
        assert!(compile_error(&max_abs(-1.0), ints(&[None])).ends_with("max_abs must not be negative, but is -1"));
        assert!(compile_error(&max_abs(f64::NAN), ints(&[None])).ends_with("max_abs must be a finite number, not NaN"));
    }
}
