//! Programs on an NVIDIA GPU.

use std::sync::Arc;

use forebay_kernels::{
    KernelError, Program,
    cuda::{self, DeviceError, DeviceProgram, Executor},
};

/// An open GPU.
#[derive(Clone, Debug)]
pub struct Gpu(Arc<cuda::Device>);

/// A program loaded on a GPU.
#[derive(Clone, Debug)]
pub(super) struct GpuProgram(Arc<DeviceProgram>);

/// An output batch that a GPU fills.
pub(super) type GpuBuilder = Box<Executor>;

impl Gpu {
    pub(super) fn open(number: usize) -> Result<Self, DeviceError> {
        let device = cuda::Device::open(number)?;
        tracing::info!(gpu = device.name(), "computing on cuda:{number}");
        Ok(Self(device))
    }

    /// Loads a program; none if no output runs on the GPU.
    pub(super) fn load(&self, program: &Arc<Program>, plan_id: &str) -> Option<GpuProgram> {
        match DeviceProgram::new(&self.0, program) {
            Ok(Some(loaded)) => {
                let (gpu, cpu) = loaded.outputs_by_place();
                tracing::info!(plan_id, ?gpu, ?cpu, "outputs by device");
                Some(GpuProgram(Arc::new(loaded)))
            }
            Ok(None) => {
                tracing::info!(plan_id, "the GPU runs no output of the plan, computing on the CPU");
                None
            }
            Err(error) => {
                tracing::warn!(plan_id, %error, "cannot load the plan on the GPU, computing on the CPU");
                None
            }
        }
    }
}

impl GpuProgram {
    /// An empty batch to be filled in order; none if GPU memory is exhausted.
    pub(super) fn builder(&self, rows: usize) -> Option<GpuBuilder> {
        boxed(Executor::new(Arc::clone(&self.0), rows))
    }

    /// An empty batch to be filled by scattering; none if GPU memory is exhausted.
    pub(super) fn scattered(&self, rows: usize) -> Option<GpuBuilder> {
        boxed(Executor::scattered(Arc::clone(&self.0), rows))
    }
}

fn boxed(executor: Result<Executor, KernelError>) -> Option<GpuBuilder> {
    executor
        .inspect_err(|error| tracing::warn!(%error, "computing a batch on the CPU: no GPU memory"))
        .ok()
        .map(Box::new)
}
