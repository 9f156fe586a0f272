//! `bucketize`: the count of boundaries ≤ x, an integer from 0 to the number of boundaries. `numpy.digitize(x,
//! boundaries)`.
//!
//! - NaN sorts after every boundary, as in NumPy; ±inf compare as usual; −0.0 equals 0.0; null stays null.
//! - At least one boundary is required. Boundaries must be non-decreasing (equal ones count separately) and not NaN.
//!   They may be infinite.
//! - Integers compare exactly, also beyond 2^53; an f32 is widened, so it compares with the boundary as given and not
//!   with its rounding.

use super::number_op::NumberOp;
use crate::{
    error::OpProblem,
    vector::{exact::TWO_63, tile::Tile},
};

/// The boundaries for each kind of number.
#[derive(Debug)]
pub(crate) struct Bucketize {
    floats: Box<[f64]>,
    /// The smallest integer ≥ each boundary, for those that an i64 reaches: b ≤ x exactly if ⌈b⌉ ≤ x.
    ints: Box<[i64]>,
    /// The smallest integer ≥ each boundary, for those that a u64 reaches.
    uints: Box<[u64]>,
}

impl Bucketize {
    /// Returns the step and the number of indices that it yields.
    pub(crate) fn compile(boundaries: &[f64]) -> Result<(Self, u64), OpProblem> {
        if boundaries.is_empty() {
            return Err(OpProblem::Parameter("it needs at least one boundary".to_owned()));
        }
        if boundaries.iter().any(|boundary| boundary.is_nan()) {
            return Err(OpProblem::Parameter("a boundary must be a number, not NaN".to_owned()));
        }
        if let Some(pair) = boundaries.windows(2).find(|pair| pair[0] > pair[1]) {
            let (first, second) = (pair[0], pair[1]);
            return Err(OpProblem::Parameter(format!("boundaries must not decrease, but {second} follows {first}")));
        }
        // Boundaries below the domain saturate at its smallest value, which every value reaches.
        let ints = boundaries.iter().filter(|boundary| boundary.ceil() < TWO_63).map(|boundary| boundary.ceil() as i64);
        let uints =
            boundaries.iter().filter(|boundary| boundary.ceil() < 2.0 * TWO_63).map(|boundary| boundary.ceil() as u64);
        let step = Self { floats: boundaries.into(), ints: ints.collect(), uints: uints.collect() };
        Ok((step, boundaries.len() as u64 + 1))
    }

    /// Compiles integer boundaries.
    pub(crate) fn compile_whole(boundaries: &[i128]) -> Result<(Self, u64), OpProblem> {
        if boundaries.is_empty() {
            return Self::compile(&[]);
        }
        if let Some(pair) = boundaries.windows(2).find(|pair| pair[0] > pair[1]) {
            let (first, second) = (pair[0], pair[1]);
            return Err(OpProblem::Parameter(format!("boundaries must not decrease, but {second} follows {first}")));
        }
        // Every value reaches a boundary below the domain; none reaches one above it.
        let ints = boundaries.iter().filter_map(|boundary| i64::try_from((*boundary).max(i64::MIN.into())).ok());
        let uints = boundaries.iter().filter_map(|boundary| u64::try_from((*boundary).max(0)).ok());
        let floats = boundaries.iter().map(|boundary| double_from(*boundary));
        let step = Self { floats: floats.collect(), ints: ints.collect(), uints: uints.collect() };
        Ok((step, boundaries.len() as u64 + 1))
    }
}

impl NumberOp for Bucketize {
    fn apply(&self, tile: &mut Tile) {
        tile.map_to_ints(
            |value| count(&self.ints, value),
            |value| count(&self.uints, value),
            |value| {
                if value.is_nan() {
                    return self.floats.len() as i64;
                }
                count(&self.floats, value)
            },
        );
    }

    #[cfg(feature = "cuda")]
    fn write(&self, writer: &mut crate::cuda::writer::Writer) {
        use crate::domain::Number;
        let (boundaries, len) = match writer.number() {
            Number::Int => (writer.numbers(self.ints.iter().map(|bound| *bound as u64)), self.ints.len()),
            Number::UInt => (writer.numbers(self.uints.iter().copied()), self.uints.len()),
            Number::F32 | Number::F64 => {
                (writer.numbers(self.floats.iter().map(|bound| bound.to_bits())), self.floats.len())
            }
        };
        let first = writer.group(&[boundaries, len as u64]);
        writer.assign_int(&format!("bucketize(run, {first}, {})", writer.value()));
    }
}

/// The smallest double that is not below an integer: a double reaches one exactly if it reaches the other.
fn double_from(whole: i128) -> f64 {
    let nearest = whole as f64;
    if (nearest as i128) < whole { nearest.next_up() } else { nearest }
}

/// Up to this many boundaries, comparing with all of them is faster than a binary search, whose steps depend on each
/// other.
const LINEAR_SEARCH_MAX: usize = 16;

