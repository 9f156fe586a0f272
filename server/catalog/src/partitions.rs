//! Partition columns: the values of `key=value` folders, as Hive and Spark name them, as columns of the files in them.
//!
//! A file without a folder of a key is null there. This module reads paths only, never files.

use std::{collections::HashMap, sync::Arc};

use arrow::{
    array::{Array, ArrayRef, BooleanArray, RecordBatch, StringArray},
    compute::{CastOptions, cast_with_options, filter},
    datatypes::{DataType, Field},
    error::ArrowError,
};
use chrono::NaiveDate;
use forebay_lake::LakeError;
use percent_encoding::percent_decode_str;

use super::{error::CatalogError, lake::TableVersion, pinned_schema::PinnedSchema};

/// The folder value of null.
const NULL: &str = "__HIVE_DEFAULT_PARTITION__";

/// The partition columns of a dataset, in the order of their folders.
#[derive(Clone, Debug, Default)]
pub(super) struct Partitions {
    fields: Vec<Field>,
    /// A value per file, for each column.
    values: Vec<ArrayRef>,
    /// Whether each column's schema allows nulls although no file has one.
    may_be_null: Vec<bool>,
}

/// The values of one key, as text.
#[derive(Debug, Default)]
struct KeyValues {
    /// By file; shorter than the files if the last ones lack the key.
    texts: Vec<Option<String>>,
}

// === impl Partitions ===

impl Partitions {
    /// The columns of the folders in these paths. Their types are those of the pinned schema, which also decides which
    /// are columns; without one, int64, date or text, the first that all values of a key have.
    pub(super) fn of<'a>(
        dataset: &str,
        paths: impl Iterator<Item = &'a str>,
        pinned: Option<&PinnedSchema>,
    ) -> Result<Self, CatalogError> {
        let paths: Vec<&str> = paths.collect();
        let mut partitions = Self::default();
        for (name, values) in by_key(&paths) {
            let texts = values.texts.iter().map(Option::as_deref).chain(std::iter::repeat(None)).take(paths.len());
            let texts: StringArray = texts.collect();
            let field = match pinned.map(|pinned| pinned.schema().field_with_name(&name)) {
                Some(Err(_)) => continue,
                Some(Ok(field)) => field.clone(),
                None => Field::new(&name, inferred(&texts), false),
            };
            let may_be_null = field.is_nullable();
            let values = typed(&texts, field.data_type()).map_err(|(file, reason)| CatalogError::Partition {
                dataset: dataset.into(),
                column: name.as_str().into(),
                value: texts.value(file).into(),
                path: paths[file].into(),
                reason: reason.into(),
            })?;
            partitions.push(field, values, may_be_null);
        }
        Ok(partitions)
    }

    /// The partition columns of a lake table, whose values are in its log.
    pub(super) fn of_table(dataset: &str, table: &TableVersion) -> Result<Self, CatalogError> {
        let mut partitions = Self::default();
        for (index, field) in table.partition_fields.iter().enumerate() {
            let texts = StringArray::from(table.partition_texts(index));
            let values = typed(&texts, field.data_type()).map_err(|(file, reason)| {
                let source = LakeError::Corrupt(format!(
                    "the log has the value \"{}\" of the partition column \"{}\": {reason}",
                    texts.value(file),
                    field.name()
                ));
                CatalogError::Table { dataset: dataset.to_owned(), source }
            })?;
            partitions.push(field.clone(), values, field.is_nullable());
        }
        Ok(partitions)
    }

    /// The same columns for some of the files. Types stay those of all files.
    pub(super) fn kept(&self, files: &BooleanArray) -> Result<Self, ArrowError> {
        let mut kept = Self::default();
        for (index, field) in self.fields.iter().enumerate() {
            let values = filter(&self.values[index], files)?;
            kept.push(field.clone(), values, self.may_be_null[index]);
        }
        Ok(kept)
    }

    /// Columns with a value for each file.
    pub(super) fn of_values(values: &RecordBatch) -> Self {
        let mut partitions = Self::default();
        for (field, values) in values.schema_ref().fields().iter().zip(values.columns()) {
            partitions.push(field.as_ref().clone(), Arc::clone(values), field.is_nullable());
        }
        partitions
    }

    fn push(&mut self, field: Field, values: ArrayRef, may_be_null: bool) {
        self.fields.push(field.with_nullable(may_be_null || values.null_count() > 0));
        self.values.push(values);
        self.may_be_null.push(may_be_null);
    }

    /// The columns.
    pub(super) fn fields(&self) -> &[Field] {
        &self.fields
    }

    /// The value of a column in each file.
    pub(super) fn values(&self, column: usize) -> &ArrayRef {
        &self.values[column]
    }
}

/// The values of each key, in the order of the folders of the first file that has it.
fn by_key(paths: &[&str]) -> Vec<(String, KeyValues)> {
    let mut keys: Vec<(String, KeyValues)> = Vec::new();
    let mut places: HashMap<String, usize> = HashMap::new();
    for (file, path) in paths.iter().enumerate() {
        let folders = path.rsplit_once('/').map_or("", |(folders, _)| folders);
        for (key, value) in folders.split('/').filter_map(|folder| folder.split_once('=')) {
            if key.is_empty() {
                continue;
            }
            let key = decoded(key);
            let place = *places.entry(key).or_insert_with_key(|key| {
                keys.push((key.clone(), KeyValues::default()));
                keys.len() - 1
            });
            let texts = &mut keys[place].1.texts;
            // If a key occurs twice in a path, the innermost folder counts.
            texts.resize(file, None);
            texts.push((value != NULL).then(|| decoded(value)));
        }
    }
    keys
}

