//! A compiled output and its input columns.

use std::error::Error;
use std::fs::File;
use std::hint::black_box;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::ipc::writer::FileWriter;
use forebay_kernels::{BatchBuilder, KernelError, OutputSpec, Program};

use crate::clock::Times;
use crate::request::Output;
use crate::table::Table;

/// A program, its input, and the rows of each output batch (the last may have fewer).
pub(crate) struct Work {
    program: Arc<Program>,
    input: RecordBatch,
    batch_rows: usize,
}

impl Work {
    pub(crate) fn new(table: &Table, batch_rows: usize, output: Output) -> Result<Self, Box<dyn Error>> {
        if batch_rows == 0 {
            return Err("batch_rows must be 1 or more".into());
        }
        let program = Program::compile(&[OutputSpec::from(output)], &table.batch().schema())?;
        Ok(Self { program: Arc::new(program), input: table.batch().clone(), batch_rows })
    }

    /// Runs over the first `rows` rows (default: all).
    pub(crate) fn run(&self, passes: usize, rows: Option<usize>) -> Result<Times, KernelError> {
        let rows = rows.unwrap_or(usize::MAX).min(self.input.num_rows());
        let mut times = Times::default();
        for _ in 0..passes {
            times.record(|| {
                self.batches(rows).try_for_each(|batch| {
                    // Dropped immediately, like a batch that has been sent.
                    black_box(self.batch(batch)?);
                    Ok::<_, KernelError>(())
                })
            })?;
        }
        Ok(times)
    }

    /// Writes the batches of one pass to an Arrow file.
    pub(crate) fn write(&self, path: &Path) -> Result<(), Box<dyn Error>> {
        let mut file = FileWriter::try_new(File::create(path)?, &self.program.schema())?;
        for batch in self.batches(self.input.num_rows()) {
            file.write(&self.batch(batch)?)?;
        }
        Ok(file.finish()?)
    }

    fn batch(&self, rows: Range<usize>) -> Result<RecordBatch, KernelError> {
        let mut builder = BatchBuilder::new(Arc::clone(&self.program), rows.len());
        builder.append(&self.input, rows)?;
        builder.finish()
    }

    fn batches(&self, rows: usize) -> impl Iterator<Item = Range<usize>> {
        (0..rows).step_by(self.batch_rows).map(move |start| start..rows.min(start + self.batch_rows))
    }
}
