//! Decodes the columns of one row group chunk by chunk, on one thread or on several idle ones.

use std::{
    iter, mem,
    ops::Range,
    sync::Arc,
    time::{Duration, Instant},
};

use arrow::{
    array::{ArrayRef, RecordBatch, RecordBatchOptions},
    buffer::BooleanBuffer,
    datatypes::SchemaRef,
    error::ArrowError,
};
use parquet::errors::ParquetError;

use super::{
    arrow_part,
    columns::Fetched,
    decode_memory::DecodeMemory,
    error::{ErrorContext, ScanError},
    fetch::SharedBytes,
    part::{PartChunk, PartError, PartReader, UNEQUAL_ROWS},
    projection::{Part, Projection},
    view::View,
};
use crate::{
    budget::{Budget, Reservation},
    catalog::{RowGroup, Snapshot},
    cpu_pool::{self, CpuPool},
};

/// The most parts into which the columns of a row group are divided. More do not pay: a part is already a few columns.
const PARTS_MAX: usize = 8;

/// Page bytes of a row group beyond the stream's own reservation from which they are reserved separately.
const LARGE_PAGES_BYTES: u64 = 32 << 20;

/// Parts per thread: a thread that finishes early or starts late takes a remaining part.
const PARTS_A_THREAD: usize = 4;

/// One row group whose bytes have been fetched, decoded chunk by chunk.
pub struct RowGroupReader {
    /// `None` after the last row.
    parts: Vec<Option<PartReader>>,
    view: Arc<View>,
    context: ErrorContext,
    /// Rows declared in the footer and not decoded yet.
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

/// Fetches the column chunks of a row group, all before the first one is decoded. Skips the first `skip` rows.
pub async fn open(
    snapshot: &Snapshot,
    row_group: &RowGroup,
    projection: &Projection,
    skip: u64,
    cpu: &CpuPool,
    budget: &Budget,
) -> Result<RowGroupReader, ScanError> {
    open_shared(snapshot, row_group, projection, skip, cpu, budget, &Arc::default()).await
}

/// Like [`open`], but shares the fetched bytes with other readers of the row group until the last one is dropped.
pub async fn open_shared(
    snapshot: &Snapshot,
    row_group: &RowGroup,
    projection: &Projection,
    skip: u64,
    cpu: &CpuPool,
    budget: &Budget,
    shared: &Arc<SharedBytes>,
) -> Result<RowGroupReader, ScanError> {
    let file = snapshot.file_of(row_group);
    let context = ErrorContext { file: file.display().to_owned(), row_group: row_group.index_in_file };
    let corrupt = |reason: String| context.corrupt(projection.schema(), reason);
    let view = projection.view(snapshot, row_group).map_err(|source| corrupt(source.to_string()))?;
    let memory = Arc::new(DecodeMemory::new(budget.clone(), projection.chunk_rows(snapshot, row_group)));
    let rows_due = (row_group.rows.end - row_group.rows.start).saturating_sub(skip);
    let mut readers_of_parts = Vec::new();
    let (mut fetch_time, mut large_pages) = (Duration::ZERO, None);
    if rows_due > 0 {
        let parts = projection.parts(snapshot, row_group, parts_for(cpu.threads()));
        let leaves = leaves(snapshot, row_group, projection, &parts, &context)?;
        // The ranges of all parts together: adjacent ranges become one request across parts.
        let ranges: Vec<Range<u64>> = leaves.iter().flatten().map(|(_, range)| range.clone()).collect();
        let start = Instant::now();
        let mut bytes = shared.ranges(snapshot, file, &ranges).await?.into_iter();
        fetch_time = start.elapsed();
        let parts: Vec<_> = iter::zip(parts, leaves)
            .map(|(part, leaves)| {
                let bytes = bytes.by_ref().take(leaves.len());
                let fetched = iter::zip(leaves, bytes).map(|((leaf, range), bytes)| (leaf, range, bytes));
                (projection.roots(snapshot, row_group, &part), part, fetched.collect::<Vec<_>>())
            })
            .collect();
        // Opening the decoders is cheap, but hostile bytes may make it panic: the pool turns a panic into an error.
        let (opened, index, within) = (Arc::clone(&view), row_group.index_in_file, Arc::clone(&memory));
        let (pages, deleted) = (Arc::clone(shared), snapshot.deleted_of(row_group).cloned());
        let readers = cpu.run(move || {
            let read = |(roots, part, fetched): (Vec<usize>, Part, Vec<Fetched>)| {
                let group = (index, deleted.as_ref());
                let reader = PartReader::open(&opened, group, (&part, &roots), fetched, skip, (&within, &pages));
                (part, reader)
            };
            parts.into_iter().map(read).collect::<Vec<_>>()
        });
        let mut page_bytes: u64 = 0;
        for (part, reader) in readers.await.map_err(|panic| corrupt(panic.of_damage()))? {
            let of_part = |source: ParquetError| match memory.take_error() {
                Some(error) => context.decode(error),
                None => context.corrupt(&project(projection.schema(), &part.columns), source.to_string()),
            };
            let (reader, bytes) = reader.map_err(of_part)?;
            readers_of_parts.push(Some(reader));
            page_bytes = page_bytes.saturating_add(bytes);
        }
        let beyond = page_bytes.saturating_sub(projection.decoder_bytes(snapshot, row_group));
        if beyond > LARGE_PAGES_BYTES {
            large_pages = Some(budget.reserve(beyond).map_err(|source| context.memory(source))?);
        }
    }
    Ok(RowGroupReader {
        parts: readers_of_parts,
        view,
        context,
        rows_due,
        rows_ahead: None,
        fetch_time,
        memory,
        _large_pages: large_pages,
        _shared: Arc::clone(shared),
    })
}

/// A leaf column and the bytes of its chunk in the file.
type LeafRange = (usize, Range<u64>);

/// The leaf columns of each part and their ranges in the file, checked against the size of the file.
fn leaves(
    snapshot: &Snapshot,
    row_group: &RowGroup,
    projection: &Projection,
    parts: &[Part],
    context: &ErrorContext,
) -> Result<Vec<Vec<LeafRange>>, ScanError> {
    let (file, size) = (snapshot.file_of(row_group), snapshot.file_of(row_group).object().size);
    if let Some(layout) = file.arrow() {
        let of_part = |part: &Part| {
            let roots = projection.roots(snapshot, row_group, part);
            arrow_part::ranges(layout, row_group.index_in_file, &roots)
        };
        return Ok(parts.iter().map(of_part).collect());
    }
    let of_part = |part: &Part| {
        let leaves = projection.leaves(snapshot, row_group, part);
        match leaves.iter().find(|(_, range)| range.is_empty() || range.end > size) {
            None => Ok(leaves),
            Some((_, range)) => {
                let reason = format!("its footer declares bytes {range:?} of a file of {size} bytes");
                Err(context.corrupt(&project(projection.schema(), &part.columns), reason))
            }
        }
    };
    parts.iter().map(of_part).collect()
}

/// The number of parts. A single thread decodes all columns together, as each part has a cost.
fn parts_for(threads: usize) -> usize {
    if threads == 1 { 1 } else { threads.saturating_mul(PARTS_A_THREAD).min(PARTS_MAX) }
}

// === impl RowGroupReader ===

impl RowGroupReader {
    /// Time that storage took to return the bytes.
    pub fn fetch_time(&self) -> Duration {
        self.fetch_time
    }

