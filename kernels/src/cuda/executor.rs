//! Rows of record batches → one output batch, computed on a device: the counterpart of [`BatchBuilder`].

use std::{collections::VecDeque, ops::Range, sync::Arc};

use arrow::{
    array::{ArrayData, ArrayRef, RecordBatch, RecordBatchOptions, make_array},
    buffer::Buffer,
    datatypes::DataType,
    error::ArrowError,
};

use super::{
    device::{Device, DeviceError, Module, OutputBuffer, Slot},
    fault::{Fault, first_fault},
    feed::{Load, MappedTables, Target},
    generate::{Generated, generate},
};
use crate::{compile::program::Program, error::KernelError, execute::builder::BatchBuilder};

/// A program compiled for a device.
#[derive(Debug)]
pub struct DeviceProgram {
    pub(super) device: Arc<Device>,
    pub(super) program: Arc<Program>,
    /// The outputs that stay on the CPU.
    rest: Arc<Program>,
    pub(super) generated: Generated,
    pub(super) module: Module,
}

/// One output batch being filled by a device, as a [`BatchBuilder`] fills one on the CPU.
///
/// Rows are computed while later ones are appended: a later call, or `finish` at the latest, may return the error of an
/// earlier row, and the batch is then lost.
#[derive(Debug)]
pub struct Executor {
    program: Arc<DeviceProgram>,
    rest: BatchBuilder,
    output: OutputBuffer,
    /// The offset of each device output in the output buffer.
    offsets: Vec<usize>,
    output_bytes: usize,
    mapped: MappedTables,
    running: VecDeque<Running>,
}

/// A run on the device, with the rows that are needed to explain a fault.
#[derive(Debug)]
struct Running {
    slot: Slot,
    fault_bytes: usize,
    batch: RecordBatch,
    rows: Range<usize>,
}

/// The number of runs in flight: one is copied while another is computed.
const RUNNING_MAX: usize = 2;

/// The alignment of outputs: a multiple of Arrow's 64 bytes, and of a cache line of the device.
const OUTPUT_ALIGNMENT: usize = 256;

