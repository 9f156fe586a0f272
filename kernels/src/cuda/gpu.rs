//! A GPU: the driver, loaded if present, reusable memory, and the copies and launches of runs.
//!
//! Copies to the device use one stream, kernels a second one, and copies back a third one, so that the next rows are
//! transferred while earlier ones are computed. Events order them:
//!
//! ```text
//! inward   copy run 1 ─● copy run 2 ─●
//! compute              └▶ kernel 1 ─● └▶ kernel 2 ─●
//! outward                                          └▶ copy back ─●
//! ```

#![expect(unsafe_code, reason = "calls the driver's functions")]

use std::{
    collections::VecDeque,
    ptr::NonNull,
    sync::{Arc, Mutex, PoisonError},
};

use arrow::buffer::Buffer;
use cudarc::{
    driver::{
        CudaContext, CudaEvent, CudaFunction, CudaModule, CudaSlice, CudaStream, DevicePtr, DeviceRepr, DriverError,
        LaunchConfig, PinnedHostSlice, PushKernelArg, result,
        sys::{self, CUevent_flags},
    },
    nvrtc::Ptx,
};

use super::{
    backend::{Backend, Module, Outputs},
    compiler::{Architecture, Compiler},
    driver::check_driver,
    error::DeviceError,
    fault::fault_words,
    feed::Load,
    generate::{Generated, KERNEL},
    layout::{Launch, THREADS},
};

/// An open GPU.
#[derive(Debug)]
pub(super) struct Gpu {
    context: Arc<CudaContext>,
    compiler: Compiler,
    architecture: Architecture,
    name: String,
    inward: Arc<CudaStream>,
    compute: Arc<CudaStream>,
    outward: Arc<CudaStream>,
    slots: Mutex<Vec<Slot>>,
    outputs: Mutex<Vec<OutputBuffer>>,
    /// Compiled sources, the most recently used one last.
    modules: Mutex<Vec<(String, Arc<CudaModule>)>>,
}

/// A GPU as a backend.
#[derive(Debug)]
pub(super) struct OnGpu(pub(super) Arc<Gpu>);

/// A program on a GPU.
#[derive(Debug)]
struct GpuModule {
    gpu: Arc<Gpu>,
    kernel: Arc<Kernel>,
}

/// A compiled program and its tables.
#[derive(Debug)]
struct Kernel {
    function: CudaFunction,
    fixed: CudaSlice<u8>,
}

/// The outputs of a batch on a GPU.
#[derive(Debug)]
struct GpuOutputs {
    gpu: Arc<Gpu>,
    kernel: Arc<Kernel>,
    /// The runs that were not waited for, with the number of bytes of their faults.
    running: VecDeque<(Slot, usize)>,
    output: OutputBuffer,
}

/// The memory of a run, on the host and on the device.
#[derive(Debug)]
struct Slot {
    staging: PinnedHostSlice<u8>,
    faults: PinnedHostSlice<u8>,
    device: CudaSlice<u8>,
    copied: CudaEvent,
    done: CudaEvent,
}

/// The memory of a batch's outputs, on the device and on the host.
#[derive(Debug)]
struct OutputBuffer {
    device: CudaSlice<u8>,
    host: PinnedHostSlice<u8>,
    computed: CudaEvent,
    returned: CudaEvent,
}

/// Outputs whose bytes are in use as Arrow buffers; returned to the device when the buffers are dropped.
#[derive(Debug)]
struct Lent {
    gpu: Arc<Gpu>,
    output: Option<OutputBuffer>,
}

/// The number of slots, and of output buffers, that are kept for reuse.
const POOLED_MAX: usize = 8;

/// The number of compiled sources that are kept.
const MODULES_MAX: usize = 64;

/// Memory is allocated in multiples of this, so that batches of similar sizes can share it.
const ALLOCATION_BYTES: usize = 1 << 20;

// SAFETY: plain integers without padding, laid out as the kernel's struct; `prelude.cu` asserts its size.
unsafe impl DeviceRepr for Launch {}

// === impl Gpu ===

