//! Arrow IPC files and streams → batches, one record batch at a time.

use std::{
    fs::File,
    io::{self, BufReader, Read, Seek, SeekFrom},
    path::{Path, PathBuf},
    sync::{Arc, atomic::Ordering},
};

use arrow::{
    array::RecordBatch,
    datatypes::{Schema, SchemaRef},
    error::ArrowError,
};
use arrow_ipc::{
    Endianness,
    reader::{FileReader as IpcFileReader, StreamReader, read_footer_length},
    root_as_footer, root_as_message,
};

use crate::{
    batches::{Batches, FileReader},
    error::ConvertError,
    input::ReadBytes,
    same_schema::{SameSchema, align},
    sources::SourceFile,
};

/// Arrow files with a common schema.
pub(crate) struct ArrowFiles {
    schema: SchemaRef,
}

/// Record batches, and their schema.
type Opened = (SchemaRef, Box<dyn Iterator<Item = Result<RecordBatch, ArrowError>> + Send>);

// === impl ArrowFiles ===

impl ArrowFiles {
    /// Reads the schema of every file.
    pub(crate) fn open(files: &[SourceFile]) -> Result<Self, ConvertError> {
        let mut same = SameSchema::default();
        for file in files {
            let (schema, _) = open(&file.path)?;
            same.add(&file.path, schema.as_ref())?;
        }
        Ok(Self { schema: same.finish() })
    }
}

impl FileReader for ArrowFiles {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn read(&self, file: &SourceFile, read: &ReadBytes) -> Result<Batches, ConvertError> {
        let (_, batches) = open(&file.path)?;
        let (path, schema, read, bytes) = (file.path.clone(), self.schema(), Arc::clone(read), file.bytes);
        let aligned = batches
            .map(move |batch| batch.and_then(|batch| align(&batch, &schema)).map_err(|error| invalid(&path, &error)));
        let counted = aligned.chain(std::iter::once_with(move || {
            read.fetch_add(bytes, Ordering::Relaxed);
            Ok(RecordBatch::new_empty(Arc::new(Schema::empty())))
        }));
        Ok(Box::new(counted.filter(|batch| !matches!(batch, Ok(batch) if batch.num_rows() == 0))))
    }
}

fn open(path: &Path) -> Result<Opened, ConvertError> {
    let failed = |source| ConvertError::Read { path: path.to_owned(), source };
    let mut first = Vec::new();
    File::open(path).and_then(|file| file.take(8).read_to_end(&mut first)).map_err(failed)?;
    if first.starts_with(b"FEA1") {
        let reason = "it is a Feather file of version 1: write it again with a current pyarrow".to_owned();
        return Err(ConvertError::File { path: path.to_owned(), reason });
    }
    let file = BufReader::new(File::open(path).map_err(failed)?);
    let checked = if first.starts_with(b"ARROW1") { check_blocks(path) } else { check_stream(path) };
    checked.map_err(|reason| ConvertError::File {
        path: path.to_owned(),
        reason: format!("it is not a readable Arrow file: {reason}"),
    })?;
    let opened = if first.starts_with(b"ARROW1") {
        IpcFileReader::try_new(file, None).map(|reader| -> Opened { (reader.schema(), Box::new(reader)) })
    } else {
        StreamReader::try_new(file, None).map(|reader| -> Opened { (reader.schema(), Box::new(reader)) })
    };
    opened.map_err(|error| invalid(path, &error))
}

/// The largest schema of a stream.
const SCHEMA_BYTES_MAX: u64 = 1 << 28;

/// Marks the length of a message; before version 0.15 of the format, the length came first.
const CONTINUATION: [u8; 4] = [0xff; 4];

/// Checks the byte order of a stream, which its first message has: the reader would return other numbers, or panic.
fn check_stream(path: &Path) -> Result<(), String> {
    let read = || -> io::Result<Vec<u8>> {
        let mut file = File::open(path)?;
        let mut length = [0; 4];
        file.read_exact(&mut length)?;
        if length == CONTINUATION {
            file.read_exact(&mut length)?;
        }
        let mut message = Vec::new();
        file.take(u64::from(u32::from_le_bytes(length)).min(SCHEMA_BYTES_MAX)).read_to_end(&mut message)?;
        Ok(message)
    };
    let message = read().map_err(|error| error.to_string())?;
    // Other damage is left to the reader.
    let schema = root_as_message(&message).ok().and_then(|message| message.header_as_schema());
    schema.map_or(Ok(()), |schema| check_order(schema.endianness()))
}

fn check_order(order: Endianness) -> Result<(), String> {
    if order == Endianness::Little {
        return Ok(());
    }
    Err("its values are in big-endian byte order: read it with pyarrow and write it again".to_owned())
}

/// Checks the byte order, and that the footer declares no bytes beyond the file: the reader allocates what it declares.
fn check_blocks(path: &Path) -> Result<(), String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let mut file = File::open(path).map_err(|error| text(&error))?;
    let size = file.metadata().map_err(|error| text(&error))?.len();
    let mut end = [0; 10];
    let start = size.checked_sub(10).ok_or("it is too short")?;
    file.seek(SeekFrom::Start(start)).and_then(|_| file.read_exact(&mut end)).map_err(|error| text(&error))?;
    let length = read_footer_length(end).map_err(|error| text(&error))?;
    let start = start.checked_sub(length as u64).ok_or("its footer is longer than the file")?;
    let mut bytes = vec![0; length];
    file.seek(SeekFrom::Start(start)).and_then(|_| file.read_exact(&mut bytes)).map_err(|error| text(&error))?;
    let footer = root_as_footer(&bytes).map_err(|error| text(&error))?;
    footer.schema().map_or(Ok(()), |schema| check_order(schema.endianness()))?;
    let blocks = footer.dictionaries().into_iter().flatten().chain(footer.recordBatches().into_iter().flatten());
    for block in blocks {
        let lengths = [block.offset(), block.metaDataLength().into(), block.bodyLength()];
        let end = lengths.iter().try_fold(0_u64, |end, length| end.checked_add(u64::try_from(*length).ok()?));
        if end.is_none_or(|end| end > size) {
            return Err(format!("a block of {} bytes at {} is beyond its end", lengths[2], lengths[0]));
        }
    }
    Ok(())
}

fn invalid(path: &Path, error: &ArrowError) -> ConvertError {
    ConvertError::File { path: PathBuf::from(path), reason: format!("it is not a readable Arrow file: {error}") }
}
