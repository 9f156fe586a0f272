//! Reads the footer of an Arrow IPC file, and the message of each of its record batches.
//!
//! The result describes the file as Parquet metadata too, so that ranges, sizes and schemas have one form for all
//! readers: a record batch is a row group, and the buffers of a column are its chunk.

use std::{ops::Range, sync::Arc};

use arrow::datatypes::SchemaRef;
use arrow_ipc::{Endianness, convert::fb_to_schema, root_as_footer};
use bytes::Bytes;
use forebay_runtime::{cpu_pool::CpuPool, state::short_digest};
use object_store::ObjectMeta;
use parquet::{
    arrow::{
        ArrowSchemaConverter,
        arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions},
    },
    errors::ParquetError,
    file::metadata::{ColumnChunkMetaData, FileMetaData, ParquetMetaData, RowGroupMetaData},
    schema::types::SchemaDescPtr,
};

use super::{
    arrow_layout::{ArrowBatch, ArrowLayout, blocks, message_range},
    error::CatalogError,
    file_error::FileError,
    file_footer::{Footer, wide},
    store::Store,
};

/// The bytes at the start and at the end of a file.
const MAGIC: &[u8] = b"ARROW1";

/// The length of the footer, and the magic bytes after it.
const END_BYTES: u64 = 10;

/// Bytes of a footer and of all messages, at most.
const METADATA_BYTES_MAX: u64 = 1 << 30;

/// Record batches of a file, as many as row groups of a Parquet file.
const BATCHES_MAX: usize = 32_767;

/// Whether these last bytes are those of an Arrow IPC file.
pub(super) fn is_arrow(end: &[u8]) -> bool {
    end.ends_with(MAGIC)
}

/// Whether a name is one of Arrow IPC files.
pub(super) fn is_named(file: &str) -> bool {
    let name = file.to_ascii_lowercase();
    [".arrow", ".feather", ".ipc"].into_iter().any(|ending| name.ends_with(ending))
}

/// Reads the footer of a file whose last bytes are `end`.
pub(super) async fn read(
    store: &Store,
    (dataset, file): (&str, &str),
    object: &ObjectMeta,
    end: &Bytes,
    cpu: &CpuPool,
) -> Result<Footer, CatalogError> {
    let of_file = |error: FileError| error.of_file(dataset, file);
    let corrupt = |reason: String| of_file(reason.into());
    let failed = |error| CatalogError::of_opening(dataset, file, error);
    let range = footer_range(end, object.size).map_err(corrupt)?;
    let known = (range.end - range.start + END_BYTES) as usize;
    let footer = match end.len().checked_sub(known) {
        Some(start) => end.slice(start..end.len() - END_BYTES as usize),
        None => store.get(object, range).await.map_err(failed)?,
    };
    let (bytes, size) = (footer.clone(), object.size);
    let ranges = cpu.run(move || message_ranges(&bytes, size)).await;
    let ranges = ranges.map_err(|panic| corrupt(panic.of_damage()))?.map_err(of_file)?;
    let messages = if ranges.is_empty() { Vec::new() } else { store.read(object, &ranges).await.map_err(failed)? };
    let opened = cpu.run(move || open(&footer, &messages, size)).await;
    opened.map_err(|panic| corrupt(panic.of_damage()))?.map_err(of_file)
}

fn footer_range(end: &[u8], file_bytes: u64) -> Result<Range<u64>, String> {
    let length = end.len().checked_sub(END_BYTES as usize).and_then(|start| end[start..].first_chunk::<4>());
    let length = length.and_then(|length| u64::try_from(i32::from_le_bytes(*length)).ok()).unwrap_or(0);
    let limit = file_bytes.saturating_sub(END_BYTES);
    if length == 0 || length > limit {
        return Err(format!("its footer declares {length} bytes of a file of {file_bytes} bytes"));
    }
    Ok(limit - length..limit)
}

