//! Converts decoded columns of a file to the types of its dataset, at any nesting level, without loss: a value that the
//! type cannot hold is an error.

use std::sync::Arc;

use arrow::{
    array::{
        Array, ArrayData, ArrayRef, AsArray, FixedSizeListArray, GenericListArray, MapArray, OffsetSizeTrait,
        StructArray, make_array, new_null_array,
    },
    compute::{CastOptions, cast_with_options},
    datatypes::{DataType, FieldRef, Fields},
    error::ArrowError,
};

/// Converts an array to another type.
pub(super) fn convert(array: &ArrayRef, wanted: &DataType) -> Result<ArrayRef, ArrowError> {
    use DataType as T;
    match (array.data_type(), wanted) {
        (found, wanted) if found == wanted => Ok(Arc::clone(array)),
        (T::List(_), T::List(item)) => list::<i32>(array, item),
        (T::LargeList(_), T::LargeList(item)) => list::<i64>(array, item),
        (T::List(item), T::LargeList(_)) => convert(&cast(array, &T::LargeList(Arc::clone(item)))?, wanted),
        (T::LargeList(item), T::List(_)) => convert(&cast(array, &T::List(Arc::clone(item)))?, wanted),
        (T::FixedSizeList(..), T::FixedSizeList(item, length)) => {
            let array = array.as_fixed_size_list();
            let values = convert(array.values(), item.data_type())?;
            let nulls = array.nulls().cloned();
            let converted =
                FixedSizeListArray::try_new_with_length(Arc::clone(item), *length, values, nulls, array.len());
            Ok(Arc::new(converted?))
        }
        (T::Struct(_), T::Struct(fields)) => Ok(Arc::new(of_fields(array.as_struct(), fields)?)),
        (T::Map(..), T::Map(entries, is_sorted)) => map(array.as_map(), entries, *is_sorted),
        (T::Int64 | T::UInt64, T::Float64) => exactly(array, wanted),
        _ => cast(array, wanted),
    }
}

/// The same values in a type that differs only in the names of nested fields.
pub(super) fn relabelled(array: &ArrayRef, named: &DataType) -> Result<ArrayRef, ArrowError> {
    fn data(found: ArrayData, named: &DataType) -> Result<ArrayData, ArrowError> {
        let types: Vec<&DataType> = match named {
            DataType::Struct(fields) => fields.iter().map(|field| field.data_type()).collect(),
            DataType::List(item) | DataType::LargeList(item) | DataType::Map(item, _) => vec![item.data_type()],
            _ => return Ok(found),
        };
        let children = found.child_data().iter().cloned().zip(types);
        let children = children.map(|(child, named)| data(child, named)).collect::<Result<Vec<_>, _>>()?;
        found.into_builder().data_type(named.clone()).child_data(children).build()
    }
    data(array.to_data(), named).map(make_array)
}

/// Arrow's conversion; a value out of range is an error instead of a null.
fn cast(array: &ArrayRef, wanted: &DataType) -> Result<ArrayRef, ArrowError> {
    cast_with_options(array, wanted, &CastOptions { safe: false, ..CastOptions::default() })
}

/// A conversion whose result converts back to the same values.
fn exactly(array: &ArrayRef, wanted: &DataType) -> Result<ArrayRef, ArrowError> {
    let converted = cast(array, wanted)?;
    if cast(&converted, array.data_type()).is_ok_and(|back| back.as_ref() == array.as_ref()) {
        return Ok(converted);
    }
    Err(ArrowError::CastError(format!("an integer beyond ±2^53 has no exact {wanted}")))
}

fn list<O: OffsetSizeTrait>(array: &ArrayRef, item: &FieldRef) -> Result<ArrayRef, ArrowError> {
    let array = array.as_list::<O>();
    let values = convert(array.values(), item.data_type())?;
    let (offsets, nulls) = (array.offsets().clone(), array.nulls().cloned());
    Ok(Arc::new(GenericListArray::<O>::try_new(Arc::clone(item), offsets, values, nulls)?))
}

/// Fields by name; those that the struct lacks are null.
fn of_fields(array: &StructArray, fields: &Fields) -> Result<StructArray, ArrowError> {
    let columns = fields.iter().map(|field| match array.column_by_name(field.name()) {
        Some(column) => convert(column, field.data_type()),
        None => Ok(new_null_array(field.data_type(), array.len())),
    });
    let columns = columns.collect::<Result<Vec<_>, _>>()?;
    StructArray::try_new_with_length(fields.clone(), columns, array.nulls().cloned(), array.len())
}

