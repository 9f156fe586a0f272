//! The filter of one group: the rows of a block that have its key.

use std::sync::Arc;

use arrow::{
    array::{
        Array, ArrayRef, AsArray, BooleanArray, Decimal256Array, Int64Array, RecordBatch, Scalar, StringArray,
        UInt64Array,
    },
    buffer::BooleanBuffer,
    compute::kernels::cmp::not_distinct,
    datatypes::DataType,
};
use forebay_engine::comparable;

use super::{GroupColumn, GroupKey};
use crate::error::StreamError;

/// The rows of one group.
#[derive(Clone, Debug)]
pub(crate) struct GroupFilter {
    column: Arc<GroupColumn>,
    key: GroupKey,
}

impl GroupFilter {
    pub(crate) fn new(column: Arc<GroupColumn>, key: GroupKey) -> Self {
        Self { column, key }
    }

    pub(crate) fn column(&self) -> &str {
        &self.column.name
    }

    /// The rows of a batch that belong to the group; none if the batch lacks the column.
    pub(crate) fn passes(&self, batch: &RecordBatch) -> Result<Option<BooleanArray>, StreamError> {
        batch.column_by_name(&self.column.name).map(|column| self.mask(column)).transpose()
    }

    fn mask(&self, column: &ArrayRef) -> Result<BooleanArray, StreamError> {
        match (&self.key, self.column.buckets_of(column)?) {
            (GroupKey::Bucket(bucket), Some(buckets)) => {
                Ok(BooleanArray::from_unary(&buckets, |found| found == *bucket))
            }
            (GroupKey::Null, _) => {
                let rows = column.len();
                let valid = column.logical_nulls();
                let is_null = valid.map_or_else(|| BooleanBuffer::new_unset(rows), |valid| !valid.inner());
                Ok(BooleanArray::new(is_null, None))
            }
            _ => match column.as_any_dictionary_opt() {
                Some(dictionary) if dictionary.values().is_empty() => {
                    Ok(BooleanArray::new(BooleanBuffer::new_unset(column.len()), None))
                }
                // A long value of many rows is compared once.
                Some(dictionary) => {
                    let (has_key, keys) = (self.equal(dictionary.values())?, dictionary.normalized_keys());
                    let rows = dictionary.keys();
                    let mask = |row: usize| rows.is_valid(row) && has_key.value(keys[row]);
                    Ok(BooleanArray::new(BooleanBuffer::collect_bool(rows.len(), mask), None))
                }
                None => self.equal(column),
            },
        }
    }

    /// The values that equal the key.
    fn equal(&self, values: &ArrayRef) -> Result<BooleanArray, StreamError> {
        let values = comparable(values, self.column.kind)?;
        Ok(not_distinct(&values, &Scalar::new(self.scalar(values.data_type())))?)
    }

    /// The key as an array of one value.
    fn scalar(&self, data_type: &DataType) -> ArrayRef {
        match &self.key {
            GroupKey::Integer(value) => Arc::new(Int64Array::from(vec![*value])),
            GroupKey::Unsigned(value) | GroupKey::Bucket(value) => Arc::new(UInt64Array::from(vec![*value])),
            GroupKey::Decimal(value) => Arc::new(Decimal256Array::from(vec![*value]).with_data_type(data_type.clone())),
            GroupKey::Text(text) => Arc::new(StringArray::from(vec![text.as_ref()])),
            GroupKey::Null => arrow::array::new_null_array(data_type, 1),
        }
    }
}
