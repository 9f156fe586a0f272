//! Column chunks as the Parquet library reads them.

use std::{iter, sync::Arc};

use arrow::{
    array::{ArrayRef, new_empty_array},
    compute::concat,
    datatypes::{Field, Schema},
};
use bytes::Bytes;
use forebay_pages::{Codec, Column};
use parquet::{
    arrow::{
        ArrowSchemaConverter, ProjectionMask,
        arrow_reader::{ParquetRecordBatchReader, RowGroups},
        parquet_to_arrow_field_levels,
    },
    basic::{BrotliLevel, Compression, GzipLevel, ZstdLevel},
    column::page::{PageIterator, PageReader},
    errors::ParquetError,
    file::{
        metadata::{ColumnChunkMetaData, FileMetaData, ParquetMetaData, RowGroupMetaData},
        serialized_reader::SerializedPageReader,
    },
};

use super::chunk::StoredChunk;

/// Bytes before the chunk: an offset of 0 means that there is none.
const START: usize = 4;

/// Rows that the library decodes at once.
const BATCH_ROWS: usize = 1000;

/// A row group of one column.
struct OneColumn {
    file: Bytes,
    metadata: ParquetMetaData,
}

/// All rows.
pub(super) fn read(chunk: &StoredChunk) -> Result<ArrayRef, ParquetError> {
    let Column { data_type, rows, is_optional, .. } = &chunk.column;
    let field = Field::new("x", data_type.clone(), *is_optional);
    let schema = Arc::new(ArrowSchemaConverter::new().convert(&Schema::new(vec![field.clone()]))?);
    let mut described = ColumnChunkMetaData::builder(schema.column(0))
        .set_compression(compression(chunk.column.codec))
        .set_num_values(*rows as i64)
        .set_total_compressed_size(chunk.bytes.len() as i64)
        .set_data_page_offset(START as i64);
    if chunk.has_dictionary_offset {
        described = described.set_dictionary_page_offset(Some(START as i64));
    }
    let group = RowGroupMetaData::builder(Arc::clone(&schema)).set_num_rows(*rows as i64);
    let group = group.set_column_metadata(vec![described.build()?]).build()?;
    let file = FileMetaData::new(2, *rows as i64, None, None, Arc::clone(&schema), None);
    let metadata = ParquetMetaData::new(file, vec![group]);
    let columns = OneColumn { file: [&[0; START], &chunk.bytes[..]].concat().into(), metadata };
    let fields = vec![field].into();
    let levels = parquet_to_arrow_field_levels(&schema, ProjectionMask::all(), Some(&fields))?;
    let reader = ParquetRecordBatchReader::try_new_with_row_groups(&levels, &columns, BATCH_ROWS, None)?;
    let mut arrays = vec![new_empty_array(data_type)];
    for batch in reader {
        arrays.push(Arc::clone(batch?.column(0)));
    }
    let arrays: Vec<_> = arrays.iter().map(AsRef::as_ref).collect();
    let all = concat(&arrays)?;
    if all.len() == *rows { Ok(all) } else { Err(ParquetError::General("rows are missing".to_owned())) }
}

/// The library's name of a codec.
pub(super) fn compression(codec: Codec) -> Compression {
    match codec {
        Codec::Uncompressed => Compression::UNCOMPRESSED,
        Codec::Snappy => Compression::SNAPPY,
        Codec::Zstd => Compression::ZSTD(ZstdLevel::default()),
        Codec::Lz4Raw => Compression::LZ4_RAW,
        Codec::Gzip => Compression::GZIP(GzipLevel::default()),
        Codec::Brotli => Compression::BROTLI(BrotliLevel::default()),
    }
}

impl RowGroups for OneColumn {
    fn num_rows(&self) -> usize {
        self.metadata.row_group(0).num_rows() as usize
    }

    fn column_chunks(&self, _: usize) -> Result<Box<dyn PageIterator>, ParquetError> {
        let (file, column) = (Arc::new(self.file.clone()), self.metadata.row_group(0).column(0));
        let pages = SerializedPageReader::new(file, column, self.num_rows(), None)?;
        Ok(Box::new(OnePageReader(Some(Box::new(pages)))))
    }

    fn row_groups(&self) -> Box<dyn Iterator<Item = &RowGroupMetaData> + '_> {
        Box::new(iter::once(self.metadata.row_group(0)))
    }

    fn metadata(&self) -> &ParquetMetaData {
        &self.metadata
    }
}

/// The pages of the only chunk.
struct OnePageReader(Option<Box<dyn PageReader>>);

impl Iterator for OnePageReader {
    type Item = Result<Box<dyn PageReader>, ParquetError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.take().map(Ok)
    }
}

impl PageIterator for OnePageReader {}
