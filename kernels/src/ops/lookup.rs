//! `lookup`: a left join with a small table on a unique key. `pandas.DataFrame.merge(how="left")`; `NVTabular`'s
//! `JoinExternal`.
//!
//! - The chain's value becomes the value of the table's row with that key. Null, and values that are not among the
//!   keys, become null. −0.0 equals 0.0, and all NaNs are equal.
//! - The rest of the chain is applied to the table once, and each row takes the result: ops after a lookup cost nothing
//!   per row.
//! - Keys must be unique, and of a type that compares with the column's; `lookup_keys` defines which types compare, and
//!   when values are equal. Lists are rejected, in keys and in values.

use std::{
    any::Any,
    sync::{Arc, Mutex, PoisonError},
};

use arrow::{array::ArrayRef, datatypes::DataType};

use super::{
    lookup_keys::{LookupKeys, LookupKeysProblem, align},
    vocab_index::{IndexProblem, MAX_VALUES},
};
use crate::error::OpProblem;

/// Column types whose index of a table's keys is kept: a table is usually looked up by columns of one type.
const ALIGNED_MAX: usize = 4;

/// The keys of a table, with their indexes: all programs that look up one table share them.
#[derive(Debug)]
pub struct TableKeys {
    /// In their stored type, distinct and without nulls.
    values: ArrayRef,
    /// The indexes, by the type of the column that looks them up.
    aligned: Mutex<Vec<(DataType, LookupKeys)>>,
}

/// One column of a table, with its keys.
#[derive(Clone, Debug)]
pub struct LookupTable {
    /// The name of the table, for errors.
    pub table: String,
    /// The name of the key, for errors.
    pub key: String,
    /// The name of the column, for errors.
    pub column: String,
    /// The keys.
    pub keys: Arc<TableKeys>,
    /// One value per key, in their stored type.
    pub values: ArrayRef,
    /// What counts the memory of keys and values: programs hold it as long as they use them.
    pub held: Option<Arc<dyn Any + Send + Sync>>,
}

impl TableKeys {
    /// Keys in their stored type, which must be distinct and not null.
    pub fn new(values: ArrayRef) -> Self {
        Self { values, aligned: Mutex::default() }
    }

    /// The keys in their stored type.
    pub fn values(&self) -> &ArrayRef {
        &self.values
    }

    /// The keys in the representation of a column's values.
    pub(crate) fn aligned(&self, column: &DataType) -> Result<LookupKeys, LookupKeysProblem> {
        let mut aligned = self.aligned.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, keys)) = aligned.iter().find(|(of, _)| of == column) {
            return Ok(keys.clone());
        }
        let keys = align(self.values.as_ref(), column)?;
        if aligned.len() < ALIGNED_MAX {
            aligned.push((column.clone(), keys.clone()));
        }
        Ok(keys)
    }
}

impl PartialEq for LookupTable {
    fn eq(&self, other: &Self) -> bool {
        self.keys.values.as_ref() == other.keys.values.as_ref() && self.values.as_ref() == other.values.as_ref()
    }
}

impl LookupTable {
    /// The error of keys that do not compare with values of a type.
    pub(crate) fn not_compared(&self, values: &DataType) -> OpProblem {
        let (key, table, keys) = (&self.key, &self.table, self.keys.values.data_type());
        OpProblem::Parameter(format!(
            "the key {key:?} of {table:?} has type {keys}, which does not compare with values of type {values}; \
             cast one of the two: the values in a derived column, or the key in its dataset"
        ))
    }

    /// The error of invalid keys.
    pub(crate) fn invalid_key(&self, problem: &IndexProblem) -> OpProblem {
        let (key, table) = (&self.key, &self.table);
        OpProblem::Parameter(match problem {
            IndexProblem::Duplicate(row) => {
                format!("the key {key:?} of {table:?} is not unique: row {row} repeats an earlier value")
            }
            IndexProblem::TooLong => format!("{table:?} exceeds the limit of {MAX_VALUES} rows per table"),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, AsArray, Float32Array, Int64Array, StringArray};

    use super::{LookupTable, TableKeys};
    use crate::{
        DType, Fill, Op, VocabValues,
        testing::{assemble, assert_ints, assert_singles, compile_error, evaluate, int_lists, ints},
    };

    fn lookup(values: impl arrow::array::Array + 'static) -> Op {
        let keys = Arc::new(TableKeys::new(Arc::new(Int64Array::from(vec![10, 20, 30]))));
        let [table, key, column] = ["items", "id", "price"].map(str::to_owned);
        Op::Lookup(Arc::new(LookupTable { table, key, column, keys, values: Arc::new(values), held: None }))
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
    fn encodes_the_tables_text_once() {
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
    fn chains_lookups() {
        let first = lookup(Int64Array::from(vec![20, 30, 5]));
        let second = lookup(Int64Array::from(vec![1, 2, 3]));
        let column = ints(&[Some(10), Some(20), Some(30)]);
        assert_ints(&evaluate(&[first, second], column), &[Some(2), Some(3), None]);
    }

    #[test]
    fn rejects_incomparable_keys_and_lists() {
        let values = || Int64Array::from(vec![1, 2, 3]);
        assert!(
            compile_error(&[lookup(values())], StringArray::from(vec!["a"])).contains(
                "the key \"id\" of \"items\" has type Int64, which does not compare with values of type Utf8;"
            )
        );
        assert!(
            compile_error(&[lookup(values())], int_lists(&[None]))
                .ends_with("it takes one value per row, but its input is lists")
        );
        let wrong = [lookup(values()), Op::Pad { n: 1, value: 0.0, side: crate::Side::Right }];
        assert!(compile_error(&wrong, ints(&[None])).contains("op pad (number 2 of its chain)"));
    }
}
