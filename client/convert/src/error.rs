//! Why files are not converted.

use std::{fmt, io, path::PathBuf};

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
    #[error("\"{}\", {place}{}: {reason}", path.display(), in_column(column.as_deref()))]
    Value {
        /// The file.
        path: PathBuf,
        /// The record.
        place: Place,
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

/// A record of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// The line where it begins, from 1.
    Line(u64),
    /// Its number, from 1.
    Record(u64),
    /// The name of the entry of an archive, or of the file of a folder.
    Entry(String),
    /// The key of a sample of several entries.
    Sample(String),
}

// === impl ConvertError ===

impl ConvertError {
    /// Whether the command line is at fault.
    pub fn is_usage(&self) -> bool {
        matches!(self, Self::Usage(_))
    }
}

// === impl Place ===

impl fmt::Display for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line(number) => write!(formatter, "line {number}"),
            Self::Record(number) => write!(formatter, "record {number}"),
            Self::Entry(name) => write!(formatter, "entry \"{}\"", name.escape_debug()),
            Self::Sample(key) => write!(formatter, "sample \"{}\"", key.escape_debug()),
        }
    }
}

fn in_column(column: Option<&str>) -> String {
    column.map(|column| format!(", column \"{column}\"")).unwrap_or_default()
}
