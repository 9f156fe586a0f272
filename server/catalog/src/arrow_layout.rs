//! Where an Arrow IPC file has the buffers of each column of each record batch. Record batches play the role of row
//! groups.
//!
//! Only offsets are read and checked here; `scan` reads the buffers and makes arrays of them.

use std::{collections::HashSet, ops::Range};

use arrow::datatypes::{DataType, Field, Schema, SchemaRef, UnionMode};
use arrow_ipc::{Block, CompressionType, DictionaryBatch, Footer, MetadataVersion, RecordBatch, root_as_message};
use bytes::Bytes;

use super::file_error::FileError;

/// Nesting of types, as in Parquet files.
const DEPTH_MAX: usize = 64;

/// The record batches and dictionaries of a file.
#[derive(Debug)]
pub struct ArrowLayout {
    /// The schema as stored.
    pub schema: SchemaRef,
    /// The record batches in file order.
    pub batches: Vec<ArrowBatch>,
    /// The dictionaries in file order: a delta extends the one before it of the same id.
    pub dictionaries: Vec<ArrowDictionary>,
}

/// A record batch, or the values of a dictionary.
#[derive(Clone, Debug)]
pub struct ArrowBatch {
    /// Its rows.
    pub rows: usize,
    /// How its buffers are compressed.
    pub codec: ArrowCodec,
    /// The buffers of each column.
    pub columns: Vec<ColumnBuffers>,
}

/// A dictionary, or an extension of one.
#[derive(Clone, Debug)]
pub struct ArrowDictionary {
    /// The id that fields have.
    pub id: i64,
    /// Whether it extends the dictionary before it.
    pub is_delta: bool,
    /// Its values, as a batch of one column.
    pub values: ArrowBatch,
    /// The type of its values.
    pub value_field: Field,
}

/// How buffers are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArrowCodec {
    /// As they are.
    None,
    /// LZ4 frames.
    Lz4,
    /// Zstandard frames.
    Zstd,
}

/// The arrays of one column, parents before children.
#[derive(Clone, Debug, Default)]
pub struct ColumnBuffers {
    /// Length of each array.
    pub lengths: Vec<usize>,
    /// Range of each buffer in the file.
    pub buffers: Vec<Range<u64>>,
    /// Data buffers of each array of views.
    pub view_counts: Vec<usize>,
}

/// What a message has not been divided into columns yet.
struct MessageParts {
    lengths: std::vec::IntoIter<usize>,
    buffers: std::vec::IntoIter<Range<u64>>,
    view_counts: std::vec::IntoIter<usize>,
}

// === impl ColumnBuffers ===

impl ColumnBuffers {
    /// The range of the file that has all buffers of the column; empty if it has none.
    pub fn range(&self) -> Range<u64> {
        let filled = || self.buffers.iter().filter(|range| !range.is_empty());
        let start = filled().map(|range| range.start).min().unwrap_or(0);
        start..filled().map(|range| range.end).max().unwrap_or(start)
    }
}

// === impl ArrowLayout ===

impl ArrowLayout {
    /// The layout of a file from its footer and the messages of its blocks: dictionaries, then record batches.
    pub(super) fn new(
        schema: SchemaRef,
        footer: Footer<'_>,
        messages: &[Bytes],
        file_bytes: u64,
    ) -> Result<Self, FileError> {
        check_types(&schema).map_err(FileError::Unserved)?;
        let (of_dictionaries, of_batches) = blocks(footer);
        let mut messages = messages.iter();
        let mut layout = Self { schema, batches: Vec::new(), dictionaries: Vec::new() };
        for (index, block) in of_dictionaries.iter().enumerate() {
            let bytes = messages.next().map(AsRef::as_ref).unwrap_or_default();
            let failed = |error: FileError| error.within(&format!("dictionary batch {index}"));
            let dictionary = layout.dictionary(bytes, block, file_bytes).map_err(failed)?;
            layout.dictionaries.push(dictionary);
        }
        for (index, block) in of_batches.iter().enumerate() {
            let bytes = messages.next().map(AsRef::as_ref).unwrap_or_default();
            let failed = |error: FileError| error.within(&format!("record batch {index}"));
            layout.batches.push(layout.batch(bytes, block, file_bytes).map_err(failed)?);
        }
        Ok(layout)
    }