    /// Decodes the next rows, at most [`Projection::chunk_rows`]; `None` at the end. Run it on the CPU pool.
    pub fn next_chunk(&mut self) -> Result<Option<RecordBatch>, ScanError> {
        let chunk = self.decode();
        self.end_unless(matches!(chunk, Ok(Some(_))));
        chunk
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
        let chunks = self.each_part(PartReader::next_chunk)?;
        let Some(row_count) = self.count(chunks.iter().map(|chunk| chunk.as_ref().map_or(0, |chunk| chunk.rows)))?
        else {
            return Ok(None);
        };
        self.chunk(row_count, chunks.into_iter().flatten()).map(Some)
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
        let chunks = self.each_part(move |part| part.rest(rows, selected.as_ref()).map(Some))?;
        self.chunk(kept, chunks.into_iter().flatten())
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

    fn chunk(&self, row_count: usize, parts: impl Iterator<Item = PartChunk>) -> Result<RecordBatch, ScanError> {
        let arrays: Vec<_> = parts.flat_map(|chunk| chunk.arrays).collect();
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

    /// Files may declare different columns nullable: every chunk has the schema of the snapshot.
    fn batch(&self, schema: SchemaRef, arrays: Vec<ArrayRef>, row_count: usize) -> Result<RecordBatch, ScanError> {
        let options = RecordBatchOptions::new().with_row_count(Some(row_count));
        let batch: Result<RecordBatch, ArrowError> = RecordBatch::try_new_with_options(schema, arrays, &options);
        batch.map_err(|source| self.corrupt(source.to_string()))
    }
}

/// The schema of some columns, for error messages.
fn project(schema: &SchemaRef, columns: &[usize]) -> arrow::datatypes::Schema {
    schema.project(columns).unwrap_or_else(|_| schema.as_ref().clone())
}
