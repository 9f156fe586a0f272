//! Batches → Parquet files of bounded size: zstd, dictionaries where values repeat, statistics and page indexes.

use std::{
    fs::File,
    io,
    path::{Path, PathBuf},
};

use arrow::{array::RecordBatch, datatypes::SchemaRef};
use parquet::{
    arrow::ArrowWriter,
    basic::{Compression, ZstdLevel},
    errors::ParquetError,
    file::properties::WriterProperties,
};

use crate::{error::ConvertError, options::Options};

/// Decompresses as fast as higher levels; those would save little storage.
const ZSTD_LEVEL: i32 = 1;

/// Row groups of a file: the server reads no more.
const ROW_GROUPS_MAX: usize = 32_767;

/// Bytes of rows that are passed to the encoder at once: a row group exceeds its bytes by at most this.
const STEP_BYTES: usize = 1 << 20;

/// Rows that are passed to the encoder at once.
const STEP_ROWS: usize = 8192;

/// Writes files named `part-00000.parquet` and so on into a folder.
pub(crate) struct ParquetWriter<'a> {
    options: &'a Options,
    folder: PathBuf,
    schema: SchemaRef,
    file: Option<ArrowWriter<File>>,
    written: Written,
}

/// What was written.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Written {
    /// Rows of complete row groups.
    pub rows: u64,
    /// Complete row groups.
    pub row_groups: u64,
    /// Bytes of complete files.
    pub bytes: u64,
    /// Complete files.
    pub files: u64,
}

// === impl ParquetWriter ===

impl<'a> ParquetWriter<'a> {
    pub(crate) fn new(options: &'a Options, folder: &Path, schema: SchemaRef) -> Self {
        Self { options, folder: folder.to_owned(), schema, file: None, written: Written::default() }
    }

    /// Appends rows.
    pub(crate) fn write(&mut self, batch: &RecordBatch) -> Result<(), ConvertError> {
        let row_bytes = batch.get_array_memory_size() / batch.num_rows().max(1);
        let step = (STEP_BYTES / row_bytes.max(1)).clamp(1, STEP_ROWS);
        let mut start = 0;
        while start < batch.num_rows() {
            let file = match &mut self.file {
                Some(file) => file,
                none => none.insert(create(&self.folder, self.written.files, &self.schema)?),
            };
            let room = self.options.row_group_rows - file.in_progress_rows();
            let rows = step.min(room).min(batch.num_rows() - start);
            file.write(&batch.slice(start, rows)).map_err(ConvertError::Encode)?;
            start += rows;
            if file.in_progress_rows() == self.options.row_group_rows
                || file.in_progress_size() >= self.options.row_group_bytes
            {
                self.end_row_group()?;
            }
        }
        Ok(())
    }

    /// Completes the last file. Without a row, writes one file with the schema.
    pub(crate) fn finish(mut self) -> Result<Written, ConvertError> {
        if self.file.is_none() && self.written.files == 0 {
            self.file = Some(create(&self.folder, 0, &self.schema)?);
        }
        self.end_file()?;
        Ok(self.written)
    }

    /// What was written so far.
    pub(crate) fn written(&self) -> Written {
        let bytes = self.file.as_ref().map_or(0, ArrowWriter::bytes_written) as u64;
        Written { bytes: self.written.bytes + bytes, ..self.written }
    }

    fn end_row_group(&mut self) -> Result<(), ConvertError> {
        let Some(file) = &mut self.file else { return Ok(()) };
        let rows = file.in_progress_rows();
        file.flush().map_err(ConvertError::Encode)?;
        self.written.rows += rows as u64;
        self.written.row_groups += u64::from(rows > 0);
        let is_complete =
            file.bytes_written() as u64 >= self.options.file_bytes || file.flushed_row_groups().len() >= ROW_GROUPS_MAX;
        if is_complete { self.end_file() } else { Ok(()) }
    }

    fn end_file(&mut self) -> Result<(), ConvertError> {
        let Some(mut file) = self.file.take() else { return Ok(()) };
        let rows = file.in_progress_rows();
        file.finish().map_err(ConvertError::Encode)?;
        self.written.rows += rows as u64;
        self.written.row_groups += u64::from(rows > 0);
        self.written.bytes += file.bytes_written() as u64;
        self.written.files += 1;
        file.inner().sync_all().map_err(|error| ConvertError::Encode(ParquetError::from(error)))
    }
}

fn create(folder: &Path, index: u64, schema: &SchemaRef) -> Result<ArrowWriter<File>, ConvertError> {
    let path = folder.join(format!("part-{index:05}.parquet"));
    let file = File::create_new(&path).map_err(|error| failed(&path, &error))?;
    let level = ZstdLevel::try_new(ZSTD_LEVEL).map_err(ConvertError::Encode)?;
    let properties = WriterProperties::builder()
        .set_created_by(concat!("forebay convert version ", env!("CARGO_PKG_VERSION")).to_owned())
        .set_compression(Compression::ZSTD(level))
        // `ParquetWriter` ends row groups.
        .set_max_row_group_row_count(None)
        .build();
    ArrowWriter::try_new(file, SchemaRef::clone(schema), Some(properties)).map_err(ConvertError::Encode)
}

fn failed(path: &Path, error: &io::Error) -> ConvertError {
    ConvertError::Out { path: path.to_owned(), reason: format!("cannot be written: {error}") }
}
