//! A GPU: its driver loaded when it is there, memory that is used again, and the launches and copies of runs.
//!
//! Copies to the device go over one stream, kernels over a second and copies back over a third, so that the next rows travel
//! while these are computed. Events order them:
//!
//! ```text
//! inward   copy run 1 ─● copy run 2 ─●
//! compute              └▶ kernel 1 ─● └▶ kernel 2 ─●
//! outward                                          └▶ copy back ─●
//! ```

#![expect(unsafe_code, reason = "the driver's functions are called")]

use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

use arrow::buffer::Buffer;
use cudarc::driver::sys::{self, CUevent_flags};
use cudarc::driver::{
    CudaContext, CudaEvent, CudaFunction, CudaSlice, CudaStream, DevicePtr, DeviceRepr, DriverError, LaunchConfig,
    PinnedHostSlice, PushKernelArg, result,
};
use cudarc::nvrtc::Ptx;
use thiserror::Error;

use super::compiler::{Architecture, Compiler, CompilerError};
use super::fault::words_of;
use super::feed::Load;
use super::generate::KERNEL;
use super::layout::{Launch, THREADS};

/// Why there is no device, or why it does not do what it should.
#[derive(Debug, Error)]
pub enum DeviceError {
    /// The driver's library is not there.
    #[error("there is no CUDA driver on this machine (libcuda.so.1 cannot be loaded)")]
    NoDriver,
    /// No device of that number.
    #[error("there is no CUDA device {ordinal}; the driver has {count}")]
    NoDevice {
        /// The number that was asked for.
        ordinal: usize,
        /// How many there are.
        count: usize,
    },
    /// A call of the driver failed.
    #[error("the CUDA driver cannot {what}: {reason}")]
    Driver {
        /// What was being done.
        what: &'static str,
        /// The driver's words.
        reason: String,
    },
    /// There is no compiler, or it refuses a program.
    #[error(transparent)]
    Compiler(#[from] CompilerError),
    /// A probe came out otherwise than on the CPU.
    #[error("a probe does not compute what the CPU does: {reason}")]
    Probe {
        /// How.
        reason: String,
    },
}

/// A GPU that is open.
#[derive(Debug)]
pub struct Device {
    context: Arc<CudaContext>,
    compiler: Compiler,
    architecture: Architecture,
    name: String,
    inward: Arc<CudaStream>,
    compute: Arc<CudaStream>,
    outward: Arc<CudaStream>,
    slots: Mutex<Vec<Slot>>,
    outputs: Mutex<Vec<OutputBuffer>>,
}

/// A compiled program on the device.
#[derive(Debug)]
pub(super) struct Module {
    function: CudaFunction,
    fixed: CudaSlice<u8>,
}

/// Where a run waits for its copy, and where the device reads it.
#[derive(Debug)]
pub(super) struct Slot {
    staging: PinnedHostSlice<u8>,
    faults: PinnedHostSlice<u8>,
    device: CudaSlice<u8>,
    copied: CudaEvent,
    done: CudaEvent,
}

/// The outputs of a batch on the device, and where they come back to.
#[derive(Debug)]
pub(super) struct OutputBuffer {
    device: CudaSlice<u8>,
    host: PinnedHostSlice<u8>,
    computed: CudaEvent,
    returned: CudaEvent,
}

/// An output whose bytes are in use as Arrow buffers; given back to its device when they are dropped.
#[derive(Debug)]
struct Lent {
    device: Arc<Device>,
    output: Option<OutputBuffer>,
}

/// Slots and outputs that are kept for the next batches, of each.
const KEPT_MAX: usize = 8;

/// Memory is had in multiples of this, so that batches of nearly one size use the same.
const GRAIN_BYTES: usize = 1 << 20;

// SAFETY: plain integers without padding, laid out as the kernel's struct; `prelude.cu` asserts its size.
unsafe impl DeviceRepr for Launch {}

// === impl Device ===

impl Device {
    /// Opens the device with this number. Callers verify it with a program before they use it.
    pub(super) fn connect(ordinal: usize) -> Result<Arc<Self>, DeviceError> {
        // SAFETY: loading the driver's library runs its initializers, as any CUDA program does.
        if !unsafe { sys::is_culib_present() } {
            return Err(DeviceError::NoDriver);
        }
        result::init().map_err(failed("start"))?;
        let count = CudaContext::device_count().map_err(failed("count its devices"))?;
        let count = usize::try_from(count).unwrap_or(0);
        if ordinal >= count {
            return Err(DeviceError::NoDevice { ordinal, count });
        }
        let context = CudaContext::new(ordinal).map_err(failed("open the device"))?;
        // SAFETY: every use of memory across streams is ordered by events below.
        unsafe { context.disable_event_tracking() };
        let (major, minor) = context.compute_capability().map_err(failed("tell its compute capability"))?;
        let stream = || context.new_stream().map_err(failed("make a stream"));
        Ok(Arc::new(Self {
            compiler: Compiler::load()?,
            architecture: Architecture::Real(major.unsigned_abs(), minor.unsigned_abs()),
            name: context.name().map_err(failed("tell its name"))?,
            inward: stream()?,
            compute: stream()?,
            outward: stream()?,
            slots: Mutex::default(),
            outputs: Mutex::default(),
            context,
        }))
    }

