//! `standardize`: (x − mean) / std. scikit-learn's `StandardScaler`, with the population standard deviation.
//!
//! - A std of 0 divides by 1, as in scikit-learn. A negative, NaN or infinite std and a non-finite mean are errors.
//! - For arithmetic, NaN, infinities and nulls, see [`super::scale`]. Bit-equal to scikit-learn on f64 and integers;
//!   within 1 ulp on f32, where scikit-learn rounds between the two operations.

use super::{parameter::finite, scale::Scale};
use crate::error::OpProblem;

/// Compiles to a scale, after checking the parameters.
pub(crate) fn compile(mean: f64, std: f64) -> Result<Scale, OpProblem> {
    let (mean, std) = (finite("mean", mean)?, finite("std", std)?);
    if std < 0.0 {
        return Err(OpProblem::Parameter(format!("std must not be negative, but is {std}")));
    }
    Ok(Scale::new(mean, if std == 0.0 { 1.0 } else { std }))
}

#[cfg(test)]
mod tests {
    use crate::{
        Op,
        testing::{assert_doubles, assert_singles, compile_error, doubles, evaluate, ints, singles},
    };

    fn standardize(mean: f64, std: f64) -> [Op; 1] {
        [Op::Standardize { mean, std }]
    }

    /// `((x.astype('f8') - 0.1) / 0.3).astype('f4')`
    #[test]
    fn f32_is_computed_in_f64_and_rounded_once() {
        let (nan, inf) = (f32::NAN, f32::INFINITY);
        let column = [0.0, -0.0, 1.0, -2.5, 1e-45, inf, -inf, nan].map(Some);
        let expected = [-0.333_333_34, -0.333_333_34, 3.0, -8.666_667, -0.333_333_34, inf, -inf, nan].map(Some);
        assert_singles(&evaluate(&standardize(0.1, 0.3), singles(&column)), &expected);
    }

    /// `(x - 0.1) / 0.3`
    #[test]
    fn f64_is_bit_equal_to_numpy() {
        let column = [Some(0.0), Some(1.0), Some(-2.5), Some(1e300), Some(5e-324), None];
        let expected = [-0.333_333_333_333_333_37, 3.0, -8.666_666_666_666_668, 3.333_333_333_333_333_5e300];
        let expected = [expected[0], expected[1], expected[2], expected[3], expected[0]];
        let expected = expected.into_iter().map(Some).chain([None]).collect::<Vec<_>>();
        assert_doubles(&evaluate(&standardize(0.1, 0.3), doubles(&column)), &expected);
    }

    /// `sklearn.preprocessing.StandardScaler().fit_transform([[1], [2], [4], [9]])`: mean 4, scale `sqrt(9.5)`.
    #[test]
    fn integers_match_sklearn() {
        let column = ints(&[Some(1), Some(2), Some(4), Some(9)]);
        let expected = [-0.973_328_526_784_575_3, -0.648_885_684_523_050_2, 0.0, 1.622_214_211_307_625_4].map(Some);
        assert_doubles(&evaluate(&standardize(4.0, 9.5f64.sqrt()), column), &expected);
    }

    #[test]
    fn a_std_of_zero_divides_by_one() {
        assert_doubles(&evaluate(&standardize(3.0, 0.0), doubles(&[Some(3.0), Some(5.0)])), &[Some(0.0), Some(2.0)]);
    }

    #[test]
    fn rejects_invalid_parameters() {
        let message = |op: &[Op]| compile_error(op, ints(&[None]));
        assert!(
            message(&standardize(0.0, -1.0))
                .ends_with("op standardize (number 1 of its chain): std must not be negative, but is -1")
        );
        assert!(message(&standardize(f64::NAN, 1.0)).ends_with("mean must be a finite number, not NaN"));
        assert!(message(&standardize(0.0, f64::INFINITY)).ends_with("std must be a finite number, not inf"));
        assert!(
            compile_error(&standardize(0.0, 1.0), arrow::array::StringArray::from(vec!["a"]))
                .ends_with("it takes numbers, but its input is text")
        );
    }
}
