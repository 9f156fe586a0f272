//! Chunks of the Parquet library's writer: any type, encoding, codec, version and size of pages.

use std::sync::Arc;

use arbitrary::{Result, Unstructured};
use arrow::{
    array::{
        ArrayRef, BinaryArray, BooleanArray, Float32Array, Float64Array, Int32Array, Int64Array, RecordBatch,
        StringArray,
    },
    compute::cast,
    datatypes::{DataType, Field, Schema},
};
use bytes::Bytes;
use forebay_pages::{Codec, Column, Form, Physical};
use parquet::{
    arrow::{ArrowWriter, arrow_reader::ParquetRecordBatchReaderBuilder},
    basic::Encoding,
    errors::ParquetError,
    file::properties::{EnabledStatistics, WriterProperties, WriterVersion},
};

use super::{
    chunk::{StoredChunk, codecs, types},
    library::compression,
};

pub(super) fn chunk(bytes: &mut Unstructured<'_>) -> Result<StoredChunk> {
    let (physical, data_type) = types(bytes)?;
    let rows = *bytes.choose(&[1, 2, 7, 64, 257, 1009])?;
    let nulls_percent = *bytes.choose(&[0, 0, 5, 50, 95, 100])?;
    let is_optional = nulls_percent > 0 || bytes.ratio(1_u8, 2)?;
    let codec = codecs(bytes)?;
    let properties = properties(bytes, physical, codec)?;
    let values = values(bytes, rows, nulls_percent, &data_type)?;
    let (bytes, has_dictionary_offset) =
        written(values, is_optional, properties).map_err(|_| arbitrary::Error::IncorrectFormat)?;
    let column = Column { physical, codec, is_optional, rows, data_type, form: Form::Values };
    Ok(StoredChunk { bytes, column, has_dictionary_offset })
}

fn properties(bytes: &mut Unstructured<'_>, physical: Physical, codec: Codec) -> Result<WriterProperties> {
    let (delta, split) = (Encoding::DELTA_BINARY_PACKED, Encoding::BYTE_STREAM_SPLIT);
    let encodings: &[Encoding] = match physical {
        Physical::Boolean => &[Encoding::PLAIN, Encoding::RLE],
        Physical::Int32 | Physical::Int64 => &[Encoding::PLAIN, delta, split],
        Physical::Float | Physical::Double => &[Encoding::PLAIN, split],
        Physical::ByteArray => &[Encoding::PLAIN, Encoding::DELTA_LENGTH_BYTE_ARRAY, Encoding::DELTA_BYTE_ARRAY],
    };
    let has_dictionary = bytes.ratio(1_u8, 2)? && physical != Physical::Boolean;
    Ok(WriterProperties::builder()
        .set_compression(compression(codec))
        .set_encoding(*bytes.choose(encodings)?)
        .set_writer_version(*bytes.choose(&[WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0])?)
        .set_statistics_enabled(EnabledStatistics::None)
        .set_dictionary_enabled(has_dictionary)
        .set_dictionary_page_size_limit(*bytes.choose(&[1 << 20, 64, 2000])?)
        .set_data_page_row_count_limit(*bytes.choose(&[20_000, 1, 33, 500])?)
        .set_write_batch_size(*bytes.choose(&[1024, 1, 10])?)
        .build())
}

/// Random values, of which few or many are distinct.
fn values(bytes: &mut Unstructured<'_>, rows: usize, nulls_percent: u64, data_type: &DataType) -> Result<ArrayRef> {
    let (mut state, distinct) = (bytes.arbitrary::<u32>()?, *bytes.choose(&[1, 2, 17, 400, u64::MAX])?);
    let (shift, is_ascending) = (bytes.int_in_range(0..=63)?, bytes.ratio(1_u8, 4)?);
    let mut next = |end: u64| {
        state ^= state << 13 | 1;
        state ^= state >> 17;
        state ^= state << 5;
        (u64::from(state).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ u64::from(state)) % end
    };
    let codes: Vec<Option<u64>> = (0..rows as u64)
        .map(|row| {
            let code = if is_ascending { row % distinct } else { next(distinct) };
            let value = code.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> shift;
            (next(100) >= nulls_percent).then_some(value)
        })
        .collect();
    let codes = codes.iter().copied();
    let array: ArrayRef = match data_type {
        DataType::Boolean => Arc::new(codes.map(|code| code.map(|code| code % 2 == 1)).collect::<BooleanArray>()),
        DataType::Utf8 | DataType::LargeUtf8 => {
            let text = codes.map(|code| {
                code.map(|code| format!("{code:x}wört").chars().take((code % 5) as usize).collect::<String>())
            });
            Arc::new(text.collect::<StringArray>())
        }
        DataType::Binary => {
            let values: Vec<_> = codes.map(|code| code.map(u64::to_le_bytes)).collect();
            let length = |value: &[u8; 8]| usize::from(value[0] % 9);
            Arc::new(
                values.iter().map(|value| value.as_ref().map(|value| &value[..length(value)])).collect::<BinaryArray>(),
            )
        }
        DataType::Float32 => {
            Arc::new(codes.map(|code| code.map(|code| f32::from_bits(code as u32))).collect::<Float32Array>())
        }
        DataType::Float64 => Arc::new(codes.map(|code| code.map(f64::from_bits)).collect::<Float64Array>()),
        DataType::Int8 => Arc::new(codes.map(|code| code.map(|code| i32::from(code as i8))).collect::<Int32Array>()),
        DataType::UInt16 => Arc::new(codes.map(|code| code.map(|code| i32::from(code as u16))).collect::<Int32Array>()),
        DataType::Int32 | DataType::Date32 => {
            Arc::new(codes.map(|code| code.map(|code| code as i32)).collect::<Int32Array>())
        }
        DataType::UInt32 => Arc::new(codes.map(|code| code.map(|code| i64::from(code as u32))).collect::<Int64Array>()),
        DataType::UInt64 => Arc::new(codes.map(|code| code.map(|code| (code >> 1) as i64)).collect::<Int64Array>()),
        _ => Arc::new(codes.map(|code| code.map(|code| code as i64)).collect::<Int64Array>()),
    };
    cast(&array, data_type).map_err(|_| arbitrary::Error::IncorrectFormat)
}

/// The bytes of a written chunk, and whether it has a dictionary.
fn written(values: ArrayRef, is_optional: bool, properties: WriterProperties) -> Result<(Bytes, bool), ParquetError> {
    let field = Field::new("x", values.data_type().clone(), is_optional);
    let batch = RecordBatch::try_new(Arc::new(Schema::new(vec![field])), vec![values])?;
    let mut file = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut file, batch.schema(), Some(properties))?;
    writer.write(&batch)?;
    writer.close()?;
    let file = Bytes::from(file);
    let reader = ParquetRecordBatchReaderBuilder::try_new(file.clone())?;
    let chunk = reader.metadata().row_group(0).column(0);
    let (start, length) = chunk.byte_range();
    Ok((file.slice(start as usize..(start + length) as usize), chunk.dictionary_page_offset().is_some()))
}
