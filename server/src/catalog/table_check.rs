//! Checks that the data files of a lake table are those that its log describes: their rows, and how their columns are
//! found.

use std::sync::Arc;

use arrow::datatypes::Schema;
use forebay_lake::LakeError;

use super::{error::CatalogError, lake::TableVersion, union::FileColumns};

/// A file's name for errors, its schema as stored, and its rows.
pub(super) type StoredFile<'a> = (&'a str, &'a Schema, u64);

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

/// Checks that files have the columns whose values are not read from the log.
pub(super) fn check_columns<'a>(
    dataset: &str,
    table: &TableVersion,
    files: impl Iterator<Item = (&'a str, &'a Arc<FileColumns>)>,
) -> Result<(), CatalogError> {
    for (file_index, (file, columns)) in files.enumerate() {
        if let Some(column) = table.required(file_index).iter().find(|column| columns.root(**column).is_none()) {
            return Err(failed(
                dataset,
                LakeError::Unsupported(format!(
                    "file \"{file}\" lacks the partition column \"{}\", and files of other partition specs or types have \
                     no value of it in the metadata: rewrite the file",
                    table.column_name(*column)
                )),
            ));
        }
    }
    Ok(())
}

fn failed(dataset: &str, source: LakeError) -> CatalogError {
    CatalogError::Table { dataset: dataset.to_owned(), source }
}
