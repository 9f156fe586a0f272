//! `pad`: expands a list to n columns. Shorter lists are padded with `value` after their last element, and longer ones are
//! cut to their first n elements; with the side [`Side::Left`], they are padded before their first element and cut to
//! their last n. These are the `padding_side` and `truncation_side` of Hugging Face's tokenizers, and `padding` and
//! `truncating` of `keras.utils.pad_sequences`.
//!
//! - A null list becomes n nulls, and null elements stay null. A `fill_null` before `pad` makes null lists empty; one
//!   after it fills the nulls.
//! - Integers stay integers if the value is integral and fits; any other value converts the column to f64. The value is
//!   rounded to f32 for f32 columns. It may be NaN.
//! - Lists of numbers; text must be encoded first (`vocab`, `hash_bucket`). `n` is from 1 to 65,536.

use std::ops::Range;

use crate::{
    domain::Number,
    error::OpProblem,
    vector::exact::{exact_i64, exact_u64},
};

/// The largest number of columns.
const N_MAX: u32 = 65_536;

/// An end of a list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Side {
    /// After the last element.
    #[default]
    Right,
    /// Before the first element.
    Left,
}

/// The parameters, with the value for each kind of number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pad {
    pub(crate) n: usize,
    pub(crate) side: Side,
    pub(crate) int: i64,
    pub(crate) uint: u64,
    pub(crate) float: f64,
}

/// Checks the number of columns.
pub(crate) fn check(n: u32) -> Result<usize, OpProblem> {
    if !(1..=N_MAX).contains(&n) {
        return Err(OpProblem::Parameter(format!("n must be from 1 to {N_MAX}, not {n}")));
    }
    Ok(n as usize)
}

impl Side {
    /// At most `n` elements of a list: those that are left when it is cut at this side.
    pub(crate) fn cut(self, list: Range<usize>, n: usize) -> Range<usize> {
        let len = list.len().min(n);
        match self {
            Self::Right => list.start..list.start + len,
            Self::Left => list.end - len..list.end,
        }
    }
}

impl Pad {
    /// Compiles for a kind of number: returns the op, and the kind of number after it.
    pub(crate) fn compile((n, side): (usize, Side), value: f64, number: Number) -> (Self, Number) {
        let (int, uint) = (exact_i64(value), exact_u64(value));
        let fits = match number {
            Number::Int => int.is_some(),
            Number::UInt => uint.is_some(),
            Number::F32 | Number::F64 => true,
        };
        let pad = Self { n, side, int: int.unwrap_or_default(), uint: uint.unwrap_or_default(), float: value };
        (pad, if fits { number } else { number.floating() })
    }

    /// The value as an index, if it is one.
    pub(crate) fn index(&self) -> Option<u64> {
        exact_u64(self.float)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::{
        DType, Fill, Op, Side, VocabValues,
        testing::{
            assemble, assert_doubles, assert_ints, compile_error, evaluate, int_lists, ints, row_error, text_lists,
        },
    };

    fn pad(n: u32, value: f64) -> Op {
        pad_at(n, value, Side::Right)
    }

    fn pad_at(n: u32, value: f64, side: Side) -> Op {
        Op::Pad { n, value, side }
    }

    #[test]
    fn pads_lists_to_columns() {
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

    /// `keras.utils.pad_sequences([[1, 2, 3], [], [4]], maxlen=2, value=-1)`
    #[test]
    fn pads_and_cuts_at_the_start() {
        let lists = || int_lists(&[Some(&[Some(1), Some(2), Some(3)]), Some(&[]), Some(&[Some(4)]), None]);
        let expected = [Some(2), Some(3), Some(-1), Some(-1), Some(-1), Some(4), None, None];
        assert_ints(&evaluate(&[pad_at(2, -1.0, Side::Left)], lists()), &expected);
        let whole = || int_lists(&[Some(&[Some(1), Some(2)]), Some(&[Some(3), Some(4)])]);
        assert_ints(&evaluate(&[pad_at(2, -1.0, Side::Left)], whole()), &[1, 2, 3, 4].map(Some));
    }

    #[test]
    fn writes_the_columns_side_by_side() {
        let words = VocabValues::Strings(vec!["a".into(), "b".into()]);
        let vocab = Op::Vocab { values: Arc::new(words), oov_buckets: 0 };
        let lists = text_lists(&[Some(&[Some("b"), Some("x")]), Some(&[None]), Some(&[])]);
        let ops: &[Op] = &[vocab, pad(2, 0.0), Op::Clip { min: Some(0.0), max: Some(1.0) }];
        let array = assemble(DType::Int32, &[ops, ops], lists).unwrap();
        let expected = arrow::array::Int32Array::from(vec![1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(array.as_ref(), &expected as &dyn arrow::array::Array);
    }

    #[test]
    fn a_null_is_an_error_of_its_row() {
        let message = row_error(DType::Float32, &[pad(2, 0.0)], int_lists(&[Some(&[]), Some(&[Some(1), None])]));
        assert!(
            message.contains("element 1 of the list in row 1 is null; fill null elements with fill_null"),
            "{message}"
        );
        let message = row_error(DType::Float32, &[pad(2, 0.0)], int_lists(&[Some(&[]), Some(&[]), None]));
        assert!(message.contains("row 2 is null"), "{message}");
    }

    #[test]
    fn rejects_invalid_parameters_and_columns() {
        let lists = || int_lists(&[None]);
        for n in [0, 65_537] {
            assert!(compile_error(&[pad(n, 0.0)], lists()).ends_with(&format!("n must be from 1 to 65536, not {n}")));
        }
        assert!(
            compile_error(&[pad(1, 0.0)], ints(&[None])).ends_with("it takes lists, but its input is whole numbers")
        );
        assert!(
            compile_error(&[pad(1, 0.0)], text_lists(&[None]))
                .ends_with("it takes lists of numbers, but its input is text")
        );
        assert!(
            compile_error(&[pad(1, 0.0), pad(1, 0.0)], lists())
                .ends_with("it takes lists, but its input is several columns")
        );
    }
}
