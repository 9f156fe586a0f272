//! Rows of record batches → one output batch, computed on a device: the counterpart of [`BatchBuilder`].

use std::{mem, ops::Range, sync::Arc};

use arrow::{
    array::{ArrayData, ArrayRef, RecordBatch, RecordBatchOptions, make_array},
    buffer::Buffer,
    datatypes::DataType,
    error::ArrowError,
};

use super::{
    backend::{Module, Outputs},
    device::Device,
    error::DeviceError,
    fault::{Fault, first_fault},
    feed::{Load, MappedTables, Target},
    generate::{Generated, generate},
};
use crate::{
    compile::program::Program,
    error::KernelError,
    execute::{builder::BatchBuilder, workspace::Workspace},
};

/// A program compiled for a device.
#[derive(Debug)]
pub struct DeviceProgram {
    device: Arc<Device>,
    pub(super) program: Arc<Program>,
    /// The outputs that stay on the CPU.
    rest: Arc<Program>,
    pub(super) generated: Generated,
    pub(super) module: Box<dyn Module>,
}

/// One output batch being filled by a device, as a [`BatchBuilder`] fills one on the CPU.
///
/// Rows are computed while later ones are appended: a later call, or `finish` at the latest, may return the error of an
/// earlier row, and the batch is then lost. If the device fails, the CPU computes the batch from its first row on,
/// without an error; its rows are kept until then.
#[derive(Debug)]
pub struct Executor {
    program: Arc<DeviceProgram>,
    shape: Shape,
    filling: Filling,
    tables: MappedTables,
    cpu: Workspace,
}

/// Memory and tables that executors of one program hand on from batch to batch.
#[derive(Debug, Default)]
pub struct ExecutorWorkspace {
    tables: MappedTables,
    /// Memory for the outputs that stay on the CPU.
    rest: Workspace,
    /// Memory for all outputs on the CPU.
    cpu: Workspace,
}

/// The size of a batch, and whether its rows are scattered.
#[derive(Clone, Copy, Debug)]
struct Shape {
    rows: usize,
    is_scattered: bool,
}

/// Where a batch is computed.
#[derive(Debug)]
enum Filling {
    OnDevice(Box<OnDevice>),
    OnCpu(BatchBuilder),
}

/// A batch on the device.
#[derive(Debug)]
struct OnDevice {
    rest: BatchBuilder,
    outputs: Box<dyn Outputs>,
    /// The offset of each device output in the outputs.
    offsets: Vec<usize>,
    bytes: usize,
    runs: Vec<Run>,
    /// How many of the runs were started, and how many of these were waited for.
    started: usize,
    waited: usize,
}

/// Rows that were added.
#[derive(Debug)]
struct Run {
    batch: RecordBatch,
    rows: Range<usize>,
    places: Option<Vec<u32>>,
}

/// Why rows were not added.
enum Failure {
    Rows(KernelError),
    Device(DeviceError),
}

/// The number of runs in flight: one is copied while another is computed.
const RUNNING_MAX: usize = 2;

/// The alignment of outputs: a multiple of Arrow's 64 bytes, and of a cache line of the device.
const OUTPUT_ALIGNMENT: usize = 256;

// === impl DeviceProgram ===

impl DeviceProgram {
    /// Compiles a program for a device; `None` if none of its outputs can run there.
    pub fn new(device: &Arc<Device>, program: &Arc<Program>) -> Result<Option<Self>, DeviceError> {
        Self::of(device, program, generate(program))
    }

    pub(super) fn of(
        device: &Arc<Device>,
        program: &Arc<Program>,
        generated: Generated,
    ) -> Result<Option<Self>, DeviceError> {
        if generated.outputs.is_empty() {
            return Ok(None);
        }
        let module = device.backend.load(&generated).inspect_err(|error| device.fail(error))?;
        let is_on_device = |place: usize| generated.outputs.iter().any(|output| output.output == place);
        let rest = Arc::new(program.only(|place| !is_on_device(place)));
        Ok(Some(Self { device: Arc::clone(device), program: Arc::clone(program), rest, generated, module }))
    }

