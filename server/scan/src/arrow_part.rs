//! Makes arrays of the buffers of a record batch. Uncompressed buffers are used in place; others are decompressed into
//! memory that is reserved before, at most to the length that they declare.
//!
//! Every array is validated: offsets, keys, UTF-8 and lengths of buffers.

use std::{collections::HashMap, io::Read, ops::Range, sync::Arc};

use arrow::{
    array::{ArrayData, ArrayRef, make_array, new_empty_array},
    buffer::Buffer,
    compute::concat,
    datatypes::{DataType, Field},
};
use bytes::Bytes;
use forebay_catalog::{ArrowBatch, ArrowCodec, ArrowLayout, ColumnBuffers, dictionary_id};
use forebay_runtime::budget::Reservation;
use lz4_flex::frame::FrameDecoder;

use super::{
    columns::Fetched,
    decode_memory::{DecodeError, DecodeMemory},
};

/// The length that a compressed buffer declares if its bytes are not compressed.
const STORED: i64 = -1;

/// Arrays of one column, taken from the front.
struct ColumnParts<'a> {
    lengths: std::slice::Iter<'a, usize>,
    buffers: std::slice::Iter<'a, Range<u64>>,
    view_counts: std::slice::Iter<'a, usize>,
    codec: ArrowCodec,
    /// The fetched bytes, and where they begin in the file.
    bytes: &'a Bytes,
    start: u64,
    dictionaries: &'a HashMap<i64, ArrayRef>,
    memory: &'a DecodeMemory,
    reserved: &'a mut Vec<Reservation>,
}

/// The ranges of the file that columns of a record batch need, their dictionaries included, with the column.
pub(super) fn ranges(layout: &ArrowLayout, batch: usize, roots: &[usize]) -> Vec<(usize, Range<u64>)> {
    let mut ranges = Vec::new();
    for root in roots {
        ranges.push((*root, layout.batches[batch].columns[*root].range()));
        for id in layout.dictionary_ids(*root) {
            let of_id = layout.dictionaries.iter().filter(|dictionary| dictionary.id == id);
            let of_id = of_id.flat_map(|dictionary| &dictionary.values.columns);
            ranges.extend(of_id.map(|column| (*root, column.range())));
        }
    }
    ranges.retain(|(_, range)| !range.is_empty());
    ranges
}

/// The array of a column of a record batch.
pub(super) fn decode(
    layout: &ArrowLayout,
    batch: usize,
    root: usize,
    fetched: &[Fetched],
    memory: &DecodeMemory,
    reserved: &mut Vec<Reservation>,
) -> Result<ArrayRef, String> {
    let mut dictionaries: HashMap<i64, ArrayRef> = HashMap::new();
    let ids = layout.dictionary_ids(root);
    let of_id = |id: i64| layout.dictionaries.iter().filter(move |dictionary| dictionary.id == id);
    // A dictionary in the values of another comes first, with all of its deltas.
    for dictionary in ids.into_iter().flat_map(of_id) {
        let values = column(&dictionary.values, 0, &dictionary.value_field, fetched, &dictionaries, memory, reserved)?;
        let values = match dictionaries.remove(&dictionary.id).filter(|_| dictionary.is_delta) {
            Some(before) => concat(&[before.as_ref(), values.as_ref()]).map_err(|error| error.to_string())?,
            None => values,
        };
        dictionaries.insert(dictionary.id, values);
    }
    let field = layout.schema.field(root);
    column(&layout.batches[batch], root, field, fetched, &dictionaries, memory, reserved)
}

fn column(
    batch: &ArrowBatch,
    index: usize,
    field: &Field,
    fetched: &[Fetched],
    dictionaries: &HashMap<i64, ArrayRef>,
    memory: &DecodeMemory,
    reserved: &mut Vec<Reservation>,
) -> Result<ArrayRef, String> {
    let column: &ColumnBuffers = &batch.columns[index];
    let range = column.range();
    let none = Bytes::new();
    let found = fetched.iter().find_map(|(_, chunk)| chunk.whole(&range));
    let bytes = match found {
        Some(bytes) => bytes,
        None if range.is_empty() => &none,
        None => return Err("its buffers were not fetched".to_owned()),
    };
    let mut parts = ColumnParts {
        lengths: column.lengths.iter(),
        buffers: column.buffers.iter(),
        view_counts: column.view_counts.iter(),
        codec: batch.codec,
        bytes,
        start: range.start,
        dictionaries,
        memory,
        reserved,
    };
    let array = parts.array(field)?;
    if array.len() == batch.rows { Ok(array) } else { Err("it has another number of values than rows".to_owned()) }
}

