//! Errors of reading the log of a table.

/// Why a version of a table cannot be read. Messages name the file of the log, not the table.
#[derive(Clone, Debug, thiserror::Error)]
pub enum LakeError {
    /// There is no log at the location.
    #[error("{0}")]
    NotATable(String),
    /// The table does not have the version, or no longer.
    #[error("{0}")]
    NoVersion(String),
    /// The table needs a feature that this server does not support.
    #[error("{0}")]
    Unsupported(String),
    /// The build does not read the format.
    #[error("this forebay-server was built without its feature `lake`; `make build` builds it with every feature")]
    NotBuilt,
    /// A file of the version was removed.
    #[error("{0}")]
    Gone(String),
    /// The log is incomplete or damaged.
    #[error("{0}")]
    Corrupt(String),
    /// A storage request failed. Classified by the caller, which knows the settings of the store.
    #[error("{path}: {source}")]
    Storage {
        /// The path in the store.
        path: object_store::path::Path,
        /// The error of the store.
        source: std::sync::Arc<object_store::Error>,
    },
}
