//! Errors of listing and opening datasets.

use forebay_lake::LakeError;
use forebay_runtime::cpu_pool::CpuError;

use super::store::{StoreError, StoreErrorKind};
use crate::view::ViewError;

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
    /// No type holds the values that a column has in different files.
    #[error(
        "dataset \"{dataset}\": column \"{column}\" is {found} in \"{file}\" but {other} in \"{other_file}\", and no type \
         holds the values of both: convert one of the files, or pin a schema with --dataset-schema"
    )]
    SchemaDrift {
        /// The dataset.
        dataset: Box<str>,
        /// The column.
        column: Box<str>,
        /// Its type in a file.
        found: Box<str>,
        /// The file.
        file: Box<str>,
        /// Its type in an earlier file.
        other: Box<str>,
        /// The earlier file.
        other_file: Box<str>,
    },
    /// A pinned schema cannot hold the values of a file.
    #[error("dataset \"{dataset}\": column \"{column}\" is {found} in \"{file}\", and {pinned} in {pinned_by}")]
    PinnedDrift {
        /// The dataset.
        dataset: Box<str>,
        /// The column.
        column: Box<str>,
        /// Its type in the file.
        found: Box<str>,
        /// The file.
        file: Box<str>,
        /// Its type in the pinned schema.
        pinned: Box<str>,
        /// Where the pinned schema is from, and what to do.
        pinned_by: Box<str>,
    },
    /// The value of a folder is not of the type of its column.
    #[error(
        "dataset \"{dataset}\": the folder of \"{path}\" has the value \"{value}\" of column \"{column}\", which the type in \
         --dataset-schema cannot hold: {reason}"
    )]
    Partition {
        /// The dataset.
        dataset: Box<str>,
        /// The column.
        column: Box<str>,
        /// The value.
        value: Box<str>,
        /// The path of a file in the folder.
        path: Box<str>,
        /// Why.
        reason: Box<str>,
    },
    /// A catalog does not say where a table is, or places it where it must not be.
    #[error("dataset \"{dataset}\": {source}")]
    Lookup {
        /// The dataset.
        dataset: String,
        /// The error of the catalog.
        source: StoreError,
    },
    /// The log of a lake table does not describe the version.
    #[error("dataset \"{dataset}\": {source}")]
    Table {
        /// The dataset.
        dataset: String,
        /// Why.
        source: LakeError,
    },
    /// A file of a version of a lake table was removed or replaced.
    #[error(
        "snapshot changed: dataset \"{dataset}\": file \"{file}\" of {version} of the table {reason}: restore it, \
         or read a newer version"
    )]
    Gone {
        /// The dataset.
        dataset: Box<str>,
        /// The file.
        file: Box<str>,
        /// The version.
        version: Box<str>,
        /// What happened to it.
        reason: Box<str>,
    },
    /// A file is not readable.
    #[error("dataset \"{dataset}\": file \"{file}\" is not a readable Parquet or Arrow file: {reason}")]
    Corrupt {
        /// The dataset.
        dataset: String,
        /// The file.
        file: String,
        /// What the reader found.
        reason: String,
    },
    /// A valid file is of a form that is not read.
    #[error("dataset \"{dataset}\": file \"{file}\" is not served: {reason}")]
    Unserved {
        /// The dataset.
        dataset: String,
        /// The file.
        file: String,
        /// Its form, and what to do.
        reason: String,
    },
    /// A link leads out of the dataset's directory.
    #[error("dataset \"{dataset}\": \"{file}\" is, or is below, a link that leads out of the dataset's directory")]
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
    /// Another process cannot read the snapshot.
    #[error("dataset \"{dataset}\" cannot be read by other processes: {reason}")]
    Unsent {
        /// The dataset.
        dataset: String,
        /// Why.
        reason: String,
    },
    /// The CPU pool failed.
    #[error(transparent)]
    Cpu(#[from] CpuError),
}

// === impl CatalogError ===

impl CatalogError {
    /// The error of a store while a file was opened.
    pub(super) fn of_opening(dataset: &str, file: &str, source: StoreError) -> Self {
        if !source.is_change() {
            return Self::of_store(dataset, source);
        }
        let reason = format!("file \"{file}\" was replaced or deleted while its footer was read");
        Self::Changed { dataset: dataset.to_owned(), reason }
    }

    pub(super) fn of_store(dataset: &str, source: StoreError) -> Self {
        let dataset = dataset.to_owned();
        match source.kind {
            StoreErrorKind::Missing => Self::Empty { dataset, reason: source.to_string() },
            StoreErrorKind::TooMany => Self::TooManyFiles { dataset, reason: source.to_string() },
            StoreErrorKind::Changed | StoreErrorKind::Denied | StoreErrorKind::Outside | StoreErrorKind::Failed => {
                Self::Storage { dataset, source }
            }
        }
    }
}