    /// The device's name, as in "NVIDIA H200".
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn module(&self, source: &str, fixed: &[u8]) -> Result<Module, DeviceError> {
        let code = self.compiler.compile(source, &self.architecture)?;
        let module = self.context.load_module(Ptx::from_binary(code)).map_err(failed("load a program"))?;
        let function = module.load_function(KERNEL).map_err(failed("find a program's kernel"))?;
        let fixed = self.compute.clone_htod(fixed).map_err(failed("copy a program's tables"))?;
        self.compute.synchronize().map_err(failed("copy a program's tables"))?;
        Ok(Module { function, fixed })
    }

    /// A slot for so many bytes, one that was given back or a new one.
    pub(super) fn slot(&self, bytes: usize, fault_bytes: usize) -> Result<Slot, DeviceError> {
        let fits = |slot: &Slot| slot.staging.len() >= bytes && slot.faults.len() >= fault_bytes;
        if let Some(slot) = take(&self.slots, fits) {
            return Ok(slot);
        }
        Ok(Slot {
            staging: self.pinned(bytes)?,
            faults: self.pinned(fault_bytes)?,
            device: self.memory(bytes)?,
            copied: self.event()?,
            done: self.event()?,
        })
    }

    /// Memory for outputs of so many bytes.
    pub(super) fn output(&self, bytes: usize) -> Result<OutputBuffer, DeviceError> {
        if let Some(output) = take(&self.outputs, |output| output.host.len() >= bytes) {
            return Ok(output);
        }
        Ok(OutputBuffer {
            device: self.memory(bytes)?,
            host: self.pinned(bytes)?,
            computed: self.event()?,
            returned: self.event()?,
        })
    }

    pub(super) fn keep_slot(&self, slot: Slot) {
        keep(&self.slots, slot);
    }

    /// Copies a run to the device and starts its kernel; does not wait for either.
    pub(super) fn start(
        &self,
        module: &Module,
        slot: &mut Slot,
        load: &Load,
        output: &mut OutputBuffer,
    ) -> Result<(), DeviceError> {
        let started = self.try_start(module, slot, load, output);
        if started.is_err() {
            // No event tells of what is under way already.
            let _ = self.inward.synchronize();
            let _ = self.compute.synchronize();
        }
        started
    }

