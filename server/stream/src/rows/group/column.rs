//! The column that a request groups by: its type, its keys in messages, and counts of its values.

use std::{collections::HashMap, hash::Hash};

use arrow::{
    array::{Array, ArrayRef, AsArray, Int64Array, UInt64Array, make_array},
    compute::cast,
    datatypes::{DataType, Decimal256Type, Int64Type, Schema, UInt64Type},
    util::display::array_value_to_string,
};
use forebay_engine::{ProfileKind, comparable, used_values};
use forebay_plan::{GroupBuckets, Grouping, PlanError};
use forebay_proto::v1::{self, group_key::Key};
use forebay_runtime::error::near_names;
use serde_json::Value;

use super::{
    GroupKey,
    key::{of_message, to_message},
};
use crate::{describe::type_name, error::StreamError};

/// Bytes of a key; columns of longer texts are grouped into buckets.
const KEY_BYTES_MAX: usize = 1024;

/// A column to group by, checked against the schema of the rows.
#[derive(Clone, Debug)]
pub(crate) struct GroupColumn {
    pub name: String,
    pub buckets: Option<GroupBuckets>,
    /// The type of the values; for a dictionary, that of its values.
    data_type: DataType,
    pub(crate) kind: ProfileKind,
    /// What decides the values, other than the snapshot; empty for a stored column.
    pub source: Vec<u8>,
}

impl GroupColumn {
    /// Finds the column of a request in the schema of stored, joined and derived columns.
    pub(crate) fn check(grouping: &Grouping, schema: &Schema, source: Vec<u8>) -> Result<Self, PlanError> {
        let Grouping { column, buckets, field: path, .. } = grouping;
        let Ok(field) = schema.field_with_name(column) else {
            let near = near_names(column, schema.fields().iter().map(|field| field.name().as_str()));
            return Err(PlanError::UnknownColumn { path: (*path).to_owned(), column: column.clone(), near });
        };
        let data_type = match field.data_type() {
            DataType::Dictionary(_, values) => values.as_ref().clone(),
            other => other.clone(),
        };
        let kind = ProfileKind::of(&data_type);
        let has_keys = match kind {
            _ if matches!(buckets, Some(GroupBuckets::Lengths(_))) => true,
            ProfileKind::Floats | ProfileKind::Lengths | ProfileKind::Opaque => false,
            _ => buckets.is_none() || forebay_kernels::is_hashable(&data_type),
        };
        if !has_keys {
            let found = type_name(&data_type);
            let reason = format!(
                "column \"{column}\" is {found}: group by integers, booleans, strings, decimals, dates or times, such as \
                 a derived column"
            );
            return Err(PlanError::field(*path, reason));
        }
        Ok(Self { name: column.clone(), buckets: buckets.clone(), data_type, kind, source })
    }

    /// The key of a request, at this path.
    pub(crate) fn key(&self, key: &Key, path: &str) -> Result<GroupKey, PlanError> {
        of_message(key, self.kind, self.scale()).ok_or_else(|| {
            let field = match self.kind {
                ProfileKind::Booleans => "boolean",
                ProfileKind::Unsigned => "unsigned",
                ProfileKind::Decimals => "decimal",
                ProfileKind::Texts => "text",
                _ => "integer",
            };
            let reason = format!("not a value of column \"{}\", which is {}: set {field}", self.name, self.type_name());
            PlanError::field(path, reason)
        })
    }

    /// The message of a key.
    pub(crate) fn message(&self, key: &GroupKey) -> v1::GroupKey {
        to_message(key, self.kind, self.scale())
    }

    /// The name of the keys' type.
    pub(crate) fn type_name(&self) -> String {
        type_name(if self.buckets.is_some() { &DataType::UInt64 } else { &self.data_type })
    }

    /// A key as a plain JSON value, with dates and times in ISO 8601.
    pub(crate) fn json(&self, key: &GroupKey) -> Value {
        match key {
            GroupKey::Integer(value) if self.kind == ProfileKind::Times => {
                self.iso_8601(*value).map_or_else(|| (*value).into(), Value::String)
            }
            _ => match to_message(key, self.kind, self.scale()).key {
                Some(Key::Boolean(value)) => value.into(),
                Some(Key::Integer(value)) => value.into(),
                Some(Key::Unsigned(value) | Key::Bucket(value)) => value.into(),
                Some(Key::Text(value) | Key::Decimal(value)) => value.into(),
                Some(Key::Null(_)) | None => Value::Null,
            },
        }
    }

