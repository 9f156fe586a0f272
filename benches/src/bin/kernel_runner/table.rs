//! A table's columns in memory, each in separate buffers.

use std::error::Error;
use std::fs::File;
use std::hint::black_box;
use std::path::Path;

use arrow::array::{Array, ArrayRef, MutableArrayData, RecordBatch, make_array};
use arrow::error::ArrowError;
use arrow::ipc::reader::FileReader;

use crate::clock::Times;

/// The columns as one record batch.
pub(crate) struct Table(RecordBatch);

impl Table {
    /// Reads an Arrow file of one record batch. The columns are copied out of the file's buffer, so that each is
    /// 64-byte aligned, as a decoder's output is.
    pub(crate) fn read(path: &Path) -> Result<Self, Box<dyn Error>> {
        let batches = FileReader::try_new(File::open(path)?, None)?.collect::<Result<Vec<_>, _>>()?;
        let [batch] = batches.as_slice() else {
            return Err(format!("{} has {} record batches; write it with one", path.display(), batches.len()).into());
        };
        let columns = batch.columns().iter().map(copied).collect::<Result<_, _>>()?;
        Ok(Self(RecordBatch::try_new(batch.schema(), columns)?))
    }

    pub(crate) fn batch(&self) -> &RecordBatch {
        &self.0
    }

    pub(crate) fn rows(&self) -> usize {
        self.0.num_rows()
    }

    /// Copies the first buffer of each column (for numbers, the values) to memory that is already mapped.
    pub(crate) fn copy(&self, passes: usize) -> Times {
        let columns: Vec<_> = self.0.columns().iter().map(Array::to_data).collect();
        let sources: Vec<&[u8]> = columns.iter().map(|column| column.buffers()[0].as_slice()).collect();
        let mut target = vec![1_u8; sources.iter().map(|source| source.len()).sum()];
        let mut times = Times::default();
        for _ in 0..passes {
            times.record(|| {
                let mut rest = black_box(&mut target).as_mut_slice();
                for source in &sources {
                    let (head, tail) = rest.split_at_mut(source.len());
                    head.copy_from_slice(source);
                    rest = tail;
                }
            });
            black_box(&mut target);
        }
        times
    }
}

fn copied(column: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    let data = column.to_data();
    let mut copy = MutableArrayData::new(vec![&data], false, data.len());
    copy.try_extend(0, 0, data.len())?;
    Ok(make_array(copy.freeze()))
}
