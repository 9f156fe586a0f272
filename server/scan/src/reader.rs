//! Decodes the columns of one row group block by block, on one thread or on several idle ones.

use std::{mem, sync::Arc, time::Duration};

use arrow::{
    array::{ArrayRef, RecordBatch, RecordBatchOptions},
    buffer::BooleanBuffer,
    datatypes::SchemaRef,
    error::ArrowError,
};
use forebay_runtime::{
    budget::{Budget, Reservation},
    cpu_pool,
};

use super::{
    column_readers::{PartError, UNEQUAL_ROWS},
    decode_memory::DecodeMemory,
    error::{ErrorContext, ScanError},
    part::{PartBlock, PartReader},
    shared::SharedBytes,
    view::View,
};

/// One row group whose bytes have been fetched, decoded block by block.
pub struct RowGroupReader {
    /// `None` after the last row.
    parts: Vec<Option<PartReader>>,
    view: Arc<View>,
    context: ErrorContext,
    /// Rows declared in the footer, of those to read, that are not decoded yet.
    rows_due: u64,
    /// Rows of which some columns were decoded ahead of the others.
    rows_ahead: Option<usize>,
    fetch_time: Duration,
    memory: Arc<DecodeMemory>,
    /// For pages larger than the stream's reservation.
    _large_pages: Option<Reservation>,
    /// Keeps the bytes alive for readers that open the same row group meanwhile.
    _shared: Arc<SharedBytes>,
}

/// Opened decoders of the columns.
#[derive(Default)]
pub(super) struct OpenedParts {
    pub parts: Vec<PartReader>,
    /// Time that storage took.
    pub fetch_time: Duration,
    pub large_pages: Option<Reservation>,
}

// === impl RowGroupReader ===

impl RowGroupReader {
    /// A reader of this number of rows, which are in the parts.
    pub(super) fn new(
        (view, context, memory): (Arc<View>, ErrorContext, Arc<DecodeMemory>),
        rows: u64,
        opened: OpenedParts,
        shared: &Arc<SharedBytes>,
    ) -> Self {
        Self {
            parts: opened.parts.into_iter().map(Some).collect(),
            view,
            context,
            rows_due: rows,
            rows_ahead: None,
            fetch_time: opened.fetch_time,
            memory,
            _large_pages: opened.large_pages,
            _shared: Arc::clone(shared),
        }
    }

    /// The budget that its values are reserved from.
    pub fn budget(&self) -> &Budget {
        self.memory.budget()
    }

    /// Time that storage took to return the bytes.
    pub fn fetch_time(&self) -> Duration {
        self.fetch_time
    }

    /// Decodes the next rows, at most [`crate::Projection::block_rows`]; `None` at the end. Run it on the CPU pool.
    pub fn next_block(&mut self) -> Result<Option<RecordBatch>, ScanError> {
        let block = self.decode();
        self.end_unless(matches!(block, Ok(Some(_))));
        block
    }

    /// Decodes some columns of the next rows, by rising index in the projection; `None` at the end. [`Self::rest`] must
    /// follow. Run it on the CPU pool.
    pub fn read_ahead(&mut self, columns: &[usize]) -> Result<Option<RecordBatch>, ScanError> {
        let ahead = self.decode_ahead(columns);
        self.end_unless(matches!(ahead, Ok(Some(_))));
        ahead
    }

    /// Decodes the other columns of the rows of [`Self::read_ahead`], and returns all columns of all rows, or of the
    /// selected ones. Run it on the CPU pool.
    pub fn rest(&mut self, selected: Option<&BooleanBuffer>) -> Result<RecordBatch, ScanError> {
        let rest = self.decode_rest(selected);
        self.end_unless(rest.is_ok());
        rest
    }

    /// A decoder that failed or ended must not be called again.
    fn end_unless(&mut self, may_continue: bool) {
        if !may_continue {
            self.rows_due = 0;
            self.rows_ahead = None;
            self.parts.fill_with(|| None);
        }
    }

