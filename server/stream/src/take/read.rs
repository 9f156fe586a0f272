//! Reads the rows of one batch: opens their row groups in file order, a few ahead, decodes the wanted rows alone, and
//! computes each into its place. Keeps no more of a row group than these rows.

use std::{mem, sync::Arc, time::Instant};

use arrow::{array::RecordBatch, compute::take_record_batch};
use forebay_kernels::compact;
use forebay_plan::{PlanError, TakeBy};
use forebay_runtime::metrics::{Stage, StageTimes};
use forebay_scan::ALL_ROWS;
use futures::StreamExt;

use super::targets::{Dropped, RowGroupTargets, Targets};
use crate::{
    ahead::fetched_ahead,
    device::{Builder, Workspace},
    environment::Environment,
    error::StreamError,
    prepare::{dataset::PreparedDataset, ordered::Ordered},
    rows::{
        drive::{Next, RowSink, RowSource, drive},
        passing::Passing,
        prefilter::NextRows,
        reader::RowReader,
        scan::RowScan,
    },
};

/// Computes the batches of a take.
pub(super) struct BatchReader {
    pub environment: Arc<Environment>,
    pub prepared: PreparedDataset,
    pub by: TakeBy,
    /// Dictionaries that went through the chains for the previous batch.
    pub workspace: Workspace,
    pub times: StageTimes,
}

/// A row group being read.
struct TargetReader {
    stored: RowReader,
    targets: RowGroupTargets,
    /// Index in the snapshot of the row group's first row.
    first_row: u64,
    prepared: PreparedDataset,
    /// Where the rows of the block go that lack the columns of functions.
    places: Vec<u32>,
}

/// Wanted rows of a block, and where they go.
struct TargetRows {
    passing: Passing,
    places: Vec<u32>,
}

/// Computes rows into their places in a batch.
struct TakenRows(Builder);

// === impl BatchReader ===

impl BatchReader {
    /// The rows of a batch.
    pub(super) async fn read(&mut self, targets: Targets) -> Result<RecordBatch, StreamError> {
        let Targets { groups, distinct, repeated } = targets;
        let (executable, workspace) = (self.prepared.compiled.executable.clone(), mem::take(&mut self.workspace));
        let scan = self.prepared.scan(&self.environment).timed();
        let mut scatter = scan.cpu.run(move || TakenRows(executable.scattered(distinct, workspace))).await?;
        let mut opened = fetched_ahead(groups.into_iter().map(|group| {
            let (scan, prepared, by) = (scan.clone(), self.prepared.clone(), self.by);
            async move { Ok((group.row_group, TargetReader::open(&scan, prepared, by, group).await?)) }
        }));
        loop {
            let start = Instant::now();
            let Some(reader) = opened.next().await else { break };
            let (row_group, reader) = reader?;
            self.times.add_opened(start, reader.stored.fetch_time());
            (_, scatter, _) = drive(&scan, row_group, (reader, scatter), &mut self.times).await?;
        }
        let (batch, workspace) = scan.cpu.run(move || scatter.0.finish()).await?;
        self.workspace = workspace;
        let batch = batch?;
        match repeated {
            Some(places) => Ok(scan.cpu.run(move || take_record_batch(&batch, &places)).await??),
            None => Ok(batch),
        }
    }
}

// === impl TargetReader ===

impl TargetReader {
    /// Opens a row group at the first row that its targets need.
    async fn open(
        scan: &RowScan,
        prepared: PreparedDataset,
        by: TakeBy,
        mut targets: RowGroupTargets,
    ) -> Result<Self, StreamError> {
        // The passing rows before a position must be counted.
        let is_counted = by == TakeBy::RowIds || scan.rows.all_pass();
        let needed = if is_counted { targets.begin_at_first() } else { ALL_ROWS };
        let stored = scan.open_at(targets.row_group, needed, &Arc::default()).await?;
        let first_row = scan.row_group(targets.row_group).rows.start;
        Ok(Self { stored, targets, first_row, prepared, places: Vec::new() })
    }
}

impl RowSource for TargetReader {
    type Rows = TargetRows;

    fn next(&mut self, times: &mut StageTimes) -> Result<Next<TargetRows>, StreamError> {
        if let Some(passing) = self.stored.completed() {
            return Ok(Next::Rows(TargetRows { passing, places: mem::take(&mut self.places) }));
        }
        if self.targets.is_done() {
            return Ok(Next::End);
        }
        let (targets, first_row, mut places) = (&mut self.targets, self.first_row, Vec::new());
        let choose = |passing: Option<&_>, count| {
            let chosen = targets.choose(passing, count).map_err(|Dropped { index, row }| {
                let row = first_row + row;
                PlanError::field(TakeBy::RowIds.path(index), format!("row {row} does not pass the plan's filter"))
            })?;
            places = chosen.places;
            Ok(chosen.rows)
        };
        let next = self.stored.next_chosen(choose, times)?;
        let Some(NextRows { mut passing, .. }) = next else { return Err(self.prepared.miscounted()) };
        // Without the dictionaries and buffers of the whole block, which rows of many row groups would keep.
        passing.rows = compact(&passing.rows)?;
        if places.is_empty() || self.prepared.compiled.rows.functions().is_empty() {
            return Ok(Next::Rows(TargetRows { passing, places }));
        }
        self.places = places;
        self.stored.await_functions(passing);
        Ok(Next::Blocked)
    }

    async fn ready(&mut self, times: &mut StageTimes) -> Result<(), StreamError> {
        self.stored.complete(times).await
    }
}

// === impl TakenRows ===

impl RowSink<TargetRows> for TakenRows {
    type Output = ();

    fn add(&mut self, rows: TargetRows, times: &mut StageTimes) -> Result<Option<()>, StreamError> {
        let (start, TargetRows { passing, places }) = (Instant::now(), rows);
        let count = passing.rows.num_rows();
        self.0.scatter(&passing.rows, 0..count, &places).map_err(|error| passing.locate(error))?;
        times.add_since(Stage::Assemble, start);
        Ok(Some(()))
    }
}
