//! Validates the layout of a batch against its body: the nodes and buffers of each column, and the ranges of the
//! buffers.

use std::io::{Read, copy, sink};

use arrow::datatypes::DataType;
use arrow_ipc::{CompressionType, FieldNode, MetadataVersion, RecordBatch};
use forebay_order::BATCH_SIZE_MAX;

use super::error::MessageError;

/// The most values of a child column, such as the elements of a list.
const INNER_VALUES_MAX: i64 = i32::MAX as i64;

/// A view: the length of a text with its first bytes, or with its buffer and offset.
const VIEW_BYTES: u64 = 16;

/// The decompressed length before each buffer of a compressed body.
const SIZE_BYTES: usize = size_of::<i64>();

/// Visits the nodes and buffers of a batch in the order of its columns.
struct LayoutWalk<'a, N, B, V> {
    nodes: N,
    buffers: B,
    /// Number of data buffers of each view column.
    data_counts: V,
    body: &'a [u8],
    codec: Option<CompressionType>,
    /// Decompressed bytes of the buffers; overlapping ranges count twice.
    bytes: u64,
    bytes_max: u64,
}

/// Validates a batch of columns of these types. Returns the decompressed bytes of its buffers, or the bytes of its body
/// if those are more.
pub(super) fn check<'t>(
    batch: &RecordBatch<'_>,
    types: impl Iterator<Item = &'t DataType>,
    version: MetadataVersion,
    body: &[u8],
    bytes_max: u64,
) -> Result<u64, MessageError> {
    let rows = batch.length();
    if !u64::try_from(rows).is_ok_and(|rows| rows <= BATCH_SIZE_MAX) {
        return Err(MessageError::Malformed(format!(
            "{rows} rows, the limit is {BATCH_SIZE_MAX}: send smaller batches"
        )));
    }
    if !matches!(version, MetadataVersion::V4 | MetadataVersion::V5) {
        return Err(MessageError::Malformed(format!("Arrow format {version:?} is not supported: send V4 or V5")));
    }
    let absent = || MessageError::Malformed("malformed batch: no buffers or no nodes".to_owned());
    let mut walk = LayoutWalk {
        nodes: batch.nodes().ok_or_else(absent)?.iter(),
        buffers: batch.buffers().ok_or_else(absent)?.iter(),
        data_counts: batch.variadicBufferCounts().into_iter().flatten(),
        body,
        codec: batch.compression().map(|compression| compression.codec()),
        bytes: 0,
        bytes_max,
    };
    for data_type in types {
        walk.column(data_type, Some(rows))?;
    }
    if walk.nodes.next().is_some() || walk.buffers.next().is_some() || walk.data_counts.next().is_some() {
        return Err(MessageError::Malformed(
            "malformed batch: more nodes or buffers than the schema has columns".to_owned(),
        ));
    }
    Ok(walk.bytes.max(body.len() as u64))
}

