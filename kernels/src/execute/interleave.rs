//! Rows of several batches in turn → one batch: the first row of each, then the second row of each, and so on.
//!
//! Rows of matrices are copied once, as bytes, into buffers that start at multiples of 64 bytes.

use std::{iter::successors, sync::Arc};

use arrow::{
    array::{Array, ArrayData, ArrayRef, RecordBatch, RecordBatchOptions, make_array, new_empty_array},
    buffer::{Buffer, MutableBuffer},
    compute::{concat, interleave},
    datatypes::DataType,
    error::ArrowError,
};

use crate::{
    compile::{outputs::CompiledOutput, program::Program},
    error::KernelError,
    execute::{canonical::canonical, matrix::copy_row},
};

/// A batch being assembled from rows of batches that a [`BatchBuilder`](crate::BatchBuilder) of the same program
/// produced.
#[derive(Debug)]
pub struct Interleave {
    program: Arc<Program>,
    columns: Vec<InterleavedColumn>,
    capacity: usize,
    len: usize,
}

/// An output being filled.
#[derive(Debug)]
enum InterleavedColumn {
    Matrix { row_bytes: usize, rows: MutableBuffer },
    Stored { pieces: Vec<ArrayRef> },
}

impl Interleave {
    /// Creates an empty batch with room for `rows`. Allocates `rows` × [`Program::row_bytes`] bytes, which the caller
    /// has accounted for.
    pub fn new(program: Arc<Program>, rows: usize) -> Self {
        let column = |output: &CompiledOutput| match output {
            CompiledOutput::Matrix { dtype, width, .. } => {
                let row_bytes = width * dtype.bytes().unwrap_or(0);
                InterleavedColumn::Matrix { row_bytes, rows: MutableBuffer::with_capacity(rows * row_bytes) }
            }
            CompiledOutput::Stored { .. } | CompiledOutput::Ragged { .. } => {
                InterleavedColumn::Stored { pieces: Vec::new() }
            }
        };
        let columns = program.outputs.iter().map(column).collect();
        Self { program, columns, capacity: rows, len: 0 }
    }

    /// The number of rows added.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no rows were added.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The number of rows that the batch has room for.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Whether there is no room left.
    pub fn is_full(&self) -> bool {
        self.len == self.capacity
    }

    /// Adds `count` rows from the sequence whose i-th row is row ⌊i/k⌋ of batch i mod k, for k batches, starting at i =
    /// `first`.
    pub fn append(&mut self, batches: &[RecordBatch], first: usize, count: usize) -> Result<(), KernelError> {
        if count > self.capacity - self.len {
            return Err(KernelError::Full { rows: count, len: self.len, capacity: self.capacity });
        }
        let place = |index: usize| (index % batches.len(), index / batches.len());
        let last_of_each = (first..first + count).rev().take(batches.len()).map(place);
        for (batch, row) in last_of_each {
            if row >= batches[batch].num_rows() {
                return Err(KernelError::OutOfRange { start: row, end: row + 1, rows: batches[batch].num_rows() });
            }
        }
        let next = |&(batch, row): &(usize, usize)| {
            Some(if batch + 1 == batches.len() { (0, row + 1) } else { (batch + 1, row) })
        };
        self.add(batches, count, || successors((count > 0).then(|| place(first)), next).take(count))
    }

    /// Adds rows of batches, each given by the index of its batch and of the row in it.
    pub fn append_rows(&mut self, batches: &[RecordBatch], rows: &[(usize, usize)]) -> Result<(), KernelError> {
        if rows.len() > self.capacity - self.len {
            return Err(KernelError::Full { rows: rows.len(), len: self.len, capacity: self.capacity });
        }
        for (batch, row) in rows {
            let held = batches.get(*batch).map_or(0, RecordBatch::num_rows);
            if *row >= held {
                return Err(KernelError::OutOfRange { start: *row, end: row + 1, rows: held });
            }
        }
        self.add(batches, rows.len(), || rows.iter().copied())
    }