// === impl ColumnParts ===

impl ColumnParts<'_> {
    fn array(&mut self, field: &Field) -> Result<ArrayRef, String> {
        let data_type = field.data_type();
        let length = *self.lengths.next().ok_or("it has too few arrays")?;
        let mut data = ArrayData::builder(data_type.clone()).len(length).align_buffers(true);
        if !matches!(data_type, DataType::Null) {
            data = data.null_bit_buffer(Some(self.buffer()?).filter(|nulls| !nulls.is_empty()));
        }
        let count = match data_type {
            DataType::Null | DataType::Struct(_) | DataType::FixedSizeList(..) => 0,
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Binary | DataType::LargeBinary => 2,
            DataType::Utf8View | DataType::BinaryView => self.view_counts.next().map_or(1, |count| count + 1),
            _ => 1,
        };
        for _ in 0..count {
            data = data.add_buffer(self.buffer()?);
        }
        match data_type {
            DataType::List(item)
            | DataType::LargeList(item)
            | DataType::FixedSizeList(item, _)
            | DataType::Map(item, _) => data = data.add_child_data(self.array(item)?.to_data()),
            DataType::Struct(fields) => {
                for field in fields {
                    data = data.add_child_data(self.array(field)?.to_data());
                }
            }
            DataType::Dictionary(_, values) => {
                let known = dictionary_id(field).and_then(|id| self.dictionaries.get(&id));
                // A file without rows may leave it out.
                let known = known.map_or_else(|| new_empty_array(values), Arc::clone);
                data = data.add_child_data(known.to_data());
            }
            _ => {}
        }
        // Writers may leave out the buffers of empty arrays.
        if length == 0 {
            return Ok(new_empty_array(data_type));
        }
        data.build().map(make_array).map_err(|error| error.to_string())
    }

    fn buffer(&mut self) -> Result<Buffer, String> {
        let range = self.buffers.next().ok_or("it has too few buffers")?;
        if range.is_empty() {
            return Ok(Buffer::default());
        }
        let within = (range.start - self.start) as usize..(range.end - self.start) as usize;
        let stored = if within.end <= self.bytes.len() { self.bytes.slice(within) } else { Bytes::new() };
        match self.codec {
            ArrowCodec::None => Ok(Buffer::from(stored)),
            codec => self.decompressed(codec, &stored),
        }
    }

    fn decompressed(&mut self, codec: ArrowCodec, stored: &Bytes) -> Result<Buffer, String> {
        let length = stored.first_chunk::<8>().map(|length| i64::from_le_bytes(*length));
        let length = length.ok_or("a compressed buffer is shorter than its length")?;
        if length == STORED {
            return Ok(Buffer::from(stored.slice(8..)));
        }
        let bytes = usize::try_from(length).map_err(|_| format!("a buffer declares {length} bytes"))?;
        match self.memory.reserve(bytes as u64) {
            Ok(reservation) => self.reserved.extend(reservation),
            Err(source) => return Err(self.memory.fail(DecodeError::Memory(source)).to_string()),
        }
        let mut values = Vec::with_capacity(bytes);
        let limit = bytes as u64 + 1;
        let read = match codec {
            ArrowCodec::Zstd => zstd::stream::read::Decoder::new(&stored[8..])
                .and_then(|frames| frames.take(limit).read_to_end(&mut values)),
            _ => FrameDecoder::new(&stored[8..]).take(limit).read_to_end(&mut values),
        };
        read.map_err(|error| format!("a buffer is not readable: {error}"))?;
        if values.len() == bytes {
            return Ok(Buffer::from_vec(values));
        }
        Err(format!("a buffer has other than the {bytes} bytes that it declares"))
    }
}
