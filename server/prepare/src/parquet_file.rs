//! Row groups → Parquet files: zstd, statistics, page indices. Groups are encoded in parallel and written in order.

use std::{mem, sync::Arc};

use arrow::datatypes::SchemaRef;
use bytes::Bytes;
use object_store::{ObjectStore, buffered::BufWriter, path::Path};
use parquet::{
    arrow::{
        ArrowWriter,
        arrow_writer::{ArrowColumnChunk, ArrowRowGroupWriterFactory, compute_leaves},
    },
    basic::{Compression, ZstdLevel},
    errors::Result,
    file::{properties::WriterProperties, writer::SerializedFileWriter},
};
use sha2::{Digest, Sha256};
use tokio::io::AsyncWriteExt;

use crate::row_groups::RowGroupRows;

/// Bytes of a part of an upload; S3 allows 10,000 of at least 5 MiB.
const PART_BYTES: usize = 8 << 20;

/// Encodes row groups of one schema.
pub(crate) struct Encoder {
    schema: SchemaRef,
    factory: ArrowRowGroupWriterFactory,
}

/// An encoded row group.
pub(crate) struct EncodedRowGroup {
    chunks: Vec<ArrowColumnChunk>,
    rows: usize,
}

/// A file that is being written.
pub(crate) struct ParquetFile {
    name: String,
    writer: SerializedFileWriter<Vec<u8>>,
    upload: BufWriter,
    digest: Sha256,
    bytes: u64,
    rows: u64,
    row_groups: u64,
}

/// A complete file.
#[derive(Clone, Debug)]
pub(crate) struct WrittenFile {
    /// Its name in the folder of the run.
    pub name: String,
    /// Its rows.
    pub rows: u64,
    /// Its row groups.
    pub row_groups: u64,
    /// Its bytes.
    pub bytes: u64,
    /// SHA-256 of its bytes, in hexadecimal.
    pub sha256: String,
}

/// Why a file was not written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WriteError {
    /// The rows cannot be encoded.
    #[error("cannot encode the result: {0}")]
    Encode(#[from] parquet::errors::ParquetError),
    /// The store rejects the bytes.
    #[error(transparent)]
    Store(#[from] object_store::Error),
    /// The bytes cannot be written.
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

// === impl Encoder ===

impl Encoder {
    pub(crate) fn new(schema: &SchemaRef) -> Result<Self> {
        let (_, factory) = file_writer(schema)?.into_serialized_writer()?;
        Ok(Self { schema: Arc::clone(schema), factory })
    }

    /// Encodes a row group. Computes for up to seconds.
    pub(crate) fn encode(&self, group: &RowGroupRows) -> Result<EncodedRowGroup> {
        let mut columns = self.factory.create_column_writers(0)?;
        for batch in &group.batches {
            let mut writers = columns.iter_mut();
            for (field, column) in self.schema.fields().iter().zip(batch.columns()) {
                for leaf in compute_leaves(field, column)? {
                    if let Some(writer) = writers.next() {
                        writer.write(&leaf)?;
                    }
                }
            }
        }
        let chunks = columns.into_iter().map(parquet::arrow::arrow_writer::ArrowColumnWriter::close);
        Ok(EncodedRowGroup { chunks: chunks.collect::<Result<_>>()?, rows: group.rows })
    }
}

// === impl EncodedRowGroup ===

impl EncodedRowGroup {
    /// Its rows.
    pub(crate) fn rows(&self) -> u64 {
        self.rows as u64
    }
}

// === impl ParquetFile ===

impl ParquetFile {
    pub(crate) fn create(
        store: &Arc<dyn ObjectStore>,
        folder: &Path,
        name: String,
        schema: &SchemaRef,
    ) -> Result<Self> {
        let (writer, _) = file_writer(schema)?.into_serialized_writer()?;
        let upload = BufWriter::with_capacity(Arc::clone(store), folder.clone().join(name.as_str()), PART_BYTES);
        Ok(Self { name, writer, upload, digest: Sha256::new(), bytes: 0, rows: 0, row_groups: 0 })
    }

    /// The bytes so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Appends a row group.
    pub(crate) async fn append(&mut self, group: EncodedRowGroup) -> std::result::Result<(), WriteError> {
        let mut writer = self.writer.next_row_group()?;
        for chunk in group.chunks {
            chunk.append_to_row_group(&mut writer)?;
        }
        writer.close()?;
        self.rows += group.rows as u64;
        self.row_groups += 1;
        self.upload_encoded().await
    }

    /// Writes the footer, and waits until the store has the file.
    pub(crate) async fn finish(mut self) -> std::result::Result<WrittenFile, WriteError> {
        self.writer.finish()?;
        self.upload_encoded().await?;
        self.upload.shutdown().await?;
        let sha256 = self.digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().concat();
        Ok(WrittenFile { name: self.name, rows: self.rows, row_groups: self.row_groups, bytes: self.bytes, sha256 })
    }

    async fn upload_encoded(&mut self) -> std::result::Result<(), WriteError> {
        self.writer.flush()?;
        let encoded = Bytes::from(mem::take(self.writer.inner_mut()));
        self.digest.update(&encoded);
        self.bytes += encoded.len() as u64;
        Ok(self.upload.put(encoded).await?)
    }
}

fn file_writer(schema: &SchemaRef) -> Result<ArrowWriter<Vec<u8>>> {
    let properties = WriterProperties::builder()
        .set_created_by(concat!("forebay-prepare version ", env!("CARGO_PKG_VERSION")).to_owned())
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(ZSTD_LEVEL)?))
        .build();
    ArrowWriter::try_new(Vec::new(), Arc::clone(schema), Some(properties))
}

/// zstd's default.
const ZSTD_LEVEL: i32 = 3;