    /// The offset of each output for a number of rows, and the total size.
    pub(super) fn layout(&self, rows: usize) -> (Vec<usize>, usize) {
        let mut end = 0_usize;
        let offsets = self.generated.outputs.iter().map(|output| {
            let start = end.next_multiple_of(OUTPUT_ALIGNMENT);
            end = start + output.row_bytes * rows;
            start
        });
        (offsets.collect(), end)
    }

    /// The names of the outputs that the device computes, and of those that the CPU computes.
    pub fn outputs_by_place(&self) -> (Vec<String>, Vec<String>) {
        let schema = self.program.schema();
        let (mut device, mut cpu) = (Vec::new(), Vec::new());
        for (place, field) in schema.fields().iter().enumerate() {
            let is_on_device = self.generated.outputs.iter().any(|output| output.output == place);
            if is_on_device { &mut device } else { &mut cpu }.push(field.name().clone());
        }
        (device, cpu)
    }
}

// === impl Executor ===

impl Executor {
    /// Creates an empty batch with room for `rows`, on the device and in pinned memory.
    pub fn new(program: Arc<DeviceProgram>, rows: usize, workspace: ExecutorWorkspace) -> Self {
        Self::of_shape(program, Shape { rows, is_scattered: false }, workspace)
    }

    /// Creates an empty batch for [`Self::scatter`].
    pub fn scattered(program: Arc<DeviceProgram>, rows: usize, workspace: ExecutorWorkspace) -> Self {
        Self::of_shape(program, Shape { rows, is_scattered: true }, workspace)
    }

    fn of_shape(program: Arc<DeviceProgram>, shape: Shape, workspace: ExecutorWorkspace) -> Self {
        let ExecutorWorkspace { tables, rest, mut cpu } = workspace;
        let filling = match OnDevice::new(&program, shape, rest) {
            Some(on_device) => Filling::OnDevice(Box::new(on_device)),
            None => Filling::OnCpu(shape.builder(&program.program, mem::take(&mut cpu))),
        };
        Self { program, shape, filling, tables, cpu }
    }

    /// The number of rows appended.
    pub fn len(&self) -> usize {
        match &self.filling {
            Filling::OnDevice(on_device) => on_device.rest.len(),
            Filling::OnCpu(builder) => builder.len(),
        }
    }

    /// Whether no rows were appended.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of rows that the batch has room for.
    pub fn capacity(&self) -> usize {
        self.shape.rows
    }

    /// Whether there is no room left.
    pub fn is_full(&self) -> bool {
        self.len() == self.shape.rows
    }

    /// Computes `rows` of the batch into the next free rows.
    pub fn append(&mut self, batch: &RecordBatch, rows: Range<usize>) -> Result<(), KernelError> {
        self.add(Run { batch: batch.clone(), rows, places: None })
    }

    /// Computes the i-th of `rows` into row `places[i]`. Only for executors created by [`Self::scattered`].
    pub fn scatter(&mut self, batch: &RecordBatch, rows: Range<usize>, places: &[u32]) -> Result<(), KernelError> {
        self.add(Run { batch: batch.clone(), rows, places: Some(places.to_vec()) })
    }

    /// Copies `rows` of a batch that an executor or builder of this program finished into the next free rows. The CPU
    /// does, and computes the rest of the batch.
    pub fn append_finished(&mut self, finished: &RecordBatch, rows: Range<usize>) -> Result<(), KernelError> {
        self.on_cpu()?.append_finished(finished, rows)
    }

    /// Copies the i-th of `rows` of such a batch to row `places[i]`. Only for executors created by
    /// [`Self::scattered`].
    pub fn scatter_finished(
        &mut self,
        finished: &RecordBatch,
        rows: Range<usize>,
        places: &[u32],
    ) -> Result<(), KernelError> {
        self.on_cpu()?.scatter_finished(finished, rows, places)
    }