impl DeviceProgram {
    /// Compiles a program for a device; `None` if none of its outputs can run there.
    pub fn new(device: &Arc<Device>, program: &Arc<Program>) -> Result<Option<Self>, DeviceError> {
        let generated = generate(program);
        if generated.outputs.is_empty() {
            return Ok(None);
        }
        let module = device.module(&generated.source, &generated.fixed)?;
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

impl Executor {
    /// Creates an empty batch with room for `rows`, on the device and in pinned memory.
    pub fn new(program: Arc<DeviceProgram>, rows: usize) -> Result<Self, KernelError> {
        let rest = BatchBuilder::new(Arc::clone(&program.rest), rows);
        Self::with_rest(program, rest)
    }

    /// Creates an empty batch for [`Self::scatter`].
    pub fn scattered(program: Arc<DeviceProgram>, rows: usize) -> Result<Self, KernelError> {
        let rest = BatchBuilder::scattered(Arc::clone(&program.rest), rows);
        Self::with_rest(program, rest)
    }

    fn with_rest(program: Arc<DeviceProgram>, rest: BatchBuilder) -> Result<Self, KernelError> {
        let (offsets, output_bytes) = program.layout(rest.capacity());
        let output = program.device.output(output_bytes).map_err(device_failure)?;
        Ok(Self {
            program,
            rest,
            output,
            offsets,
            output_bytes,
            mapped: MappedTables::default(),
            running: VecDeque::new(),
        })
    }

    /// The number of rows appended.
    pub fn len(&self) -> usize {
        self.rest.len()
    }

    /// Whether no rows were appended.
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The number of rows that the batch has room for.
    pub fn capacity(&self) -> usize {
        self.rest.capacity()
    }

    /// Whether there is no room left.
    pub fn is_full(&self) -> bool {
        self.rest.is_full()
    }

    /// Computes `rows` of the batch into the next free rows.
    pub fn append(&mut self, batch: &RecordBatch, rows: Range<usize>) -> Result<(), KernelError> {
        let first = self.rest.len();
        self.rest.append(batch, rows.clone()).map_err(|error| self.first_error(batch, &rows, error))?;
        self.run(batch, rows, Target::From(first))
    }

    /// Computes the i-th of `rows` into row `places[i]`. Only for executors created by [`Self::scattered`].
    pub fn scatter(&mut self, batch: &RecordBatch, rows: Range<usize>, places: &[u32]) -> Result<(), KernelError> {
        let added = self.rest.scatter(batch, rows.clone(), places);
        added.map_err(|error| self.first_error(batch, &rows, error))?;
        self.run(batch, rows, Target::Places(places))
    }

    /// The batch of the rows appended so far, with the schema [`Program::schema`].
    pub fn finish(mut self) -> Result<RecordBatch, KernelError> {
        while !self.running.is_empty() {
            self.settle()?;
        }
        let (program, rows) = (Arc::clone(&self.program), self.rest.len());
        let rest = self.rest.finish()?;
        let buffer = program.device.copy_back(self.output, self.output_bytes).map_err(device_failure)?;
        let schema = program.program.schema();
        let mut on_cpu = rest.columns().iter();
        let mut on_device = program.generated.outputs.iter().zip(&self.offsets).peekable();
        let mut arrays = Vec::with_capacity(schema.fields().len());
        for (place, field) in schema.fields().iter().enumerate() {
            let array = match on_device.next_if(|(output, _)| output.output == place) {
                Some((output, offset)) => {
                    let values = buffer.slice_with_length(*offset, rows * output.row_bytes);
                    matrix(values, rows, field.data_type())
                        .map_err(|source| program.program.output_error(place, source))?
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

    /// Starts a run, after waiting for a free place among those in flight.
    fn run(&mut self, batch: &RecordBatch, rows: Range<usize>, target: Target<'_>) -> Result<(), KernelError> {
        if rows.is_empty() {
            return Ok(());
        }
        while self.running.len() >= RUNNING_MAX {
            self.settle()?;
        }
        let DeviceProgram { device, program, generated, module, .. } = &*self.program;
        let columns = program.input_columns().iter().map(|column| batch.column_by_name(column).map(Arc::clone));
        // The CPU's part of the program has already checked every column.
        let Some(inputs) = columns.collect::<Option<Vec<ArrayRef>>>() else { return Ok(()) };
        let load = Load::new(program, generated, &inputs, rows.clone(), target, &self.offsets, &mut self.mapped)?;
        let fault_bytes = load.faults().len();
        let mut slot = device.slot(load.len(), fault_bytes).map_err(device_failure)?;
        device.start(module, &mut slot, &load, &mut self.output).map_err(device_failure)?;
        self.running.push_back(Running { slot, fault_bytes, batch: batch.clone(), rows });
        Ok(())
    }

    /// Waits for the oldest run.
    fn settle(&mut self) -> Result<(), KernelError> {
        let Some(run) = self.running.pop_front() else { return Ok(()) };
        let DeviceProgram { device, generated, .. } = &*self.program;
        let words = run.slot.wait(run.fault_bytes).map_err(device_failure)?;
        let fault = first_fault(generated, &words);
        device.keep_slot(run.slot);
        match fault {
            None => Ok(()),
            Some(fault) => Err(self.first_error(&run.batch, &run.rows, rejected_by_device(fault))),
        }
    }

    /// The CPU's error for these rows, or `otherwise` if it has none.
    fn first_error(&self, batch: &RecordBatch, rows: &Range<usize>, otherwise: KernelError) -> KernelError {
        if matches!(otherwise, KernelError::Full { .. } | KernelError::OutOfRange { .. }) {
            return otherwise;
        }
        let mut oracle = BatchBuilder::new(Arc::clone(&self.program.program), rows.len());
        oracle.append(batch, rows.clone()).err().unwrap_or(otherwise)
    }
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

#[expect(clippy::needless_pass_by_value, reason = "the argument of `map_err`")]
fn device_failure(error: DeviceError) -> KernelError {
    device_error(&error.to_string())
}

fn device_error(problem: &str) -> KernelError {
    KernelError::Device { problem: problem.to_owned() }
}

fn rejected_by_device(fault: Fault) -> KernelError {
    device_error(&format!("it rejects a row that the CPU accepts ({fault:?})"))
}
