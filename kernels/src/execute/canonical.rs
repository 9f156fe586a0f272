//! Stored columns in the one layout that their rows determine, for any pieces that they were assembled from.
//!
//! A dictionary has the distinct values of its rows, by first appearance, and views share one copy of each text. Arrow
//! keeps the values of all pieces instead, and merges them by rules that depend on which pieces share memory.

use std::{collections::HashMap, sync::Arc};

use arrow::{
    array::{
        Array, ArrayRef, AsArray, BinaryViewBuilder, RecordBatch, RecordBatchOptions, StringViewBuilder, UInt32Array,
        UInt64Array, make_array,
    },
    compute::{can_cast_types, cast, take},
    datatypes::DataType,
    error::ArrowError,
};

use crate::execute::dictionary::DictionaryKeys;

/// A copy of the rows, which keeps no memory of other ones: neither the values of a dictionary that no row has, nor
/// buffers of which the rows are a part.
pub fn compact(rows: &RecordBatch) -> Result<RecordBatch, ArrowError> {
    let all = UInt64Array::from_iter_values(0..rows.num_rows() as u64);
    let columns = rows.columns().iter().map(|column| canonical(take(column, &all, None)?));
    let columns = columns.collect::<Result<Vec<_>, ArrowError>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
    RecordBatch::try_new_with_options(rows.schema(), columns, &options)
}

/// The same rows in their canonical layout.
pub(super) fn canonical(array: ArrayRef) -> Result<ArrayRef, ArrowError> {
    match array.data_type() {
        DataType::Dictionary(_, values) if can_cast_types(values, array.data_type()) => distinct(&array),
        DataType::Utf8View => {
            let mut texts = StringViewBuilder::with_capacity(array.len()).with_deduplicate_strings();
            texts.extend(array.as_string_view());
            Ok(Arc::new(texts.finish()))
        }
        DataType::BinaryView => {
            let mut texts = BinaryViewBuilder::with_capacity(array.len()).with_deduplicate_strings();
            texts.extend(array.as_binary_view());
            Ok(Arc::new(texts.finish()))
        }
        nested if nested.is_nested() && shares_values(nested) => {
            // Without the elements of other rows.
            let rows = take(&array, &UInt64Array::from_iter_values(0..array.len() as u64), None)?.to_data();
            let children = rows.child_data().iter().map(|child| Ok(canonical(make_array(child.clone()))?.to_data()));
            let children = children.collect::<Result<Vec<_>, ArrowError>>()?;
            Ok(make_array(rows.into_builder().child_data(children).build()?))
        }
        _ => Ok(array),
    }
}

/// Whether rows of the type, or elements of rows, may share values.
fn shares_values(data_type: &DataType) -> bool {
    match data_type {
        DataType::Dictionary(..) | DataType::Utf8View | DataType::BinaryView => true,
        DataType::List(field)
        | DataType::LargeList(field)
        | DataType::FixedSizeList(field, _)
        | DataType::Map(field, _) => shares_values(field.data_type()),
        DataType::Struct(fields) => fields.iter().any(|field| shares_values(field.data_type())),
        _ => false,
    }
}

/// The rows of a dictionary array with the distinct values that they use, by first appearance.
fn distinct(array: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    let Some(dictionary) = array.as_any_dictionary_opt() else { return Ok(Arc::clone(array)) };
    let Some(keys) = DictionaryKeys::new(dictionary) else { return Ok(Arc::clone(array)) };
    let mut used: Vec<u64> = Vec::new();
    let mut places: HashMap<usize, u32> = HashMap::new();
    let mut place = |key: usize| {
        *places.entry(key).or_insert_with(|| {
            used.push(key as u64);
            (used.len() - 1) as u32
        })
    };
    let rows: UInt32Array = (0..array.len()).map(|row| keys.get(row).map(&mut place)).collect();
    let used = take(dictionary.values(), &UInt64Array::from(used), None)?;
    // Different keys may have equal values.
    take(&cast(&used, array.data_type())?, &rows, None)
}

#[cfg(test)]
mod tests;
