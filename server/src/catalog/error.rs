//! Errors of listing and opening datasets.

use super::store::{StoreError, StoreErrorKind};
use crate::{cpu_pool::CpuError, view::ViewError};

/// Why a dataset cannot be read.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CatalogError {
    /// No dataset has this name.
    #[error("no dataset \"{name}\" on this server: {near}")]
    Unknown {
        /// The requested name.
        name: String,
        /// Similar names, or all of them.
        near: String,
    },
    /// No files at the location, or none that the server may read. A retry does not help.
    #[error("dataset \"{dataset}\": {reason}")]
    Empty {
        /// The dataset.
        dataset: String,
        /// The missing file or pattern, or the denied access.
        reason: String,
    },
    /// Files of one dataset have different schemas.
    #[error("dataset \"{dataset}\": the schema of \"{file}\" differs from that of \"{first}\": {difference}")]
    SchemaDrift {
        /// The dataset.
        dataset: String,
        /// The file that differs.
        file: String,
        /// The file it was compared with.
        first: String,
        /// The first difference.
        difference: String,
    },
    /// A file is not readable as Parquet.
    #[error("dataset \"{dataset}\": file \"{file}\" is not a readable Parquet file: {reason}")]
    Corrupt {
        /// The dataset.
        dataset: String,
        /// The file.
        file: String,
        /// What the reader found.
        reason: String,
    },
    /// A link leads out of the dataset's directory.
    #[error("dataset \"{dataset}\": \"{file}\" is a link that leads out of the dataset's directory")]
    LinkOut {
        /// The dataset.
        dataset: String,
        /// The link.
        file: String,
    },
    /// The files differ from those of the snapshot.
    #[error("snapshot changed: dataset \"{dataset}\": {reason}; request the flight again to read the current files")]
    Changed {
        /// The dataset.
        dataset: String,
        /// The file or digest that changed.
        reason: String,
    },
    /// More files than a dataset may have.
    #[error("dataset \"{dataset}\": {reason}")]
    TooManyFiles {
        /// The dataset.
        dataset: String,
        /// The folder, and the limit.
        reason: String,
    },
    /// A storage request failed.
    #[error("dataset \"{dataset}\": storage: {source}")]
    Storage {
        /// The dataset.
        dataset: String,
        /// The error of the store.
        source: StoreError,
    },
    /// A view has no result.
    #[error("view \"{dataset}\": {source}")]
    View {
        /// The view.
        dataset: String,
        /// Why.
        source: ViewError,
    },
    /// The CPU pool failed.
    #[error(transparent)]
    Cpu(#[from] CpuError),
}

// === impl CatalogError ===

impl CatalogError {
    pub(super) fn of_store(dataset: &str, source: StoreError) -> Self {
        let dataset = dataset.to_owned();
        match source.kind {
            StoreErrorKind::Missing => Self::Empty { dataset, reason: source.to_string() },
            StoreErrorKind::TooMany => Self::TooManyFiles { dataset, reason: source.to_string() },
            StoreErrorKind::Changed | StoreErrorKind::Denied | StoreErrorKind::Failed => {
                Self::Storage { dataset, source }
            }
        }
    }
}