    fn try_start(
        &self,
        module: &Module,
        slot: &mut Slot,
        load: &Load,
        output: &mut OutputBuffer,
    ) -> Result<(), DeviceError> {
        // What the slot held is done with: its faults were waited for, or it is new.
        let staging = slot.staging.as_mut_slice().map_err(failed("reach pinned memory"))?;
        load.write(&mut staging[..load.len()]);
        let (place, _) = slot.device.device_ptr(&self.inward);
        // SAFETY: `device` is as long as `staging`, and both live until `done` was waited for, on drop at the latest.
        unsafe { result::memcpy_htod_async(place, &staging[..load.len()], self.inward.cu_stream()) }
            .map_err(failed("copy rows to the device"))?;
        slot.copied.record(&self.inward).map_err(failed("record an event"))?;
        self.compute.wait(&slot.copied).map_err(failed("wait for an event"))?;
        self.launch(module, slot, load, output)?;
        let faults = load.faults();
        let told = slot.faults.as_mut_slice().map_err(failed("reach pinned memory"))?;
        // SAFETY: the faults lie within the run, and `told` lives until `done` was waited for.
        unsafe {
            result::memcpy_dtoh_async(&mut told[..faults.len()], place + faults.start as u64, self.compute.cu_stream())
        }
        .map_err(failed("copy faults back"))?;
        slot.done.record(&self.compute).map_err(failed("record an event"))?;
        output.computed.record(&self.compute).map_err(failed("record an event"))
    }

    /// Starts the kernel on a run that the device holds.
    fn launch(&self, module: &Module, slot: &Slot, load: &Load, output: &OutputBuffer) -> Result<(), DeviceError> {
        let too_many = |_| DeviceError::Driver {
            what: "launch a program",
            reason: "there are more blocks than a grid has".to_owned(),
        };
        let blocks = u32::try_from(load.launch.blocks()).map_err(too_many)?;
        let config = LaunchConfig { grid_dim: (blocks, 1, 1), block_dim: (THREADS as u32, 1, 1), shared_mem_bytes: 0 };
        let mut launch = self.compute.launch_builder(&module.function);
        launch.arg(&module.fixed).arg(&slot.device).arg(&output.device).arg(&load.launch);
        // SAFETY: the kernel takes these four arguments; it reads within `fixed` and the run, and writes within the run's fault
        // words and the outputs, whose places come from the same program.
        unsafe { launch.launch(config) }.map(|_| ()).map_err(failed("launch a program"))
    }

    /// Seconds of each of so many launches.
    pub(super) fn time_kernel(
        &self,
        module: &Module,
        slot: &Slot,
        load: &Load,
        output: &OutputBuffer,
        repetitions: usize,
    ) -> Result<Vec<f64>, DeviceError> {
        let timed = self.time(repetitions, || self.launch(module, slot, load, output));
        self.compute.synchronize().map_err(failed("compute rows"))?;
        timed
    }

    /// Seconds of each of so many copies from one place of the device to another.
    pub(super) fn time_copy(&self, bytes: usize, repetitions: usize) -> Result<Vec<f64>, DeviceError> {
        let (source, target) = (self.memory(bytes)?, self.memory(bytes)?);
        let (from, to) = (source.device_ptr(&self.compute).0, target.device_ptr(&self.compute).0);
        let copy = || {
            // SAFETY: both are `bytes` long, and live until the copies were waited for.
            let copied = unsafe { result::memcpy_dtod_async(to, from, bytes, self.compute.cu_stream()) };
            copied.map_err(failed("copy on the device"))
        };
        let timed = self.time(repetitions, copy);
        self.compute.synchronize().map_err(failed("copy on the device"))?;
        timed
    }

    fn time(&self, repetitions: usize, work: impl Fn() -> Result<(), DeviceError>) -> Result<Vec<f64>, DeviceError> {
        let event = || self.context.new_event(Some(CUevent_flags::CU_EVENT_DEFAULT)).map_err(failed("make an event"));
        let once = |_| {
            let (before, after) = (event()?, event()?);
            before.record(&self.compute).map_err(failed("record an event"))?;
            work()?;
            after.record(&self.compute).map_err(failed("record an event"))?;
            Ok(f64::from(before.elapsed_ms(&after).map_err(failed("time its work"))?) / 1e3)
        };
        (0..repetitions).map(once).collect()
    }

