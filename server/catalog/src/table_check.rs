//! Checks that the data files of a lake table are those that its log describes: their rows, how their columns are found,
//! and the values of columns that they lack.

use std::{collections::HashMap, sync::Arc};

use arrow::{
    array::{ArrayRef, StringArray},
    datatypes::Schema,
};
use forebay_lake::{LakeError, LogValue};

use super::{error::CatalogError, lake::TableVersion, partitions::typed, union::FileColumns};

/// A file's name for errors, its schema as stored, and its rows.
pub(super) type StoredFile<'a> = (&'a str, &'a Schema, u64);

/// Values from the log, each an array of one row, by the indices of the file and of the column.
pub(super) type LogValues = HashMap<(usize, usize), ArrayRef>;

/// Checks the files of a table, in its order, before their schemas are united.
pub(super) fn check_files<'a>(
    dataset: &str,
    table: &TableVersion,
    files: impl Iterator<Item = StoredFile<'a>>,
) -> Result<(), CatalogError> {
    for (file_index, (file, schema, rows)) in files.enumerate() {
        if !table.finds_columns(schema) {
            let reason = "its columns have no field IDs, and the table has no name mapping: set the table property \
                          schema.name-mapping.default, or rewrite the file";
            return Err(failed(dataset, LakeError::Unsupported(format!("file \"{file}\": {reason}"))));
        }
        if let Some(declared) = table.rows(file_index).filter(|declared| *declared != rows) {
            let reason = format!("file \"{file}\" has {rows} rows, but {} says {declared}", table.title);
            return Err(failed(dataset, LakeError::Corrupt(reason)));
        }
    }
    Ok(())
}

/// The values that the log has of columns that files lack.
pub(super) fn missing_values<'a>(
    dataset: &str,
    table: &TableVersion,
    files: impl Iterator<Item = (&'a str, &'a Arc<FileColumns>)>,
) -> Result<LogValues, CatalogError> {
    let mut values = LogValues::new();
    for (file_index, (file, columns)) in files.enumerate() {
        for (column, value) in table.if_missing(file_index).iter().filter(|(column, _)| columns.root(*column).is_none())
        {
            let Some(field) = table.column(*column) else { continue };
            let value = match value {
                LogValue::Text(text) => typed(&StringArray::from(vec![text.as_deref()]), field.data_type()),
                LogValue::Unread => Err((0, "its value in the metadata cannot be read: rewrite the file".to_owned())),
            };
            let value = value.map_err(|(_, reason)| {
                let name = field.name();
                let reason = format!("file \"{file}\" lacks the partition column \"{name}\": {reason}");
                failed(dataset, LakeError::Unsupported(reason))
            })?;
            values.insert((file_index, *column), value);
        }
    }
    Ok(values)
}

fn failed(dataset: &str, source: LakeError) -> CatalogError {
    CatalogError::Table { dataset: dataset.to_owned(), source }
}
