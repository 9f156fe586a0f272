//! Fetched columns of one row group, as the Parquet decoder reads them.

use std::{collections::HashMap, iter, sync::Arc};

use arrow::datatypes::{DataType, SchemaRef};
use forebay_catalog::Int96Unit;
use parquet::{
    arrow::arrow_reader::RowGroups,
    column::page::{PageIterator, PageReader},
    errors::ParquetError,
    file::metadata::{ParquetMetaData, RowGroupMetaData},
    schema::types::ColumnDescPtr,
};

use super::{chunks::FetchedChunk, decode_memory::DecodeMemory, int96, page_sizes, record_counts, value_memory};

/// The index of a leaf column in the file, and its chunk.
pub(super) type Fetched = (usize, FetchedChunk);

/// Column chunks of one row group.
pub(super) struct FetchedColumns {
    metadata: Arc<ParquetMetaData>,
    row_group: usize,
    /// By leaf index in the file.
    chunks: HashMap<usize, FetchedChunk>,
    /// The schema that the columns are decoded to.
    schema: SchemaRef,
    int96: Int96Unit,
    memory: Arc<DecodeMemory>,
}

impl FetchedColumns {
    /// Fetched chunks of a row group. Fails if a page exceeds the size that its header declares.
    pub(super) fn new(
        metadata: Arc<ParquetMetaData>,
        row_group: usize,
        fetched: impl IntoIterator<Item = Fetched>,
        schema: SchemaRef,
        int96: Int96Unit,
        memory: Arc<DecodeMemory>,
    ) -> Result<Self, ParquetError> {
        let group = metadata.row_group(row_group);
        let mut chunks = HashMap::new();
        for (leaf, chunk) in fetched {
            page_sizes::check(group.column(leaf), &chunk, group.num_rows())?;
            chunks.insert(leaf, chunk);
        }
        Ok(Self { metadata, row_group, chunks, schema, int96, memory })
    }

    /// Decompressed page bytes that decoding holds at once, as declared in the page headers.
    pub(super) fn page_bytes(&self) -> u64 {
        let group = self.metadata.row_group(self.row_group);
        self.chunks.iter().map(|(leaf, chunk)| page_sizes::held_bytes(group.column(*leaf), chunk)).sum()
    }
}

impl RowGroups for FetchedColumns {
    fn num_rows(&self) -> usize {
        usize::try_from(self.metadata.row_group(self.row_group).num_rows()).unwrap_or(0)
    }

    fn column_chunks(&self, leaf: usize) -> Result<Box<dyn PageIterator>, ParquetError> {
        let missing = || ParquetError::General(format!("column {leaf} was not fetched"));
        let fetched = self.chunks.get(&leaf).ok_or_else(missing)?;
        let group = self.metadata.row_group(self.row_group);
        let column = group.column(leaf).column_descr_ptr();
        let pages = fetched.pages(group.column(leaf), group.num_rows())?;
        let pages = record_counts::checked(pages, &column, fetched.run());
        let pages = int96::checked(pages, ColumnDescPtr::clone(&column), self.int96, &self.memory);
        let root = self.metadata.file_metadata().schema_descr().get_column_root_idx(leaf);
        let is_keyed = matches!(self.schema.field(root).data_type(), DataType::Dictionary(..));
        let pages = value_memory::checked(pages, column, is_keyed, &self.memory);
        Ok(Box::new(OneChunk(Some(pages))))
    }

    fn row_groups(&self) -> Box<dyn Iterator<Item = &RowGroupMetaData> + '_> {
        Box::new(iter::once(self.metadata.row_group(self.row_group)))
    }

    fn metadata(&self) -> &ParquetMetaData {
        &self.metadata
    }
}

/// The pages of the only chunk of a column.
struct OneChunk(Option<Box<dyn PageReader>>);

impl Iterator for OneChunk {
    type Item = Result<Box<dyn PageReader>, ParquetError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.take().map(Ok)
    }
}

impl PageIterator for OneChunk {}
