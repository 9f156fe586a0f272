//! The raw table: columns as stored, in file order, in batches that any client accepts. Row groups after the requested rows
//! are not read.

use std::{mem, sync::Arc, time::Instant};

use arrow::{array::RecordBatch, datatypes::SchemaRef};
use forebay_proto::v1;
use futures::StreamExt;

use super::{
    decode::decode,
    environment::Environment,
    epoch::{
        batch_task::{BatchMemory, BatchTask, TakenBatches},
        fitting,
        memory::SENDING_BYTES,
        task::{BATCHES_AHEAD, Batch, BatchSender, FETCH_AHEAD, fetched_ahead},
    },
    error::StreamError,
    pieces::pieces,
};
use crate::{
    catalog::Snapshot,
    metrics::{Stage, StageTimes},
    plan::{PlanError, TableRows},
    scan::{self, Projection},
};

/// Rows of the raw table of a snapshot.
#[derive(Clone, Debug)]
pub struct RawTable {
    /// The snapshot.
    pub snapshot: Arc<Snapshot>,
    /// The columns and rows.
    pub rows: TableRows,
}

/// The rows to send, and how to read them.
struct Reading {
    snapshot: Arc<Snapshot>,
    projection: Projection,
    schema: SchemaRef,
    /// The place of each column of the schema in the projection; none if their order is the same.
    places: Option<Vec<usize>>,
    row_count: u64,
    /// Row groups to read: the first ones.
    groups: usize,
}

/// Starts to read rows of a snapshot. The `position` of a header is the index of its first row.
pub(super) async fn start(environment: &Arc<Environment>, table: RawTable) -> Result<BatchTask, StreamError> {
    let reading = Arc::new(Reading::new(table));
    let memory = reading.memory();
    let held = environment.budget.reserve_fairly(memory.bytes).await;
    let held =
        held.map_err(|source| StreamError::Memory { task: "stream", advice: fitting::of_pass(&source), source })?;
    let Environment { budget, limits, .. } = environment.as_ref();
    let of_work = Arc::clone(environment);
    Ok(BatchTask::start(budget, *limits, (memory, held), move |taken, sender| {
        send(Arc::clone(&of_work), Arc::clone(&reading), taken, sender)
    }))
}

impl RawTable {
    /// Opens the snapshot of a request, and checks its columns.
    pub(super) async fn open(environment: &Environment, read: &v1::TableRead) -> Result<Self, StreamError> {
        if read.dataset.is_empty() {
            let missing = PlanError::field("table.dataset", "missing: expected the name of a dataset on this server");
            return Err(missing.into());
        }
        let dataset = environment.catalog.dataset(&read.dataset)?;
        let snapshot = match read.snapshot.as_str() {
            "" => dataset.present().await?,
            digest => dataset.pinned(digest).await?,
        };
        let rows = TableRows::check(read, snapshot.schema())?;
        Ok(Self { snapshot, rows })
    }

    /// Every column and row of a snapshot.
    pub fn all(snapshot: Arc<Snapshot>) -> Self {
        Self { snapshot, rows: TableRows::ALL }
    }

    /// The request of these rows of this snapshot.
    pub fn read(&self) -> v1::TableRead {
        v1::TableRead {
            dataset: self.snapshot.dataset().to_owned(),
            snapshot: self.snapshot.digest().to_owned(),
            columns: self.rows.names(self.snapshot.schema()),
            limit: self.rows.limit(),
        }
    }

    /// The schema of the rows.
    pub fn schema(&self) -> SchemaRef {
        self.rows.schema(self.snapshot.schema())
    }
}

impl Reading {
    fn new(table: RawTable) -> Self {
        let schema = table.schema();
        let RawTable { snapshot, rows } = table;
        let row_count = rows.row_count(snapshot.row_count());
        let indices = rows.stored_order().unwrap_or_else(|| (0..schema.fields().len()).collect());
        let projection = Projection::stored(&snapshot, indices);
        let groups = snapshot.row_groups().partition_point(|group| group.rows.start < row_count);
        Self { snapshot, projection, schema, places: rows.places(), row_count, groups }
    }

