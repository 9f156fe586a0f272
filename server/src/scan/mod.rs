//! Row groups → Arrow arrays: fetch on the I/O threads, decode on the CPU pool.
//!
//! It reads the columns it is told to, of the row groups it is told to, and checks that the file is still the pinned
//! one. It knows nothing of plans, filters or order.

mod fetch;
mod statistics;

use std::{mem, sync::Arc};

use arrow::{
    array::{RecordBatch, RecordBatchOptions},
    datatypes::{Schema, SchemaRef},
};
use parquet::{
    DecodeResult,
    arrow::{ProjectionMask, arrow_reader::ParquetRecordBatchReader, push_decoder::ParquetPushDecoderBuilder},
    errors::ParquetError,
    file::metadata::ColumnChunkMetaData,
};

pub use fetch::{SharedBytes, Sharing};
pub use statistics::statistics;

use crate::{
    catalog::{File, RowGroup, Snapshot, StoreError},
    runtime::{CpuError, CpuPool},
};

/// The most rows decoded at a time: so many that the work per call vanishes, so few that a chunk stays in the L2 cache.
pub const CHUNK_ROWS_MAX: usize = 8192;

/// Bytes that a chunk should not exceed: rows with long texts or lists come fewer at a time.
const CHUNK_BYTES: u64 = 16 << 20;

/// Columns of a snapshot that are read, in stored order.
#[derive(Clone, Debug)]
pub struct Projection {
    indices: Vec<usize>,
    schema: SchemaRef,
    /// Whether dictionaries are read with the keys of the snapshot's wide schema.
    is_wide: bool,
}

/// One row group whose bytes have been fetched, decoded chunk by chunk.
pub struct RowGroupReader {
    reader: Option<ParquetRecordBatchReader>,
    schema: SchemaRef,
    place: Place,
    /// Rows that the footer promises and that have not come yet.
    rows_due: u64,
    /// Held so that readers that open the row group meanwhile find its bytes.
    _shared: Arc<SharedBytes>,
}

/// Where an error happened.
#[derive(Clone, Debug)]
struct Place {
    file: String,
    row_group: usize,
}

/// Why a row group cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ScanError {
    /// Its bytes are not what the footer promises.
    #[error("file \"{file}\", row group {row_group}, {columns}: {reason}")]
    Corrupt {
        /// The file.
        file: String,
        /// The row group within the file.
        row_group: usize,
        /// The columns that were read.
        columns: String,
        /// What the decoder met.
        reason: String,
    },
    /// The file is not the one that the snapshot pinned.
    #[error(
        "snapshot changed: dataset \"{dataset}\": file \"{file}\" was replaced, truncated or deleted; ask for the flight \
         again to read the files as they are now"
    )]
    Changed {
        /// The dataset.
        dataset: String,
        /// The file.
        file: String,
    },
    /// Storage did not answer.
    #[error("file \"{file}\": storage: {source}")]
    Storage {
        /// The file.
        file: String,
        /// What it said.
        source: StoreError,
    },
    /// The CPU pool did not answer.
    #[error(transparent)]
    Cpu(#[from] CpuError),
}

// === impl Projection ===

impl Projection {
    /// The columns of these indices, which must rise, as plans read them.
    pub fn new(snapshot: &Snapshot, indices: Vec<usize>) -> Self {
        let stored = snapshot.wide_schema();
        let fields: Vec<_> = indices.iter().map(|index| Arc::clone(&stored.fields()[*index])).collect();
        let schema = Arc::new(Schema::new_with_metadata(fields, stored.metadata().clone()));
        Self { indices, schema, is_wide: true }
    }

    /// Every column as stored.
    pub fn all(snapshot: &Snapshot) -> Self {
        let schema = SchemaRef::clone(snapshot.schema());
        Self { indices: (0..schema.fields().len()).collect(), schema, is_wide: false }
    }

    /// The schema of what is read.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Compressed bytes of these columns in a row group.
    pub fn stored_bytes(&self, snapshot: &Snapshot, row_group: &RowGroup) -> u64 {
        self.sum_chunks(snapshot, row_group, ColumnChunkMetaData::compressed_size)
    }

    /// Bytes that a row of these columns has in the files, uncompressed: the mean, rounded up. Texts have at least their
    /// length's bytes, whatever a dictionary makes of them.
    pub fn row_bytes(&self, snapshot: &Snapshot) -> u64 {
        const LENGTH_BYTES: u64 = 8;
        if self.indices.is_empty() {
            return 0;
        }
        let sum = |bytes: u64, group| {
            bytes.saturating_add(self.sum_chunks(snapshot, group, ColumnChunkMetaData::uncompressed_size))
        };
        let bytes = snapshot.row_groups().iter().fold(0, sum);
        bytes.div_ceil(snapshot.row_count().max(1)) + LENGTH_BYTES * self.indices.len() as u64
    }

