//! A column chunk and its description.

use std::fmt;

use arbitrary::{Result, Unstructured};
use arrow::datatypes::{DataType, TimeUnit};
use bytes::Bytes;
use forebay_pages::{Codec, Column, Form, Physical};

use super::{assembled, written};

/// The bytes of a column chunk, and the column that the footer describes.
pub(super) struct StoredChunk {
    pub bytes: Bytes,
    pub column: Column,
    /// Whether the footer has the offset of a dictionary.
    pub has_dictionary_offset: bool,
}

impl fmt::Debug for StoredChunk {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        write!(formatter, "{:?} in {:02x?}", self.column, &self.bytes[..])
    }
}

impl StoredChunk {
    /// A chunk that the library wrote or one of arbitrary pages, damaged or not; `None` if it cannot be written.
    pub(super) fn of(bytes: &mut Unstructured<'_>) -> Option<Self> {
        let mut chunk = match bytes.ratio(1_u8, 2) {
            Ok(false) => written::chunk(bytes).ok()?,
            _ => assembled::chunk(bytes).ok()?,
        };
        chunk.bytes = damaged(&chunk.bytes, bytes).ok()?.into();
        (!chunk.bytes.is_empty()).then_some(chunk)
    }

    pub(super) fn column_as(&self, form: Form) -> Column {
        Column { form, ..self.column.clone() }
    }
}

/// The bytes with at most four changes.
fn damaged(chunk: &[u8], bytes: &mut Unstructured<'_>) -> Result<Vec<u8>> {
    let mut chunk = chunk.to_vec();
    for _ in 0..bytes.int_in_range(0..=4)? {
        if chunk.is_empty() {
            break;
        }
        let at = bytes.int_in_range(0..=chunk.len() - 1)?;
        match bytes.int_in_range(0..=3)? {
            0 => chunk[at] ^= 1 << bytes.int_in_range(0..=7)?,
            1 => chunk[at] = bytes.arbitrary()?,
            2 => chunk.insert(at, bytes.arbitrary()?),
            _ => drop(chunk.remove(at)),
        }
    }
    Ok(chunk)
}

/// A stored type and an Arrow type of its values.
pub(super) fn types(bytes: &mut Unstructured<'_>) -> Result<(Physical, DataType)> {
    let types = [
        (Physical::Boolean, DataType::Boolean),
        (Physical::Int32, DataType::Int32),
        (Physical::Int32, DataType::Int8),
        (Physical::Int32, DataType::UInt16),
        (Physical::Int32, DataType::UInt32),
        (Physical::Int32, DataType::Date32),
        (Physical::Int64, DataType::Int64),
        (Physical::Int64, DataType::UInt64),
        (Physical::Int64, DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))),
        (Physical::Float, DataType::Float32),
        (Physical::Double, DataType::Float64),
        (Physical::ByteArray, DataType::Utf8),
        (Physical::ByteArray, DataType::LargeUtf8),
        (Physical::ByteArray, DataType::Binary),
    ];
    bytes.choose(&types).cloned()
}

pub(super) fn codecs(bytes: &mut Unstructured<'_>) -> Result<Codec> {
    // Damage to compressed bytes rarely reaches a decoder.
    let codecs = [
        Codec::Uncompressed,
        Codec::Uncompressed,
        Codec::Snappy,
        Codec::Zstd,
        Codec::Lz4Raw,
        Codec::Gzip,
        Codec::Brotli,
    ];
    bytes.choose(&codecs).copied()
}