    /// The ids of the dictionaries of a column, those of nested values included: a dictionary in the values of another
    /// precedes it.
    pub fn dictionary_ids(&self, column: usize) -> Vec<i64> {
        let mut ids = Vec::new();
        collect_ids(self.schema.field(column), &mut ids);
        // Fields may share a dictionary.
        let mut seen = HashSet::new();
        ids.retain(|id| seen.insert(*id));
        ids
    }

    fn batch(&self, bytes: &[u8], block: &Block, file_bytes: u64) -> Result<ArrowBatch, FileError> {
        let message = root_as_message(flatbuffer(bytes)).map_err(|error| error.to_string())?;
        let batch = message.header_as_record_batch().ok_or("it is not a record batch")?;
        check_version(message.version())?;
        let fields = self.schema.fields().iter().map(AsRef::as_ref);
        Ok(batch_of(&batch, fields, body(block, file_bytes)?)?)
    }

    fn dictionary(&self, bytes: &[u8], block: &Block, file_bytes: u64) -> Result<ArrowDictionary, FileError> {
        let message = root_as_message(flatbuffer(bytes)).map_err(|error| error.to_string())?;
        let batch: DictionaryBatch<'_> = message.header_as_dictionary_batch().ok_or("it is not a dictionary batch")?;
        check_version(message.version())?;
        let (id, is_delta) = (batch.id(), batch.isDelta());
        if !is_delta && self.dictionaries.iter().any(|known| known.id == id) {
            return Err(format!("the file replaces dictionary {id}, which files may not").into());
        }
        let value_field = self.schema.fields().iter().find_map(|field| values_of(field, id));
        let value_field = value_field.ok_or_else(|| format!("no column has dictionary {id}"))?;
        let data = batch.data().ok_or("it has no values")?;
        let values = batch_of(&data, std::iter::once(&value_field), body(block, file_bytes)?)?;
        Ok(ArrowDictionary { id, is_delta, values, value_field })
    }
}

/// The blocks of dictionaries and of record batches.
pub(super) fn blocks(footer: Footer<'_>) -> (Vec<Block>, Vec<Block>) {
    let dictionaries = footer.dictionaries().map(|blocks| blocks.into_iter().copied().collect());
    let batches = footer.recordBatches().map(|blocks| blocks.into_iter().copied().collect());
    (dictionaries.unwrap_or_default(), batches.unwrap_or_default())
}

/// The range of a block's message in the file.
pub(super) fn message_range(block: &Block, file_bytes: u64) -> Result<Range<u64>, String> {
    within(block.offset(), block.metaDataLength().into(), file_bytes)
}

fn body(block: &Block, file_bytes: u64) -> Result<Range<u64>, String> {
    let start = block.offset().checked_add(block.metaDataLength().into()).unwrap_or(-1);
    within(start, block.bodyLength(), file_bytes)
}

fn within(start: i64, length: i64, limit: u64) -> Result<Range<u64>, String> {
    let range = u64::try_from(start).ok().zip(u64::try_from(length).ok());
    let range = range.and_then(|(start, length)| Some(start..start.checked_add(length)?));
    range.filter(|range| range.end <= limit).ok_or_else(|| format!("it declares {length} bytes at {start} of {limit}"))
}

/// The message after its length, with or without the marker before it.
fn flatbuffer(bytes: &[u8]) -> &[u8] {
    let rest = bytes.strip_prefix(&[0xff; 4]).unwrap_or(bytes);
    rest.get(4..).unwrap_or_default()
}

fn check_version(version: MetadataVersion) -> Result<(), FileError> {
    if version == MetadataVersion::V5 || version == MetadataVersion::V4 {
        return Ok(());
    }
    Err(FileError::Unserved(format!("it has the old format version {version:?}: write the file again")))
}

/// Refuses types that a stream cannot read.
fn check_types(schema: &Schema) -> Result<(), String> {
    fn check(data_type: &DataType, depth: usize) -> Result<(), String> {
        match data_type {
            _ if depth > DEPTH_MAX => return Err(format!("it is nested deeper than {DEPTH_MAX} levels")),
            DataType::Dictionary(_, values) => return check(values, depth + 1),
            DataType::Union(_, UnionMode::Sparse | UnionMode::Dense)
            | DataType::RunEndEncoded(..)
            | DataType::ListView(_)
            | DataType::LargeListView(_)
            | DataType::Interval(_) => return Err(format!("the type {data_type} is not served")),
            _ => {}
        }
        children(data_type).into_iter().try_for_each(|child| check(child.data_type(), depth + 1))
    }
    let failed = |field: &Field, reason: String| format!("column \"{}\": {reason}: cast it", field.name());
    schema.fields().iter().try_for_each(|field| check(field.data_type(), 0).map_err(|reason| failed(field, reason)))
}

