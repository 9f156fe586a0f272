//! One row group's columns, decoded chunk by chunk: on one thread, or on several where some have nothing to do.

use std::{
    iter, mem,
    ops::Range,
    sync::Arc,
    time::{Duration, Instant},
};

use arrow::{
    array::{ArrayRef, RecordBatch, RecordBatchOptions},
    datatypes::SchemaRef,
    error::ArrowError,
};
use parquet::{
    arrow::arrow_reader::{ParquetRecordBatchReader, RowGroups, RowSelector},
    errors::ParquetError,
};

use super::{
    Place, Projection, ScanError, SharedBytes,
    chunks::{Fetched, FetchedColumns},
    intervals::Intervals,
    projection::{Part, View},
    texts::Room,
};
use crate::{
    budget::{Budget, Reservation},
    catalog::{RowGroup, Snapshot},
    cpu_pool::{self, CpuPool},
};

/// Parts that a row group's columns are decoded in at most. More would not pay: a part is then a few columns.
const PARTS_MAX: usize = 8;

/// Pages of a row group that are larger together than streams reserve for by so much are reserved for when they come.
const LARGE_PAGES_BYTES: u64 = 32 << 20;

/// Parts for each thread: a thread that is done early, or begins late, finds some left.
const PARTS_A_THREAD: usize = 4;

/// One row group whose bytes have been fetched, decoded chunk by chunk.
pub struct RowGroupReader {
    columns: Vec<Columns>,
    schema: SchemaRef,
    place: Place,
    /// Rows that the footer promises and that have not come yet.
    rows_due: u64,
    fetch_time: Duration,
    room: Arc<Room>,
    intervals: Intervals,
    /// For pages that are larger than streams reserve for.
    _memory: Option<Reservation>,
    /// Held so that readers that open the row group meanwhile find its bytes.
    _shared: Arc<SharedBytes>,
}

/// A part of the columns.
struct Columns {
    part: Part,
    /// None once they have ended.
    reader: Option<ParquetRecordBatchReader>,
}

/// Fetches what a row group's columns need, all of it before the first chunk is decoded. `skip` leaves out that many
/// of its first rows.
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

/// The same for one of several readers of the row group: its bytes are fetched once, and held while one of them reads.
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
    let place = Place { file: file.display().to_owned(), row_group: row_group.index_in_file };
    let corrupt = |reason: String| place.corrupt(projection.schema(), reason);
    let of_part = |part: &Part, reason: String| place.corrupt(&project(projection.schema(), part), reason);
    let view = projection.view(snapshot, row_group).map_err(|source| corrupt(source.to_string()))?;
    let rows = row_group.rows.end - row_group.rows.start;
    let room = Arc::new(Room::new(budget.clone(), projection.chunk_rows(snapshot, row_group)));
    let mut columns = Vec::new();
    let (mut fetch_time, mut memory) = (Duration::ZERO, None);
    if skip < rows {
        let parts = projection.parts(snapshot, row_group, parts_for(cpu.threads()));
        let mut wanted = Vec::with_capacity(parts.len());
        for part in &parts {
            let leaves = projection.leaves(snapshot, row_group, part);
            let size = file.object().size;
            if let Some((_, range)) = leaves.iter().find(|(_, range)| range.is_empty() || range.end > size) {
                return Err(of_part(part, format!("its footer claims the bytes {range:?} of {size}")));
            }
            wanted.push(leaves);
        }
        // All parts' ranges at once: neighbours are one request, whichever part they are of.
        let ranges: Vec<Range<u64>> = wanted.iter().flatten().map(|(_, range)| range.clone()).collect();
        let start = Instant::now();
        let mut pieces = shared.ranges(snapshot, file, &ranges).await?.into_iter();
        fetch_time = start.elapsed();
        let parts: Vec<_> = iter::zip(parts, wanted)
            .map(|(part, leaves)| {
                let bytes = pieces.by_ref().take(leaves.len());
                let fetched = iter::zip(leaves, bytes).map(|((leaf, range), bytes)| (leaf, range, bytes));
                (projection.roots(&part), part, fetched.collect::<Vec<_>>())
            })
            .collect();
        // Opening them is cheap, but hostile bytes may make it panic: the pool turns that into an error.
        let (opened, index, within) = (Arc::clone(&view), row_group.index_in_file, Arc::clone(&room));
        let readers = cpu.run(move || {
            let read = |(roots, part, fetched): (Vec<usize>, Part, Vec<Fetched>)| {
                let reader = reader(&opened, index, &roots, fetched, skip, &within);
                (part, reader)
            };
            parts.into_iter().map(read).collect::<Vec<_>>()
        });
        let mut held: u64 = 0;
        for (part, reader) in readers.await.map_err(|panic| corrupt(panic.of_damage()))? {
            let (reader, claimed) = reader.map_err(|source| of_part(&part, source.to_string()))?;
            columns.push(Columns { part, reader: Some(reader) });
            held = held.saturating_add(claimed);
        }
        let beyond = held.saturating_sub(projection.decoder_bytes(snapshot, row_group));
        if beyond > LARGE_PAGES_BYTES {
            memory = Some(budget.reserve(beyond).map_err(|source| place.memory(source))?);
        }
    }
    let rows_due = rows.saturating_sub(skip);
    let (schema, intervals, shared) = (SchemaRef::clone(&view.schema), view.intervals, Arc::clone(shared));
    Ok(RowGroupReader {
        columns,
        schema,
        place,
        rows_due,
        fetch_time,
        room,
        intervals,
        _memory: memory,
        _shared: shared,
    })
}

