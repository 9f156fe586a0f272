//! Programs on an NVIDIA GPU.

use std::{
    mem,
    sync::{
        Arc, OnceLock,
        mpsc::{SyncSender, sync_channel},
    },
    thread,
};

use forebay_kernels::{
    Program,
    cuda::{self, DeviceError, DeviceProgram, Executor, ExecutorWorkspace},
};

/// Programs that wait to be compiled. More are left to the CPU.
const QUEUE: usize = 64;

/// An open GPU, and the thread that compiles programs for it: that takes up to seconds, during which the CPU computes.
#[derive(Clone, Debug)]
pub struct Gpu {
    device: Arc<cuda::Device>,
    queue: SyncSender<Compilation>,
}

/// A program for a GPU, once it is loaded there.
#[derive(Clone, Debug)]
pub(super) struct GpuProgram(Arc<OnceLock<Arc<DeviceProgram>>>);

/// An output batch that a GPU fills.
pub(super) type GpuBuilder = Box<Executor>;

/// What builders of one program hand on from batch to batch.
pub(super) type GpuWorkspace = ExecutorWorkspace;

/// A program to compile.
#[derive(Debug)]
struct Compilation {
    program: Arc<Program>,
    plan_id: String,
    loaded: GpuProgram,
}

impl Gpu {
    pub(super) fn open(number: usize) -> Result<Self, DeviceError> {
        let device = cuda::Device::open(number, report)?;
        let (queue, compilations) = sync_channel::<Compilation>(QUEUE);
        let compiling = Arc::clone(&device);
        let compile = move || compilations.into_iter().for_each(|compilation| compilation.run(&compiling));
        // Ends with the last sender.
        thread::Builder::new()
            .name("gpu-compiler".to_owned())
            .spawn(compile)
            .map_err(|error| DeviceError::Driver { what: "start a thread", reason: error.to_string() })?;
        tracing::info!(gpu = device.name(), "computing on cuda:{number}");
        Ok(Self { device, queue })
    }

    /// Loads a program in the background; none if the GPU is lost, or too many programs wait.
    pub(super) fn load(&self, program: &Arc<Program>, plan_id: &str) -> Option<GpuProgram> {
        if self.device.is_lost() {
            return None;
        }
        let loaded = GpuProgram(Arc::default());
        let compilation =
            Compilation { program: Arc::clone(program), plan_id: plan_id.to_owned(), loaded: loaded.clone() };
        if self.queue.try_send(compilation).is_err() {
            tracing::warn!(plan_id, "too many plans wait for the GPU compiler; the CPU computes this one");
            return None;
        }
        Some(loaded)
    }
}

/// Logs that a GPU failed.
fn report(device: &cuda::Device, error: &DeviceError) {
    if device.is_lost() {
        tracing::error!(gpu = device.name(), %error, "the GPU is lost, computing on the CPU until the server is restarted");
    } else {
        tracing::warn!(gpu = device.name(), %error, "computing on the CPU while the GPU has no memory");
    }
}

impl Compilation {
    fn run(self, device: &Arc<cuda::Device>) {
        let Self { program, plan_id, loaded } = self;
        // Its streams may have ended.
        if Arc::strong_count(&loaded.0) == 1 || device.is_lost() {
            return;
        }
        match DeviceProgram::new(device, &program) {
            Ok(Some(compiled)) => {
                let (gpu, cpu) = compiled.outputs_by_place();
                tracing::info!(plan_id, ?gpu, ?cpu, "outputs by device");
                let _ = loaded.0.set(Arc::new(compiled));
            }
            Ok(None) => tracing::info!(plan_id, "the GPU runs no output of the plan, computing on the CPU"),
            Err(error) => tracing::warn!(plan_id, %error, "cannot load the plan on the GPU, computing on the CPU"),
        }
    }
}

impl GpuProgram {
    /// An empty batch to be filled in order, or by scattering; none if the program is not loaded.
    pub(super) fn builder(&self, rows: usize, is_scattered: bool, workspace: &mut GpuWorkspace) -> Option<GpuBuilder> {
        let (program, workspace) = (self.0.get().map(Arc::clone)?, mem::take(workspace));
        Some(Box::new(if is_scattered {
            Executor::scattered(program, rows, workspace)
        } else {
            Executor::new(program, rows, workspace)
        }))
    }
}
