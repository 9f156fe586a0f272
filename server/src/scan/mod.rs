//! Row groups → Arrow arrays: fetch on the I/O threads, decode on the CPU pool.
//!
//! It reads the columns it is told to, of the row groups it is told to, and checks that the file is still the pinned
//! one. It knows nothing of plans, filters or order.

mod chunks;
mod fetch;
mod int96;
mod intervals;
mod packed;
mod pages;
mod projection;
mod reader;
mod statistics;
mod texts;

use arrow::datatypes::Schema;

pub use fetch::{SharedBytes, Sharing};
pub use projection::{CHUNK_ROWS_MAX, Projection};
pub use reader::{RowGroupReader, open, open_shared};
pub use statistics::statistics;

use crate::{
    budget::BudgetError,
    catalog::{RowGroup, Snapshot, StoreError},
    cpu_pool::CpuError,
};
use texts::Refusal;

/// Where an error happened.
#[derive(Clone, Debug)]
struct Place {
    file: String,
    row_group: usize,
}

/// Why a row group cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ScanError {
    /// Its bytes are not what the footer promises.
    #[error("file \"{file}\", row group {row_group}, {columns}: {reason}")]
    Corrupt {
        /// The file.
        file: String,
        /// The row group within the file.
        row_group: usize,
        /// The columns that were read.
        columns: String,
        /// What the decoder met.
        reason: String,
    },
    /// A value is sound, but not of those that its Arrow type can hold.
    #[error("file \"{file}\", row group {row_group}, column \"{column}\": {reason}")]
    OutOfRange {
        /// The file.
        file: String,
        /// The row group within the file.
        row_group: usize,
        /// The column, or the path of the field in it.
        column: String,
        /// The value, and what holds it.
        reason: String,
    },
    /// The file is not the one that the snapshot pinned.
    #[error(
        "snapshot changed: dataset \"{dataset}\": file \"{file}\" was replaced, truncated or deleted; ask for the flight \
         again to read the files as they are now"
    )]
    Changed {
        /// The dataset.
        dataset: String,
        /// The file.
        file: String,
    },
    /// Storage did not answer.
    #[error("file \"{file}\": storage: {source}")]
    Storage {
        /// The file.
        file: String,
        /// What it said.
        source: StoreError,
    },
    /// Decoding it takes memory that is not there.
    #[error("file \"{file}\", row group {row_group}, with larger pages or values than most: {source}")]
    Memory {
        /// The file.
        file: String,
        /// The row group within the file.
        row_group: usize,
        /// What is in the way.
        source: BudgetError,
    },
    /// The CPU pool did not answer.
    #[error(transparent)]
    Cpu(#[from] CpuError),
}

/// The error of a decoder that panicked on these columns of a row group.
pub fn panicked(snapshot: &Snapshot, row_group: &RowGroup, columns: &Schema, panic: &CpuError) -> ScanError {
    let place = Place { file: snapshot.file_of(row_group).display().to_owned(), row_group: row_group.index_in_file };
    place.corrupt(columns, panic.of_damage())
}

// === impl Place ===

impl Place {
    fn memory(&self, source: BudgetError) -> ScanError {
        ScanError::Memory { file: self.file.clone(), row_group: self.row_group, source }
    }

    fn refused(&self, refusal: Refusal) -> ScanError {
        match refusal {
            Refusal::Memory(source) => self.memory(source),
            Refusal::OutOfRange { column, reason } => self.out_of_range(column, reason),
        }
    }

    fn out_of_range(&self, column: String, reason: String) -> ScanError {
        ScanError::OutOfRange { file: self.file.clone(), row_group: self.row_group, column, reason }
    }

    fn corrupt(&self, schema: &Schema, reason: String) -> ScanError {
        // The decoder does not say which column; where one is read, it is that one.
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
