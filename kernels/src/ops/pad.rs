//! `pad`: a list becomes n columns. Shorter lists are filled up with `value`, longer ones are cut to their first n.
//!
//! - A null list becomes n nulls, a null element stays null: `fill_null` before it makes the list empty, behind it fills them.
//! - Integers stay integers when the value is integral and fits; any other value takes the column to f64. An f32 column takes the value
//!   rounded to f32. NaN is a value.
//! - Lists of numbers; text is encoded first (`vocab`, `hash_bucket`). `n` is from 1 to 65,536.

use crate::domain::Number;
use crate::error::OpProblem;
use crate::vector::exact::{exact_i64, exact_u64};

/// The most columns that one list makes.
const N_MAX: u32 = 65_536;

/// The parameters, the value for each kind of number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pad {
    pub(crate) n: usize,
    pub(crate) int: i64,
    pub(crate) uint: u64,
    pub(crate) float: f64,
}

/// How many columns there are.
pub(crate) fn check(n: u32) -> Result<usize, OpProblem> {
    if !(1..=N_MAX).contains(&n) {
        return Err(OpProblem::Parameter(format!("n must be from 1 to {N_MAX}, not {n}")));
    }
    Ok(n as usize)
}

impl Pad {
    /// Compiles for a domain: the op, and the domain behind it.
    pub(crate) fn compile(n: usize, value: f64, number: Number) -> (Self, Number) {
        let (int, uint) = (exact_i64(value), exact_u64(value));
        let fits = match number {
            Number::Int => int.is_some(),
            Number::UInt => uint.is_some(),
            Number::F32 | Number::F64 => true,
        };
        let pad = Self { n, int: int.unwrap_or_default(), uint: uint.unwrap_or_default(), float: value };
        (pad, if fits { number } else { number.floating() })
    }

    /// The index it fills up with, if it is one.
    pub(crate) fn index(&self) -> Option<u64> {
        exact_u64(self.float)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::testing::{
        assemble, assert_doubles, assert_ints, evaluate, int_lists, ints, refusal, row_refusal, text_lists,
    };
    use crate::{DType, Fill, Op, VocabValues};

    fn pad(n: u32, value: f64) -> Op {
        Op::Pad { n, value }
    }

    #[test]
    fn lists_become_columns() {
        let lists = || int_lists(&[Some(&[Some(1), Some(2), Some(3)]), None, Some(&[]), Some(&[Some(4), None])]);
        let expected = [Some(1), Some(2), None, None, Some(-1), Some(-1), Some(4), None];
        assert_ints(&evaluate(&[pad(2, -1.0)], lists()), &expected);
        let halves = [Some(1.0), Some(2.0), None, None, Some(0.5), Some(0.5), Some(4.0), None];
        assert_doubles(&evaluate(&[pad(2, 0.5)], lists()), &halves);
        let fill = Op::FillNull(Fill::Number(7.0));
        let before = [1, 2, -1, -1, -1, -1, 4, 7].map(Some);
        assert_ints(&evaluate(&[fill.clone(), pad(2, -1.0)], lists()), &before);
        assert_ints(&evaluate(&[pad(2, -1.0), fill], lists()), &[1, 2, 7, 7, -1, -1, 4, 7].map(Some));
    }

    #[test]
    fn the_columns_stand_side_by_side_in_an_output() {
        let words = VocabValues::Strings(vec!["a".into(), "b".into()]);
        let vocab = Op::Vocab { values: Arc::new(words), oov_buckets: 0 };
        let lists = text_lists(&[Some(&[Some("b"), Some("x")]), Some(&[None]), Some(&[])]);
        let ops: &[Op] = &[vocab, pad(2, 0.0), Op::Clip { min: Some(0.0), max: Some(1.0) }];
        let array = assemble(DType::Int32, &[ops, ops], lists).unwrap();
        let expected = arrow::array::Int32Array::from(vec![1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(array.as_ref(), &expected as &dyn arrow::array::Array);
    }

    #[test]
    fn a_null_is_an_error_of_the_row() {
        let message = row_refusal(DType::Float32, &[pad(2, 0.0)], int_lists(&[Some(&[]), Some(&[Some(1), None])]));
        assert!(message.contains("row 1 is null; say what a null becomes with fill_null"), "{message}");
        let message = row_refusal(DType::Float32, &[pad(2, 0.0)], int_lists(&[Some(&[]), Some(&[]), None]));
        assert!(message.contains("row 2 is null"), "{message}");
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let lists = || int_lists(&[None]);
        for n in [0, 65_537] {
            assert!(refusal(&[pad(n, 0.0)], lists()).ends_with(&format!("n must be from 1 to 65536, not {n}")));
        }
        assert!(refusal(&[pad(1, 0.0)], ints(&[None])).ends_with("it takes lists, but gets whole numbers here"));
        assert!(
            refusal(&[pad(1, 0.0)], text_lists(&[None])).ends_with("it takes lists of numbers, but gets text here")
        );
        assert!(
            refusal(&[pad(1, 0.0), pad(1, 0.0)], lists()).ends_with("it takes lists, but gets several columns here")
        );
    }
}
