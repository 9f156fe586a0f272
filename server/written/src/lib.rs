//! The types of columns as Parquet files have them, and the columns in these types.
//!
//! Parquet has no type for days in milliseconds and times in seconds: a writer stores such columns as bare integers, which
//! other readers take for numbers.

#![forbid(unsafe_code)]

use std::{io, sync::Arc};

use arrow::{
    array::{ArrayRef, AsArray, RecordBatch, new_null_array},
    compute::{CastOptions, cast_with_options, filter, is_not_null},
    datatypes::{
        DataType, Decimal32Type, Decimal64Type, Decimal128Type, Decimal256Type, Field, FieldRef, Schema, TimeUnit,
    },
    error::ArrowError,
};
use parquet::{arrow::ArrowWriter, errors::ParquetError};

/// A column as it is written, at any level: views become plain, seconds milliseconds, and days in milliseconds days.
pub fn written(field: &FieldRef) -> FieldRef {
    let data_type = written_type(field.data_type());
    if data_type == *field.data_type() {
        return Arc::clone(field);
    }
    Arc::new(Field::clone(field).with_data_type(data_type))
}

fn written_type(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Utf8View => DataType::Utf8,
        DataType::BinaryView => DataType::Binary,
        DataType::Timestamp(TimeUnit::Second, zone) => DataType::Timestamp(TimeUnit::Millisecond, zone.clone()),
        DataType::Time32(TimeUnit::Second) => DataType::Time32(TimeUnit::Millisecond),
        DataType::Date64 => DataType::Date32,
        DataType::List(item) => DataType::List(written(item)),
        DataType::LargeList(item) => DataType::LargeList(written(item)),
        DataType::FixedSizeList(item, size) => DataType::FixedSizeList(written(item), *size),
        DataType::Map(entries, is_sorted) => DataType::Map(written(entries), *is_sorted),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(written).collect()),
        DataType::Dictionary(keys, values) => DataType::Dictionary(keys.clone(), Box::new(written_type(values))),
        other => other.clone(),
    }
}

/// A column in the type in which it is written, without loss. Fails with the name of a column with a date that has a time of
/// day, with a time that the type cannot hold, and with a decimal of more digits than its type has: Parquet would cut it.
pub fn exactly(column: &ArrayRef, field: &Field) -> Result<ArrayRef, ArrowError> {
    if contains(column.data_type(), &|data_type| data_type.is_decimal()) {
        check_decimals(column).map_err(|error| {
            let name = field.name();
            ArrowError::InvalidArgumentError(format!("column \"{name}\": {error}"))
        })?;
    }
    if column.data_type() == field.data_type() {
        return Ok(Arc::clone(column));
    }
    let cast = |column: &ArrayRef, data_type: &DataType| {
        cast_with_options(column, data_type, &CastOptions { safe: false, ..CastOptions::default() })
    };
    let converted = cast(column, field.data_type())?;
    // A conversion to days drops the time of day.
    let has_milliseconds = contains(column.data_type(), &|data_type| *data_type == DataType::Date64);
    if has_milliseconds && cast(&converted, column.data_type())?.as_ref() != column.as_ref() {
        let name = field.name();
        let reason =
            format!("column \"{name}\" of type Date64 has a value that is not a whole day: cast it to a timestamp");
        return Err(ArrowError::CastError(reason));
    }
    Ok(converted)
}

/// Fails for a decimal, at any level, with more digits than its type has. Readers do not check them.
fn check_decimals(column: &ArrayRef) -> Result<(), ArrowError> {
    match column.data_type() {
        DataType::Decimal32(digits, _) => column.as_primitive::<Decimal32Type>().validate_decimal_precision(*digits),
        DataType::Decimal64(digits, _) => column.as_primitive::<Decimal64Type>().validate_decimal_precision(*digits),
        DataType::Decimal128(digits, _) => column.as_primitive::<Decimal128Type>().validate_decimal_precision(*digits),
        DataType::Decimal256(digits, _) => column.as_primitive::<Decimal256Type>().validate_decimal_precision(*digits),
        // What is within a null has any value.
        _ if column.null_count() > 0 => check_decimals(&filter(column, &is_not_null(column)?)?),
        DataType::List(_) => check_decimals(column.as_list::<i32>().values()),
        DataType::LargeList(_) => check_decimals(column.as_list::<i64>().values()),
        DataType::ListView(_) => check_decimals(column.as_list_view::<i32>().values()),
        DataType::LargeListView(_) => check_decimals(column.as_list_view::<i64>().values()),
        DataType::FixedSizeList(..) => check_decimals(column.as_fixed_size_list().values()),
        DataType::Map(..) => column.as_map().entries().columns().iter().try_for_each(check_decimals),
        DataType::Struct(_) => column.as_struct().columns().iter().try_for_each(check_decimals),
        DataType::Dictionary(..) => check_decimals(column.as_any_dictionary().values()),
        _ => Ok(()),
    }
}

