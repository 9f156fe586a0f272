//! Columns of a Parquet file that the Parquet library reads.

use std::sync::Arc;

use arrow::{array::RecordBatch, datatypes::SchemaRef};
use parquet::{
    arrow::arrow_reader::{ParquetRecordBatchReader, RowSelector},
    errors::ParquetError,
};

use super::{
    column_readers::{ColumnsReader, PartError, ReadColumn, RowsToRead},
    columns::{Fetched, FetchedColumns},
    decode_memory::DecodeMemory,
    view::View,
};

/// Columns that the library reads together; without columns, it counts the rows.
pub(super) struct LibraryColumns {
    columns: Vec<usize>,
    library: ParquetRecordBatchReader,
    /// The next rows, once they are decoded.
    chunk: Option<RecordBatch>,
}

// === impl LibraryColumns ===

impl LibraryColumns {
    /// Opens the columns of these roots of the file, in the order of the file, and returns the page bytes that their decoder
    /// may hold decompressed. Without selectors, all rows are read.
    pub(super) fn open(
        view: &View,
        row_group: usize,
        (columns, roots): (Vec<usize>, &[usize]),
        fetched: Vec<Fetched>,
        selectors: Vec<RowSelector>,
        memory: &Arc<DecodeMemory>,
    ) -> Result<(Self, u64), ParquetError> {
        let (metadata, schema) = (Arc::clone(view.metadata.metadata()), SchemaRef::clone(view.metadata.schema()));
        let fetched = FetchedColumns::new(metadata, row_group, fetched, schema, view.int96, Arc::clone(memory))?;
        let selection = (!selectors.is_empty()).then(|| selectors.into());
        let levels = view.levels(roots)?;
        let block_rows = usize::try_from(memory.rows()).unwrap_or(usize::MAX);
        let library = ParquetRecordBatchReader::try_new_with_row_groups(&levels, &fetched, block_rows, selection)?;
        Ok((Self { columns, library, chunk: None }, fetched.page_bytes()))
    }
}

impl ColumnsReader for LibraryColumns {
    fn columns(&self) -> &[usize] {
        &self.columns
    }

    /// Decodes them: the library decides how many they are.
    fn begin(&mut self, _rows: usize) -> Result<Option<usize>, PartError> {
        let chunk = self.library.next().transpose();
        let chunk = chunk.map_err(|source| (self.columns.clone(), ParquetError::from(source).to_string()))?;
        self.chunk = chunk;
        Ok(self.chunk.as_ref().map(RecordBatch::num_rows))
    }

    /// Reads all of its columns, as it decodes them together.
    fn read(
        &mut self,
        rows: &RowsToRead<'_>,
        _is_due: &dyn Fn(usize) -> bool,
        into: &mut Vec<ReadColumn>,
    ) -> Result<(), PartError> {
        let chunk = self.chunk.take();
        for (column, array) in self.columns.iter().zip(chunk.iter().flat_map(RecordBatch::columns)) {
            into.push(rows.of((*column, array.clone()))?);
        }
        Ok(())
    }
}
