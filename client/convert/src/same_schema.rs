//! The common schema of Arrow or Parquet files: columns are matched by name and have one type. A column that a file
//! lacks is null there.

use std::{
    collections::HashSet,
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use arrow::{
    array::{ArrayRef, RecordBatch, RecordBatchOptions, new_null_array},
    compute::{CastOptions, cast_with_options},
    datatypes::{DataType, Field, FieldRef, Schema, SchemaRef, TimeUnit},
    error::ArrowError,
};
use parquet::{arrow::ArrowWriter, errors::ParquetError};

use crate::error::ConvertError;

/// The columns of the files so far.
#[derive(Debug, Default)]
pub(crate) struct SameSchema {
    /// Each with the first file that has it, and the number of files that have it.
    columns: Vec<(FieldRef, PathBuf, usize)>,
    files: usize,
}

// === impl SameSchema ===

impl SameSchema {
    /// Adds the columns of a file.
    pub(crate) fn add(&mut self, path: &Path, schema: &Schema) -> Result<(), ConvertError> {
        let file = |reason: String| ConvertError::File { path: path.to_owned(), reason };
        let mut seen = HashSet::new();
        for field in schema.fields().iter().map(written) {
            let name = field.name();
            if !seen.insert(name.clone()) {
                return Err(file(format!("two columns have the name \"{name}\": rename one")));
            }
            let known = self.columns.iter_mut().find(|(other, ..)| other.name() == name);
            let Some((known, first, count)) = known else {
                write_null(&field).map_err(|error| {
                    let kind = field.data_type();
                    file(format!("Parquet cannot store the column \"{name}\" of type {kind}: cast it ({error})"))
                })?;
                self.columns.push((field, path.to_owned(), 1));
                continue;
            };
            if known.data_type() != field.data_type() {
                let (found, other) = (field.data_type(), known.data_type());
                let reason = format!(
                    "column \"{name}\" is {found}, and {other} in \"{}\": convert the files separately, as one folder \
                     each, or cast the column",
                    first.display()
                );
                return Err(file(reason));
            }
            if field.is_nullable() && !known.is_nullable() {
                *known = Arc::new(known.as_ref().clone().with_nullable(true));
            }
            *count += 1;
        }
        self.files += 1;
        Ok(())
    }

    /// The common schema.
    pub(crate) fn finish(self) -> SchemaRef {
        let nullable = |(field, _, count): (FieldRef, PathBuf, usize)| {
            if count == self.files { field } else { Arc::new(field.as_ref().clone().with_nullable(true)) }
        };
        Arc::new(Schema::new(self.columns.into_iter().map(nullable).collect::<Vec<_>>()))
    }
}

/// A batch of a file with the columns of the common schema.
pub(crate) fn align(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, ArrowError> {
    let rows = batch.num_rows();
    let columns = schema.fields().iter().map(|field| match batch.column_by_name(field.name()) {
        None => Ok(new_null_array(field.data_type(), rows)),
        Some(column) if column.data_type() == field.data_type() => Ok(Arc::clone(column)),
        Some(column) => exactly(column, field),
    });
    let columns = columns.collect::<Result<Vec<_>, _>>()?;
    let counted = RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(Arc::clone(schema), columns, &counted)
}

/// A column in the type in which it is written, without loss.
fn exactly(column: &ArrayRef, field: &Field) -> Result<ArrayRef, ArrowError> {
    let cast = |column: &ArrayRef, kind: &DataType| {
        cast_with_options(column, kind, &CastOptions { safe: false, ..CastOptions::default() })
    };
    let written = cast(column, field.data_type())?;
    // A conversion to days drops the time of day.
    let has_milliseconds = contains(column.data_type(), &|kind| *kind == DataType::Date64);
    if has_milliseconds && cast(&written, column.data_type())?.as_ref() != column.as_ref() {
        let name = field.name();
        let reason =
            format!("column \"{name}\" of type Date64 has a value that is no whole day: cast it to a timestamp");
        return Err(ArrowError::CastError(reason));
    }
    Ok(written)
}

/// A column as it is written, at any level: views become plain, and what Parquet has no type for becomes what it has.
/// Seconds become milliseconds, and days in milliseconds days.
fn written(field: &FieldRef) -> FieldRef {
    Arc::new(Field::clone(field).with_data_type(written_type(field.data_type())))
}

fn written_type(kind: &DataType) -> DataType {
    match kind {
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

/// Whether a type, or one nested in it, is of a kind.
fn contains(kind: &DataType, is_wanted: &dyn Fn(&DataType) -> bool) -> bool {
    let nested = |field: &FieldRef| contains(field.data_type(), is_wanted);
    is_wanted(kind)
        || match kind {
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

/// Writes a file of one null: some types fail only when a value is written.
fn write_null(field: &Field) -> Result<(), ParquetError> {
    // The writer panics.
    if contains(field.data_type(), &|kind| matches!(kind, DataType::Union(..))) {
        return Err(ParquetError::General("it has no unions".to_owned()));
    }
    let column = new_null_array(field.data_type(), 1);
    let schema = Arc::new(Schema::new(vec![field.clone().with_nullable(true)]));
    let batch = RecordBatch::try_new(Arc::clone(&schema), vec![column])?;
    let mut writer = ArrowWriter::try_new(io::sink(), schema, None)?;
    writer.write(&batch)?;
    writer.close().map(|_| ())
}

#[cfg(test)]
mod tests {
    use arrow::{
        array::{Array, AsArray, Int64Array, TimestampSecondArray},
        datatypes::{IntervalUnit, TimestampMillisecondType},
    };

    use super::*;

    fn schema(fields: &[(&str, DataType)]) -> Schema {
        Schema::new(fields.iter().map(|(name, kind)| Field::new(*name, kind.clone(), false)).collect::<Vec<_>>())
    }

    #[test]
    fn columns_are_matched_by_name() {
        let mut same = SameSchema::default();
        same.add(
            Path::new("a"),
            &schema(&[("x", DataType::Int64), ("t", DataType::Timestamp(TimeUnit::Second, None))]),
        )
        .unwrap();
        same.add(Path::new("b"), &schema(&[("y", DataType::Utf8View), ("x", DataType::Int64)])).unwrap();
        let common = same.finish();
        let kinds: Vec<_> = common.fields().iter().map(|field| (field.name().as_str(), field.is_nullable())).collect();
        assert_eq!(kinds, [("x", false), ("t", true), ("y", true)]);
        let columns: Vec<(&str, Arc<dyn Array>)> = vec![
            ("t", Arc::new(TimestampSecondArray::from(vec![1, 2]))),
            ("x", Arc::new(Int64Array::from(vec![5, 6]))),
        ];
        let aligned = align(&RecordBatch::try_from_iter(columns).unwrap(), &common).unwrap();
        assert_eq!(aligned.column(1).as_primitive::<TimestampMillisecondType>().values(), &[1000, 2000]);
        assert_eq!(aligned.column(2).null_count(), 2);
    }

    #[test]
    fn other_types_are_refused_with_both_files() {
        let mut same = SameSchema::default();
        same.add(Path::new("a"), &schema(&[("x", DataType::Int64)])).unwrap();
        let error = same.add(Path::new("b"), &schema(&[("x", DataType::Utf8)])).unwrap_err().to_string();
        assert!(error.contains("\"b\": column \"x\" is Utf8, and Int64 in \"a\""), "{error}");
        let interval = schema(&[("i", DataType::Interval(IntervalUnit::MonthDayNano))]);
        let error = same.add(Path::new("c"), &interval).unwrap_err().to_string();
        assert!(error.contains("cannot store the column \"i\""), "{error}");
        let twice = same.add(Path::new("d"), &schema(&[("x", DataType::Int64), ("x", DataType::Int64)]));
        assert!(twice.unwrap_err().to_string().contains("two columns have the name \"x\""));
    }
}
