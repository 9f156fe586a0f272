//! The row groups of a snapshot, numbered in file order, and the deleted rows of each.

use std::{ops::Range, sync::Arc};

use parquet::file::metadata::ParquetMetaData;

use super::{deleted_rows::DeletedRows, error::CatalogError, lake::TableVersion};

/// One row group of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowGroup {
    /// Index in [`crate::Snapshot::files`].
    pub file_index: usize,
    /// Index within the file.
    pub index_in_file: usize,
    /// Its rows, without deleted ones, as indices in the snapshot.
    pub rows: Range<u64>,
}

/// The deleted rows of each row group; `None` for one without any.
pub(super) type Deletions = Vec<Option<Arc<DeletedRows>>>;

/// The row groups of files, each with its name for errors and its footer, and their rows that a table has deleted.
pub(super) fn of_files<'a>(
    dataset: &str,
    files: impl Iterator<Item = (&'a str, &'a ParquetMetaData)>,
    table: Option<&TableVersion>,
) -> Result<(Vec<RowGroup>, Deletions), CatalogError> {
    let (mut row_groups, mut deletions, mut row_count) = (Vec::new(), Vec::new(), 0_u64);
    for (file_index, (file, footer)) in files.enumerate() {
        let corrupt =
            |reason: String| CatalogError::Corrupt { dataset: dataset.to_owned(), file: file.to_owned(), reason };
        let too_many = |index: usize, rows: i64| corrupt(format!("row group {index} declares {rows} rows"));
        let mut stored = Vec::with_capacity(footer.num_row_groups());
        for (index, group) in footer.row_groups().iter().enumerate() {
            stored.push(u64::try_from(group.num_rows()).map_err(|_| too_many(index, group.num_rows()))?);
        }
        let deleted = table.map_or(&[][..], |table| table.deleted(file_index));
        let deleted = DeletedRows::of_file(deleted, &stored)
            .map_err(|row| corrupt(format!("its table has deleted row {row}, which it does not have")))?;
        for (index_in_file, (rows, deleted)) in stored.into_iter().zip(&deleted).enumerate() {
            let kept = deleted.as_ref().map_or(rows, |deleted| deleted.kept());
            let end = row_count.checked_add(kept).ok_or_else(|| too_many(index_in_file, rows.cast_signed()))?;
            row_groups.push(RowGroup { file_index, index_in_file, rows: row_count..end });
            row_count = end;
        }
        deletions.extend(deleted);
    }
    Ok((row_groups, deletions))
}
