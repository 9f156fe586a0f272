//! Timing of a device over rows that it already holds, for benchmarks.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};

use super::{
    executor::DeviceProgram,
    feed::{Load, MappedTables, Target},
};
use crate::error::KernelError;

/// Durations of a kernel and of a copy, one per repetition.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Bytes that the kernel reads: the columns with their validity.
    pub read_bytes: usize,
    /// Bytes that it writes.
    pub written_bytes: usize,
    /// Durations of the kernel over all rows.
    pub kernel_seconds: Vec<f64>,
    /// Durations of a copy on the device of half as many bytes as the kernel reads and writes, which moves the same
    /// number of bytes.
    pub copy_seconds: Vec<f64>,
}

impl DeviceProgram {
    /// Copies all rows of a batch to the device, and runs the program over them repeatedly.
    pub fn measure(&self, batch: &RecordBatch, repetitions: usize) -> Result<Measured, KernelError> {
        let inputs = self.program.input_columns().iter().map(|column| {
            let found = batch.column_by_name(column).map(Arc::clone);
            found.ok_or_else(|| KernelError::MissingColumn { column: column.clone() })
        });
        let inputs = inputs.collect::<Result<Vec<ArrayRef>, _>>()?;
        let (offsets, written_bytes) = self.layout(batch.num_rows());
        let rows = 0..batch.num_rows();
        let (program, generated) = (&self.program, &self.generated);
        let load =
            Load::new(program, generated, &inputs, rows, Target::From(0), &offsets, &mut MappedTables::default())?;
        let [kernel_seconds, copy_seconds] = self
            .module
            .measure(&load, written_bytes, repetitions)
            .map_err(|error| KernelError::Device { problem: error.to_string() })?;
        Ok(Measured { read_bytes: load.len(), written_bytes, kernel_seconds, copy_seconds })
    }
}