impl<'a, N, B, V> LayoutWalk<'_, N, B, V>
where
    N: Iterator<Item = &'a FieldNode>,
    B: Iterator<Item = &'a arrow_ipc::Buffer>,
    V: Iterator<Item = i64>,
{
    /// Validates a column; `rows` is its number of values, if known.
    fn column(&mut self, data_type: &DataType, rows: Option<i64>) -> Result<(), MessageError> {
        let (length, nulls) = self.node(rows)?;
        match data_type {
            DataType::Null => {}
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Binary | DataType::LargeBinary => {
                self.validity(length, nulls)?;
                self.words(offset_bytes(data_type))?;
                self.buffer()?;
            }
            DataType::Utf8View | DataType::BinaryView => {
                let count = self.data_counts.next().and_then(|count| u64::try_from(count).ok());
                self.validity(length, nulls)?;
                self.words(VIEW_BYTES)?;
                for _ in 0..count.ok_or_else(|| {
                    MessageError::Malformed(
                        "malformed batch: the buffer counts of a view column are missing".to_owned(),
                    )
                })? {
                    self.buffer()?;
                }
            }
            DataType::List(item) | DataType::LargeList(item) | DataType::Map(item, _) => {
                self.validity(length, nulls)?;
                self.words(offset_bytes(data_type))?;
                self.column(item.data_type(), None)?;
            }
            DataType::FixedSizeList(item, _) => {
                self.validity(length, nulls)?;
                self.column(item.data_type(), None)?;
            }
            DataType::Struct(fields) => {
                self.validity(length, nulls)?;
                for field in fields {
                    self.column(field.data_type(), Some(length))?;
                }
            }
            DataType::Dictionary(keys, _) => {
                self.validity(length, nulls)?;
                self.words(keys.primitive_width().unwrap_or(1) as u64)?;
            }
            // Numbers, dates, times and bytes of a fixed width. `schema::read` rejects other types.
            _ => {
                self.validity(length, nulls)?;
                self.buffer()?;
            }
        }
        Ok(())
    }

    fn node(&mut self, rows: Option<i64>) -> Result<(i64, i64), MessageError> {
        let node = self.nodes.next().ok_or_else(|| {
            MessageError::Malformed("malformed batch: fewer nodes than the schema requires".to_owned())
        })?;
        let (length, nulls) = (node.length(), node.null_count());
        let is_sound = (0..=INNER_VALUES_MAX).contains(&length) && (0..=length).contains(&nulls);
        if !is_sound || rows.is_some_and(|rows| rows != length) {
            return Err(MessageError::Malformed(format!(
                "malformed batch: a column of {length} values, {nulls} of them null, does not match the number of rows"
            )));
        }
        Ok((length, nulls))
    }

    /// Validates the bitmap of nulls, which may be empty if there are no nulls.
    fn validity(&mut self, length: i64, nulls: i64) -> Result<(), MessageError> {
        let bytes = self.buffer()?;
        if nulls > 0 && bytes < length.unsigned_abs().div_ceil(8) {
            return Err(MessageError::Malformed(format!(
                "malformed batch: a null bitmap of {bytes} bytes for {length} values"
            )));
        }
        Ok(())
    }

    /// Validates a buffer of words of `word_bytes` each.
    fn words(&mut self, word_bytes: u64) -> Result<(), MessageError> {
        let bytes = self.buffer()?;
        if bytes.is_multiple_of(word_bytes) {
            return Ok(());
        }
        Err(MessageError::Malformed(format!(
            "malformed batch: a buffer of {bytes} bytes for values of {word_bytes} bytes"
        )))
    }

    /// Validates the range and compression of a buffer. Returns its decompressed bytes.
    fn buffer(&mut self) -> Result<u64, MessageError> {
        let buffer = self.buffers.next();
        let buffer = buffer.ok_or_else(|| {
            MessageError::Malformed("malformed batch: fewer buffers than the schema requires".to_owned())
        })?;
        let (offset, length) = (buffer.offset(), buffer.length());
        let range = || Some((usize::try_from(offset).ok()?, usize::try_from(offset.checked_add(length)?).ok()?));
        let bytes = range().and_then(|(start, end)| self.body.get(start..end)).ok_or_else(|| {
            let body = self.body.len();
            MessageError::Malformed(format!(
                "malformed batch: a buffer of {length} bytes at {offset} exceeds the body of {body} bytes"
            ))
        })?;
        let declared = match self.codec {
            Some(_) if !bytes.is_empty() => declared(bytes)?,
            _ => bytes.len() as u64,
        };
        self.bytes = self.bytes.saturating_add(declared);
        if self.bytes > self.bytes_max {
            return Err(MessageError::TooLarge(self.bytes_max));
        }
        if self.codec == Some(CompressionType::LZ4_FRAME) && !is_plain(bytes) {
            check_lz4(bytes, declared)?;
        }
        Ok(declared)
    }
}

fn offset_bytes(data_type: &DataType) -> u64 {
    match data_type {
        DataType::LargeUtf8 | DataType::LargeBinary | DataType::LargeList(_) => 8,
        _ => 4,
    }
}

/// Whether a buffer of a compressed body is stored uncompressed.
fn is_plain(bytes: &[u8]) -> bool {
    const PLAIN: i64 = -1;
    bytes.first_chunk().is_none_or(|size| i64::from_le_bytes(*size) == PLAIN)
}

/// The decompressed bytes that a buffer declares.
fn declared(bytes: &[u8]) -> Result<u64, MessageError> {
    let size = bytes.first_chunk().map(|size| i64::from_le_bytes(*size));
    match size {
        Some(_) if is_plain(bytes) => Ok((bytes.len() - SIZE_BYTES) as u64),
        Some(size) if size >= 0 => Ok(size.unsigned_abs()),
        _ => Err(MessageError::Malformed("malformed batch: a compressed buffer without its size".to_owned())),
    }
}

/// Validates the size of an LZ4 frame by decompressing at most one byte more than it declares. Arrow's reader
/// decompresses all of such a frame (of a Zstandard frame, only the declared size).
fn check_lz4(bytes: &[u8], declared: u64) -> Result<(), MessageError> {
    let Some((_, frame)) = bytes.split_first_chunk::<SIZE_BYTES>() else { return Ok(()) };
    if declared == 0 {
        return Ok(());
    }
    let mut frame = lz4_flex::frame::FrameDecoder::new(frame).take(declared + 1);
    let found = copy(&mut frame, &mut sink()).map_err(|source| MessageError::Malformed(format!("LZ4: {source}")))?;
    if found == declared {
        return Ok(());
    }
    Err(MessageError::Malformed(format!(
        "malformed batch: a compressed buffer does not have the {declared} bytes that it declares"
    )))
}