    fn memory(&self) -> BatchMemory {
        let Self { snapshot, projection, .. } = self;
        let ahead = self.groups.min(FETCH_AHEAD + 1) as u64;
        let reading = |row_group| {
            let fetched = projection.stored_bytes(snapshot, row_group).saturating_mul(ahead);
            fetched.saturating_add(projection.chunk_bytes(snapshot, row_group).saturating_mul(BATCHES_AHEAD as u64 + 2))
        };
        let sending_bytes = snapshot.byte_count().min(SENDING_BYTES as u64);
        let groups = &snapshot.row_groups()[..self.groups];
        let bytes = groups.iter().map(reading).max().unwrap_or(0).saturating_add(sending_bytes);
        let batch_bytes = groups.iter().map(|group| projection.chunk_bytes(snapshot, group)).max().unwrap_or(0);
        BatchMemory { bytes, batch_bytes, sending_bytes }
    }

    /// The rows of a chunk to send, `missing` at most, with the columns in the requested order.
    fn rows_of(&self, chunk: &RecordBatch, missing: u64) -> Result<RecordBatch, StreamError> {
        let row_count = usize::try_from(missing).unwrap_or(usize::MAX).min(chunk.num_rows());
        let rows = chunk.slice(0, row_count);
        Ok(match &self.places {
            Some(places) => rows.project(places)?,
            None => rows,
        })
    }
}

/// Sends the only batch of a table without rows, unless it was taken.
async fn send_empty(reading: &Reading, taken: TakenBatches, sender: &BatchSender) {
    if taken.batches == 0 {
        let header = v1::BatchHeader { last: true, ..Default::default() };
        let data = RecordBatch::new_empty(SchemaRef::clone(&reading.schema));
        let _ = sender.send(Ok(Batch { header, data, times: StageTimes::default() })).await;
    }
}

/// Sends the rows after those that were taken.
async fn send(
    environment: Arc<Environment>,
    reading: Arc<Reading>,
    taken: TakenBatches,
    sender: BatchSender,
) -> Result<(), StreamError> {
    let Reading { snapshot, projection, row_count, .. } = reading.as_ref();
    if *row_count == 0 {
        send_empty(&reading, taken, &sender).await;
        return Ok(());
    }
    let (mut times, cpu) = (StageTimes::default(), environment.cpu.timed());
    let mut header = v1::BatchHeader { step: taken.batches, position: taken.position, ..Default::default() };
    let first_group = snapshot.row_groups().partition_point(|group| group.rows.end <= taken.position);
    let mut readers = fetched_ahead((first_group..reading.groups).map(|index| {
        let (environment, snapshot, projection) = (Arc::clone(&environment), Arc::clone(snapshot), projection.clone());
        async move {
            let Environment { cpu, budget, .. } = environment.as_ref();
            let row_group = &snapshot.row_groups()[index];
            Ok((index, scan::open(&snapshot, row_group, &projection, cpu, budget).await?))
        }
    }));
    loop {
        let start = Instant::now();
        let Some(opened) = readers.next().await else { break };
        let (index, mut reader) = opened?;
        times.add_opened(start, reader.fetch_time());
        // The rows of this row group before the next chunk.
        let mut next_row = snapshot.row_groups()[index].rows.start;
        loop {
            let step = move || {
                let start = Instant::now();
                let chunk = reader.next_chunk();
                times.add_since(Stage::Decode, start);
                (reader, times, chunk)
            };
            let row_group = &snapshot.row_groups()[index];
            let chunk;
            (reader, times, chunk) = decode(&cpu, snapshot, row_group, projection.schema(), step).await?;
            times.add(Stage::Queue, cpu.take_queued());
            let Some(chunk) = chunk? else { break };
            next_row += chunk.num_rows() as u64;
            if next_row <= taken.position {
                continue;
            }
            let first_row = next_row - chunk.num_rows() as u64;
            let rows = reading.rows_of(&chunk, row_count - first_row)?;
            drop(chunk);
            let mut position = first_row;
            for data in environment.cpu.run(move || pieces(rows)).await? {
                position += data.num_rows() as u64;
                if position <= taken.position {
                    continue;
                }
                header.rows = data.num_rows() as u64;
                header.last = header.position + header.rows == *row_count;
                let spent = mem::take(&mut times);
                spent.record();
                let start = Instant::now();
                if sender.send(Ok(Batch { header, data, times: spent })).await.is_err() {
                    return Ok(());
                }
                times.add_since(Stage::SendWait, start);
                header.step += 1;
                header.position += header.rows;
            }
            // The whole table is read to the end of its last row group, whose footer may declare too few rows.
            if header.position == *row_count && *row_count < snapshot.row_count() {
                return Ok(());
            }
        }
    }
    if header.position == *row_count {
        return Ok(());
    }
    Err(StreamError::Miscounted { dataset: snapshot.dataset().to_owned(), counted: snapshot.row_count() })
}
