//! Counterpart of `cuda` for builds without the feature: no GPU opens, and its types have no values.

use std::{ops::Range, sync::Arc};

use arrow::array::RecordBatch;
use forebay_kernels::{KernelError, Program};

/// An open GPU.
#[derive(Clone, Debug)]
pub enum Gpu {}

/// A program loaded on a GPU.
#[derive(Clone, Debug)]
pub(super) enum GpuProgram {}

/// An output batch that a GPU fills.
#[derive(Debug)]
pub(crate) enum GpuBuilder {}

/// What builders of one program hand on from batch to batch.
pub(super) type GpuWorkspace = ();

impl Gpu {
    pub(super) fn open(_: usize) -> Result<Self, &'static str> {
        Err("this forebay-server was built without its feature `cuda`; `make build` builds it with every feature")
    }

    pub(super) fn load(&self, _: &Arc<Program>, _: &str) -> Option<GpuProgram> {
        match *self {}
    }
}

impl GpuProgram {
    pub(super) fn builder(&self, _: usize, _: bool, (): &mut GpuWorkspace) -> Option<GpuBuilder> {
        match *self {}
    }
}

impl GpuBuilder {
    pub(super) fn len(&self) -> usize {
        match *self {}
    }

    pub(super) fn capacity(&self) -> usize {
        match *self {}
    }

    pub(super) fn append(&mut self, _: &RecordBatch, _: Range<usize>) -> Result<(), KernelError> {
        match *self {}
    }

    pub(super) fn scatter(&mut self, _: &RecordBatch, _: Range<usize>, _: &[u32]) -> Result<(), KernelError> {
        match *self {}
    }

    pub(super) fn append_finished(&mut self, _: &RecordBatch, _: Range<usize>) -> Result<(), KernelError> {
        match *self {}
    }

    pub(super) fn scatter_finished(&mut self, _: &RecordBatch, _: Range<usize>, _: &[u32]) -> Result<(), KernelError> {
        match *self {}
    }

    pub(super) fn finish(self) -> (Result<RecordBatch, KernelError>, GpuWorkspace) {
        match self {}
    }
}
