//! `multi_hot`: a list of indices becomes `size` columns, 1 in the column of each index and 0 in the others. scikit-learn's
//! `MultiLabelBinarizer`.
//!
//! - The last op of a chain. An index that is there twice gives one 1; an empty list gives zeros. `size` 0 takes as many columns as the
//!   op before has indices, as [`super::one_hot`].
//! - Whole numbers, be it stored as floats. A fraction, NaN, a value outside of 0…size−1 and a null element are errors of the row, and
//!   so is a null list.

use crate::error::OpProblem;

/// How many columns there are.
pub(crate) fn compile(size: u32, cardinality: Option<u64>) -> Result<usize, OpProblem> {
    super::one_hot::compile(size, cardinality)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{AsArray, ListArray};
    use arrow::datatypes::UInt8Type;

    use crate::testing::{assemble, int_lists, refusal, row_refusal, text_lists};
    use crate::{DType, Fill, Op, VocabValues};

    fn multi_hot(size: u32) -> Op {
        Op::MultiHot { size }
    }

    fn hot(ops: &[Op], lists: ListArray) -> Vec<u8> {
        assemble(DType::UInt8, &[ops], lists).unwrap().as_primitive::<UInt8Type>().values().to_vec()
    }

    /// `MultiLabelBinarizer(classes=range(3)).fit_transform([[2, 0, 2], [], [1]])`
    #[test]
    fn is_sklearns() {
        let lists = int_lists(&[Some(&[Some(2), Some(0), Some(2)]), Some(&[]), Some(&[Some(1)])]);
        assert_eq!(hot(&[multi_hot(3)], lists), [1, 0, 1, 0, 0, 0, 0, 1, 0]);
    }

    #[test]
    fn the_size_of_a_vocabulary_is_known() {
        let vocab = Op::Vocab { values: Arc::new(VocabValues::Strings(vec!["a".into(), "b".into()])), oov_buckets: 0 };
        let lists = text_lists(&[Some(&[Some("b"), Some("b")]), Some(&[Some("?")]), Some(&[None])]);
        assert_eq!(hot(&[vocab, multi_hot(0)], lists), [0, 0, 1, 1, 0, 0, 1, 0, 0]);
    }

    #[test]
    fn what_is_no_index_is_an_error_of_the_row() {
        let message =
            row_refusal(DType::UInt8, &[multi_hot(3)], int_lists(&[Some(&[Some(0)]), Some(&[Some(1), Some(3)])]));
        assert!(
            message.contains("3 (row 1) is not an index of multi_hot, which takes whole numbers from 0 to 2"),
            "{message}"
        );
        let message = row_refusal(DType::UInt8, &[multi_hot(3)], int_lists(&[Some(&[None])]));
        assert!(message.contains("row 0 is null"), "{message}");
        let message = row_refusal(DType::UInt8, &[multi_hot(3)], int_lists(&[None]));
        assert!(message.contains("row 0 is null"), "{message}");
        let fill = Op::FillNull(Fill::Number(1.0));
        assert_eq!(hot(&[fill, multi_hot(2)], int_lists(&[None, Some(&[None])])), [0, 0, 0, 1]);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        assert!(
            refusal(&[multi_hot(65_537)], int_lists(&[None]))
                .ends_with("65537 columns are more than the limit of 65536")
        );
        assert!(refusal(&[multi_hot(0)], int_lists(&[None])).contains("without a size"));
        assert!(
            refusal(&[multi_hot(2)], text_lists(&[None])).ends_with("it takes lists of numbers, but gets text here")
        );
        let after = [multi_hot(2), Op::Log1p];
        assert!(refusal(&after, int_lists(&[None])).contains("nothing may follow one_hot or multi_hot"));
    }
}
