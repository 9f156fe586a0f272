//! `clip`: limits values to the range from `min` to `max`. `numpy.clip`.
//!
//! - NaN stays NaN; infinities become the bounds; −0.0 is not below 0.0 and stays; null stays null.
//! - At least one bound is required. A NaN bound or `min` > `max` is an error. A bound may be infinite.
//! - Integers stay integers if the bounds are integral; a bound that no value of the domain can exceed (a `min` of −5
//!   or −inf on `UInt64`) has no effect. Any other bound converts integers to f64.
//! - The bounds of an f32 column are rounded to f32, as NumPy does with Python floats.

use super::number_op::NumberOp;
use crate::{
    domain::Number,
    error::OpProblem,
    vector::{
        exact::{TWO_63, exact_i64, exact_u64},
        tile::Tile,
    },
};

/// The bounds, in the domain of the tiles that they clip.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Clip {
    Int { min: i64, max: i64 },
    UInt { min: u64, max: u64 },
    Float { min: f64, max: f64 },
}

impl Clip {
    /// Compiles for a kind of number: returns the step, and the kind of number after it.
    pub(crate) fn compile(min: Option<f64>, max: Option<f64>, number: Number) -> Result<(Self, Number), OpProblem> {
        if min.is_none() && max.is_none() {
            return Err(OpProblem::Parameter("it needs min, max or both".to_owned()));
        }
        let (min, max) = (min.unwrap_or(f64::NEG_INFINITY), max.unwrap_or(f64::INFINITY));
        if min.is_nan() || max.is_nan() {
            return Err(OpProblem::Parameter("a bound must be a number, not NaN".to_owned()));
        }
        if min > max {
            return Err(OpProblem::Parameter(format!("min {min} is greater than max {max}")));
        }
        let clip = match number {
            Number::Int => Self::ints(min, max),
            Number::UInt => Self::uints(min, max),
            Number::F32 | Number::F64 => None,
        };
        Ok(match clip {
            Some(clip) => (clip, number),
            None => (Self::Float { min, max }, number.floating()),
        })
    }

    /// Compiles integer bounds.
    pub(crate) fn compile_whole(
        min: Option<i128>,
        max: Option<i128>,
        number: Number,
    ) -> Result<(Self, Number), OpProblem> {
        if let (Some(min), Some(max)) = (min, max)
            && min > max
        {
            return Err(OpProblem::Parameter(format!("min {min} is greater than max {max}")));
        }
        // A bound that every value satisfies has no effect; one that no value satisfies is outside the domain.
        let (low, high) = (min.unwrap_or(i128::MIN), max.unwrap_or(i128::MAX));
        if min.is_none() && max.is_none() {
            return Self::compile(None, None, number);
        }
        let int =
            || Some((i64::try_from(low.max(i64::MIN.into())).ok()?, i64::try_from(high.min(i64::MAX.into())).ok()?));
        let uint = || Some((u64::try_from(low.max(0)).ok()?, u64::try_from(high.min(u64::MAX.into())).ok()?));
        let clip = match number {
            Number::Int => int().map(|(min, max)| Self::Int { min, max }),
            Number::UInt => uint().map(|(min, max)| Self::UInt { min, max }),
            Number::F32 | Number::F64 => None,
        };
        match clip {
            Some(clip) => Ok((clip, number)),
            None => Self::compile(min.map(|min| min as f64), max.map(|max| max as f64), number),
        }
    }

    fn ints(min: f64, max: f64) -> Option<Self> {
        let min = if min < -TWO_63 { i64::MIN } else { exact_i64(min)? };
        let max = if max >= TWO_63 { i64::MAX } else { exact_i64(max)? };
        Some(Self::Int { min, max })
    }

    fn uints(min: f64, max: f64) -> Option<Self> {
        let min = if min < 0.0 { 0 } else { exact_u64(min)? };
        let max = if max >= 2.0 * TWO_63 { u64::MAX } else { exact_u64(max)? };
        Some(Self::UInt { min, max })
    }
}

impl NumberOp for Clip {
    fn apply(&self, tile: &mut Tile) {
        match *self {
            Self::Int { min, max } => tile.map_ints(move |value| clip(value, min, max), |value| value),
            Self::UInt { min, max } => tile.map_ints(move |value| value, move |value| clip(value, min, max)),
            Self::Float { min, max } => {
                let (low, high) = (min as f32, max as f32);
                tile.map_floats(
                    #[inline(always)]
                    move |value| clip(value, low, high),
                    #[inline(always)]
                    move |value| clip(value, min, max),
                );
            }
        }
    }

    #[cfg(feature = "cuda")]
    fn write(&self, writer: &mut crate::cuda::writer::Writer) {
        let (min, max) = match *self {
            Self::Int { min, max } => (writer.int(min), writer.int(max)),
            Self::UInt { min, max } => (writer.bits(min), writer.bits(max)),
            Self::Float { min, max } => {
                writer.make_floats();
                (writer.float(min), writer.float(max))
            }
        };
        writer.assign(&format!("clip<{}>({}, {min}, {max})", writer.c_type(), writer.value()));
    }
}