    /// Adds `count` rows, which are within the batches.
    fn add<Rows: Iterator<Item = (usize, usize)>>(
        &mut self,
        batches: &[RecordBatch],
        count: usize,
        turn: impl Fn() -> Rows,
    ) -> Result<(), KernelError> {
        for (place, column) in self.columns.iter_mut().enumerate() {
            let arrays: Vec<&ArrayRef> = batches.iter().map(|batch| batch.column(place)).collect();
            match column {
                InterleavedColumn::Matrix { row_bytes, rows } => {
                    let values: Vec<Buffer> = arrays.iter().map(|array| bytes(array)).collect();
                    let values: Vec<&[u8]> = values.iter().map(Buffer::as_slice).collect();
                    add_rows(rows, *row_bytes, count, turn().map(|(batch, row)| &values[batch][row * *row_bytes..]));
                }
                InterleavedColumn::Stored { pieces } => {
                    let arrays: Vec<&dyn Array> = arrays.into_iter().map(AsRef::as_ref).collect();
                    let interleaved = interleave(&arrays, &turn().collect::<Vec<_>>());
                    pieces.push(interleaved.map_err(|source| self.program.output_error(place, source))?);
                }
            }
        }
        self.len += count;
        Ok(())
    }

    /// The batch of the rows added so far, with the schema [`Program::schema`].
    pub fn finish(self) -> Result<RecordBatch, KernelError> {
        let (schema, len) = (self.program.schema(), self.len);
        let mut arrays = Vec::with_capacity(self.columns.len());
        for (place, (column, field)) in self.columns.into_iter().zip(schema.fields()).enumerate() {
            let array = match column {
                InterleavedColumn::Matrix { rows, .. } => matrix(rows.into(), len, field.data_type()),
                InterleavedColumn::Stored { pieces } => match pieces.as_slice() {
                    [] => Ok(new_empty_array(field.data_type())),
                    [piece] => Ok(Arc::clone(piece)),
                    _ => concat(&pieces.iter().map(AsRef::as_ref).collect::<Vec<_>>()),
                }
                .and_then(canonical),
            };
            arrays.push(array.map_err(|source| self.program.output_error(place, source))?);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(len));
        RecordBatch::try_new_with_options(schema, arrays, &options).map_err(|source| KernelError::Arrow {
            what: "assemble",
            name: "the batch".to_owned(),
            source,
        })
    }
}

/// Adds `count` rows; each is the first `row_bytes` bytes of its slice.
fn add_rows<'a>(into: &mut MutableBuffer, row_bytes: usize, count: usize, mut rows: impl Iterator<Item = &'a [u8]>) {
    /// The buffer grows by this much at a time, little enough to still be in cache when the rows are copied.
    const STEP_BYTES: usize = 8 << 10;
    let step_rows = (STEP_BYTES / row_bytes.max(1)).max(1);
    let mut left = count;
    while left > 0 {
        let (start, these) = (into.len(), left.min(step_rows));
        into.resize(start + these * row_bytes, 0);
        for (target, row) in into.as_slice_mut()[start..].chunks_exact_mut(row_bytes.max(1)).zip(rows.by_ref()) {
            copy_row(&row[..target.len()], target);
        }
        left -= these;
    }
}

/// The rows of a matrix as bytes.
pub(crate) fn bytes(array: &ArrayRef) -> Buffer {
    let data = array.to_data();
    data.child_data().first().unwrap_or(&data).buffers()[0].clone()
}

/// A matrix of these bytes.
pub(crate) fn matrix(values: Buffer, len: usize, data_type: &DataType) -> Result<ArrayRef, ArrowError> {
    let data = match data_type {
        DataType::FixedSizeList(item, width) => {
            let items = ArrayData::builder(item.data_type().clone()).len(len * *width as usize).add_buffer(values);
            ArrayData::builder(data_type.clone()).len(len).add_child_data(items.build()?)
        }
        _ => ArrayData::builder(data_type.clone()).len(len).add_buffer(values),
    };
    Ok(make_array(data.build()?))
}

#[cfg(test)]
mod tests;