impl Gpu {
    /// Opens the device with this number. Callers verify it with a program before they use it.
    pub(super) fn connect(ordinal: usize) -> Result<Arc<Self>, DeviceError> {
        check_driver()?;
        result::init().map_err(failed("start"))?;
        let count = CudaContext::device_count().map_err(failed("count its devices"))?;
        let count = usize::try_from(count).unwrap_or(0);
        if ordinal >= count {
            return Err(DeviceError::NoDevice { ordinal, count });
        }
        let context = CudaContext::new(ordinal).map_err(failed("open the device"))?;
        // SAFETY: every use of memory across streams is ordered by events below.
        unsafe { context.disable_event_tracking() };
        let (major, minor) = context.compute_capability().map_err(failed("report its compute capability"))?;
        let stream = || context.new_stream().map_err(failed("create a stream"));
        Ok(Arc::new(Self {
            compiler: Compiler::load()?,
            architecture: Architecture::Real(major.unsigned_abs(), minor.unsigned_abs()),
            name: context.name().map_err(failed("report its name"))?,
            inward: stream()?,
            compute: stream()?,
            outward: stream()?,
            slots: Mutex::default(),
            outputs: Mutex::default(),
            modules: Mutex::default(),
            context,
        }))
    }

    /// The device's name, as in "NVIDIA H200".
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    fn kernel(&self, generated: &Generated) -> Result<Kernel, DeviceError> {
        let module = self.module(&generated.source)?;
        let function = module.load_function(KERNEL).map_err(failed("find a program's kernel"))?;
        let fixed = self.compute.clone_htod(&generated.fixed).map_err(failed("copy a program's tables"))?;
        self.compute.synchronize().map_err(failed("copy a program's tables"))?;
        Ok(Kernel { function, fixed })
    }

    /// Compiles a source, unless it is one of the last that were compiled.
    fn module(&self, source: &str) -> Result<Arc<CudaModule>, DeviceError> {
        if let Some(known) = take(&self.modules, |(compiled, _)| compiled == source) {
            let module = Arc::clone(&known.1);
            keep(&self.modules, known, MODULES_MAX);
            return Ok(module);
        }
        let code = self.compiler.compile(source, &self.architecture)?;
        let module = self.context.load_module(Ptx::from_binary(code)).map_err(failed("load a program"))?;
        keep(&self.modules, (source.to_owned(), Arc::clone(&module)), MODULES_MAX);
        Ok(module)
    }