    /// Waits for the outputs and gives their bytes as one buffer, whose memory comes back when the last part of it is dropped.
    pub(super) fn bring_back(self: &Arc<Self>, mut output: OutputBuffer, bytes: usize) -> Result<Buffer, DeviceError> {
        self.outward.wait(&output.computed).map_err(failed("wait for an event"))?;
        let (place, _) = output.device.device_ptr(&self.outward);
        let host = output.host.as_mut_slice().map_err(failed("reach pinned memory"))?;
        // SAFETY: both are at least `bytes` long, and live until `returned` was waited for, on drop at the latest.
        unsafe { result::memcpy_dtoh_async(&mut host[..bytes], place, self.outward.cu_stream()) }
            .map_err(failed("copy outputs back"))?;
        let recorded = output.returned.record(&self.outward);
        recorded.or_else(|_| self.outward.synchronize()).map_err(failed("record an event"))?;
        output.returned.synchronize().map_err(failed("copy outputs back"))?;
        let start = output.host.as_mut_ptr().map_err(failed("reach pinned memory"))?;
        let Some(start) = NonNull::new(start) else { return Ok(Buffer::default()) };
        let owner = Arc::new(Lent { device: Arc::clone(self), output: Some(output) });
        // SAFETY: `owner` keeps the pinned memory, nobody writes to it while it is lent, and it begins at a page.
        Ok(unsafe { Buffer::from_custom_allocation(start, bytes, owner) })
    }

    fn pinned(&self, bytes: usize) -> Result<PinnedHostSlice<u8>, DeviceError> {
        // SAFETY: what is read of it was written first: by a load, or by a copy that was waited for.
        unsafe { self.context.alloc_pinned_with_flags(grains(bytes), 0) }.map_err(failed("get pinned memory"))
    }

    fn memory(&self, bytes: usize) -> Result<CudaSlice<u8>, DeviceError> {
        // SAFETY: kernels read only what a run's copy wrote. The allocation is waited for, since another stream uses it first.
        let memory = unsafe { self.compute.alloc(grains(bytes)) }.map_err(failed("get device memory"))?;
        self.compute.synchronize().map_err(failed("get device memory"))?;
        Ok(memory)
    }

    fn event(&self) -> Result<CudaEvent, DeviceError> {
        // A thread that waits sleeps.
        self.context.new_event(Some(CUevent_flags::CU_EVENT_BLOCKING_SYNC)).map_err(failed("make an event"))
    }
}

fn grains(bytes: usize) -> usize {
    bytes.max(1).next_multiple_of(GRAIN_BYTES)
}

fn take<T>(kept: &Mutex<Vec<T>>, fits: impl Fn(&T) -> bool) -> Option<T> {
    let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
    kept.iter().position(fits).map(|place| kept.swap_remove(place))
}

fn keep<T>(kept: &Mutex<Vec<T>>, one: T) {
    let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
    if kept.len() == KEPT_MAX {
        // The oldest may be of a size that nobody asks for any more.
        kept.remove(0);
    }
    kept.push(one);
}

fn failed(what: &'static str) -> impl Fn(DriverError) -> DeviceError {
    move |error| DeviceError::Driver { what, reason: error.to_string() }
}

impl Slot {
    /// Waits for its run, and gives the fault words.
    pub(super) fn wait(&self, fault_bytes: usize) -> Result<Vec<u64>, DeviceError> {
        self.done.synchronize().map_err(failed("compute rows"))?;
        let bytes = self.faults.as_slice().map_err(failed("reach pinned memory"))?;
        Ok(words_of(&bytes[..fault_bytes]))
    }
}

// === Drop: memory is not given up while the device uses it ===

impl Drop for Slot {
    fn drop(&mut self) {
        // An error is the device's, and shows at its next use.
        let _ = self.copied.synchronize();
        let _ = self.done.synchronize();
    }
}

impl Drop for OutputBuffer {
    fn drop(&mut self) {
        let _ = self.computed.synchronize();
        let _ = self.returned.synchronize();
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let Some(output) = self.output.take() {
            keep(&self.device.outputs, output);
        }
    }
}