    /// Adds the rows of a block's column to the counts of their keys.
    pub(crate) fn count(&self, column: &ArrayRef, counts: &mut HashMap<GroupKey, u64>) -> Result<(), StreamError> {
        if let Some(buckets) = self.buckets_of(column)? {
            let buckets = buckets.values().iter().map(|bucket| Some(*bucket));
            return Self::add(buckets, None, counts, GroupKey::Bucket, |_| 0);
        }
        let nulls = column.logical_null_count() as u64;
        if nulls > 0 {
            *counts.entry(GroupKey::Null).or_default() += nulls;
        }
        let (values, rows) = used_values(column)?;
        let (values, rows) = (comparable(&values, self.kind)?, rows.as_deref());
        let nothing_long = |_: &GroupKey| 0;
        match self.kind {
            ProfileKind::Texts => {
                let key = |text: &str| GroupKey::Text(text.into());
                Self::add(values.as_string::<i32>().iter(), rows, counts, key, |key| match key {
                    GroupKey::Text(text) => text.len(),
                    _ => 0,
                })
            }
            ProfileKind::Unsigned => {
                Self::add(values.as_primitive::<UInt64Type>().iter(), rows, counts, GroupKey::Unsigned, nothing_long)
            }
            ProfileKind::Decimals => {
                Self::add(values.as_primitive::<Decimal256Type>().iter(), rows, counts, GroupKey::Decimal, nothing_long)
            }
            _ => Self::add(values.as_primitive::<Int64Type>().iter(), rows, counts, GroupKey::Integer, nothing_long),
        }
    }

    /// The bucket of each row; none if there is a group per value.
    pub(crate) fn buckets_of(&self, column: &ArrayRef) -> Result<Option<UInt64Array>, StreamError> {
        Ok(match &self.buckets {
            Some(GroupBuckets::Hashes(buckets)) => {
                // The column's type was checked: its values have hashes.
                let hashes = forebay_kernels::hash64(column.as_ref(), 0);
                Some(hashes.map_or_else(|| vec![0; 0].into(), |hashes| hashes.unary(|hash| hash % buckets.get())))
            }
            Some(GroupBuckets::Lengths(buckets)) => {
                // Negative numbers become null.
                let lengths = cast(column, &DataType::UInt64)?;
                let lengths = lengths.as_primitive::<UInt64Type>();
                let bucket = |length: Option<u64>| buckets.bucket_of(length.unwrap_or(0));
                Some(UInt64Array::from_iter_values(lengths.iter().map(bucket)))
            }
            None => None,
        })
    }

    /// Counts values, each of a number of rows or of one; nulls are skipped.
    fn add<T: Copy + Eq + Hash>(
        values: impl Iterator<Item = Option<T>>,
        rows: Option<&[u64]>,
        counts: &mut HashMap<GroupKey, u64>,
        key: impl Fn(T) -> GroupKey,
        bytes: impl Fn(&GroupKey) -> usize,
    ) -> Result<(), StreamError> {
        // Only distinct values become keys, which are allocated.
        let mut found: HashMap<T, u64> = HashMap::new();
        for (index, value) in values.enumerate() {
            if let Some(value) = value {
                *found.entry(value).or_default() += rows.map_or(1, |rows| rows[index]);
            }
        }
        for (value, count) in found {
            let key = key(value);
            if bytes(&key) > KEY_BYTES_MAX {
                let reason = format!(
                    "a value has {} bytes, the limit of a key is {KEY_BYTES_MAX}: send group_buckets to hash the values",
                    bytes(&key)
                );
                return Err(PlanError::field("group_by", reason).into());
            }
            *counts.entry(key).or_default() += count;
        }
        Ok(())
    }

    /// The place of each row's value among `keys`, which are in order; none for other values.
    pub(crate) fn places(&self, column: &ArrayRef, keys: &[GroupKey]) -> Result<Vec<Option<usize>>, StreamError> {
        let null = keys.binary_search(&GroupKey::Null).ok();
        if let Some(dictionary) = column.as_any_dictionary_opt() {
            if dictionary.values().is_empty() {
                return Ok(vec![null; column.len()]);
            }
            let (of_values, rows) = (self.places(dictionary.values(), keys)?, dictionary.normalized_keys());
            let is_valid = |row: usize| dictionary.keys().is_valid(row);
            return Ok((0..column.len()).map(|row| if is_valid(row) { of_values[rows[row]] } else { null }).collect());
        }
        let values = comparable(column, self.kind)?;
        let find = |key: GroupKey| keys.binary_search(&key).ok();
        Ok(match self.kind {
            ProfileKind::Texts => {
                found(values.as_string::<i32>().iter(), null, |text: &str| find(GroupKey::Text(text.into())))
            }
            ProfileKind::Unsigned => {
                found(values.as_primitive::<UInt64Type>().iter(), null, |value| find(GroupKey::Unsigned(value)))
            }
            ProfileKind::Decimals => {
                found(values.as_primitive::<Decimal256Type>().iter(), null, |value| find(GroupKey::Decimal(value)))
            }
            _ => found(values.as_primitive::<Int64Type>().iter(), null, |value| find(GroupKey::Integer(value))),
        })
    }