    /// The batch of the rows appended so far, with the schema [`Program::schema`], and a workspace for the next one.
    pub fn finish(self) -> (Result<RecordBatch, KernelError>, ExecutorWorkspace) {
        let Self { program, shape, filling, tables, cpu } = self;
        let (builder, rest) = match filling {
            Filling::OnCpu(builder) => (Ok(builder), Workspace::default()),
            Filling::OnDevice(on_device) => {
                let (finished, runs, rest) = on_device.finish(&program);
                match finished {
                    Err(Failure::Device(error)) => {
                        program.device.fail(&error);
                        (shape.replay(&program.program, &runs, cpu), rest)
                    }
                    Err(Failure::Rows(error)) => return (Err(error), ExecutorWorkspace { tables, rest, cpu }),
                    Ok(batch) => return (Ok(batch), ExecutorWorkspace { tables, rest, cpu }),
                }
            }
        };
        let (batch, cpu) = match builder {
            Ok(builder) => builder.finish_and_keep(),
            Err(error) => (Err(error), Workspace::default()),
        };
        (batch, ExecutorWorkspace { tables, rest, cpu })
    }

    fn add(&mut self, run: Run) -> Result<(), KernelError> {
        match &mut self.filling {
            Filling::OnCpu(builder) => run.add_to(builder),
            Filling::OnDevice(on_device) => match on_device.add(&self.program, &mut self.tables, run) {
                Ok(()) => Ok(()),
                Err(Failure::Rows(error)) => Err(error),
                Err(Failure::Device(error)) => {
                    self.program.device.fail(&error);
                    self.on_cpu().map(|_| ())
                }
            },
        }
    }

    /// The batch on the CPU. Computes the rows so far there if they are on the device.
    fn on_cpu(&mut self) -> Result<&mut BatchBuilder, KernelError> {
        if let Filling::OnDevice(on_device) = &self.filling {
            let cpu = mem::take(&mut self.cpu);
            let builder = self.shape.replay(&self.program.program, &on_device.runs, cpu)?;
            self.filling = Filling::OnCpu(builder);
        }
        match &mut self.filling {
            Filling::OnCpu(builder) => Ok(builder),
            Filling::OnDevice(_) => Err(device_error("a batch did not move to the CPU")),
        }
    }
}

impl Shape {
    fn builder(self, program: &Arc<Program>, workspace: Workspace) -> BatchBuilder {
        let program = Arc::clone(program);
        let builder = if self.is_scattered {
            BatchBuilder::scattered(program, self.rows)
        } else {
            BatchBuilder::new(program, self.rows)
        };
        builder.reuse(workspace)
    }

    /// Computes runs on the CPU.
    fn replay(self, program: &Arc<Program>, runs: &[Run], workspace: Workspace) -> Result<BatchBuilder, KernelError> {
        let mut builder = self.builder(program, workspace);
        runs.iter().try_for_each(|run| run.add_to(&mut builder))?;
        Ok(builder)
    }
}

impl Run {
    fn add_to(&self, builder: &mut BatchBuilder) -> Result<(), KernelError> {
        match &self.places {
            None => builder.append(&self.batch, self.rows.clone()),
            Some(places) => builder.scatter(&self.batch, self.rows.clone(), places),
        }
    }
}

// === impl OnDevice ===

impl OnDevice {
    /// None if the device is lost or has no memory.
    fn new(program: &DeviceProgram, shape: Shape, rest: Workspace) -> Option<Self> {
        if program.device.is_lost() {
            return None;
        }
        let (offsets, bytes) = program.layout(shape.rows);
        let outputs = program.module.batch(bytes).inspect_err(|error| program.device.fail(error)).ok()?;
        let rest = shape.builder(&program.rest, rest);
        Some(Self { rest, outputs, offsets, bytes, runs: Vec::new(), started: 0, waited: 0 })
    }

    /// Starts a run, after waiting for a free place among those in flight.
    fn add(&mut self, program: &DeviceProgram, tables: &mut MappedTables, run: Run) -> Result<(), Failure> {
        let first = self.rest.len();
        run.add_to(&mut self.rest).map_err(|error| Failure::Rows(first_error(program, &run, error)))?;
        if run.rows.is_empty() {
            return Ok(());
        }
        let columns = program.program.input_columns().iter();
        let columns = columns.map(|column| run.batch.column_by_name(column).map(Arc::clone));
        // The CPU's part of the program has already checked every column.
        let Some(inputs) = columns.collect::<Option<Vec<ArrayRef>>>() else { return Ok(()) };
        let target = run.places.as_deref().map_or(Target::From(first), Target::Places);
        let (of, generated, rows) = (&program.program, &program.generated, run.rows.clone());
        let load = Load::new(of, generated, &inputs, rows, target, &self.offsets, tables).map_err(Failure::Rows)?;
        // Before a failure, so that the CPU computes this run, too.
        self.runs.push(run);
        while self.started - self.waited >= RUNNING_MAX {
            self.settle(program)?;
        }
        self.outputs.start(&load).map_err(Failure::Device)?;
        self.started += 1;
        Ok(())
    }