    /// Rows of a row group that are decoded at a time: always the same, so that chunks end at the same rows wherever
    /// a stream begins. At least 1.
    pub fn chunk_rows(&self, snapshot: &Snapshot, row_group: &RowGroup) -> u64 {
        let bytes = self.sum_chunks(snapshot, row_group, ColumnChunkMetaData::uncompressed_size);
        let rows = row_group.rows.end - row_group.rows.start;
        let row_bytes = bytes.checked_div(rows).unwrap_or(0).max(1);
        (CHUNK_BYTES / row_bytes).clamp(1, CHUNK_ROWS_MAX as u64)
    }

    /// Bytes of a decoded chunk of a row group, about.
    pub fn chunk_bytes(&self, snapshot: &Snapshot, row_group: &RowGroup) -> u64 {
        /// Decoded values of a fixed width are at most this large; dictionaries make stored ones smaller than they are.
        const VALUE_BYTES: u64 = 32;
        let bytes = self.sum_chunks(snapshot, row_group, ColumnChunkMetaData::uncompressed_size);
        let rows = (row_group.rows.end - row_group.rows.start).max(1);
        let chunk_rows = self.chunk_rows(snapshot, row_group).min(rows);
        let fixed = chunk_rows * VALUE_BYTES * self.indices.len().max(1) as u64;
        fixed.saturating_add((bytes / rows).saturating_mul(chunk_rows))
    }

    /// Bytes that the decoders of these columns hold for one reader of a row group: each column's dictionary, and a page.
    pub fn decoder_bytes(&self, snapshot: &Snapshot, row_group: &RowGroup) -> u64 {
        /// The size that writers aim at for dictionaries and pages.
        const PAGE_BYTES: i64 = 1 << 20;
        self.sum_chunks(snapshot, row_group, |chunk| {
            let uncompressed = chunk.uncompressed_size().max(0);
            // The dictionary lies before the data. How well it is compressed is not said: as well as the rest.
            let dictionary = chunk.dictionary_page_offset().map_or(0, |start| {
                let stored = chunk.data_page_offset().saturating_sub(start).max(0);
                let ratio = uncompressed as f64 / chunk.compressed_size().max(1) as f64;
                ((stored as f64 * ratio.max(1.0)) as i64).max(PAGE_BYTES)
            });
            uncompressed.min(dictionary.saturating_add(PAGE_BYTES))
        })
    }

    fn sum_chunks(&self, snapshot: &Snapshot, row_group: &RowGroup, size: fn(&ColumnChunkMetaData) -> i64) -> u64 {
        let metadata = snapshot.file_of(row_group).metadata().metadata();
        let group = metadata.row_group(row_group.index_in_file);
        let is_read = |leaf: usize| {
            let root = metadata.file_metadata().schema_descr().get_column_root_idx(leaf);
            self.indices.binary_search(&root).is_ok()
        };
        let chunks = group.columns().iter().enumerate().filter(|(leaf, _)| is_read(*leaf));
        chunks.map(|(_, chunk)| u64::try_from(size(chunk)).unwrap_or(0)).fold(0, u64::saturating_add)
    }
}

/// Fetches what a row group's columns need, all of it before the first chunk is decoded. `skip` leaves out that many
/// of its first rows.
pub async fn open(
    snapshot: &Snapshot,
    row_group: &RowGroup,
    projection: &Projection,
    skip: u64,
    cpu: &CpuPool,
) -> Result<RowGroupReader, ScanError> {
    open_shared(snapshot, row_group, projection, skip, cpu, &Arc::default()).await
}

