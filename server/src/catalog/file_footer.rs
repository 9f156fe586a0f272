//! What the footer of a file says, in one form for all formats.

use std::{fmt, sync::Arc};

use arrow::datatypes::{DataType, Field, Schema};
use parquet::{arrow::arrow_reader::ArrowReaderMetadata, schema::types::SchemaDescPtr};

use super::{arrow_layout::ArrowLayout, error::CatalogError};

/// The parsed footer of a file and the schemas to read it with.
#[derive(Clone, Debug)]
pub(super) struct Footer {
    /// Every column as stored.
    pub stored: ArrowReaderMetadata,
    /// As stored, but with int32 dictionary keys: a batch merges dictionaries of several row groups and files, which
    /// need one key type.
    pub wide: ArrowReaderMetadata,
    /// The schema as the decoder reads it.
    pub decoded: SchemaDescPtr,
    /// Whether the parts of intervals are signed. Parquet specifies unsigned parts, but Arrow's own writer, recognized
    /// by its embedded schema, writes signed ones.
    pub has_signed_intervals: bool,
    /// A digest of the footer bytes.
    pub digest: String,
    /// Of an Arrow IPC file, where its buffers are: the metadata describes it as if it were Parquet.
    pub arrow: Option<Arc<ArrowLayout>>,
}

/// Why a file cannot be opened.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum FileError {
    /// Its bytes contradict its format.
    Corrupt(String),
    /// It is valid, but of a form that is not read: what to do.
    Unserved(String),
}

// === impl FileError ===

impl FileError {
    /// The error of a file of a dataset.
    pub(super) fn of_file(self, dataset: &str, file: &str) -> CatalogError {
        let (dataset, file) = (dataset.to_owned(), file.to_owned());
        match self {
            Self::Corrupt(reason) => CatalogError::Corrupt { dataset, file, reason },
            Self::Unserved(reason) => CatalogError::Unserved { dataset, file, reason },
        }
    }

    /// The same error, which is in a part of the file.
    pub(super) fn within(self, part: &str) -> Self {
        match self {
            Self::Corrupt(reason) => Self::Corrupt(format!("{part}: {reason}")),
            Self::Unserved(reason) => Self::Unserved(format!("{part}: {reason}")),
        }
    }
}

impl From<String> for FileError {
    fn from(reason: String) -> Self {
        Self::Corrupt(reason)
    }
}

impl From<&str> for FileError {
    fn from(reason: &str) -> Self {
        Self::Corrupt(reason.to_owned())
    }
}

impl fmt::Display for FileError {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        let (Self::Corrupt(reason) | Self::Unserved(reason)) = self;
        formatter.write_str(reason)
    }
}

/// A schema as plans read it: with int32 dictionary keys.
pub(super) fn wide(schema: &Schema) -> Schema {
    let fields: Vec<Arc<Field>> = schema.fields().iter().map(wide_keys).collect();
    Schema::new_with_metadata(fields, schema.metadata().clone())
}

fn wide_keys(field: &Arc<Field>) -> Arc<Field> {
    match field.data_type() {
        DataType::Dictionary(keys, values) if **keys != DataType::Int32 => {
            let wide = DataType::Dictionary(Box::new(DataType::Int32), values.clone());
            Arc::new(field.as_ref().clone().with_data_type(wide))
        }
        _ => Arc::clone(field),
    }
}
