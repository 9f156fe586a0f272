//! One row group's columns, decoded chunk by chunk: on one thread, or on several where some have nothing to do.

use std::{
    collections::HashMap,
    mem,
    ops::Range,
    sync::Arc,
    time::{Duration, Instant},
};

use arrow::{
    array::{ArrayRef, RecordBatch, RecordBatchOptions},
    datatypes::SchemaRef,
    error::ArrowError,
};
use bytes::Bytes;
use parquet::{
    DecodeResult,
    arrow::{
        ProjectionMask,
        arrow_reader::ParquetRecordBatchReader,
        push_decoder::{ParquetPushDecoder, ParquetPushDecoderBuilder},
    },
    errors::ParquetError,
    file::metadata::{ColumnChunkMetaData, RowGroupMetaData},
};

use super::{
    Place, Projection, ScanError, SharedBytes, pages,
    projection::{Part, View},
};
use crate::{
    catalog::{RowGroup, Snapshot},
    runtime::{self, CpuPool},
};

/// Parts that a row group's columns are decoded in at most. More would not pay: a part is then a few columns.
const PARTS_MAX: usize = 8;

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
) -> Result<RowGroupReader, ScanError> {
    open_shared(snapshot, row_group, projection, skip, cpu, &Arc::default()).await
}

/// The same for one of several readers of the row group: its bytes are fetched once, and held while one of them reads.
pub async fn open_shared(
    snapshot: &Snapshot,
    row_group: &RowGroup,
    projection: &Projection,
    skip: u64,
    cpu: &CpuPool,
    shared: &Arc<SharedBytes>,
) -> Result<RowGroupReader, ScanError> {
    let file = snapshot.file_of(row_group);
    let place = Place { file: file.display().to_owned(), row_group: row_group.index_in_file };
    let corrupt = |reason: String| place.corrupt(projection.schema(), reason);
    let view = projection.view(snapshot, row_group).map_err(|source| corrupt(source.to_string()))?;
    let of_part = |part: &Part, reason: String| place.corrupt(&project(projection.schema(), part), reason);
    let parts = projection.parts(snapshot, row_group, parts_for(cpu.threads()));
    let decoders = parts.into_iter().map(|part| {
        let decoder = decoder(snapshot, row_group, projection, &view, &part, skip);
        decoder.map(|decoder| (part, decoder, Vec::new())).map_err(|source| corrupt(source.to_string()))
    });
    let mut waiting = decoders.collect::<Result<Vec<_>, ScanError>>()?;
    let mut columns = Vec::with_capacity(waiting.len());
    let mut fetch_time = Duration::ZERO;
    while !waiting.is_empty() {
        // Planning the ranges is cheap, but a hostile footer may make it panic: the pool turns that into an error.
        let (metadata, index) = (Arc::clone(view.metadata.metadata()), row_group.index_in_file);
        let planned = cpu.run(move || {
            let group = metadata.row_group(index);
            let any = waiting.iter().any(|(_, _, fetched)| !fetched.is_empty());
            let chunks = if any { chunks_by_start(group) } else { HashMap::new() };
            let rows = u64::try_from(group.num_rows()).unwrap_or(0);
            let check = |(range, bytes): &(Range<u64>, Bytes)| match chunks.get(&range.start) {
                Some(chunk) if pages::place(chunk).as_ref() == Some(range) => {
                    pages::check(chunk, range.start, bytes, rows)
                }
                _ => Ok(()),
            };
            let step = |(part, mut decoder, fetched): (Part, ParquetPushDecoder, Vec<(Range<u64>, Bytes)>)| {
                let checked = fetched.iter().try_for_each(check);
                let step = checked.and_then(|()| decoder.try_next_reader().map_err(|source| source.to_string()));
                (part, decoder, step)
            };
            waiting.into_iter().map(step).collect::<Vec<_>>()
        });
        let planned = planned.await.map_err(|panic| corrupt(panic.of_damage()))?;
        waiting = Vec::new();
        let mut wanted = Vec::new();
        for (part, decoder, step) in planned {
            match step.map_err(|reason| of_part(&part, reason))? {
                DecodeResult::NeedsData(ranges) => {
                    let size = file.object().size;
                    if let Some(range) = ranges.iter().find(|range| range.start >= range.end || range.end > size) {
                        return Err(corrupt(format!("its footer claims the bytes {range:?} of {size}")));
                    }
                    wanted.push(ranges);
                    waiting.push((part, decoder, Vec::new()));
                }
                DecodeResult::Data(reader) => columns.push(Columns { part, reader: Some(reader) }),
                DecodeResult::Finished => columns.push(Columns { part, reader: None }),
            }
        }
        // All parts' ranges at once: neighbours are one request, whichever part they are of.
        let start = Instant::now();
        let mut pieces = shared.ranges(snapshot, file, &wanted.concat()).await?.into_iter();
        fetch_time += start.elapsed();
        for ((_, decoder, fetched), ranges) in waiting.iter_mut().zip(wanted) {
            let these: Vec<Bytes> = pieces.by_ref().take(ranges.len()).collect();
            *fetched = ranges.iter().cloned().zip(these.iter().cloned()).collect();
            decoder.push_ranges(ranges, these).map_err(|source| corrupt(source.to_string()))?;
        }
    }
    let rows_due = (row_group.rows.end - row_group.rows.start).saturating_sub(skip);
    let (schema, shared) = (SchemaRef::clone(&view.schema), Arc::clone(shared));
    Ok(RowGroupReader { columns, schema, place, rows_due, fetch_time, _shared: shared })
}

/// Column chunks by where they begin in their file.
fn chunks_by_start(group: &RowGroupMetaData) -> HashMap<u64, &ColumnChunkMetaData> {
    group.columns().iter().filter_map(|chunk| Some((pages::place(chunk)?.start, chunk))).collect()
}

/// One thread decodes the columns of a row group together: parts have their price.
fn parts_for(threads: usize) -> usize {
    if threads == 1 { 1 } else { threads.saturating_mul(PARTS_A_THREAD).min(PARTS_MAX) }
}

fn decoder(
    snapshot: &Snapshot,
    row_group: &RowGroup,
    projection: &Projection,
    view: &View,
    part: &Part,
    skip: u64,
) -> Result<ParquetPushDecoder, ParquetError> {
    let roots = part.places.iter().map(|place| projection.root(*place));
    let mask = ProjectionMask::roots(view.metadata.parquet_schema(), roots);
    ParquetPushDecoderBuilder::new_with_metadata(view.metadata.clone())
        .with_row_groups(vec![row_group.index_in_file])
        .with_projection(mask)
        .with_batch_size(projection.chunk_rows(snapshot, row_group) as usize)
        .with_offset(usize::try_from(skip).unwrap_or(usize::MAX))
        .build()
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
            runtime::in_parallel(&mut self.columns, |columns| columns.reader.as_mut().and_then(Iterator::next));
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
                arrays[*place] = Some(Arc::clone(array));
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