    /// Calls a function with every part, on idle threads of the pool too.
    fn each_part<T: Send + 'static>(
        &mut self,
        call: impl Fn(&mut PartReader) -> Result<Option<T>, PartError> + Send + Sync + 'static,
    ) -> Result<Vec<Option<T>>, ScanError> {
        let call = move |mut part: Option<PartReader>| {
            let result = part.as_mut().map_or(Ok(None), &call);
            (part, result)
        };
        let results: Vec<_>;
        (self.parts, results) = cpu_pool::in_parallel(mem::take(&mut self.parts), call).into_iter().unzip();
        if let Some(error) = self.memory.take_error() {
            return Err(self.context.decode(error));
        }
        let of_columns =
            |(columns, reason): PartError| self.context.corrupt(&project(&self.view.schema, &columns), reason);
        results.into_iter().map(|result| result.map_err(of_columns)).collect()
    }

    fn decode(&mut self) -> Result<Option<RecordBatch>, ScanError> {
        let blocks = self.each_part(PartReader::next_block)?;
        let Some(row_count) = self.count(blocks.iter().map(|block| block.as_ref().map_or(0, |block| block.rows)))?
        else {
            return Ok(None);
        };
        self.block(row_count, blocks.into_iter().flatten()).map(Some)
    }

    fn decode_ahead(&mut self, columns: &[usize]) -> Result<Option<RecordBatch>, ScanError> {
        let read = columns.to_vec();
        let rows = self.each_part(move |part| part.read_ahead(|column| read.contains(&column)))?;
        let Some(row_count) = self.count(rows.into_iter().map(|rows| rows.unwrap_or(0)))? else { return Ok(None) };
        self.rows_ahead = Some(row_count);
        let arrays = self.parts.iter().flatten().flat_map(PartReader::ahead);
        let arrays = arrays.filter(|(column, _)| columns.contains(column));
        let arrays = self.restored(arrays, columns.iter().copied(), row_count)?;
        let schema = self.view.schema.project(columns).map_err(|source| self.corrupt(source.to_string()))?;
        self.batch(Arc::new(schema), arrays, row_count).map(Some)
    }

    fn decode_rest(&mut self, selected: Option<&BooleanBuffer>) -> Result<RecordBatch, ScanError> {
        let Some(rows) = self.rows_ahead.take() else { return Err(self.corrupt(UNEQUAL_ROWS.to_owned())) };
        let kept = selected.map_or(rows, BooleanBuffer::count_set_bits);
        let selected = selected.cloned();
        let blocks = self.each_part(move |part| part.rest(rows, selected.as_ref()).map(Some))?;
        self.block(kept, blocks.into_iter().flatten())
    }

    fn corrupt(&self, reason: String) -> ScanError {
        self.context.corrupt(&self.view.schema, reason)
    }

    /// The number of rows that all parts read; none at the end.
    fn count(&mut self, of_parts: impl Iterator<Item = usize>) -> Result<Option<usize>, ScanError> {
        let mut found: Option<usize> = None;
        for rows in of_parts {
            if *found.get_or_insert(rows) != rows {
                return Err(self.corrupt(UNEQUAL_ROWS.to_owned()));
            }
        }
        let row_count = found.unwrap_or(0);
        if row_count == 0 {
            return match mem::take(&mut self.rows_due) {
                0 => Ok(None),
                missing => Err(self.corrupt(format!("its footer declares {missing} more rows than it has"))),
            };
        }
        if row_count as u64 > self.rows_due {
            return Err(self.corrupt("it has more rows than its footer declares".to_owned()));
        }
        self.rows_due -= row_count as u64;
        Ok(Some(row_count))
    }

    fn block(&self, row_count: usize, parts: impl Iterator<Item = PartBlock>) -> Result<RecordBatch, ScanError> {
        let arrays: Vec<_> = parts.flat_map(|block| block.arrays).collect();
        let arrays = self.restored(arrays.iter(), 0..self.view.schema.fields().len(), row_count)?;
        self.batch(SchemaRef::clone(&self.view.schema), arrays, row_count)
    }

    /// The arrays of these columns, by rising index in the projection, with its types. Those that the file lacks are
    /// null or the value of its folder.
    fn restored<'a>(
        &self,
        arrays: impl Iterator<Item = &'a (usize, ArrayRef)>,
        columns: impl Iterator<Item = usize>,
        rows: usize,
    ) -> Result<Vec<ArrayRef>, ScanError> {
        let mut restored: Vec<Option<ArrayRef>> = vec![None; self.view.schema.fields().len()];
        for (index, array) in arrays {
            let array = self.view.restored(*index, array);
            let name = || self.view.schema.field(*index).name().clone();
            restored[*index] = Some(array.map_err(|reason| self.context.out_of_range(name(), reason))?);
        }
        let mut values = Vec::with_capacity(restored.len());
        for column in columns {
            let constant = self.view.constant(column, rows).map_err(|source| self.corrupt(source.to_string()))?;
            values.extend(constant.or_else(|| restored[column].take()));
        }
        Ok(values)
    }

    /// Files may declare different columns nullable: every block has the schema of the snapshot.
    fn batch(&self, schema: SchemaRef, arrays: Vec<ArrayRef>, row_count: usize) -> Result<RecordBatch, ScanError> {
        let options = RecordBatchOptions::new().with_row_count(Some(row_count));
        let batch: Result<RecordBatch, ArrowError> = RecordBatch::try_new_with_options(schema, arrays, &options);
        batch.map_err(|source| self.corrupt(source.to_string()))
    }
}

/// The schema of some columns, for error messages.
pub(super) fn project(schema: &SchemaRef, columns: &[usize]) -> arrow::datatypes::Schema {
    schema.project(columns).unwrap_or_else(|_| schema.as_ref().clone())
}
