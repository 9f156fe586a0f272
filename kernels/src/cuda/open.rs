//! Opening a device. A device is usable only if a small program gives the same bits there as on the CPU.

use std::{panic, sync::Arc};

use arrow::{
    array::{ArrayRef, AsArray, Float64Array, RecordBatch},
    datatypes::Float32Type,
};

use super::{
    device::{Device, Report},
    error::DeviceError,
    executor::{DeviceProgram, Executor, ExecutorWorkspace},
    gpu::{Gpu, OnGpu},
};
use crate::{
    compile::program::Program,
    error::KernelError,
    execute::builder::BatchBuilder,
    ops::{Op, fill_null::Fill},
    spec::{Chain, DType, OutputSpec},
};

impl Device {
    /// Opens the GPU with this number, and verifies that it compiles and runs a program. `report` is
    /// called on later failures.
    pub fn open(ordinal: usize, report: Report) -> Result<Arc<Self>, DeviceError> {
        // cudarc panics if the driver lacks a function.
        let opened = panic::catch_unwind(|| {
            let gpu = Gpu::connect(ordinal)?;
            let device = Self::new(gpu.name().to_owned(), Box::new(OnGpu(gpu)), report);
            probe(&device)?;
            Ok(device)
        });
        opened.unwrap_or(Err(DeviceError::OldDriver))
    }
}

/// Runs a small program on the device and on the CPU.
fn probe(device: &Arc<Device>) -> Result<(), DeviceError> {
    let wrong = |reason: String| DeviceError::Probe { reason };
    let column: Float64Array = (0..1000).map(|row| (row % 3 > 0).then_some(f64::from(row))).collect();
    let table =
        RecordBatch::try_from_iter([("x", Arc::new(column) as ArrayRef)]).map_err(|error| wrong(error.to_string()))?;
    let ops = vec![Op::FillNull(Fill::Number(2.0)), Op::Log1p, Op::Standardize { mean: 1.5, std: 0.7 }];
    let chains = vec![Chain { column: "x".to_owned(), ops }];
    let outputs = [OutputSpec { name: "out".to_owned(), dtype: DType::Float32, chains }];
    let program = Program::compile(&outputs, &table.schema()).map_err(|error| wrong(error.to_string()))?;
    let program = Arc::new(program);
    let on_device =
        DeviceProgram::new(device, &program)?.ok_or_else(|| wrong("no output of it runs on the device".to_owned()))?;
    let run = || -> Result<bool, KernelError> {
        let mut executor = Executor::new(Arc::new(on_device), table.num_rows(), ExecutorWorkspace::default());
        executor.append(&table, 0..table.num_rows())?;
        let mut builder = BatchBuilder::new(Arc::clone(&program), table.num_rows());
        builder.append(&table, 0..table.num_rows())?;
        let (device, cpu) = (executor.finish().0?, builder.finish()?);
        let bits = |batch: &RecordBatch| -> Vec<u32> {
            batch.column(0).as_primitive::<Float32Type>().values().iter().map(|value| value.to_bits()).collect()
        };
        Ok(bits(&device) == bits(&cpu))
    };
    match run() {
        Ok(_) if device.has_failed() => Err(wrong("it was computed on the CPU".to_owned())),
        Ok(true) => Ok(()),
        Ok(false) => Err(wrong("the numbers differ".to_owned())),
        Err(error) => Err(wrong(error.to_string())),
    }
}