/// Comparisons rather than `min` and `max`: comparing with NaN yields false, so NaN stays, and each select is one
/// vector instruction.
#[inline(always)]
pub(super) fn clip<T: Copy + PartialOrd>(value: T, min: T, max: T) -> T {
    let raised = if value < min { min } else { value };
    if raised > max { max } else { raised }
}

#[cfg(test)]
mod tests {
    use arrow::{array::UInt64Array, datatypes::DataType};

    use crate::{
        Op,
        testing::{assert_doubles, assert_ints, assert_singles, compile_error, doubles, evaluate, ints, singles},
    };

    fn clip(min: impl Into<Option<f64>>, max: impl Into<Option<f64>>) -> [Op; 1] {
        [Op::Clip { min: min.into(), max: max.into() }]
    }

    /// `np.clip(np.array([-2, -0.5, 0.5, nan, inf, -inf, -0.0], 'f4'), -0.1, 0.1)`
    #[test]
    fn f32_matches_numpy() {
        let column = [-2.0, -0.5, 0.5, f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -0.0].map(Some);
        let expected = [-0.1, -0.1, 0.1, f32::NAN, 0.1, -0.1, -0.0].map(Some);
        assert_singles(&evaluate(&clip(-0.1, 0.1), singles(&column)), &expected);
    }

    /// `np.clip(np.array([-0.0, 5e-324, -1.0]), 0.0, None)`; NumPy keeps the -0.0.
    #[test]
    fn clips_on_one_side() {
        let column = [-0.0, 5e-324, -1.0].map(Some);
        assert_doubles(&evaluate(&clip(0.0, None), doubles(&column)), &[-0.0, 5e-324, 0.0].map(Some));
        assert_doubles(&evaluate(&clip(None, -0.5), doubles(&column)), &[-0.5, -0.5, -1.0].map(Some));
    }

    #[test]
    fn integers_stay_integers_under_integral_bounds() {
        let column = [Some(-5), None, Some(i64::MAX), Some(3)];
        assert_ints(&evaluate(&clip(-1.0, 7.0), ints(&column)), &[Some(-1), None, Some(7), Some(3)]);
        assert_ints(&evaluate(&clip(-1e30, f64::INFINITY), ints(&column)), &column);
        let halves = [Some(-0.5), None, Some(7.5), Some(3.0)];
        assert_doubles(&evaluate(&clip(-0.5, 7.5), ints(&column)), &halves);
        let far = evaluate(&clip(1e30, None), ints(&column));
        assert_doubles(&far, &[Some(1e30), None, Some(1e30), Some(1e30)]);
    }

    #[test]
    fn integer_bounds_are_exact_beyond_2_to_the_53rd() {
        let clip = |min: Option<i128>, max: Option<i128>| [Op::ClipWhole { min, max }];
        let odd = (1i64 << 53) + 1;
        let column = || ints(&[Some(i64::MIN), Some(odd - 1), Some(odd), Some(odd + 1), Some(i64::MAX), None]);
        let clipped = evaluate(&clip(Some(odd.into()), Some(i128::from(i64::MAX) - 1)), column());
        assert_ints(&clipped, &[Some(odd), Some(odd), Some(odd), Some(odd + 1), Some(i64::MAX - 1), None]);
        let column = UInt64Array::from(vec![0, (1 << 63) + 1, u64::MAX]);
        let clipped = evaluate(&clip(Some(-1), Some((1 << 63) + 2)), column);
        let expected = UInt64Array::from(vec![0, (1 << 63) + 1, (1 << 63) + 2]);
        assert_eq!(clipped.as_ref(), &expected as &dyn arrow::array::Array);
        assert!(compile_error(&clip(None, None), ints(&[None])).ends_with("it needs min, max or both"));
        assert!(compile_error(&clip(Some(2), Some(1)), ints(&[None])).ends_with("min 2 is greater than max 1"));
        assert_doubles(&evaluate(&clip(Some(1), None), doubles(&[Some(0.5)])), &[Some(1.0)]);
        assert_doubles(&evaluate(&clip(Some(1 << 64), None), ints(&[Some(5)])), &[Some(18_446_744_073_709_551_616.0)]);
    }

    #[test]
    fn unsigned_integers_ignore_bounds_below_zero() {
        let column = UInt64Array::from(vec![0, u64::MAX]);
        let clipped = evaluate(&clip(-5.0, 9.0), column.clone());
        assert_eq!(clipped.as_ref(), &UInt64Array::from(vec![0, 9]) as &dyn arrow::array::Array);
        assert_eq!(evaluate(&clip(f64::NEG_INFINITY, 2e19), column.clone()).data_type(), &DataType::UInt64);
        assert_doubles(&evaluate(&clip(None, -1.0), column), &[-1.0, -1.0].map(Some));
    }

    #[test]
    fn rejects_invalid_bounds() {
        let message = |op: &[Op]| compile_error(op, ints(&[None]));
        assert_eq!(
            message(&clip(2.0, 1.0)),
            "column \"x\": op clip (number 1 of its chain): min 2 is greater than max 1"
        );
        assert!(message(&clip(None, None)).ends_with("it needs min, max or both"));
        assert!(message(&clip(f64::NAN, 1.0)).ends_with("a bound must be a number, not NaN"));
    }
}
