//! The layout of a batch against its body: how many nodes and buffers each column has, and where the buffers lie.

use std::io::{Read, copy, sink};

use arrow::datatypes::DataType;
use arrow_ipc::{CompressionType, FieldNode, MetadataVersion, RecordBatch};

use super::MessageError;
use crate::plan::BATCH_SIZE_MAX;

/// The most values that a column inside of another one (a list's elements) has.
const INNER_VALUES_MAX: i64 = i32::MAX as i64;

/// A view: a text's length with its first bytes, or with where it lies.
const VIEW_BYTES: u64 = 16;

/// What stands before each buffer of a compressed body.
const SIZE_BYTES: usize = size_of::<i64>();

/// A walk through the nodes and buffers of a batch, in the order of its columns.
struct LayoutWalk<'a, N, B, V> {
    nodes: N,
    buffers: B,
    /// How many buffers of data each view column has.
    data_counts: V,
    body: &'a [u8],
    codec: Option<CompressionType>,
    /// Bytes of the buffers once they are decompressed, each counted for itself where they overlap.
    bytes: u64,
    bytes_max: u64,
}

/// Checks a batch of columns of these types. Returns the bytes of its buffers once they are decompressed, the body's if
/// there is nothing to decompress.
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
            "it has {rows} rows, the limit is {BATCH_SIZE_MAX}: send smaller batches"
        )));
    }
    if !matches!(version, MetadataVersion::V4 | MetadataVersion::V5) {
        return Err(MessageError::Malformed(format!("format {version:?} is not read, V4 and V5 are")));
    }
    let absent = || MessageError::Malformed("it names no buffers or no nodes".to_owned());
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
        return Err(MessageError::Malformed("it has more nodes or buffers than its schema has columns for".to_owned()));
    }
    Ok(walk.bytes.max(body.len() as u64))
}

impl<'a, N, B, V> LayoutWalk<'_, N, B, V>
where
    N: Iterator<Item = &'a FieldNode>,
    B: Iterator<Item = &'a arrow_ipc::Buffer>,
    V: Iterator<Item = i64>,
{
    /// A column, of so many values if that is known.
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
                for _ in
                    0..count.ok_or_else(|| MessageError::Malformed("a view column without its buffers".to_owned()))?
                {
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
            // Numbers, dates and times, bytes of a fixed width. Other types do not come out of `schema::read`.
            _ => {
                self.validity(length, nulls)?;
                self.buffer()?;
            }
        }
        Ok(())
    }

    fn node(&mut self, rows: Option<i64>) -> Result<(i64, i64), MessageError> {
        let node = self
            .nodes
            .next()
            .ok_or_else(|| MessageError::Malformed("it has fewer nodes than its schema wants".to_owned()))?;
        let (length, nulls) = (node.length(), node.null_count());
        let is_sound = (0..=INNER_VALUES_MAX).contains(&length) && (0..=length).contains(&nulls);
        if !is_sound || rows.is_some_and(|rows| rows != length) {
            return Err(MessageError::Malformed(format!(
                "a column of {length} values, {nulls} of them null, is not one of its rows"
            )));
        }
        Ok((length, nulls))
    }

    /// The bits that say which values are null; there may be none where no value is.
    fn validity(&mut self, length: i64, nulls: i64) -> Result<(), MessageError> {
        let bytes = self.buffer()?;
        if nulls > 0 && bytes < length.unsigned_abs().div_ceil(8) {
            return Err(MessageError::Malformed(format!("{bytes} bytes do not say which of {length} values are null")));
        }
        Ok(())
    }

    /// A buffer of whole numbers of so many bytes.
    fn words(&mut self, word_bytes: u64) -> Result<(), MessageError> {
        let bytes = self.buffer()?;
        if bytes.is_multiple_of(word_bytes) {
            return Ok(());
        }
        Err(MessageError::Malformed(format!("{bytes} bytes do not hold numbers of {word_bytes} bytes each")))
    }

    /// A buffer, and its bytes once decompressed.
    fn buffer(&mut self) -> Result<u64, MessageError> {
        let buffer = self.buffers.next();
        let buffer =
            buffer.ok_or_else(|| MessageError::Malformed("it has fewer buffers than its schema wants".to_owned()))?;
        let (offset, length) = (buffer.offset(), buffer.length());
        let range = || Some((usize::try_from(offset).ok()?, usize::try_from(offset.checked_add(length)?).ok()?));
        let bytes = range().and_then(|(start, end)| self.body.get(start..end)).ok_or_else(|| {
            let body = self.body.len();
            MessageError::Malformed(format!(
                "a buffer of {length} bytes at {offset} is not within its body of {body} bytes"
            ))
        })?;
        let claimed = match self.codec {
            Some(_) if !bytes.is_empty() => claimed(bytes)?,
            _ => bytes.len() as u64,
        };
        self.bytes = self.bytes.saturating_add(claimed);
        if self.bytes > self.bytes_max {
            return Err(MessageError::TooLarge(self.bytes_max));
        }
        if self.codec == Some(CompressionType::LZ4_FRAME) && !is_plain(bytes) {
            check_lz4(bytes, claimed)?;
        }
        Ok(claimed)
    }
}

fn offset_bytes(data_type: &DataType) -> u64 {
    match data_type {
        DataType::LargeUtf8 | DataType::LargeBinary | DataType::LargeList(_) => 8,
        _ => 4,
    }
}

/// Whether a buffer of a compressed body is not compressed after all.
fn is_plain(bytes: &[u8]) -> bool {
    const PLAIN: i64 = -1;
    bytes.first_chunk().is_none_or(|size| i64::from_le_bytes(*size) == PLAIN)
}

/// The bytes that a compressed buffer says it has.
fn claimed(bytes: &[u8]) -> Result<u64, MessageError> {
    let size = bytes.first_chunk().map(|size| i64::from_le_bytes(*size));
    match size {
        Some(_) if is_plain(bytes) => Ok((bytes.len() - SIZE_BYTES) as u64),
        Some(size) if size >= 0 => Ok(size.unsigned_abs()),
        _ => Err(MessageError::Malformed("a compressed buffer does not say its size".to_owned())),
    }
}

/// The reader takes in all that an LZ4 frame gives, whatever it claims (a frame of Zstandard is held to its claim): one
/// byte more than there should be tells.
fn check_lz4(bytes: &[u8], claimed: u64) -> Result<(), MessageError> {
    let Some((_, frame)) = bytes.split_first_chunk::<SIZE_BYTES>() else { return Ok(()) };
    if claimed == 0 {
        return Ok(());
    }
    let mut frame = lz4_flex::frame::FrameDecoder::new(frame).take(claimed + 1);
    let found = copy(&mut frame, &mut sink()).map_err(|source| MessageError::Malformed(format!("LZ4: {source}")))?;
    if found == claimed {
        return Ok(());
    }
    Err(MessageError::Malformed(format!("a compressed buffer does not have the {claimed} bytes that it claims")))
}
