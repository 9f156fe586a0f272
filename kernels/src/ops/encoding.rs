//! `count_encode` and `target_mean`: a value becomes a learned number, such as how often it occurs or the mean of a label.
//! scikit-learn's `TargetEncoder`; `NVTabular`'s `TargetEncoding` and `JoinGroupby`.
//!
//! - Null, and a value that is not in the list, become the first number.
//! - With folds, a row takes the number that was learned from the rows of the other folds, so that its label does not
//!   leak into its feature. The fold is XXH3-64 (seed) of the row's id, modulo the number of folds. A row without an id (null)
//!   takes the number of all rows.
//! - The rest of the chain is applied to the numbers once, and each row takes the result.

use std::sync::Arc;

use crate::ops::vocab::VocabValues;

/// Numbers of a list of values.
#[derive(Clone, Debug, PartialEq)]
pub struct Encoding {
    /// The op's name in a plan.
    pub op: &'static str,
    /// The values.
    pub values: Arc<VocabValues>,
    /// Rows of one number per fold and one of all rows, or of one number without folds: the first row for null and other values,
    /// then one per value.
    pub numbers: Vec<f64>,
    /// The folds.
    pub folds: Option<Folds>,
}

/// The folds of the rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Folds {
    /// The number of folds.
    pub count: u32,
    /// The seed of the hash.
    pub seed: u64,
    /// The column of row ids; null for rows without a fold.
    pub row_ids: String,
}

impl Encoding {
    /// The numbers of a value.
    pub(crate) fn width(&self) -> usize {
        self.folds.as_ref().map_or(1, |folds| folds.count as usize + 1)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{AsArray, RecordBatch, StringArray, UInt64Array};

    use super::{Encoding, Folds};
    use crate::{
        Op, Prefix, VocabValues, hash64_integer,
        testing::{assert_doubles, compile_error, evaluate},
    };

    fn encoding(numbers: Vec<f64>, folds: Option<Folds>) -> Op {
        let values = Arc::new(VocabValues::Strings(vec!["a".into(), "b".into()]));
        Op::Encode(Arc::new(Encoding { op: "target_mean", values, numbers, folds }))
    }

    #[test]
    fn values_become_their_numbers_and_ops_after_it_apply_to_these() {
        let column = || StringArray::from(vec![Some("b"), None, Some("a"), Some("c")]);
        let chain = [encoding(vec![0.5, 1.25, 4.0], None)];
        assert_doubles(&evaluate(&chain, column()), &[4.0, 0.5, 1.25, 0.5].map(Some));
        let chain = [encoding(vec![0.0, 0.25, 4.0], None), Op::Sqrt];
        assert_doubles(&evaluate(&chain, column()), &[2.0, 0.0, 0.5, 0.0].map(Some));
    }

    #[test]
    fn a_row_takes_the_number_of_its_fold_and_one_without_id_that_of_all() {
        let numbers = (0..12).map(f64::from).collect();
        let op = encoding(numbers, Some(Folds { count: 3, seed: 7, row_ids: "__row_id".into() }));
        let words: Vec<Option<&str>> = (0..2000).map(|row| [Some("a"), Some("b"), Some("?"), None][row % 4]).collect();
        let id = |row: u64| (row % 7 != 3).then_some((1 << 40) + row);
        let (words, ids) = (StringArray::from(words), (0..2000).map(id).collect::<UInt64Array>());
        let rows = RecordBatch::try_from_iter([("word", Arc::new(words) as _), ("__row_id", Arc::new(ids) as _)]);
        let rows = rows.unwrap();
        let prefix = Prefix::compile("word", &[op], &rows.schema()).unwrap();
        let found = prefix.evaluate(&rows).unwrap();
        let expected = (0..2000_u64).map(|row| {
            let fold = id(row).map_or(3, |id| hash64_integer(id, 7) % 3);
            ([1, 2, 0, 0][row as usize % 4] * 4 + fold) as f64
        });
        assert!(found.as_primitive::<arrow::datatypes::Float64Type>().values().iter().copied().eq(expected));
    }

    #[test]
    fn sizes_that_do_not_match_are_rejected() {
        let error = compile_error(&[encoding(vec![0.0; 4], None)], StringArray::from(vec!["a"]));
        assert!(error.contains("4 numbers for 2 values"), "{error}");
    }
}