/// The ranges of the messages of dictionaries and record batches.
fn message_ranges(footer: &[u8], file_bytes: u64) -> Result<Vec<Range<u64>>, FileError> {
    let footer = root_as_footer(footer).map_err(|error| error.to_string())?;
    // Before the schema is parsed: the library panics on some types in this order.
    if footer.schema().is_some_and(|schema| schema.endianness() == Endianness::Big) {
        let reason = "its values are in big-endian byte order: read it with pyarrow and write it again";
        return Err(FileError::Unserved(reason.to_owned()));
    }
    let (dictionaries, batches) = blocks(footer);
    if batches.len() > BATCHES_MAX || dictionaries.len() > BATCHES_MAX {
        let reason = format!("it has more than {BATCHES_MAX} record batches: `forebay convert` writes larger ones");
        return Err(FileError::Unserved(reason));
    }
    let ranges = dictionaries.iter().chain(&batches).map(|block| message_range(block, file_bytes));
    let ranges = ranges.collect::<Result<Vec<_>, _>>()?;
    if ranges.iter().map(|range| range.end - range.start).sum::<u64>() > METADATA_BYTES_MAX {
        return Err(format!("its messages declare more than {METADATA_BYTES_MAX} bytes").into());
    }
    if ranges.iter().any(Range::is_empty) {
        return Err("a message of its footer is empty".into());
    }
    Ok(ranges)
}

fn open(footer_bytes: &[u8], messages: &[Bytes], file_bytes: u64) -> Result<Footer, FileError> {
    let footer = root_as_footer(footer_bytes).map_err(|error| error.to_string())?;
    let schema: SchemaRef = Arc::new(fb_to_schema(footer.schema().ok_or("its footer has no schema")?));
    let layout = ArrowLayout::new(SchemaRef::clone(&schema), footer, messages, file_bytes)?;
    let metadata = metadata(&layout).map_err(|error| error.to_string())?;
    let read_as = |schema: SchemaRef| {
        ArrowReaderMetadata::try_new(Arc::clone(&metadata), ArrowReaderOptions::new().with_schema(schema))
            .map_err(|error| FileError::Unserved(format!("its types are not read: {error}")))
    };
    let decoded = metadata.file_metadata().schema_descr_ptr();
    let wide = read_as(Arc::new(wide(&schema)))?;
    let digest = short_digest(&[footer_bytes]);
    Ok(Footer {
        stored: read_as(schema)?,
        wide,
        decoded,
        has_signed_intervals: true,
        digest,
        arrow: Some(layout.into()),
    })
}

/// The file as Parquet metadata.
fn metadata(layout: &ArrowLayout) -> Result<Arc<ParquetMetaData>, ParquetError> {
    let leaves: SchemaDescPtr = Arc::new(ArrowSchemaConverter::new().convert(&layout.schema)?);
    let groups = layout.batches.iter().map(|batch| row_group(batch, &leaves));
    let groups = groups.collect::<Result<Vec<_>, ParquetError>>()?;
    let rows = groups.iter().map(RowGroupMetaData::num_rows).fold(0, i64::saturating_add);
    let file = FileMetaData::new(2, rows, None, None, leaves, None);
    Ok(Arc::new(ParquetMetaData::new(file, groups)))
}

fn row_group(batch: &ArrowBatch, leaves: &SchemaDescPtr) -> Result<RowGroupMetaData, ParquetError> {
    let rows = i64::try_from(batch.rows).unwrap_or(i64::MAX);
    let mut last_root = None;
    let chunks = leaves.columns().iter().enumerate().map(|(leaf, column)| {
        let root = leaves.get_column_root_idx(leaf);
        // The first leaf of a column has all of its bytes.
        let range = if last_root.replace(root) == Some(root) { 0..0 } else { batch.columns[root].range() };
        let bytes = (range.end - range.start) as i64;
        ColumnChunkMetaData::builder(Arc::clone(column))
            .set_num_values(rows)
            .set_data_page_offset(range.start as i64)
            .set_total_compressed_size(bytes)
            .set_total_uncompressed_size(bytes)
            .build()
    });
    let chunks = chunks.collect::<Result<Vec<_>, _>>()?;
    let bytes = chunks.iter().map(ColumnChunkMetaData::compressed_size).sum();
    RowGroupMetaData::builder(Arc::clone(leaves))
        .set_num_rows(rows)
        .set_total_byte_size(bytes)
        .set_column_metadata(chunks)
        .build()
}
