//! The device that kernels run on: the CPU, or the GPU that `--device` names. Both compute the same batches.

#[cfg(feature = "cuda")]
mod cuda;
#[cfg(not(feature = "cuda"))]
mod without;

use std::{fmt, ops::Range, sync::Arc};

use arrow::array::RecordBatch;
use forebay_kernels::{BatchBuilder, KernelError, Program, Workspace as CpuWorkspace};

#[cfg(feature = "cuda")]
use cuda::{Gpu, GpuBuilder, GpuProgram, GpuWorkspace};
#[cfg(not(feature = "cuda"))]
use without::{Gpu, GpuBuilder, GpuProgram, GpuWorkspace};

/// A device by the name of `--device`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceName {
    /// The CPU.
    Cpu,
    /// The GPU with this number.
    Cuda(usize),
}

/// A device that is ready.
#[derive(Clone, Debug)]
pub enum Device {
    /// The CPU.
    Cpu,
    /// A GPU.
    Gpu(Gpu),
}

/// A program loaded on a device.
#[derive(Clone, Debug)]
pub(crate) struct Executable {
    program: Arc<Program>,
    on_gpu: Option<GpuProgram>,
}

/// An output batch that is being filled.
#[derive(Debug)]
pub(super) struct Builder {
    filling: Filling,
    /// The workspace of the device that is not used.
    kept: Workspace,
}

#[derive(Debug)]
enum Filling {
    Cpu(BatchBuilder),
    Gpu(GpuBuilder),
}

/// Memory that builders of one program hand on from batch to batch.
#[derive(Debug, Default)]
pub(crate) struct Workspace {
    cpu: CpuWorkspace,
    gpu: GpuWorkspace,
}

// === impl DeviceName, Device ===

impl fmt::Display for DeviceName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu => formatter.write_str("cpu"),
            Self::Cuda(number) => write!(formatter, "cuda:{number}"),
        }
    }
}

impl Device {
    /// Opens a device. If that fails, logs why and returns the CPU.
    pub fn open(name: DeviceName) -> Self {
        match name {
            DeviceName::Cpu => Self::Cpu,
            DeviceName::Cuda(number) => Gpu::open(number).map_or_else(
                |reason| {
                    tracing::warn!("cannot use --device {name}, computing on the CPU: {reason}");
                    Self::Cpu
                },
                Self::Gpu,
            ),
        }
    }

    /// Loads a program. The CPU runs the outputs that the device cannot run.
    pub(super) fn load(&self, program: &Arc<Program>, plan_id: &str) -> Executable {
        let on_gpu = match self {
            Self::Cpu => None,
            Self::Gpu(gpu) => gpu.load(program, plan_id),
        };
        Executable { program: Arc::clone(program), on_gpu }
    }
}

// === impl Executable ===

impl Executable {
    /// An empty batch with room for `rows`, to be filled in order, with the workspace of the previous batch.
    pub(super) fn builder(&self, rows: usize, workspace: Workspace) -> Builder {
        self.empty(rows, false, workspace)
    }

    /// An empty batch with room for `rows`, to be filled by [`Builder::scatter`], with the workspace of the previous
    /// batch.
    pub(super) fn scattered(&self, rows: usize, workspace: Workspace) -> Builder {
        self.empty(rows, true, workspace)
    }

    fn empty(&self, rows: usize, is_scattered: bool, workspace: Workspace) -> Builder {
        let Workspace { cpu, mut gpu } = workspace;
        let on_gpu = self.on_gpu.as_ref().and_then(|program| program.builder(rows, is_scattered, &mut gpu));
        if let Some(filling) = on_gpu {
            return Builder { filling: Filling::Gpu(filling), kept: Workspace { cpu, gpu } };
        }
        let program = Arc::clone(&self.program);
        let filling =
            if is_scattered { BatchBuilder::scattered(program, rows) } else { BatchBuilder::new(program, rows) };
        let kept = Workspace { cpu: CpuWorkspace::default(), gpu };
        Builder { filling: Filling::Cpu(filling.reuse(cpu)), kept }
    }
}

// === impl Builder ===

impl Builder {
    /// Whether the finished batch may be in memory of a GPU's driver.
    pub(super) fn is_on_gpu(&self) -> bool {
        matches!(self.filling, Filling::Gpu(_))
    }

    /// The number of rows.
    pub(super) fn len(&self) -> usize {
        match &self.filling {
            Filling::Cpu(builder) => builder.len(),
            Filling::Gpu(builder) => builder.len(),
        }
    }

    /// The number of rows that fit.
    pub(super) fn capacity(&self) -> usize {
        match &self.filling {
            Filling::Cpu(builder) => builder.capacity(),
            Filling::Gpu(builder) => builder.capacity(),
        }
    }

    /// Whether no more rows fit.
    pub(super) fn is_full(&self) -> bool {
        self.len() == self.capacity()
    }

    /// Computes rows into the next free ones.
    pub(super) fn append(&mut self, batch: &RecordBatch, rows: Range<usize>) -> Result<(), KernelError> {
        match &mut self.filling {
            Filling::Cpu(builder) => builder.append(batch, rows),
            Filling::Gpu(builder) => builder.append(batch, rows),
        }
    }

    /// Computes the i-th of `rows` into row `places[i]`.
    pub(super) fn scatter(
        &mut self,
        batch: &RecordBatch,
        rows: Range<usize>,
        places: &[u32],
    ) -> Result<(), KernelError> {
        match &mut self.filling {
            Filling::Cpu(builder) => builder.scatter(batch, rows, places),
            Filling::Gpu(builder) => builder.scatter(batch, rows, places),
        }
    }

    /// Copies rows that a builder of the same program finished into the next free ones.
    pub(super) fn append_finished(&mut self, finished: &RecordBatch, rows: Range<usize>) -> Result<(), KernelError> {
        match &mut self.filling {
            Filling::Cpu(builder) => builder.append_finished(finished, rows),
            Filling::Gpu(builder) => builder.append_finished(finished, rows),
        }
    }

    /// Copies the i-th of `rows` of such a batch to row `places[i]`.
    pub(super) fn scatter_finished(
        &mut self,
        finished: &RecordBatch,
        rows: Range<usize>,
        places: &[u32],
    ) -> Result<(), KernelError> {
        match &mut self.filling {
            Filling::Cpu(builder) => builder.scatter_finished(finished, rows, places),
            Filling::Gpu(builder) => builder.scatter_finished(finished, rows, places),
        }
    }

    /// The batch, and a workspace for the next one.
    pub(super) fn finish(self) -> (Result<RecordBatch, KernelError>, Workspace) {
        let Self { filling, mut kept } = self;
        match filling {
            Filling::Cpu(builder) => {
                let (batch, cpu) = builder.finish_and_keep();
                kept.cpu = cpu;
                (batch, kept)
            }
            Filling::Gpu(builder) => {
                let (batch, gpu) = builder.finish();
                kept.gpu = gpu;
                (batch, kept)
            }
        }
    }
}