/// One thread decodes the columns of a row group together: parts have their price.
fn parts_for(threads: usize) -> usize {
    if threads == 1 { 1 } else { threads.saturating_mul(PARTS_A_THREAD).min(PARTS_MAX) }
}

/// Decodes the columns of these roots, behind the first `skip` rows; with the bytes that it may hold decompressed.
fn reader(
    view: &View,
    row_group: usize,
    roots: &[usize],
    fetched: Vec<Fetched>,
    skip: u64,
    room: &Arc<Room>,
) -> Result<(ParquetRecordBatchReader, u64), ParquetError> {
    let (metadata, schema) = (Arc::clone(view.metadata.metadata()), SchemaRef::clone(view.metadata.schema()));
    let columns = FetchedColumns::new(metadata, row_group, fetched, schema, view.int96, Arc::clone(room))?;
    let skip = usize::try_from(skip).unwrap_or(usize::MAX);
    let rest = columns.num_rows().saturating_sub(skip);
    let selection = (skip > 0).then(|| vec![RowSelector::skip(skip), RowSelector::select(rest)].into());
    let levels = view.levels(roots)?;
    let chunk_rows = usize::try_from(room.rows()).unwrap_or(usize::MAX);
    let reader = ParquetRecordBatchReader::try_new_with_row_groups(&levels, &columns, chunk_rows, selection)?;
    Ok((reader, columns.held()))
}

// === impl RowGroupReader ===

impl RowGroupReader {
    /// How long storage took for its bytes.
    pub fn fetch_time(&self) -> Duration {
        self.fetch_time
    }

    /// Decodes the next rows, at most [`Projection::chunk_rows`]; run it on the CPU pool. `None` at the end.
    pub fn next_chunk(&mut self) -> Result<Option<RecordBatch>, ScanError> {
        let made = self.decode();
        if !matches!(made, Ok(Some(_))) {
            // What has failed or ended is not asked again.
            self.rows_due = 0;
            self.columns.iter_mut().for_each(|columns| columns.reader = None);
        }
        made
    }

    fn decode(&mut self) -> Result<Option<RecordBatch>, ScanError> {
        let chunks =
            cpu_pool::in_parallel(&mut self.columns, |columns| columns.reader.as_mut().and_then(Iterator::next));
        if let Some(refusal) = self.room.refused() {
            return Err(self.place.refused(refusal));
        }
        let corrupt = |reason: String| self.place.corrupt(&self.schema, reason);
        let mut arrays: Vec<Option<ArrayRef>> = vec![None; self.schema.fields().len()];
        let mut found: Option<usize> = None;
        for (columns, chunk) in self.columns.iter().zip(chunks) {
            let of_part = |reason: String| self.place.corrupt(&project(&self.schema, &columns.part), reason);
            let chunk = chunk.transpose().map_err(|source| of_part(ParquetError::from(source).to_string()))?;
            let row_count = chunk.as_ref().map_or(0, RecordBatch::num_rows);
            if *found.get_or_insert(row_count) != row_count {
                return Err(corrupt("its columns hold different numbers of rows".to_owned()));
            }
            for (place, array) in columns.part.places.iter().zip(chunk.iter().flat_map(RecordBatch::columns)) {
                let field = self.schema.field(*place);
                let restored = self.intervals.restored(array, field.data_type());
                let restored = restored.map_err(|reason| self.place.out_of_range(field.name().clone(), reason))?;
                arrays[*place] = Some(restored);
            }
        }
        let row_count = found.unwrap_or(0);
        if row_count == 0 {
            return match mem::take(&mut self.rows_due) {
                0 => Ok(None),
                missing => Err(corrupt(format!("its footer promises {missing} more rows than it holds"))),
            };
        }
        if row_count as u64 > self.rows_due {
            return Err(corrupt("it holds more rows than its footer promises".to_owned()));
        }
        self.rows_due -= row_count as u64;
        // Files may differ in what they declare nullable: every chunk gets the snapshot's schema.
        let options = RecordBatchOptions::new().with_row_count(Some(row_count));
        let arrays = arrays.into_iter().flatten().collect();
        let chunk: Result<RecordBatch, ArrowError> =
            RecordBatch::try_new_with_options(SchemaRef::clone(&self.schema), arrays, &options);
        chunk.map(Some).map_err(|source| corrupt(source.to_string()))
    }
}

/// The schema of a part's columns, for what is said of them.
fn project(schema: &SchemaRef, part: &Part) -> arrow::datatypes::Schema {
    schema.project(&part.places).unwrap_or_else(|_| schema.as_ref().clone())
}
