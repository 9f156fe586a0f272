//! The common schema of Arrow or Parquet files: columns are matched by name and have one type. A column that a file
//! lacks is null there.

use std::{
    collections::HashSet,
    path::{Path, PathBuf},
    sync::Arc,
};

use arrow::{
    array::{RecordBatch, RecordBatchOptions, new_null_array},
    datatypes::{FieldRef, Schema, SchemaRef},
    error::ArrowError,
};
use forebay_written::{check_stored, exactly, written};

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
                check_stored(&field).map_err(|error| {
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
        Some(column) => exactly(column, field),
    });
    let columns = columns.collect::<Result<Vec<_>, _>>()?;
    let counted = RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(Arc::clone(schema), columns, &counted)
}

#[cfg(test)]
mod tests {
    use arrow::{
        array::{Array, AsArray, Int64Array, TimestampSecondArray},
        datatypes::{DataType, Field, IntervalUnit, TimeUnit, TimestampMillisecondType},
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
