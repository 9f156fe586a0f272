//! Errors of reading row groups, with the file, row group and columns that they concern.

use arrow::datatypes::Schema;
use forebay_catalog::{RowGroup, Snapshot, StoreError};
use forebay_runtime::{budget::BudgetError, cpu_pool::CpuError};

use super::decode_memory::DecodeError;

/// The file and row group that errors name.
#[derive(Clone, Debug)]
pub(super) struct ErrorContext {
    pub(super) file: String,
    pub(super) row_group: usize,
}

/// Why a row group cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ScanError {
    /// The bytes differ from what the footer declares.
    #[error("file \"{file}\", row group {row_group}, {columns}: {reason}")]
    Corrupt {
        /// The file.
        file: String,
        /// The row group within the file.
        row_group: usize,
        /// The columns that were read.
        columns: String,
        /// What the decoder found.
        reason: String,
    },
    /// A valid value that its Arrow type cannot hold.
    #[error("file \"{file}\", row group {row_group}, column \"{column}\": {reason}")]
    OutOfRange {
        /// The file.
        file: String,
        /// The row group within the file.
        row_group: usize,
        /// The column, or the path of the field in it.
        column: String,
        /// The value, and the type or flag that can hold it.
        reason: String,
    },
    /// The file is not the one that the snapshot pinned.
    #[error(
        "snapshot changed: dataset \"{dataset}\": file \"{file}\"{of_version} was replaced, truncated or deleted; request \
         the flight again to read the current files"
    )]
    Changed {
        /// The dataset.
        dataset: String,
        /// The file.
        file: String,
        /// The version of the lake table that has the file; else nothing.
        of_version: String,
    },
    /// A storage request failed.
    #[error("file \"{file}\": storage: {source}")]
    Storage {
        /// The file.
        file: String,
        /// The error of the store.
        source: StoreError,
    },
    /// Decoding needs more memory than is available.
    #[error("file \"{file}\", row group {row_group}, which has large pages or values: {source}")]
    Memory {
        /// The file.
        file: String,
        /// The row group within the file.
        row_group: usize,
        /// The request and the limit.
        source: BudgetError,
    },
    /// The CPU pool failed.
    #[error(transparent)]
    Cpu(#[from] CpuError),
}

/// The error of a decoder that panicked while it read these columns of a row group.
pub fn panicked(snapshot: &Snapshot, row_group: &RowGroup, columns: &Schema, panic: &CpuError) -> ScanError {
    let context =
        ErrorContext { file: snapshot.file_of(row_group).display().to_owned(), row_group: row_group.index_in_file };
    context.corrupt(columns, panic.of_damage())
}

// === impl ErrorContext ===

impl ErrorContext {
    pub(super) fn memory(&self, source: BudgetError) -> ScanError {
        ScanError::Memory { file: self.file.clone(), row_group: self.row_group, source }
    }

    pub(super) fn decode(&self, error: DecodeError) -> ScanError {
        match error {
            DecodeError::Memory(source) => self.memory(source),
            DecodeError::OutOfRange { column, reason } => self.out_of_range(column, reason),
        }
    }

    pub(super) fn out_of_range(&self, column: String, reason: String) -> ScanError {
        ScanError::OutOfRange { file: self.file.clone(), row_group: self.row_group, column, reason }
    }

    pub(super) fn corrupt(&self, schema: &Schema, reason: String) -> ScanError {
        // The decoder does not report the column; if only one is read, it is that one.
        let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).take(8).collect();
        let columns = match names.as_slice() {
            [] => "some column".to_owned(),
            [one] => format!("column \"{one}\""),
            many => {
                format!("one of the columns {}{}", many.join(", "), if schema.fields().len() > 8 { ", …" } else { "" })
            }
        };
        ScanError::Corrupt { file: self.file.clone(), row_group: self.row_group, columns, reason }
    }
}
