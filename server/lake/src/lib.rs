//! Lake tables: the files, the schema and the deleted rows of one version of a table, read from its log.
//!
//! This crate reads logs, manifests and delete files. It never reads rows of data files, and returns plain data: no
//! Arrow array crosses its boundary. The catalog of the server opens the files that it names.
#![forbid(unsafe_code)]

#[cfg(not(all(feature = "delta", feature = "iceberg")))]
mod absent;
#[cfg(feature = "delta")]
pub mod delta;
mod error;
mod folders;
#[cfg(feature = "iceberg")]
pub mod iceberg;
mod request;
mod store;
mod table;

#[cfg(not(feature = "delta"))]
pub use absent::delta;
#[cfg(not(feature = "iceberg"))]
pub use absent::iceberg;
pub use error::LakeError;
pub use folders::TableFolders;
pub use request::IcebergRequest;
pub use store::{RecordRequest, TableStore, UrlError, literal_path, path_in_store};
pub use table::{Column, ColumnKey, FilePath, LakeTable, LogValue, StoredAs, TableFile, TableLog, TableState};
