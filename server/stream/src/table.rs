//! The raw table: columns as stored, in file order, in batches that any client accepts. Row groups after the requested rows
//! are not read.

use std::{mem, ops::ControlFlow, sync::Arc, time::Instant};

use arrow::{array::RecordBatch, datatypes::SchemaRef};
use forebay_catalog::Snapshot;
use forebay_plan::{PlanError, TableRows};
use forebay_proto::v1;
use forebay_runtime::metrics::{Stage, StageTimes};
use forebay_scan::Projection;

use super::{
    advice,
    ahead::{BATCHES_AHEAD, Batch, BatchSender, FETCH_AHEAD},
    environment::Environment,
    epoch::{
        batch_task::{BatchMemory, BatchTask, TakenBatches},
        memory::SENDING_BYTES,
    },
    error::StreamError,
    pieces::pieces,
    rows::{drive::RowSink, pass::in_turn, prefilter::NextRows, scan::RowScan, selection::Rows},
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
    scan: RowScan,
    schema: SchemaRef,
    /// The place of each column of the schema in the projection; none if their order is the same.
    places: Option<Vec<usize>>,
    row_count: u64,
    /// Row groups to read: the first ones.
    groups: usize,
}

/// Sends the rows of a table.
struct TableSender {
    reading: Arc<Reading>,
    /// The header of the next batch.
    header: v1::BatchHeader,
    /// Index of the next row that is read.
    next_row: u64,
    sender: BatchSender,
}

/// Starts to read rows of a snapshot. The `position` of a header is the index of its first row.
pub(super) async fn start(environment: &Arc<Environment>, table: RawTable) -> Result<BatchTask, StreamError> {
    let reading = Arc::new(Reading::new(environment, table));
    let memory = reading.memory();
    let held = environment.budget.reserve_fairly(memory.bytes).await;
    let held =
        held.map_err(|source| StreamError::Memory { task: "stream", advice: advice::of_pass(&source), source })?;
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
    fn new(environment: &Environment, table: RawTable) -> Self {
        let schema = table.schema();
        let RawTable { snapshot, rows } = table;
        let row_count = rows.row_count(snapshot.row_count());
        let indices = rows.stored_order().unwrap_or_else(|| (0..schema.fields().len()).collect());
        let projection = Projection::stored(&snapshot, indices);
        let groups = snapshot.row_groups().partition_point(|group| group.rows.start < row_count);
        let scan = RowScan::new(environment, &snapshot, Arc::new(Rows::stored(projection)));
        Self { scan, schema, places: rows.places(), row_count, groups }
    }

    fn memory(&self) -> BatchMemory {
        let (snapshot, projection) = (&self.scan.snapshot, &self.scan.rows.projection);
        let ahead = self.groups.min(FETCH_AHEAD + 1) as u64;
        let reading = |row_group| {
            let fetched = projection.stored_bytes(snapshot, row_group).saturating_mul(ahead);
            fetched.saturating_add(projection.block_bytes(snapshot, row_group).saturating_mul(BATCHES_AHEAD as u64 + 2))
        };
        let sending_bytes = snapshot.byte_count().min(SENDING_BYTES as u64);
        let groups = &snapshot.row_groups()[..self.groups];
        let bytes = groups.iter().map(reading).max().unwrap_or(0).saturating_add(sending_bytes);
        let batch_bytes = groups.iter().map(|group| projection.block_bytes(snapshot, group)).max().unwrap_or(0);
        BatchMemory { bytes, batch_bytes, sending_bytes }
    }

    /// The rows of a block to send, `missing` at most, with the columns in the requested order.
    fn rows_of(&self, block: &RecordBatch, missing: u64) -> Result<RecordBatch, StreamError> {
        let row_count = usize::try_from(missing).unwrap_or(usize::MAX).min(block.num_rows());
        let rows = block.slice(0, row_count);
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
    let (scan, row_count) = (&reading.scan, reading.row_count);
    if row_count == 0 {
        send_empty(&reading, taken, &sender).await;
        return Ok(());
    }
    let header = v1::BatchHeader { step: taken.batches, position: taken.position, ..Default::default() };
    let row_groups = scan.snapshot.row_groups();
    let first = row_groups.partition_point(|group| group.rows.end <= taken.position);
    let next_row = row_groups.get(first).map_or(0, |group| group.rows.start);
    let sink = TableSender { reading: Arc::clone(&reading), header, next_row, sender };
    let scan = RowScan { cpu: environment.cpu.timed(), ..scan.clone() };
    let (sent, flow) = in_turn(&scan, first..reading.groups, sink, &mut StageTimes::default()).await?;
    if flow.is_break() || sent.header.position == row_count {
        return Ok(());
    }
    let (dataset, counted) = (scan.snapshot.dataset().to_owned(), scan.snapshot.row_count());
    Err(StreamError::Miscounted { dataset, counted })
}

// === impl TableSender ===

impl RowSink<NextRows> for TableSender {
    type Output = Vec<RecordBatch>;

    /// Cuts the rows of a block that are sent into messages.
    fn add(&mut self, rows: NextRows, _: &mut StageTimes) -> Result<Option<Vec<RecordBatch>>, StreamError> {
        let first_row = self.next_row;
        self.next_row += rows.stored;
        if self.next_row <= self.header.position {
            return Ok(Some(Vec::new()));
        }
        // Any row group after the last row to send is not read.
        let missing = self.reading.row_count.saturating_sub(first_row);
        let mut position = first_row;
        let pieces = pieces(self.reading.rows_of(&rows.passing.rows, missing)?);
        let is_new = |piece: &RecordBatch| {
            position += piece.num_rows() as u64;
            position > self.header.position
        };
        Ok(Some(pieces.into_iter().filter(is_new).collect()))
    }

    async fn take(&mut self, pieces: Vec<RecordBatch>, times: &mut StageTimes) -> Result<ControlFlow<()>, StreamError> {
        let (row_count, snapshot) = (self.reading.row_count, &self.reading.scan.snapshot);
        for data in pieces {
            self.header.rows = data.num_rows() as u64;
            self.header.last = self.header.position + self.header.rows == row_count;
            let spent = mem::take(times);
            spent.record();
            let start = Instant::now();
            if self.sender.send(Ok(Batch { header: self.header, data, times: spent })).await.is_err() {
                return Ok(ControlFlow::Break(()));
            }
            times.add_since(Stage::SendWait, start);
            self.header.step += 1;
            self.header.position += self.header.rows;
        }
        // The whole table is read to the end of its last row group, whose footer may declare too few rows.
        let is_done = self.header.position == row_count && row_count < snapshot.row_count();
        Ok(if is_done { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    }
}