/// Keys and values by position, as writers name them differently.
fn map(array: &MapArray, entries: &FieldRef, is_sorted: bool) -> Result<ArrayRef, ArrowError> {
    let DataType::Struct(fields) = entries.data_type() else {
        return Err(ArrowError::CastError(format!("a map cannot hold {}", entries.data_type())));
    };
    let columns =
        array.entries().columns().iter().zip(fields).map(|(column, field)| convert(column, field.data_type()));
    let columns = columns.collect::<Result<Vec<_>, _>>()?;
    let converted = StructArray::try_new(fields.clone(), columns, array.entries().nulls().cloned())?;
    let (offsets, nulls) = (array.offsets().clone(), array.nulls().cloned());
    Ok(Arc::new(MapArray::try_new(Arc::clone(entries), offsets, converted, nulls, is_sorted)?))
}

#[cfg(test)]
mod tests {
    use arrow::{
        array::{Float64Array, Int8Array, Int32Array, Int64Array, ListArray, NullArray, TimestampMillisecondArray},
        datatypes::{Field, Int32Type, TimeUnit},
    };

    use super::*;

    fn converted(array: impl Array + 'static, wanted: &DataType) -> Result<ArrayRef, ArrowError> {
        let array: ArrayRef = Arc::new(array);
        convert(&array, wanted)
    }

    #[test]
    fn numbers_widen_exactly_or_not_at_all() {
        let wide = converted(Int8Array::from(vec![Some(-1), None]), &DataType::Int64).unwrap();
        assert_eq!(wide.as_ref(), &Int64Array::from(vec![Some(-1), None]) as &dyn Array);
        let exact = converted(Int64Array::from(vec![Some(1 << 53), None, Some(-3)]), &DataType::Float64).unwrap();
        assert_eq!(
            exact.as_ref(),
            &Float64Array::from(vec![Some(9_007_199_254_740_992.0), None, Some(-3.0)]) as &dyn Array
        );
        for value in [(1 << 53) + 1, i64::MAX, i64::MIN + 1] {
            let error = converted(Int64Array::from(vec![value]), &DataType::Float64).unwrap_err().to_string();
            assert!(error.contains("no exact Float64"), "{error}");
        }
    }

    #[test]
    fn times_beyond_the_finer_unit_are_an_error() {
        let wanted = DataType::Timestamp(TimeUnit::Nanosecond, None);
        assert!(converted(TimestampMillisecondArray::from(vec![9_223_372_036_854]), &wanted).is_ok());
        assert!(converted(TimestampMillisecondArray::from(vec![9_223_372_036_855]), &wanted).is_err());
    }

    #[test]
    fn nested_fields_are_matched_by_name() {
        let narrow = ListArray::from_iter_primitive::<Int32Type, _, _>([Some(vec![Some(1), None]), None, Some(vec![])]);
        let field = |name: &str, kind: DataType| Arc::new(Field::new(name, kind, true));
        let structs = StructArray::from(vec![
            (field("l", narrow.data_type().clone()), Arc::new(narrow) as ArrayRef),
            (field("n", DataType::Null), Arc::new(NullArray::new(3)) as ArrayRef),
        ]);
        let list = DataType::LargeList(field("element", DataType::Int64));
        let fields: Fields = vec![field("n", DataType::Utf8), field("more", DataType::Int8), field("l", list)].into();
        let wide = converted(structs, &DataType::Struct(fields.clone())).unwrap();
        let wide = wide.as_struct();
        assert_eq!((wide.column(0).null_count(), wide.column(1).null_count()), (3, 3));
        let lists = wide.column(2).as_list::<i64>();
        assert_eq!(lists.value(0).as_ref(), &Int64Array::from(vec![Some(1), None]) as &dyn Array);
        assert!(lists.is_null(1) && lists.value(2).is_empty());
    }

    #[test]
    fn dictionaries_become_their_values_and_wider_ones() {
        let words: arrow::array::DictionaryArray<arrow::datatypes::Int8Type> = ["a", "b", "a"].into_iter().collect();
        let plain = converted(words.clone(), &DataType::Utf8).unwrap();
        assert_eq!(plain.as_string::<i32>().iter().flatten().collect::<Vec<_>>(), ["a", "b", "a"]);
        let wide = DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::LargeUtf8));
        assert_eq!(converted(words, &wide).unwrap().data_type(), &wide);
        let none = converted(Int32Array::new_null(2), &DataType::Int64).unwrap();
        assert_eq!(none.null_count(), 2);
    }
}