/// The same for one of several readers of the row group: its bytes are fetched once, and held while one of them reads.
pub async fn open_shared(
    snapshot: &Snapshot,
    row_group: &RowGroup,
    projection: &Projection,
    skip: u64,
    cpu: &CpuPool,
    shared: &Arc<SharedBytes>,
) -> Result<RowGroupReader, ScanError> {
    let file = snapshot.file_of(row_group);
    let place = Place { file: file.display().to_owned(), row_group: row_group.index_in_file };
    let corrupt = |reason: String| place.corrupt(&projection.schema, reason);
    let chunk_rows = projection.chunk_rows(snapshot, row_group) as usize;
    let mut decoder =
        builder(file, row_group, projection, skip, chunk_rows).build().map_err(|source| corrupt(source.to_string()))?;
    loop {
        // Planning the ranges is cheap, but a hostile footer may make it panic: the pool turns that into an error.
        let (back, step) = cpu
            .run(move || {
                let step = decoder.try_next_reader();
                (decoder, step)
            })
            .await
            .map_err(|panic| corrupt(panic.of_damage()))?;
        decoder = back;
        let reader = match step.map_err(|source| corrupt(source.to_string()))? {
            DecodeResult::NeedsData(ranges) => {
                let size = file.object().size;
                if let Some(range) = ranges.iter().find(|range| range.start > range.end || range.end > size) {
                    return Err(corrupt(format!("its footer claims the bytes {range:?} of {size}")));
                }
                let pieces = shared.ranges(snapshot, file, &ranges).await?;
                decoder.push_ranges(ranges, pieces).map_err(|source| corrupt(source.to_string()))?;
                continue;
            }
            DecodeResult::Data(reader) => Some(reader),
            DecodeResult::Finished => None,
        };
        let rows_due = (row_group.rows.end - row_group.rows.start).saturating_sub(skip);
        let (schema, shared) = (SchemaRef::clone(&projection.schema), Arc::clone(shared));
        return Ok(RowGroupReader { reader, schema, place, rows_due, _shared: shared });
    }
}

fn builder(
    file: &File,
    row_group: &RowGroup,
    projection: &Projection,
    skip: u64,
    chunk_rows: usize,
) -> ParquetPushDecoderBuilder {
    let metadata = if projection.is_wide { file.wide_metadata() } else { file.metadata() };
    let mask = ProjectionMask::roots(metadata.parquet_schema(), projection.indices.iter().copied());
    ParquetPushDecoderBuilder::new_with_metadata(metadata.clone())
        .with_row_groups(vec![row_group.index_in_file])
        .with_projection(mask)
        .with_batch_size(chunk_rows)
        .with_offset(usize::try_from(skip).unwrap_or(usize::MAX))
}

/// The error of a decoder that panicked on a row group.
pub fn panicked(snapshot: &Snapshot, row_group: &RowGroup, panic: &CpuError) -> ScanError {
    let place = Place { file: snapshot.file_of(row_group).display().to_owned(), row_group: row_group.index_in_file };
    place.corrupt(&Schema::empty(), panic.of_damage())
}

// === impl RowGroupReader ===

impl RowGroupReader {
    /// Decodes the next rows, at most [`Projection::chunk_rows`]; run it on the CPU pool. `None` at the end.
    pub fn next_chunk(&mut self) -> Result<Option<RecordBatch>, ScanError> {
        let next = self.reader.as_mut().and_then(Iterator::next);
        match next {
            None if self.rows_due > 0 => {
                self.reader = None;
                let missing = mem::take(&mut self.rows_due);
                Err(self.place.corrupt(&self.schema, format!("its footer promises {missing} more rows than it holds")))
            }
            None => Ok(None),
            Some(Ok(batch)) if batch.num_rows() as u64 > self.rows_due => {
                self.reader = None;
                Err(self.place.corrupt(&self.schema, "it holds more rows than its footer promises".to_owned()))
            }
            Some(Ok(batch)) => {
                self.rows_due -= batch.num_rows() as u64;
                // Files may differ in what they declare nullable: every chunk gets the snapshot's schema.
                let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
                let columns = batch.columns().to_vec();
                RecordBatch::try_new_with_options(SchemaRef::clone(&self.schema), columns, &options)
                    .map(Some)
                    .map_err(|source| self.place.corrupt(&self.schema, source.to_string()))
            }
            Some(Err(source)) => {
                (self.reader, self.rows_due) = (None, 0);
                Err(self.place.corrupt(&self.schema, ParquetError::from(source).to_string()))
            }
        }
    }
}

impl Place {
    fn corrupt(&self, schema: &Schema, reason: String) -> ScanError {
        // The decoder does not say which column; where one is read, it is that one.
        let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).take(8).collect();
        let columns = match names.as_slice() {
            [] => "some column".to_owned(),
            [one] => format!("column \"{one}\""),
            many => {
                format!("one of the columns {}{}", many.join(", "), if schema.fields().len() > 8 { ", …" } else { "" })
            }
        };
        ScanError::Corrupt { file: self.file.clone(), row_group: self.row_group, columns, reason }
    }
}