    /// Waits for the oldest run in flight.
    fn settle(&mut self, program: &DeviceProgram) -> Result<(), Failure> {
        let words = self.outputs.wait().map_err(Failure::Device)?;
        let run = &self.runs[self.waited];
        self.waited += 1;
        match first_fault(&program.generated, &words) {
            None => Ok(()),
            Some(fault) => Err(Failure::Rows(first_error(program, run, rejected_by_device(fault)))),
        }
    }

    /// Waits for all runs. Returns the batch, the runs, and the workspace of the outputs that stay on the CPU.
    fn finish(mut self, program: &DeviceProgram) -> (Result<RecordBatch, Failure>, Vec<Run>, Workspace) {
        while self.waited < self.started {
            if let Err(failure) = self.settle(program) {
                return (Err(failure), self.runs, Workspace::default());
            }
        }
        let Self { rest, outputs, offsets, bytes, runs, .. } = self;
        let rows = rest.len();
        let (rest, workspace) = rest.finish_and_keep();
        let finished = rest.map_err(Failure::Rows).and_then(|rest| {
            let buffer = outputs.finish(bytes).map_err(Failure::Device)?;
            assemble(program, rows, &rest, &buffer, &offsets).map_err(Failure::Rows)
        });
        (finished, runs, workspace)
    }
}

/// The batch of the outputs on the CPU and of those in a buffer.
fn assemble(
    program: &DeviceProgram,
    rows: usize,
    rest: &RecordBatch,
    buffer: &Buffer,
    offsets: &[usize],
) -> Result<RecordBatch, KernelError> {
    let schema = program.program.schema();
    let mut on_cpu = rest.columns().iter();
    let mut on_device = program.generated.outputs.iter().zip(offsets).peekable();
    let mut arrays = Vec::with_capacity(schema.fields().len());
    for (place, field) in schema.fields().iter().enumerate() {
        let array = match on_device.next_if(|(output, _)| output.output == place) {
            Some((output, offset)) => {
                let values = buffer.slice_with_length(*offset, rows * output.row_bytes);
                matrix(values, rows, field.data_type()).map_err(|source| program.program.output_error(place, source))?
            }
            None => on_cpu.next().map(Arc::clone).ok_or_else(|| device_error("an output is missing"))?,
        };
        arrays.push(array);
    }
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(schema, arrays, &options).map_err(|source| KernelError::Arrow {
        what: "assemble",
        name: "the batch".to_owned(),
        source,
    })
}

/// The CPU's error for a run, or `otherwise` if it has none.
fn first_error(program: &DeviceProgram, run: &Run, otherwise: KernelError) -> KernelError {
    if matches!(otherwise, KernelError::Full { .. } | KernelError::OutOfRange { .. }) {
        return otherwise;
    }
    let mut oracle = BatchBuilder::new(Arc::clone(&program.program), run.rows.len());
    oracle.append(&run.batch, run.rows.clone()).err().unwrap_or(otherwise)
}

/// Rows of an output as an Arrow array of its type.
fn matrix(values: Buffer, rows: usize, data_type: &DataType) -> Result<ArrayRef, ArrowError> {
    let data = match data_type {
        DataType::FixedSizeList(item, width) => {
            let items = ArrayData::builder(item.data_type().clone()).len(rows * *width as usize).add_buffer(values);
            ArrayData::builder(data_type.clone()).len(rows).add_child_data(items.build()?)
        }
        _ => ArrayData::builder(data_type.clone()).len(rows).add_buffer(values),
    };
    Ok(make_array(data.build()?))
}

fn device_error(problem: &str) -> KernelError {
    KernelError::Device { problem: problem.to_owned() }
}

fn rejected_by_device(fault: Fault) -> KernelError {
    device_error(&format!("it rejects a row that the CPU accepts ({fault:?})"))
}
