//! Lake tables: the files, the schema and the deleted rows of one version of a table, read from its log.
//!
//! This crate reads logs, manifests and delete files. It never reads rows of data files, and returns plain data: no
//! Arrow array crosses its boundary. The catalog of the server opens the files that it names.
#![forbid(unsafe_code)]

pub mod delta;
mod error;
mod folders;
pub mod iceberg;
mod store;
mod table;

pub use error::LakeError;
pub use folders::TableFolders;
pub use store::{RecordRequest, TableStore, path_in_store};
pub use table::{Column, ColumnKey, FilePath, LakeTable, StoredAs, TableFile, TableLog, TableState};
