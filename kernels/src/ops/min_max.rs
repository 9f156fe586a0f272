//! `min_max`: (x − min) / (max − min). scikit-learn's `MinMaxScaler`.
//!
//! - A range below 10 · 2^−52 divides by 1, as in scikit-learn. `max` < `min`, non-finite bounds and a range beyond f64
//!   are errors.
//! - Values outside the range become negative or greater than 1.
//! - For arithmetic, NaN, infinities and nulls, see [`super::scale`]. scikit-learn multiplies by 1 / (max − min) and
//!   adds instead; near 0 its result cancels, so compare it absolutely.

use super::{
    parameter::finite,
    scale::{Scale, divisor},
};
use crate::error::OpProblem;

/// Compiles to a scale, after checking the parameters.
pub(crate) fn compile(min: f64, max: f64) -> Result<Scale, OpProblem> {
    let (min, max) = (finite("min", min)?, finite("max", max)?);
    if max < min {
        return Err(OpProblem::Parameter(format!("max {max} is less than min {min}")));
    }
    Ok(Scale::new(min, divisor(finite("the range max - min", max - min)?)))
}

#[cfg(test)]
mod tests {
    use crate::{
        Op,
        testing::{assert_doubles, assert_singles, compile_error, doubles, evaluate, ints, singles},
    };

    fn min_max(min: f64, max: f64) -> [Op; 1] {
        [Op::MinMax { min, max }]
    }

    /// `((x.astype('f8') - 0.1) / (0.7 - 0.1)).astype('f4')`
    #[test]
    fn f32_is_computed_in_f64_and_rounded_once() {
        let (nan, inf) = (f32::NAN, f32::INFINITY);
        let column = [0.0, -0.0, 1.0, -2.5, 1e-45, inf, -inf, nan].map(Some);
        let expected = [-0.166_666_67, -0.166_666_67, 1.5, -4.333_333_5, -0.166_666_67, inf, -inf, nan].map(Some);
        assert_singles(&evaluate(&min_max(0.1, 0.7), singles(&column)), &expected);
    }

    /// `(x - 0.1) / (0.7 - 0.1)`
    #[test]
    fn f64_is_bit_equal_to_numpy() {
        let column = [Some(0.0), Some(1.0), Some(-2.5), Some(1e300), None];
        let expected = [-0.166_666_666_666_666_69, 1.5, -4.333_333_333_333_334, 1.666_666_666_666_666_8e300];
        let expected = expected.into_iter().map(Some).chain([None]).collect::<Vec<_>>();
        assert_doubles(&evaluate(&min_max(0.1, 0.7), doubles(&column)), &expected);
    }

    /// `sklearn.preprocessing.MinMaxScaler().fit_transform([[1], [2], [4], [9]])`
    #[test]
    fn integers_match_sklearn() {
        let column = ints(&[Some(1), Some(2), Some(4), Some(9)]);
        assert_doubles(&evaluate(&min_max(1.0, 9.0), column), &[0.0, 0.125, 0.375, 1.0].map(Some));
    }

    #[test]
    fn a_range_of_zero_divides_by_one() {
        assert_doubles(&evaluate(&min_max(3.0, 3.0), doubles(&[Some(3.0), Some(5.0)])), &[Some(0.0), Some(2.0)]);
    }

    #[test]
    fn rejects_invalid_parameters() {
        let message = |op: &[Op]| compile_error(op, ints(&[None]));
        assert!(message(&min_max(1.0, 0.0)).ends_with("op min_max (number 1 of its chain): max 0 is less than min 1"));
        assert!(message(&min_max(f64::NAN, 1.0)).ends_with("min must be a finite number, not NaN"));
        assert!(message(&min_max(-1e308, 1e308)).ends_with("the range max - min must be a finite number, not inf"));
    }
}