/// The number of boundaries ≤ the value.
fn count<T: Copy + PartialOrd>(boundaries: &[T], value: T) -> i64 {
    if boundaries.len() <= LINEAR_SEARCH_MAX {
        boundaries.iter().map(|boundary| i64::from(*boundary <= value)).sum()
    } else {
        boundaries.partition_point(|boundary| *boundary <= value) as i64
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::UInt64Array;

    use crate::{
        Op,
        testing::{assert_ints, compile_error, doubles, evaluate, ints, singles},
    };

    fn bucketize(boundaries: &[f64]) -> [Op; 1] {
        [Op::Bucketize { boundaries: boundaries.to_vec() }]
    }

    /// `np.digitize([nan, -inf, inf, 1, 2, 2.5, -0.0], [0, 1, 2, 2, 3])`
    #[test]
    fn floats_match_numpy_digitize() {
        let column = [f64::NAN, f64::NEG_INFINITY, f64::INFINITY, 1.0, 2.0, 2.5, -0.0].map(Some);
        let column = column.into_iter().chain([None]).collect::<Vec<_>>();
        let expected = [Some(5), Some(0), Some(5), Some(2), Some(4), Some(4), Some(1), None];
        assert_ints(&evaluate(&bucketize(&[0.0, 1.0, 2.0, 2.0, 3.0]), doubles(&column)), &expected);
        let infinite = evaluate(&bucketize(&[f64::NEG_INFINITY, f64::INFINITY]), doubles(&column));
        assert_ints(&infinite, &[Some(2), Some(1), Some(2), Some(1), Some(1), Some(1), Some(1), None]);
    }

    /// `np.digitize(np.array([0.1, 0.7], 'f4'), [0.1, 0.7])`: as f32, 0.1 is above 0.1 and 0.7 below 0.7.
    #[test]
    fn an_f32_compares_with_the_exact_boundary() {
        let found = evaluate(&bucketize(&[0.1, 0.7]), singles(&[Some(0.1), Some(0.7)]));
        assert_ints(&found, &[Some(1), Some(1)]);
    }

    #[test]
    fn integers_compare_exactly() {
        let two_53 = 1i64 << 53;
        let column = ints(&[Some(two_53), Some(two_53 + 1), Some(two_53 + 2), Some(i64::MIN), Some(i64::MAX), None]);
        let found = evaluate(&bucketize(&[-1e300, (two_53 + 2) as f64, 1e300]), column);
        assert_ints(&found, &[Some(1), Some(1), Some(2), Some(1), Some(2), None]);
        let found = evaluate(
            &bucketize(&[-0.5, 0.5, 9_223_372_036_854_775_808.0]),
            ints(&[Some(-1), Some(0), Some(1), Some(i64::MAX)]),
        );
        assert_ints(&found, &[Some(0), Some(1), Some(2), Some(2)]);
        let unsigned = UInt64Array::from(vec![0, 1, 1 << 63, u64::MAX]);
        let found = evaluate(&bucketize(&[-3.5, 0.5, 9_223_372_036_854_775_808.0, 1.9e19]), unsigned);
        assert_ints(&found, &[Some(1), Some(2), Some(3), Some(3)]);
    }

    #[test]
    fn integer_boundaries_are_exact_beyond_2_to_the_53rd() {
        let whole = |boundaries: &[i128]| [Op::BucketizeWhole { boundaries: boundaries.to_vec() }];
        let odd = (1i64 << 53) + 1;
        let edges = [i128::MIN, odd.into(), i64::MAX.into(), u64::MAX.into()];
        let column = ints(&[Some(odd - 1), Some(odd), Some(i64::MAX - 1), Some(i64::MAX), Some(i64::MIN), None]);
        let expected = [Some(1), Some(2), Some(2), Some(3), Some(1), None];
        assert_ints(&evaluate(&whole(&edges), column), &expected);
        let unsigned = UInt64Array::from(vec![0, u64::MAX - 1, u64::MAX]);
        assert_ints(&evaluate(&whole(&edges), unsigned), &[Some(1), Some(3), Some(4)]);
        let floats = doubles(&[Some((odd - 1) as f64), Some((odd + 1) as f64), Some(f64::NAN)]);
        assert_ints(&evaluate(&whole(&edges), floats), &[Some(1), Some(2), Some(4)]);
        assert!(
            compile_error(&whole(&[2, 1]), ints(&[None])).ends_with("boundaries must not decrease, but 1 follows 2")
        );
    }

    #[test]
    fn counts_many_boundaries_like_few() {
        let boundaries = (0..100).map(|boundary| f64::from(boundary / 2)).collect::<Vec<_>>();
        let column = [-1.0, 0.0, 0.5, 7.0, 49.0, f64::INFINITY, f64::NAN].map(Some);
        let expected = [0, 2, 2, 16, 100, 100, 100].map(Some);
        assert_ints(&evaluate(&bucketize(&boundaries), doubles(&column)), &expected);
        assert_ints(&evaluate(&bucketize(&boundaries), ints(&[Some(-1), Some(7), Some(60)])), &[0, 16, 100].map(Some));
        let unsigned = UInt64Array::from(vec![0, 7, u64::MAX]);
        assert_ints(&evaluate(&bucketize(&boundaries), unsigned), &[2, 16, 100].map(Some));
    }

    #[test]
    fn rejects_invalid_boundaries() {
        let message = |boundaries: &[f64]| compile_error(&bucketize(boundaries), ints(&[None]));
        assert!(message(&[]).ends_with("op bucketize (number 1 of its chain): it needs at least one boundary"));
        assert!(message(&[1.0, 3.0, 2.0]).ends_with("boundaries must not decrease, but 2 follows 3"));
        assert!(message(&[1.0, f64::NAN]).ends_with("a boundary must be a number, not NaN"));
    }
}
