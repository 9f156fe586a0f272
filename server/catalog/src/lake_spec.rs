//! The lake table of a dataset: its format, and what to read of it.

use std::sync::Arc;

use forebay_lake::{
    IcebergRequest, LakeError, TableFolders, TableLog, TableState, TableStore, delta, iceberg, literal_path,
};
use forebay_runtime::metrics;
use object_store::path::Path;

use super::{
    error::CatalogError,
    lake::TableVersion,
    lake_catalog::{CatalogTable, TableKind},
    store::{Store, StoreError, StoreErrorKind},
};

/// The table of a dataset, and the version of it.
#[derive(Clone, Debug)]
pub(super) struct LakeSpec {
    /// The folder of the table, and further ones that its files may be in; for the table of a catalog, those in which the
    /// catalog may place it, and further ones.
    pub folders: TableFolders,
    format: TableFormat,
    /// What knows where the table is.
    catalog: Option<Arc<CatalogTable>>,
}

/// Where a table is now.
#[derive(Debug)]
struct TablePlace {
    folders: TableFolders,
    /// The metadata file of an Iceberg table; none: the current one of its folder.
    metadata: Option<Path>,
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
                Self { folders: TableFolders { root, further }, format, catalog: None }
            }
            (_, format) => Self { folders: TableFolders { root: path, further }, format, catalog: None },
        }
    }

    /// A table of a catalog in one of these folders.
    pub(super) fn of_catalog(catalog: CatalogTable, folders: TableFolders, format: TableFormat) -> Self {
        Self { folders, format, catalog: Some(Arc::new(catalog)) }
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
        let place = self.place(dataset, store).await?;
        let folders = store.with_real_folders(place.folders.clone()).await;
        let (client, url) = (store.confined(&folders), store.display(&Path::default()));
        let table = TableStore { client, url, folders, record: metrics::storage_request };
        let (noun, read) = match &self.format {
            TableFormat::Delta { version } => ("version", delta::read(table, *version, known).await),
            TableFormat::Iceberg { snapshot, .. } => {
                let request = IcebergRequest { metadata: place.metadata.as_ref(), snapshot: *snapshot };
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
            let root = store.display(&place.folders.root);
            return Err(CatalogError::of_store(dataset, StoreError::too_many(&root, store.files_max())));
        }
        Ok(Ok(TableVersion::new(noun, table, state, place.folders)))
    }

    /// Where the table is now: a catalog may have moved it, but not out of the folders that the operator names.
    async fn place(&self, dataset: &str, store: &Store) -> Result<TablePlace, CatalogError> {
        let Some(catalog) = &self.catalog else {
            let metadata = match &self.format {
                TableFormat::Delta { .. } => None,
                TableFormat::Iceberg { metadata, .. } => metadata.clone(),
            };
            return Ok(TablePlace { folders: self.folders.clone(), metadata });
        };
        let lookup = |source| CatalogError::Lookup { dataset: dataset.to_owned(), source };
        let url = catalog.look_up().await.map_err(lookup)?;
        let refused = |reason: String| lookup(StoreError::denied(format!("{catalog} is at \"{url}\", {reason}")));
        let path = literal_path(store.url(), &url).map_err(|_| {
            refused(format!("which is not in the store of @root, {}: name the folder of the warehouse", store.url()))
        })?;
        let (root, metadata) = match self.format.kind() {
            TableKind::Delta => (path, None),
            TableKind::Iceberg => {
                let root = self.format.root_of(&path);
                (root.ok_or_else(|| refused("which is not the name of a metadata file".to_owned()))?, Some(path))
            }
        };
        if !self.folders.contain(&root) {
            return Err(refused("which is in no folder that @root names: name the folder of the warehouse".to_owned()));
        }
        store.check_in(&self.folders, &root).await.map_err(|error| match error.kind {
            StoreErrorKind::Outside => {
                CatalogError::LinkOut { dataset: dataset.to_owned(), file: store.display(&root) }
            }
            _ => lookup(error),
        })?;
        // A folder that contains the table, such as that of the warehouse, has other tables, too: they are not read.
        let further = [&self.folders.root].into_iter().chain(&self.folders.further);
        let further = further.filter(|folder| !TableFolders::of((*folder).clone()).contain(&root)).cloned().collect();
        Ok(TablePlace { folders: TableFolders { root, further }, metadata })
    }
}

// === impl TableFormat ===

impl TableFormat {
    /// Without what to read of it.
    pub(super) fn kind(&self) -> TableKind {
        match self {
            Self::Delta { .. } => TableKind::Delta,
            Self::Iceberg { .. } => TableKind::Iceberg,
        }
    }

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
