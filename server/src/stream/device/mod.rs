//! Where the kernels run: on the CPU, or on the GPU that `--device` names. The same batches come out of both.

use std::{fmt, ops::Range, sync::Arc};

use arrow::array::RecordBatch;
use forebay_kernels::{BatchBuilder, KernelError, Program, Workspace};

#[cfg(feature = "cuda")]
use forebay_kernels::cuda;

/// A device as the operator names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceName {
    /// The CPU.
    Cpu,
    /// The GPU of that number.
    Cuda(usize),
}

/// A device that is ready.
#[derive(Clone, Debug)]
pub enum Device {
    /// The CPU.
    Cpu,
    /// A GPU.
    #[cfg(feature = "cuda")]
    Cuda(Arc<cuda::Device>),
}

/// A program where it runs.
#[derive(Clone, Debug)]
pub(crate) enum Placed {
    Cpu(Arc<Program>),
    #[cfg(feature = "cuda")]
    Cuda {
        program: Arc<Program>,
        on_device: Arc<cuda::DeviceProgram>,
    },
}

/// One output batch being filled.
#[derive(Debug)]
pub(crate) enum Builder {
    Cpu(BatchBuilder),
    #[cfg(feature = "cuda")]
    Cuda(Box<cuda::Executor>),
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
    /// Opens a device. One that cannot be used is told of in one line, and the CPU computes.
    pub fn open(name: DeviceName) -> Self {
        match name {
            DeviceName::Cpu => Self::Cpu,
            DeviceName::Cuda(number) => Self::open_cuda(number).unwrap_or_else(|reason| {
                tracing::warn!("--device {name} is not used, the CPU computes: {reason}");
                Self::Cpu
            }),
        }
    }

    #[cfg(feature = "cuda")]
    fn open_cuda(number: usize) -> Result<Self, cuda::DeviceError> {
        let device = cuda::Device::open(number)?;
        tracing::info!(gpu = device.name(), "computing on cuda:{number}");
        Ok(Self::Cuda(device))
    }

    #[cfg(not(feature = "cuda"))]
    fn open_cuda(_: usize) -> Result<Self, &'static str> {
        Err("this forebay-server was built without its feature `cuda`")
    }

    /// A program where it runs: what the device cannot run, whole plans or some outputs, the CPU does.
    pub(crate) fn place(&self, program: &Arc<Program>, plan_id: &str) -> Placed {
        match self {
            Self::Cpu => {
                let _ = plan_id;
                Placed::Cpu(Arc::clone(program))
            }
            #[cfg(feature = "cuda")]
            Self::Cuda(device) => match cuda::DeviceProgram::new(device, program) {
                Ok(Some(on_device)) => {
                    let (gpu, cpu) = on_device.outputs_by_place();
                    tracing::info!(plan_id, ?gpu, ?cpu, "outputs by where they are computed");
                    Placed::Cuda { program: Arc::clone(program), on_device: Arc::new(on_device) }
                }
                Ok(None) => {
                    tracing::info!(plan_id, "no output of the plan runs on the GPU, the CPU computes them");
                    Placed::Cpu(Arc::clone(program))
                }
                Err(error) => {
                    tracing::warn!(plan_id, %error, "the plan does not run on the GPU, the CPU computes it");
                    Placed::Cpu(Arc::clone(program))
                }
            },
        }
    }
}

// === impl Placed ===

impl Placed {
    /// An empty batch with room for `rows`, to be filled in order, with what the batch before left behind.
    pub(crate) fn builder(&self, rows: usize, workspace: Workspace) -> Builder {
        match self {
            Self::Cpu(program) => Builder::Cpu(BatchBuilder::new(Arc::clone(program), rows).reuse(workspace)),
            #[cfg(feature = "cuda")]
            Self::Cuda { program, on_device } => {
                let made = cuda::Executor::new(Arc::clone(on_device), rows);
                cuda_builder(made, || BatchBuilder::new(Arc::clone(program), rows))
            }
        }
    }

    /// An empty batch with room for `rows`, whose rows are scattered, with what the batch before left behind.
    pub(crate) fn scattered(&self, rows: usize, workspace: Workspace) -> Builder {
        match self {
            Self::Cpu(program) => Builder::Cpu(BatchBuilder::scattered(Arc::clone(program), rows).reuse(workspace)),
            #[cfg(feature = "cuda")]
            Self::Cuda { program, on_device } => {
                let made = cuda::Executor::scattered(Arc::clone(on_device), rows);
                cuda_builder(made, || BatchBuilder::scattered(Arc::clone(program), rows))
            }
        }
    }
}

/// The device's builder; the CPU's where the device has no memory left.
#[cfg(feature = "cuda")]
fn cuda_builder(made: Result<cuda::Executor, KernelError>, on_cpu: impl FnOnce() -> BatchBuilder) -> Builder {
    made.map_or_else(
        |error| {
            tracing::warn!(%error, "a batch is computed on the CPU");
            Builder::Cpu(on_cpu())
        },
        |executor| Builder::Cuda(Box::new(executor)),
    )
}

// === impl Builder ===

impl Builder {
    /// Rows there are.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Cpu(builder) => builder.len(),
            #[cfg(feature = "cuda")]
            Self::Cuda(executor) => executor.len(),
        }
    }

    /// Rows there is room for.
    pub(crate) fn capacity(&self) -> usize {
        match self {
            Self::Cpu(builder) => builder.capacity(),
            #[cfg(feature = "cuda")]
            Self::Cuda(executor) => executor.capacity(),
        }
    }

    /// Whether there is no room left.
    pub(crate) fn is_full(&self) -> bool {
        self.len() == self.capacity()
    }

    /// Computes rows into the next free ones.
    pub(crate) fn append(&mut self, batch: &RecordBatch, rows: Range<usize>) -> Result<(), KernelError> {
        match self {
            Self::Cpu(builder) => builder.append(batch, rows),
            #[cfg(feature = "cuda")]
            Self::Cuda(executor) => executor.append(batch, rows),
        }
    }

    /// Computes each row into its place.
    pub(crate) fn scatter(
        &mut self,
        batch: &RecordBatch,
        rows: Range<usize>,
        places: &[u32],
    ) -> Result<(), KernelError> {
        match self {
            Self::Cpu(builder) => builder.scatter(batch, rows, places),
            #[cfg(feature = "cuda")]
            Self::Cuda(executor) => executor.scatter(batch, rows, places),
        }
    }

    /// The batch, and what the next one may go on with.
    pub(crate) fn finish(self) -> (Result<RecordBatch, KernelError>, Workspace) {
        match self {
            Self::Cpu(builder) => builder.finish_and_keep(),
            #[cfg(feature = "cuda")]
            Self::Cuda(executor) => (executor.finish(), Workspace::default()),
        }
    }
}
