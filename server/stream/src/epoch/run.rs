//! Runs: passing rows of one block, to be computed into a batch or copied from the cache.

use std::ops::Range;

use arrow::array::RecordBatch;

use crate::{device::Builder, error::StreamError, rows::passing::Passing};

/// Passing rows of a block.
pub(crate) struct Run {
    pub rows: RunRows,
    pub range: Range<usize>,
}

/// The passing rows of a block. Cheap to clone.
#[derive(Clone)]
pub(crate) enum RunRows {
    /// Stored rows, to be computed.
    Stored(Passing),
    /// Rows that the kernels have computed.
    Finished(RecordBatch),
}

// === impl Run, RunRows ===

impl Run {
    /// Adds rows of the block to a batch, in order.
    pub(crate) fn append_to(&self, builder: &mut Builder, rows: Range<usize>) -> Result<(), StreamError> {
        match &self.rows {
            RunRows::Stored(block) => builder.append(&block.rows, rows).map_err(|error| block.locate(error)),
            RunRows::Finished(block) => Ok(builder.append_finished(block, rows)?),
        }
    }

    /// Adds the i-th of the run's rows to a batch at `places[i]`.
    pub(crate) fn scatter_to(self, builder: &mut Builder, places: &[u32]) -> Result<(), StreamError> {
        match self.rows {
            RunRows::Stored(block) => {
                builder.scatter(&block.rows, self.range, places).map_err(|error| block.locate(error))
            }
            RunRows::Finished(block) => Ok(builder.scatter_finished(&block, self.range, places)?),
        }
    }
}

impl RunRows {
    /// The number of rows.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Stored(block) => block.rows.num_rows(),
            Self::Finished(block) => block.num_rows(),
        }
    }
}
