//! `multi_hot`: expands a list of indices to `size` columns, 1 in the column of each index and 0 in the others.
//! scikit-learn's `MultiLabelBinarizer`.
//!
//! - The last op of a chain. A repeated index still gives 1; an empty list gives zeros. With `size` 0, the number of
//!   columns is the number of indices of the preceding op, as in [`super::one_hot`].
//! - Whole numbers, which may be stored as floats. A fraction, NaN, a value outside 0…size−1, a null element and a null
//!   list are errors of the row.

use crate::error::OpProblem;

/// Returns the number of columns.
pub(crate) fn compile(size: u32, cardinality: Option<u64>) -> Result<usize, OpProblem> {
    super::one_hot::compile(size, cardinality)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::{
        array::{AsArray, ListArray},
        datatypes::UInt8Type,
    };

    use crate::{
        DType, Fill, Op, VocabValues,
        testing::{assemble, compile_error, int_lists, row_error, text_lists},
    };

    fn multi_hot(size: u32) -> Op {
        Op::MultiHot { size }
    }

    fn hot(ops: &[Op], lists: ListArray) -> Vec<u8> {
        assemble(DType::UInt8, &[ops], lists).unwrap().as_primitive::<UInt8Type>().values().to_vec()
    }

    /// `MultiLabelBinarizer(classes=range(3)).fit_transform([[2, 0, 2], [], [1]])`
    #[test]
    fn matches_sklearn() {
        let lists = int_lists(&[Some(&[Some(2), Some(0), Some(2)]), Some(&[]), Some(&[Some(1)])]);
        assert_eq!(hot(&[multi_hot(3)], lists), [1, 0, 1, 0, 0, 0, 0, 1, 0]);
    }

    #[test]
    fn derives_the_size_from_a_vocabulary() {
        let vocab = Op::Vocab { values: Arc::new(VocabValues::Strings(vec!["a".into(), "b".into()])), oov_buckets: 0 };
        let lists = text_lists(&[Some(&[Some("b"), Some("b")]), Some(&[Some("?")]), Some(&[None])]);
        assert_eq!(hot(&[vocab, multi_hot(0)], lists), [0, 0, 1, 1, 0, 0, 1, 0, 0]);
    }

    #[test]
    fn rejects_invalid_indices_with_their_row() {
        let message =
            row_error(DType::UInt8, &[multi_hot(3)], int_lists(&[Some(&[Some(0)]), Some(&[Some(1), Some(3)])]));
        assert!(
            message.contains("3 (row 1) is not an index of multi_hot, which takes whole numbers from 0 to 2"),
            "{message}"
        );
        let message = row_error(DType::UInt8, &[multi_hot(3)], int_lists(&[Some(&[None])]));
        assert!(message.contains("row 0 is null"), "{message}");
        let message = row_error(DType::UInt8, &[multi_hot(3)], int_lists(&[None]));
        assert!(message.contains("row 0 is null"), "{message}");
        let fill = Op::FillNull(Fill::Number(1.0));
        assert_eq!(hot(&[fill, multi_hot(2)], int_lists(&[None, Some(&[None])])), [0, 0, 0, 1]);
    }

    #[test]
    fn rejects_invalid_parameters_and_columns() {
        assert!(
            compile_error(&[multi_hot(65_537)], int_lists(&[None]))
                .ends_with("65537 columns exceed the limit of 65536")
        );
        assert!(compile_error(&[multi_hot(0)], int_lists(&[None])).contains("without a size"));
        assert!(
            compile_error(&[multi_hot(2)], text_lists(&[None]))
                .ends_with("it takes lists of numbers, but its input is text")
        );
        let after = [multi_hot(2), Op::Log1p];
        assert!(compile_error(&after, int_lists(&[None])).contains("one_hot and multi_hot must be the last op"));
    }
}
