//! The lake table of a dataset: its format, and what to read of it.

use std::sync::Arc;

use forebay_lake::{
    LakeError, TableLog, TableState, TableStore, delta,
    iceberg::{self, IcebergRequest},
};
use object_store::path::Path;

use super::{
    error::CatalogError,
    lake::TableVersion,
    store::{Store, StoreError},
};
use crate::metrics;

/// The table of a dataset, and the version of it.
#[derive(Clone, Debug)]
pub(super) struct LakeSpec {
    /// The folder of the table.
    pub root: Path,
    format: TableFormat,
}

/// The format of a table, and what to read of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TableFormat {
    /// A version of a Delta table; none: the newest.
    Delta { version: Option<u64> },
    /// A snapshot of an Iceberg table, of a metadata file; none: the current ones.
    Iceberg { metadata: Option<Path>, snapshot: Option<i64> },
}

// === impl LakeSpec ===

impl LakeSpec {
    /// A table in a folder or, of an Iceberg table, the table of a metadata file.
    pub(super) fn new(path: Path, format: TableFormat) -> Self {
        match (format.root_of(&path), format) {
            (Some(root), TableFormat::Iceberg { snapshot, .. }) => {
                Self { root, format: TableFormat::Iceberg { metadata: Some(path), snapshot } }
            }
            (_, format) => Self { root: path, format },
        }
    }

    /// Whether it always has the same files.
    pub(super) fn is_pinned(&self) -> bool {
        match &self.format {
            TableFormat::Delta { version } => version.is_some(),
            TableFormat::Iceberg { metadata, snapshot } => snapshot.is_some() || metadata.is_some(),
        }
    }

    /// Reads the log, unless its version is among those `known`: then returns its index.
    pub(super) async fn read(
        &self,
        dataset: &str,
        store: &Store,
        known: Vec<TableState>,
    ) -> Result<Result<TableVersion, usize>, CatalogError> {
        let client = Arc::clone(store.client());
        let table = TableStore { client, root: self.root.clone(), record: metrics::storage_request };
        let (noun, read) = match &self.format {
            TableFormat::Delta { version } => ("version", delta::read(table, *version, known).await),
            TableFormat::Iceberg { metadata, snapshot } => {
                let (prefix, metadata) = (store.display(&Path::default()), metadata.as_ref());
                let request = IcebergRequest { prefix: &prefix, metadata, snapshot: *snapshot };
                ("snapshot", iceberg::read(table, request, &known).await)
            }
        };
        let read = read.map_err(|source| match source {
            LakeError::Storage { path, source } => CatalogError::of_store(dataset, store.error(&path, &source)),
            source => CatalogError::Table { dataset: dataset.to_owned(), source },
        })?;
        let (table, state) = match read {
            TableLog::Version(table, state) => (table, state),
            TableLog::Known(index) => return Ok(Err(index)),
        };
        if table.files.len() > store.files_max() {
            let root = store.display(&self.root);
            return Err(CatalogError::of_store(dataset, StoreError::too_many(&root, store.files_max())));
        }
        Ok(Ok(TableVersion::new(noun, table, state)))
    }
}

// === impl TableFormat ===

impl TableFormat {
    /// The folder of the table of a metadata file; `None` if a path does not name one.
    pub(super) fn root_of(&self, path: &Path) -> Option<Path> {
        match self {
            Self::Delta { .. } => None,
            Self::Iceberg { .. } => iceberg::root_of(path),
        }
    }
}