/// Divides a message among the columns.
fn batch_of<'a>(
    batch: &RecordBatch<'_>,
    fields: impl Iterator<Item = &'a Field>,
    body: Range<u64>,
) -> Result<ArrowBatch, String> {
    let count = |count: i64| usize::try_from(count).map_err(|_| format!("it declares {count} values"));
    let codec = match batch.compression().map(|compression| compression.codec()) {
        None => ArrowCodec::None,
        Some(CompressionType::LZ4_FRAME) => ArrowCodec::Lz4,
        Some(CompressionType::ZSTD) => ArrowCodec::Zstd,
        Some(other) => return Err(format!("its codec {other:?} is unknown")),
    };
    let lengths: Vec<usize> =
        batch.nodes().into_iter().flatten().map(|node| count(node.length())).collect::<Result<_, _>>()?;
    let buffers = batch.buffers().into_iter().flatten().map(|buffer| {
        let range = within(buffer.offset(), buffer.length(), body.end - body.start)?;
        Ok(body.start + range.start..body.start + range.end)
    });
    let buffers: Vec<Range<u64>> = buffers.collect::<Result<_, String>>()?;
    let view_counts = batch.variadicBufferCounts().into_iter().flatten().map(count).collect::<Result<Vec<_>, _>>()?;
    let mut parts = MessageParts {
        lengths: lengths.into_iter(),
        buffers: buffers.into_iter(),
        view_counts: view_counts.into_iter(),
    };
    let rows = count(batch.length())?;
    let mut columns = Vec::new();
    for field in fields {
        let mut column = ColumnBuffers::default();
        parts.take(field.data_type(), &mut column)?;
        if column.lengths.first() != Some(&rows) {
            return Err(format!("column \"{}\" has another number of values than rows", field.name()));
        }
        columns.push(column);
    }
    Ok(ArrowBatch { rows, codec, columns })
}

// === impl MessageParts ===

impl MessageParts {
    /// Takes the arrays and buffers of a type.
    fn take(&mut self, data_type: &DataType, column: &mut ColumnBuffers) -> Result<(), String> {
        column.lengths.push(self.lengths.next().ok_or("it has too few arrays")?);
        let buffers = match data_type {
            DataType::Null => 0,
            DataType::Struct(_) | DataType::FixedSizeList(..) => 1,
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Binary | DataType::LargeBinary => 3,
            DataType::Utf8View | DataType::BinaryView => {
                let count = self.view_counts.next().ok_or("it has no count of view buffers")?;
                column.view_counts.push(count);
                // More than there are end the loop below.
                count.saturating_add(2)
            }
            _ => 2,
        };
        for _ in 0..buffers {
            column.buffers.push(self.buffers.next().ok_or("it has too few buffers")?);
        }
        match data_type {
            DataType::List(item)
            | DataType::LargeList(item)
            | DataType::FixedSizeList(item, _)
            | DataType::Map(item, _) => self.take(item.data_type(), column),
            DataType::Struct(fields) => fields.iter().try_for_each(|field| self.take(field.data_type(), column)),
            _ => Ok(()),
        }
    }
}

/// The field of the values of the dictionary with this id.
fn values_of(field: &Field, id: i64) -> Option<Field> {
    match field.data_type() {
        DataType::Dictionary(_, values) if dictionary_id(field) == Some(id) => {
            Some(Field::new("", values.as_ref().clone(), true))
        }
        data_type => children(data_type).into_iter().find_map(|child| values_of(child, id)),
    }
}

fn collect_ids(field: &Field, ids: &mut Vec<i64>) {
    for child in children(field.data_type()) {
        collect_ids(child, ids);
    }
    if matches!(field.data_type(), DataType::Dictionary(..)) {
        ids.extend(dictionary_id(field));
    }
}

/// The fields in a type, or in that of the values of a dictionary.
fn children(data_type: &DataType) -> Vec<&Field> {
    match data_type {
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::FixedSizeList(item, _)
        | DataType::Map(item, _) => vec![item.as_ref()],
        DataType::Struct(fields) => fields.iter().map(AsRef::as_ref).collect(),
        DataType::Dictionary(_, values) => children(values),
        _ => Vec::new(),
    }
}

/// The id of the dictionary of a field.
#[expect(deprecated, reason = "the library has no other name for it yet")]
pub fn dictionary_id(field: &Field) -> Option<i64> {
    field.dict_id()
}
