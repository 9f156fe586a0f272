//! The lake table of a dataset: its format, and what to read of it.

use forebay_lake::{IcebergRequest, LakeError, TableFolders, TableLog, TableState, TableStore, delta, iceberg};
use forebay_runtime::metrics;
use object_store::path::Path;

use super::{
    error::CatalogError,
    lake::TableVersion,
    store::{Store, StoreError, StoreErrorKind},
};

/// The table of a dataset, and the version of it.
#[derive(Clone, Debug)]
pub(super) struct LakeSpec {
    /// The folder of the table, and further ones that its files may be in.
    pub folders: TableFolders,
    format: TableFormat,
}

/// The format of a table, and what to read of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TableFormat {
    /// A version of a Delta table; none: the newest.
    Delta { version: Option<u64> },
    /// A snapshot of an Iceberg table, in a metadata file; none: the current ones.
    Iceberg { metadata: Option<Path>, snapshot: Option<i64> },
}

// === impl LakeSpec ===

impl LakeSpec {
    /// A table in a folder or, for an Iceberg table, the table of a metadata file.
    pub(super) fn new(path: Path, format: TableFormat, further: Vec<Path>) -> Self {
        match (format.root_of(&path), format) {
            (Some(root), TableFormat::Iceberg { snapshot, .. }) => {
                let format = TableFormat::Iceberg { metadata: Some(path), snapshot };
                Self { folders: TableFolders { root, further }, format }
            }
            (_, format) => Self { folders: TableFolders { root: path, further }, format },
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
        let folders = store.with_real_folders(self.folders.clone()).await;
        let (client, url) = (store.confined(&folders), store.display(&Path::default()));
        let table = TableStore { client, url, folders, record: metrics::storage_request };
        let (noun, read) = match &self.format {
            TableFormat::Delta { version } => ("version", delta::read(table, *version, known).await),
            TableFormat::Iceberg { metadata, snapshot } => {
                let request = IcebergRequest { metadata: metadata.as_ref(), snapshot: *snapshot };
                ("snapshot", iceberg::read(table, request, &known).await)
            }
        };
        let read = read.map_err(|source| match source {
            LakeError::Storage { path, source } => match store.error(&path, &source) {
                error if error.kind == StoreErrorKind::Outside => {
                    CatalogError::LinkOut { dataset: dataset.to_owned(), file: store.display(&path) }
                }
                error => CatalogError::of_store(dataset, error),
            },
            source => CatalogError::Table { dataset: dataset.to_owned(), source },
        })?;
        let (table, state) = match read {
            TableLog::Version(table, state) => (table, state),
            TableLog::Known(index) => return Ok(Err(index)),
        };
        if table.files.len() > store.files_max() {
            let root = store.display(&self.folders.root);
            return Err(CatalogError::of_store(dataset, StoreError::too_many(&root, store.files_max())));
        }
        Ok(Ok(TableVersion::new(noun, table, state)))
    }
}

// === impl TableFormat ===

impl TableFormat {
    /// An error if this build does not read the format.
    pub(super) fn check_built(&self) -> Result<(), String> {
        let is_built = match self {
            Self::Delta { .. } => delta::IS_BUILT,
            Self::Iceberg { .. } => iceberg::IS_BUILT,
        };
        if is_built { Ok(()) } else { Err(LakeError::NotBuilt.to_string()) }
    }

    /// The folder of the table of a metadata file; `None` if a path does not name one.
    pub(super) fn root_of(&self, path: &Path) -> Option<Path> {
        match self {
            Self::Delta { .. } => None,
            Self::Iceberg { .. } => iceberg::root_of(path),
        }
    }
}
