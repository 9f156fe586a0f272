//! The documents of a packed output, computed from the rows that pass.

use std::{mem, sync::Arc};

use arrow::array::ArrayRef;
use forebay_kernels::{BatchBuilder, KernelError, Workspace};
use forebay_plan::PackedOutput;

use super::passing::Passing;
use crate::error::StreamError;

/// Computes documents, block by block.
pub(crate) struct Documents {
    output: Arc<PackedOutput>,
    workspace: Workspace,
}

impl Documents {
    pub(crate) fn new(output: &Arc<PackedOutput>) -> Self {
        Self { output: Arc::clone(output), workspace: Workspace::default() }
    }

    /// The lists of tokens of these rows. Computes: run it on the CPU pool.
    pub(crate) fn of(&mut self, passing: &Passing) -> Result<ArrayRef, StreamError> {
        self.compute(passing).map_err(|error| passing.locate(error))
    }

    fn compute(&mut self, passing: &Passing) -> Result<ArrayRef, KernelError> {
        let (program, count) = (Arc::clone(&self.output.documents), passing.rows.num_rows());
        let mut builder = BatchBuilder::new(program, count).reuse(mem::take(&mut self.workspace));
        builder.append(&passing.rows, 0..count)?;
        let (batch, workspace) = builder.finish_and_keep();
        self.workspace = workspace;
        Ok(Arc::clone(batch?.column(0)))
    }
}
