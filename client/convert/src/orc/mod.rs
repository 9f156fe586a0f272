//! ORC files → batches, by pyarrow, whose reader is that of Apache ORC. The crate for this format reads other times than
//! were written before 1970, and allocates what damaged files declare.

mod process;

use std::{
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::Ordering},
};

use arrow::{
    array::RecordBatch,
    buffer::Buffer,
    datatypes::{Schema, SchemaRef},
};
use arrow_ipc::reader::{StreamDecoder, StreamReader};

use crate::{
    batches::{Batches, FileReader, batches},
    error::ConvertError,
    input::ReadBytes,
    options::Options,
    orc::process::{Frame, OrcProcess, ReadError, Request},
    same_schema::{SameSchema, align},
    sources::SourceFile,
};

/// ORC files with a common schema.
pub(crate) struct OrcFiles {
    schema: SchemaRef,
    process: Arc<Mutex<OrcProcess>>,
}

/// The rows of a file.
struct OrcBatches {
    file: SourceFile,
    schema: SchemaRef,
    process: Arc<Mutex<OrcProcess>>,
    /// Rows that the file declares.
    declared: u64,
    rows: u64,
    read: ReadBytes,
}

// === impl OrcFiles ===

impl OrcFiles {
    /// Reads the schema of every file.
    pub(crate) fn open(files: &[SourceFile], options: &Options) -> Result<Self, ConvertError> {
        let mut process = OrcProcess::start(&options.python).map_err(ConvertError::Usage)?;
        let mut same = SameSchema::default();
        for file in files {
            let (_, schema) = open(&mut process, Request::Schema, &file.path)?;
            same.add(&file.path, &schema)?;
            match process.frame() {
                Ok(Frame::Done) => {}
                Ok(_) => return Err(unexpected(&file.path)),
                Err(error) => return Err(failed(&file.path, error)),
            }
        }
        Ok(Self { schema: same.finish(), process: Arc::new(Mutex::new(process)) })
    }
}

impl FileReader for OrcFiles {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn read(&self, file: &SourceFile, read: &ReadBytes) -> Result<Batches, ConvertError> {
        let (declared, _) = open(&mut locked(&self.process), Request::Rows, &file.path)?;
        let mut rows = OrcBatches {
            file: file.clone(),
            schema: self.schema(),
            process: Arc::clone(&self.process),
            declared,
            rows: 0,
            read: Arc::clone(read),
        };
        Ok(batches(move || rows.batch()))
    }
}

/// Requests a file. Returns the number of its rows and its schema.
fn open(process: &mut OrcProcess, request: Request, path: &Path) -> Result<(u64, Schema), ConvertError> {
    let frame = process.send(request, path).and_then(|()| process.frame()).map_err(|error| failed(path, error))?;
    let Frame::Schema { rows, stream } = frame else { return Err(unexpected(path)) };
    let reader = StreamReader::try_new(stream.as_slice(), None);
    Ok((rows, reader.map_err(|error| invalid(path, &error.to_string()))?.schema().as_ref().clone()))
}

// === impl OrcBatches ===

impl OrcBatches {
    fn batch(&mut self) -> Result<Option<RecordBatch>, ConvertError> {
        let path = &self.file.path;
        let frame = locked(&self.process).frame().map_err(|error| failed(path, error))?;
        let stream = match frame {
            Frame::Batch(stream) => stream,
            Frame::Done if self.rows == self.declared => return Ok(None),
            Frame::Done => {
                let reason = format!("it has {} rows and declares {}", self.rows, self.declared);
                return Err(invalid(path, &reason));
            }
            Frame::Schema { .. } | Frame::Hello => return Err(unexpected(path)),
        };
        let batch = StreamDecoder::new().decode(&mut Buffer::from_vec(stream));
        let batch = batch.map_err(|error| invalid(path, &error.to_string()))?.ok_or_else(|| unexpected(path))?;
        let aligned = align(&batch, &self.schema).map_err(|error| invalid(path, &error.to_string()))?;
        self.rows += batch.num_rows() as u64;
        let share = self.file.bytes as f64 * batch.num_rows() as f64 / self.declared.max(1) as f64;
        self.read.fetch_add(share as u64, Ordering::Relaxed);
        Ok(Some(aligned))
    }
}

/// Files are read one after another.
fn locked(process: &Mutex<OrcProcess>) -> MutexGuard<'_, OrcProcess> {
    process.lock().unwrap_or_else(PoisonError::into_inner)
}

fn failed(path: &Path, error: ReadError) -> ConvertError {
    match error {
        ReadError::Python(reason) => ConvertError::Usage(reason),
        ReadError::File(reason) => invalid(path, &reason),
    }
}

fn unexpected(path: &Path) -> ConvertError {
    invalid(path, "pyarrow sent another part of it than is required")
}

fn invalid(path: &Path, reason: &str) -> ConvertError {
    ConvertError::File { path: path.to_owned(), reason: format!("it is not a readable ORC file: {reason}") }
}