/// Fails for a type that Parquet cannot store. Writes a file of one null: some types fail only when a value is written.
pub fn check_stored(field: &Field) -> Result<(), ParquetError> {
    // The writer panics.
    if contains(field.data_type(), &|data_type| matches!(data_type, DataType::Union(..))) {
        return Err(ParquetError::General("it has no unions".to_owned()));
    }
    let column = new_null_array(field.data_type(), 1);
    let schema = Arc::new(Schema::new(vec![field.clone().with_nullable(true)]));
    let batch = RecordBatch::try_new(Arc::clone(&schema), vec![column])?;
    let mut writer = ArrowWriter::try_new(io::sink(), schema, None)?;
    writer.write(&batch)?;
    writer.close().map(|_| ())
}

/// Whether a type, or one nested in it, is of a kind.
fn contains(data_type: &DataType, is_wanted: &dyn Fn(&DataType) -> bool) -> bool {
    let nested = |field: &FieldRef| contains(field.data_type(), is_wanted);
    is_wanted(data_type)
        || match data_type {
            DataType::List(item)
            | DataType::LargeList(item)
            | DataType::ListView(item)
            | DataType::LargeListView(item)
            | DataType::FixedSizeList(item, _)
            | DataType::Map(item, _) => nested(item),
            DataType::Struct(fields) => fields.iter().any(nested),
            DataType::Dictionary(_, values) => contains(values, is_wanted),
            DataType::RunEndEncoded(_, values) => nested(values),
            _ => false,
        }
}

#[cfg(test)]
mod tests {
    use arrow::{
        array::{Array, Date64Array, Decimal128Array, ListArray, Time32SecondArray},
        buffer::OffsetBuffer,
        datatypes::{Date32Type, IntervalUnit, Time32MillisecondType},
    };

    use super::*;

    const DAY: i64 = 86_400_000;

    fn as_written(column: &ArrayRef) -> Result<ArrayRef, ArrowError> {
        let field = Arc::new(Field::new("c", column.data_type().clone(), true));
        exactly(column, &written(&field))
    }

    #[test]
    fn times_have_the_types_of_parquet() {
        let days = as_written(&(Arc::new(Date64Array::from(vec![Some(DAY), None, Some(-2 * DAY)])) as _)).unwrap();
        assert_eq!(days.as_primitive::<Date32Type>(), &[Some(1), None, Some(-2)].into_iter().collect());
        let times = as_written(&(Arc::new(Time32SecondArray::from(vec![1, 86_399])) as _)).unwrap();
        assert_eq!(times.as_primitive::<Time32MillisecondType>().values(), &[1000, 86_399_000]);
        let error = as_written(&(Arc::new(Date64Array::from(vec![DAY + 1])) as _)).unwrap_err().to_string();
        assert!(error.contains("column \"c\" of type Date64 has a value that is not a whole day"), "{error}");
    }

    #[test]
    fn so_do_items_of_lists() {
        let item = Arc::new(Field::new("item", DataType::Date64, true));
        let offsets = OffsetBuffer::from_lengths([2, 0]);
        let lists = ListArray::new(item, offsets, Arc::new(Date64Array::from(vec![DAY, 3 * DAY])), None);
        let found = as_written(&(Arc::new(lists) as _)).unwrap();
        assert_eq!(found.as_list::<i32>().values().as_primitive::<Date32Type>().values(), &[1, 3]);
        assert_eq!(found.len(), 2);
    }

    #[test]
    fn decimals_have_the_digits_of_their_type() {
        let decimals =
            |values: Vec<Option<i128>>| Decimal128Array::from(values).with_precision_and_scale(9, 2).unwrap();
        assert!(as_written(&(Arc::new(decimals(vec![Some(-999_999_999), None])) as _)).is_ok());
        let item = Arc::new(Field::new("item", DataType::Decimal128(9, 2), true));
        let offsets = OffsetBuffer::from_lengths([1]);
        let lists = ListArray::new(item, offsets, Arc::new(decimals(vec![Some(1_000_000_000)])), None);
        let error = as_written(&(Arc::new(lists) as _)).unwrap_err().to_string();
        assert!(error.contains("column \"c\": ") && error.contains("precision 9"), "{error}");
    }

    #[test]
    fn types_that_parquet_lacks_are_refused() {
        assert!(check_stored(&Field::new("d", DataType::Date32, false)).is_ok());
        assert!(check_stored(&Field::new("i", DataType::Interval(IntervalUnit::MonthDayNano), true)).is_err());
        let union = DataType::Union(arrow::datatypes::UnionFields::empty(), arrow::datatypes::UnionMode::Dense);
        assert!(check_stored(&Field::new("u", union, true)).is_err());
    }
}