    /// Returns a slot of at least these sizes, reused or new.
    fn slot(&self, bytes: usize, fault_bytes: usize) -> Result<Slot, DeviceError> {
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

    /// Returns memory for outputs of at least this size, reused or new.
    fn output(&self, bytes: usize) -> Result<OutputBuffer, DeviceError> {
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

    /// Copies a run to the device and starts its kernel, without waiting for either.
    fn start(
        &self,
        kernel: &Kernel,
        slot: &mut Slot,
        load: &Load,
        output: &mut OutputBuffer,
    ) -> Result<(), DeviceError> {
        let started = self.try_start(kernel, slot, load, output);
        if started.is_err() {
            // No event was recorded for the work already started.
            let _ = self.inward.synchronize();
            let _ = self.compute.synchronize();
        }
        started
    }

    fn try_start(
        &self,
        kernel: &Kernel,
        slot: &mut Slot,
        load: &Load,
        output: &mut OutputBuffer,
    ) -> Result<(), DeviceError> {
        // The slot's earlier run is complete: its faults were waited for, or the slot is new.
        let staging = slot.staging.as_mut_slice().map_err(failed("access pinned memory"))?;
        load.write(&mut staging[..load.len()]);
        let (place, _) = slot.device.device_ptr(&self.inward);
        // SAFETY: `device` is as long as `staging`, and both live until `done` was waited for, at the latest on drop.
        unsafe { result::memcpy_htod_async(place, &staging[..load.len()], self.inward.cu_stream()) }
            .map_err(failed("copy rows to the device"))?;
        slot.copied.record(&self.inward).map_err(failed("record an event"))?;
        self.compute.wait(&slot.copied).map_err(failed("wait for an event"))?;
        self.launch(kernel, slot, load, output)?;
        let faults = load.faults();
        let fault_bytes = slot.faults.as_mut_slice().map_err(failed("access pinned memory"))?;
        // SAFETY: the faults are within the run, and `fault_bytes` lives until `done` was waited for.
        unsafe {
            result::memcpy_dtoh_async(
                &mut fault_bytes[..faults.len()],
                place + faults.start as u64,
                self.compute.cu_stream(),
            )
        }
        .map_err(failed("copy faults back"))?;
        slot.done.record(&self.compute).map_err(failed("record an event"))?;
        output.computed.record(&self.compute).map_err(failed("record an event"))
    }

    /// Starts the kernel on a run that is on the device.
    fn launch(&self, kernel: &Kernel, slot: &Slot, load: &Load, output: &OutputBuffer) -> Result<(), DeviceError> {
        let too_many =
            |_| DeviceError::Driver { what: "launch a program", reason: "the grid has too many blocks".to_owned() };
        let blocks = u32::try_from(load.launch.blocks()).map_err(too_many)?;
        let config = LaunchConfig { grid_dim: (blocks, 1, 1), block_dim: (THREADS as u32, 1, 1), shared_mem_bytes: 0 };
        let mut launch = self.compute.launch_builder(&kernel.function);
        launch.arg(&kernel.fixed).arg(&slot.device).arg(&output.device).arg(&load.launch);
        // SAFETY: the kernel takes these four arguments; it reads within `fixed` and the run, and writes within the
        // run's fault words and the outputs, whose offsets the same program computed.
        unsafe { launch.launch(config) }.map(|_| ()).map_err(failed("launch a program"))
    }

    /// The duration of each of a number of launches, in seconds.
    fn time_kernel(
        &self,
        kernel: &Kernel,
        slot: &Slot,
        load: &Load,
        output: &OutputBuffer,
        repetitions: usize,
    ) -> Result<Vec<f64>, DeviceError> {
        let timed = self.time(repetitions, || self.launch(kernel, slot, load, output));
        self.compute.synchronize().map_err(failed("compute rows"))?;
        timed
    }

    /// The duration of each of a number of copies on the device, in seconds.
    fn time_copy(&self, bytes: usize, repetitions: usize) -> Result<Vec<f64>, DeviceError> {
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
        let event = || self.context.new_event(Some(CUevent_flags::CU_EVENT_DEFAULT)).map_err(failed("create an event"));
        let once = |_| {
            let (before, after) = (event()?, event()?);
            before.record(&self.compute).map_err(failed("record an event"))?;
            work()?;
            after.record(&self.compute).map_err(failed("record an event"))?;
            Ok(f64::from(before.elapsed_ms(&after).map_err(failed("time its work"))?) / 1e3)
        };
        (0..repetitions).map(once).collect()
    }

    /// Waits for the outputs and returns their bytes as one buffer, whose memory is reused once all slices of it are
    /// dropped.
    fn copy_back(self: &Arc<Self>, mut output: OutputBuffer, bytes: usize) -> Result<Buffer, DeviceError> {
        self.outward.wait(&output.computed).map_err(failed("wait for an event"))?;
        let (place, _) = output.device.device_ptr(&self.outward);
        let host = output.host.as_mut_slice().map_err(failed("access pinned memory"))?;
        // SAFETY: both are at least `bytes` long, and live until `returned` was waited for, at the latest on drop.
        unsafe { result::memcpy_dtoh_async(&mut host[..bytes], place, self.outward.cu_stream()) }
            .map_err(failed("copy outputs back"))?;
        let recorded = output.returned.record(&self.outward);
        recorded.or_else(|_| self.outward.synchronize()).map_err(failed("record an event"))?;
        output.returned.synchronize().map_err(failed("copy outputs back"))?;
        let start = output.host.as_mut_ptr().map_err(failed("access pinned memory"))?;
        let Some(start) = NonNull::new(start) else { return Ok(Buffer::default()) };
        let owner = Arc::new(Lent { gpu: Arc::clone(self), output: Some(output) });
        // SAFETY: `owner` keeps the pinned memory, which starts at a page and is not written while it is lent.
        Ok(unsafe { Buffer::from_custom_allocation(start, bytes, owner) })
    }

    fn pinned(&self, bytes: usize) -> Result<PinnedHostSlice<u8>, DeviceError> {
        // SAFETY: every byte is written before it is read, by a load or by a copy that was waited for.
        unsafe { self.context.alloc_pinned_with_flags(round_up(bytes), 0) }.map_err(failed("allocate pinned memory"))
    }

    fn memory(&self, bytes: usize) -> Result<CudaSlice<u8>, DeviceError> {
        // SAFETY: kernels read only what a run's copy wrote. The allocation is waited for, since another stream uses
        // the memory first.
        let memory = unsafe { self.compute.alloc(round_up(bytes)) }.map_err(failed("allocate device memory"))?;
        self.compute.synchronize().map_err(failed("allocate device memory"))?;
        Ok(memory)
    }

    fn event(&self) -> Result<CudaEvent, DeviceError> {
        // Waiting threads sleep instead of spinning.
        self.context.new_event(Some(CUevent_flags::CU_EVENT_BLOCKING_SYNC)).map_err(failed("create an event"))
    }
}

fn round_up(bytes: usize) -> usize {
    bytes.max(1).next_multiple_of(ALLOCATION_BYTES)
}

fn take<T>(kept: &Mutex<Vec<T>>, fits: impl Fn(&T) -> bool) -> Option<T> {
    let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
    kept.iter().position(fits).map(|place| kept.remove(place))
}

fn keep<T>(kept: &Mutex<Vec<T>>, item: T, most: usize) {
    let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
    if kept.len() == most {
        // Drop the oldest, which may no longer be needed.
        kept.remove(0);
    }
    kept.push(item);
}

fn failed(what: &'static str) -> impl Fn(DriverError) -> DeviceError {
    move |error| match error.0 {
        sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY => DeviceError::Memory { what },
        _ => DeviceError::Driver { what, reason: error.to_string() },
    }
}

// === impl OnGpu, GpuModule, GpuOutputs ===

impl Backend for OnGpu {
    fn load(&self, generated: &Generated) -> Result<Box<dyn Module>, DeviceError> {
        let kernel = Arc::new(self.0.kernel(generated)?);
        Ok(Box::new(GpuModule { gpu: Arc::clone(&self.0), kernel }))
    }
}

impl GpuModule {
    fn outputs(&self, bytes: usize) -> Result<GpuOutputs, DeviceError> {
        let (gpu, kernel) = (Arc::clone(&self.gpu), Arc::clone(&self.kernel));
        Ok(GpuOutputs { output: gpu.output(bytes)?, gpu, kernel, running: VecDeque::new() })
    }
}

impl Module for GpuModule {
    fn batch(&self, bytes: usize) -> Result<Box<dyn Outputs>, DeviceError> {
        Ok(Box::new(self.outputs(bytes)?))
    }

    fn measure(&self, load: &Load, written_bytes: usize, repetitions: usize) -> Result<[Vec<f64>; 2], DeviceError> {
        let mut outputs = self.outputs(written_bytes)?;
        outputs.start(load)?;
        let Some((slot, _)) = outputs.running.front() else { return Ok([Vec::new(), Vec::new()]) };
        let launches = self.gpu.time_kernel(&self.kernel, slot, load, &outputs.output, repetitions)?;
        let copies = self.gpu.time_copy(load.len().midpoint(written_bytes), repetitions)?;
        outputs.wait()?;
        Ok([launches, copies])
    }
}

impl Outputs for GpuOutputs {
    fn start(&mut self, load: &Load) -> Result<(), DeviceError> {
        let fault_bytes = load.faults().len();
        let mut slot = self.gpu.slot(load.len(), fault_bytes)?;
        self.gpu.start(&self.kernel, &mut slot, load, &mut self.output)?;
        self.running.push_back((slot, fault_bytes));
        Ok(())
    }

    fn wait(&mut self) -> Result<Vec<u64>, DeviceError> {
        let Some((slot, fault_bytes)) = self.running.pop_front() else { return Ok(Vec::new()) };
        let words = slot.wait(fault_bytes)?;
        keep(&self.gpu.slots, slot, POOLED_MAX);
        Ok(words)
    }

    fn finish(self: Box<Self>, bytes: usize) -> Result<Buffer, DeviceError> {
        let Self { gpu, output, running, .. } = *self;
        drop(running);
        gpu.copy_back(output, bytes)
    }
}

// === impl Slot ===

impl Slot {
    /// Waits for the run, and returns the fault words.
    fn wait(&self, fault_bytes: usize) -> Result<Vec<u64>, DeviceError> {
        self.done.synchronize().map_err(failed("compute rows"))?;
        let bytes = self.faults.as_slice().map_err(failed("access pinned memory"))?;
        Ok(fault_words(&bytes[..fault_bytes]))
    }
}

// === Drop: waits until the device no longer uses the memory ===

impl Drop for Slot {
    fn drop(&mut self) {
        // An error concerns the device, whose next use reports it.
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
            keep(&self.gpu.outputs, output, POOLED_MAX);
        }
    }
}
