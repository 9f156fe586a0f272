//! A narrowed snapshot whose rows have the numbers that they have among the rows of all files.

use std::{
    collections::HashMap,
    sync::{Arc, atomic::AtomicBool},
};

use forebay_runtime::state::short_digest;

use super::Snapshot;
use crate::{error::CatalogError, row_groups::RowGroup};

impl Snapshot {
    /// The same narrowed snapshot, with rows that have the numbers that they have in the snapshot of all files, and with
    /// its digest.
    pub fn numbered(self: &Arc<Self>, whole: &Arc<Self>) -> Result<Self, CatalogError> {
        let row_groups = row_groups(self, whole)?;
        Ok(Self {
            dataset: self.dataset.clone(),
            store: self.store.clone(),
            digest: whole.digest.clone(),
            state: short_digest(&[whole.state.as_bytes(), b"\n", self.state.as_bytes()]),
            listed: None,
            schema: Arc::clone(&self.schema),
            wide_schema: Arc::clone(&self.wide_schema),
            files: self.files.clone(),
            columns: self.columns.clone(),
            partitions: self.partitions.clone(),
            partition_columns: self.partition_columns.clone(),
            adapted_files: self.adapted_files,
            log_values: self.log_values.clone(),
            table: self.table.clone(),
            row_groups,
            deleted: self.deleted.clone(),
            row_counts: Arc::clone(&self.row_counts),
            row_count: self.row_count,
            byte_count: self.byte_count,
            int96: self.int96,
            is_outdated: AtomicBool::new(false),
            origins: Some([Arc::clone(whole), Arc::clone(self)]),
        })
    }
}

/// The row groups of `kept`, with the numbers of their rows in `whole`, which has all files of the same listing.
fn row_groups(kept: &Snapshot, whole: &Snapshot) -> Result<Vec<RowGroup>, CatalogError> {
    let changed = |file: &str| CatalogError::Changed {
        dataset: kept.dataset().to_owned(),
        reason: format!("file \"{file}\" changed while its rows were numbered"),
    };
    let groups = whole.row_groups().iter();
    let places: HashMap<(&str, usize), &RowGroup> =
        groups.map(|group| ((whole.file_of(group).display(), group.index_in_file), group)).collect();
    let numbered = |group: &RowGroup| {
        let (file, length) = (kept.file_of(group), group.rows.end - group.rows.start);
        let found = places.get(&(file.display(), group.index_in_file));
        let found = found.filter(|found| Arc::ptr_eq(whole.file_of(found), file) || whole.file_of(found).is_same(file));
        let found = found.filter(|found| found.rows.end - found.rows.start == length);
        let rows = found.ok_or_else(|| changed(file.display()))?.rows.clone();
        Ok(RowGroup { rows, ..group.clone() })
    };
    kept.row_groups().iter().map(numbered).collect()
}
