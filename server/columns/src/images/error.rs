//! Errors of the images of rows, worded for the author of the plan.

use arrow::error::ArrowError;
use forebay_media::ImageProblem;
use forebay_runtime::{budget::BudgetError, cpu_pool::CpuError};

/// Why rows have no tensors.
#[derive(Debug, thiserror::Error)]
pub enum ImagesError {
    /// An image cannot be decoded.
    #[error("column {column:?}, row {row}: {problem}; decode_image with on_error NULL or SKIP accepts such rows")]
    Image {
        /// The column.
        column: String,
        /// The row.
        row: usize,
        /// The reason.
        problem: ImageProblem,
    },
    /// The memory budget has no room for an image.
    #[error("column {column:?}, row {row}: decoding an image of {width} × {height} pixels {source}")]
    Memory {
        /// The column.
        column: String,
        /// The row.
        row: usize,
        /// The image's width.
        width: u32,
        /// Its height.
        height: u32,
        /// The numbers.
        source: BudgetError,
    },
    /// The memory budget has no room for the tensors of a block of rows.
    #[error("column {column:?}: storing {rows} tensors {source}")]
    Tensors {
        /// The column.
        column: String,
        /// The number of rows.
        rows: usize,
        /// The numbers.
        source: BudgetError,
    },
    /// Arrow rejected valid arrays: a bug.
    #[error("arrow: {0}")]
    Arrow(#[from] ArrowError),
    /// The CPU pool ended without a result.
    #[error(transparent)]
    Cpu(#[from] CpuError),
}

impl ImagesError {
    /// The same error with its row, if it has one, replaced.
    #[must_use]
    pub fn map_row(mut self, map: impl FnOnce(usize) -> usize) -> Self {
        if let Self::Image { row, .. } | Self::Memory { row, .. } = &mut self {
            *row = map(*row);
        }
        self
    }
}