    fn scale(&self) -> i8 {
        match self.data_type {
            DataType::Decimal32(_, scale)
            | DataType::Decimal64(_, scale)
            | DataType::Decimal128(_, scale)
            | DataType::Decimal256(_, scale) => scale,
            _ => 0,
        }
    }

    /// A date, time or duration; none if it is outside of the calendar.
    fn iso_8601(&self, value: i64) -> Option<String> {
        let data_type = match &self.data_type {
            // Instants are printed in UTC: not every zone is known.
            DataType::Timestamp(unit, Some(_)) => DataType::Timestamp(*unit, Some("+00:00".into())),
            other => other.clone(),
        };
        let whole = if data_type.primitive_width() == Some(4) { DataType::Int32 } else { DataType::Int64 };
        let whole = cast(&Int64Array::from(vec![value]), &whole).ok()?;
        let array = make_array(whole.to_data().into_builder().data_type(data_type).build().ok()?);
        array_value_to_string(&array, 0).ok().filter(|text| !text.is_empty())
    }
}

/// The result of `find` for each value, called once for each distinct one; `null` for nulls.
fn found<T: Copy + Eq + Hash>(
    values: impl Iterator<Item = Option<T>>,
    null: Option<usize>,
    find: impl Fn(T) -> Option<usize>,
) -> Vec<Option<usize>> {
    let mut known: HashMap<T, Option<usize>> = HashMap::new();
    values.map(|value| value.map_or(null, |value| *known.entry(value).or_insert_with(|| find(value)))).collect()
}

#[cfg(test)]
mod tests {
    use std::{num::NonZeroU64, sync::Arc};

    use arrow::{
        array::{BooleanArray, Date32Array, DictionaryArray, StringArray, TimestampMicrosecondArray},
        datatypes::{Field, Int8Type},
    };

    use super::*;

    fn grouped(array: &ArrayRef, buckets: u64) -> Result<GroupColumn, PlanError> {
        let schema = Schema::new(vec![Field::new("k", array.data_type().clone(), true)]);
        let buckets = NonZeroU64::new(buckets).map(GroupBuckets::Hashes);
        let grouping = Grouping { column: "k".into(), buckets, key: None, field: "group_by" };
        GroupColumn::check(&grouping, &schema, Vec::new())
    }

    fn counted(array: impl Array + 'static) -> Vec<(Value, u64)> {
        let array: ArrayRef = Arc::new(array);
        let column = grouped(&array, 0).unwrap();
        let mut counts = HashMap::new();
        column.count(&array, &mut counts).unwrap();
        let mut counts: Vec<_> = counts.into_iter().collect();
        counts.sort();
        counts.into_iter().map(|(key, count)| (column.json(&key), count)).collect()
    }

    #[test]
    fn rows_are_counted_by_value() {
        let texts: Vec<Option<&str>> = vec![Some("b"), None, Some("a"), Some("b"), Some("")];
        let expected = vec![("".into(), 1), ("a".into(), 1), ("b".into(), 2), (Value::Null, 1)];
        assert_eq!(counted(StringArray::from(texts.clone())), expected);
        let dictionary: DictionaryArray<Int8Type> = texts.into_iter().collect();
        assert_eq!(counted(dictionary), expected);
        let nulls: DictionaryArray<Int8Type> = vec![None::<&str>; 3].into_iter().collect();
        assert_eq!(counted(nulls), [(Value::Null, 3)]);
        let flags = BooleanArray::from(vec![Some(true), None, Some(false), Some(true)]);
        assert_eq!(counted(flags), [(false.into(), 1), (true.into(), 2), (Value::Null, 1)]);
        let days = Date32Array::from(vec![15_706, -1, 15_706]);
        assert_eq!(counted(days), [("1969-12-31".into(), 1), ("2013-01-01".into(), 2)]);
        let times = TimestampMicrosecondArray::from(vec![1, i64::MAX]).with_timezone("Europe/Berlin");
        assert_eq!(counted(times)[0], ("1970-01-01T00:00:00.000001Z".into(), 1));
    }

    #[test]
    fn long_values_need_buckets() {
        let array: ArrayRef = Arc::new(StringArray::from(vec!["x".repeat(KEY_BYTES_MAX + 1)]));
        let error = grouped(&array, 0).unwrap().count(&array, &mut HashMap::new()).unwrap_err().to_string();
        assert!(error.contains("1025 bytes") && error.contains("group_buckets"), "{error}");
        let mut counts = HashMap::new();
        grouped(&array, 8).unwrap().count(&array, &mut counts).unwrap();
        assert_eq!(counts.values().collect::<Vec<_>>(), [&1]);
    }
}
