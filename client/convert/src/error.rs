//! Why files are not converted.

use std::{io, path::PathBuf};

use arrow::error::ArrowError;
use parquet::errors::ParquetError;

/// Why files are not converted. Nothing is written in any case.
#[derive(Debug, thiserror::Error)]
pub enum ConvertError {
    /// The options do not fit each other or the files.
    #[error("{0}")]
    Usage(String),
    /// A path cannot be read.
    #[error("cannot read \"{}\"", path.display())]
    Read {
        /// The file or folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A value or record is not what its column or file requires.
    #[error("\"{}\", line {line}{}: {reason}", path.display(), in_column(column.as_deref()))]
    Value {
        /// The file.
        path: PathBuf,
        /// The line where the record begins, from 1.
        line: u64,
        /// The path of the column, if one is at fault.
        column: Option<String>,
        /// What is wrong, and what to do.
        reason: String,
    },
    /// A file as a whole is not what its format requires.
    #[error("\"{}\": {reason}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong, and what to do.
        reason: String,
    },
    /// The result cannot be encoded.
    #[error("cannot encode the result")]
    Encode(#[source] ParquetError),
    /// The types of the result do not hold the values.
    #[error("cannot convert a batch")]
    Batch(#[source] ArrowError),
    /// The folder of the result cannot be used.
    #[error("--out \"{}\": {reason}", path.display())]
    Out {
        /// The folder.
        path: PathBuf,
        /// Why, and what to do.
        reason: String,
    },
    /// A signal ended the conversion.
    #[error("stopped: nothing was written")]
    Stopped,
    /// A library failed in an unforeseen way.
    #[error("the reader failed: {0}")]
    Reader(String),
}

// === impl ConvertError ===

impl ConvertError {
    /// Whether the command line is at fault.
    pub fn is_usage(&self) -> bool {
        matches!(self, Self::Usage(_))
    }
}

fn in_column(column: Option<&str>) -> String {
    column.map(|column| format!(", column \"{column}\"")).unwrap_or_default()
}