/// Decodes `%xx`. A text that is not UTF-8 then stays as it is.
fn decoded(text: &str) -> String {
    percent_decode_str(text).decode_utf8().map_or_else(|_| text.to_owned(), std::borrow::Cow::into_owned)
}

fn inferred(texts: &StringArray) -> DataType {
    let mut present = texts.iter().flatten().peekable();
    if present.peek().is_none() {
        return DataType::Utf8;
    }
    let (mut are_integers, mut are_dates) = (true, true);
    for text in present {
        are_integers &= is_integer(text);
        are_dates &= is_date(text);
    }
    match (are_integers, are_dates) {
        (true, _) => DataType::Int64,
        (_, true) => DataType::Date32,
        _ => DataType::Utf8,
    }
}

/// Whether a text is digits, with a sign or none, that fit 64 bits. Leading zeros are allowed: months have them.
fn is_integer(text: &str) -> bool {
    text.starts_with(|first: char| first == '-' || first.is_ascii_digit()) && text.parse::<i64>().is_ok()
}

fn is_date(text: &str) -> bool {
    text.len() == "2000-01-01".len() && NaiveDate::parse_from_str(text, "%Y-%m-%d").is_ok()
}

/// The values in a type; an error is the index of the file whose value it cannot hold.
pub(super) fn typed(texts: &StringArray, data_type: &DataType) -> Result<ArrayRef, (usize, String)> {
    let texts: ArrayRef = Arc::new(texts.clone());
    if let Ok(values) = cast(&texts, data_type) {
        return Ok(values);
    }
    for file in 0..texts.len() {
        if let Err(reason) = cast(&texts.slice(file, 1), data_type) {
            return Err((file, reason));
        }
    }
    Err((0, format!("texts cannot be read as {data_type}")))
}

fn cast(texts: &ArrayRef, data_type: &DataType) -> Result<ArrayRef, String> {
    let options = CastOptions { safe: false, ..CastOptions::default() };
    cast_with_options(texts, data_type, &options).map_err(|source| source.to_string())
}

#[cfg(test)]
mod tests {
    use arrow::array::AsArray;

    use super::*;

    fn partitions(paths: &[&str]) -> Partitions {
        Partitions::of("d", paths.iter().copied(), None).unwrap()
    }

    #[test]
    fn types_are_those_that_all_values_have() {
        let kind = |values: &[&str]| {
            let paths: Vec<String> = values.iter().map(|value| format!("k={value}/a.parquet")).collect();
            let found = partitions(&paths.iter().map(String::as_str).collect::<Vec<_>>());
            found.fields[0].data_type().clone()
        };
        for (values, want) in [
            (&["1", "-20", "007"][..], DataType::Int64),
            (&["1", "9223372036854775808"], DataType::Utf8),
            (&["+1"], DataType::Utf8),
            (&["2024-02-29", "1969-12-31"], DataType::Date32),
            (&["2024-02-30"], DataType::Utf8),
            (&["2024-02-29", "5"], DataType::Utf8),
            (&["", "5"], DataType::Utf8),
            (&["5", NULL], DataType::Int64),
            (&[NULL], DataType::Utf8),
        ] {
            assert_eq!(kind(values), want, "{values:?}");
        }
    }

    #[test]
    fn keys_are_columns_in_the_order_of_their_folders() {
        let paths = ["x/a%20b=S%C3%A3o%2F/n=1/f.parquet", "g.parquet", "a%20b=%FF/h=2.parquet", "=4/n=2/n=3/i.parquet"];
        let found = partitions(&paths);
        let names: Vec<&str> = found.fields.iter().map(|field| field.name().as_str()).collect();
        assert_eq!(names, ["a b", "n"]);
        let texts: Vec<Option<&str>> = found.values[0].as_string::<i32>().iter().collect();
        assert_eq!(texts, [Some("São/"), None, Some("%FF"), None]);
        let numbers = found.values[1].as_primitive::<arrow::datatypes::Int64Type>();
        assert_eq!(numbers.iter().collect::<Vec<_>>(), [Some(1), None, None, Some(3)]);
        assert!(found.fields.iter().all(Field::is_nullable));
        assert_eq!(found.values(1).len(), 4);
    }

    #[test]
    fn some_files_keep_the_types_of_all() {
        let found = partitions(&["k=1/n=2/a.parquet", "k=x/a.parquet", "k=3/n=4/a.parquet"]);
        let kept = found.kept(&BooleanArray::from(vec![true, false, true])).unwrap();
        let texts: Vec<Option<&str>> = kept.values[0].as_string::<i32>().iter().collect();
        assert_eq!(texts, [Some("1"), Some("3")]);
        assert_eq!(kept.fields, [Field::new("k", DataType::Utf8, false), Field::new("n", DataType::Int64, false)]);
        let pinned = Partitions { may_be_null: vec![true, true], ..found };
        assert!(pinned.kept(&BooleanArray::from(vec![true, false, false])).unwrap().fields[0].is_nullable());
    }
}
