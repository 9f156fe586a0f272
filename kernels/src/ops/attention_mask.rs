//! `attention_mask`: expands a list to n columns: 1 for each of its elements, and 0 where [`super::pad`] of the same side
//! pads. The `attention_mask` of Hugging Face's tokenizers for texts that are padded on that side.
//!
//! - An element is 1 whatever its value; a null element stays null, and a null list becomes n nulls, as in `pad`.
//! - Lists of integers, such as tokens. `n` is from 1 to 65,536.

use crate::{
    domain::Number,
    error::OpProblem,
    ops::{clip::Clip, pad, step::Step},
};

/// Checks the number of columns.
pub(crate) fn check(n: u32) -> Result<usize, OpProblem> {
    pad::check(n)
}

/// The step that makes every element 1. `gets` describes the chain's values, for the error.
pub(crate) fn compile(number: Number, gets: &'static str) -> Result<Step, OpProblem> {
    if number.is_float() {
        return Err(OpProblem::Input { takes: "lists of integers", gets });
    }
    Ok(Step::Clip(Clip::compile_whole(Some(1), Some(1), number)?.0))
}

#[cfg(test)]
mod tests {
    use crate::{
        DType, Op, Side,
        testing::{assemble, assert_ints, compile_error, evaluate, int_lists, ints, row_error, text_lists},
    };

    fn mask(n: u32) -> Op {
        Op::AttentionMask { n, side: Side::Right }
    }

    /// `tokenizer.pad({"input_ids": [[5, 0, -7], [], [1]]}, max_length=2 …)["attention_mask"]` of transformers.
    #[test]
    fn marks_elements() {
        let lists = || int_lists(&[Some(&[Some(5), Some(0), Some(-7)]), Some(&[]), Some(&[Some(1)])]);
        assert_ints(&evaluate(&[mask(2)], lists()), &[1, 1, 0, 0, 1, 0].map(Some));
        assert_ints(&evaluate(&[Op::FirstN { n: 1, value: None }, mask(2)], lists()), &[1, 0, 0, 0, 1, 0].map(Some));
        let left = Op::AttentionMask { n: 2, side: Side::Left };
        assert_ints(&evaluate(&[left], lists()), &[1, 1, 0, 0, 0, 1].map(Some));
        assert!(assemble(DType::UInt8, &[&[mask(3)]], lists()).is_ok());
    }

    #[test]
    fn nulls_and_other_columns_are_refused() {
        let message = row_error(DType::Int32, &[mask(2)], int_lists(&[Some(&[]), None]));
        assert!(message.contains("row 1 is null; fill nulls with fill_null"), "{message}");
        assert!(compile_error(&[mask(0)], int_lists(&[None])).ends_with("n must be from 1 to 65536, not 0"));
        assert!(compile_error(&[mask(2)], ints(&[None])).contains("it takes lists"));
        assert!(compile_error(&[mask(2)], text_lists(&[None])).contains("it takes lists of numbers"));
        let halves = [Op::Log1p, mask(2)];
        assert!(compile_error(&halves, int_lists(&[None])).contains("it takes lists of integers"));
    }
}
