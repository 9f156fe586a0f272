//! `lookup`: a left join on a unique key against a small table. `pandas.DataFrame.merge(how="left")`; `NVTabular`'s `JoinExternal`.
//!
//! - The chain's value is looked up among the table's keys and becomes that row's value; null, and a value that is not among the keys,
//!   becomes null. −0.0 equals 0.0 and all NaNs are one key.
//! - The rest of the chain is done on the table once, and rows take what came out: ops behind a lookup cost nothing a row.
//! - Keys are unique, and of a type whose values mean the same as the column's: `lookup_keys` says which, and when two are equal.
//!   Single values only, in keys and values.

use arrow::array::ArrayRef;
use arrow::datatypes::DataType;

use super::vocab_index::{IndexProblem, MAX_VALUES};
use crate::error::OpProblem;

/// One column of a table, behind its keys.
#[derive(Clone, Debug)]
pub struct LookupTable {
    /// The name of the table, for errors.
    pub table: String,
    /// The name of the key, for errors.
    pub key: String,
    /// The keys in their stored type, each once, without nulls.
    pub keys: ArrayRef,
    /// The value of each key, as many, in their stored type.
    pub values: ArrayRef,
}

impl PartialEq for LookupTable {
    fn eq(&self, other: &Self) -> bool {
        self.keys.as_ref() == other.keys.as_ref() && self.values.as_ref() == other.values.as_ref()
    }
}

impl LookupTable {
    /// Keys that the values of a type are not compared with.
    pub(crate) fn not_compared(&self, values: &DataType) -> OpProblem {
        let (key, table, keys) = (&self.key, &self.table, self.keys.data_type());
        OpProblem::Parameter(format!(
            "the key {key:?} of {table:?} is {keys}, and is looked up by values of type {values}: these are not compared, as they do \
             not mean the same; cast one of the two: this column in a derived one, or the key in its dataset"
        ))
    }

    /// Keys that are no keys.
    pub(crate) fn no_key(&self, problem: &IndexProblem) -> OpProblem {
        let (key, table) = (&self.key, &self.table);
        OpProblem::Parameter(match problem {
            IndexProblem::Duplicate(row) => format!("the key {key:?} of {table:?} has the value of row {row} twice"),
            IndexProblem::TooLong => format!("a table has at most {MAX_VALUES} rows, and {table:?} has more"),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, AsArray, Float32Array, Int64Array, StringArray};

    use super::LookupTable;
    use crate::testing::{assemble, assert_ints, assert_singles, evaluate, int_lists, ints, refusal};
    use crate::{DType, Fill, Op, VocabValues};

    fn lookup(values: impl arrow::array::Array + 'static) -> Op {
        let keys = Arc::new(Int64Array::from(vec![10, 20, 30]));
        let (table, key) = ("items".to_owned(), "id".to_owned());
        Op::Lookup(Arc::new(LookupTable { table, key, keys, values: Arc::new(values) }))
    }

    #[test]
    fn is_a_left_join() {
        let column = || ints(&[Some(30), Some(10), None, Some(11), Some(20)]);
        let values = Float32Array::from(vec![Some(1.5), None, Some(-2.0)]);
        let expected = [Some(-2.0), Some(1.5), None, None, None];
        assert_singles(&evaluate(&[lookup(values.clone())], column()), &expected);
        let rest = [lookup(values), Op::FillNull(Fill::Number(9.0)), Op::Abs];
        assert_singles(&evaluate(&rest, column()), &[2.0, 1.5, 9.0, 9.0, 9.0].map(Some));
    }

    #[test]
    fn text_that_is_found_is_encoded_once() {
        let values = StringArray::from(vec![Some("x"), Some("y"), None]);
        let vocab = Op::Vocab { values: Arc::new(VocabValues::Strings(vec!["y".into()])), oov_buckets: 0 };
        let column = || ints(&[Some(20), Some(10), Some(30), None]);
        assert_ints(&evaluate(&[lookup(values.clone()), vocab.clone()], column()), &[1, 0, 0, 0].map(Some));
        let hot =
            assemble(DType::UInt8, &[&[lookup(values.clone()), vocab, Op::OneHot { size: 0 }]], column()).unwrap();
        assert_eq!(hot.as_primitive::<arrow::datatypes::UInt8Type>().values(), &[0, 1, 1, 0, 1, 0, 1, 0]);
        let text: ArrayRef = evaluate(&[lookup(values)], column());
        assert_eq!(
            text.as_ref(),
            &StringArray::from(vec![Some("y"), Some("x"), None, None]) as &dyn arrow::array::Array
        );
    }

    #[test]
    fn lookups_follow_each_other() {
        let first = lookup(Int64Array::from(vec![20, 30, 5]));
        let second = lookup(Int64Array::from(vec![1, 2, 3]));
        let column = ints(&[Some(10), Some(20), Some(30)]);
        assert_ints(&evaluate(&[first, second], column), &[Some(2), Some(3), None]);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let values = || Int64Array::from(vec![1, 2, 3]);
        assert!(
            refusal(&[lookup(values())], StringArray::from(vec!["a"]))
                .contains("the key \"id\" of \"items\" is Int64, and is looked up by values of type Utf8:")
        );
        assert!(
            refusal(&[lookup(values())], int_lists(&[None])).ends_with("it takes one value a row, but gets lists here")
        );
        let wrong = [lookup(values()), Op::Pad { n: 1, value: 0.0 }];
        assert!(refusal(&wrong, ints(&[None])).contains("op pad (number 2 of its chain)"));
    }
}
