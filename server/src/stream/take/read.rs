//! Reads the rows of one batch: opens their row groups in file order, a few ahead, decodes the wanted rows alone, and
//! computes each into its place. Keeps no more of a row group than these rows.

use std::{mem, sync::Arc, time::Instant};

use arrow::{array::RecordBatch, compute::take_record_batch};
use forebay_kernels::compact;
use futures::StreamExt;

use super::targets::{Dropped, GroupTargets, Targets};
use crate::{
    metrics::{Stage, StageTimes},
    plan::{PlanError, TakeBy},
    scan::{self, ALL_ROWS, RowGroupReader},
    stream::{
        decode::decode,
        device::Workspace,
        environment::Environment,
        epoch::task::fetched_ahead,
        error::StreamError,
        resolve::{passing::Passing, prepared::Prepared, rows::Rows},
    },
};

/// Computes the batches of a take.
pub(super) struct BatchReader {
    pub environment: Arc<Environment>,
    pub prepared: Prepared,
    pub by: TakeBy,
    /// Dictionaries that went through the chains for the previous batch.
    pub workspace: Workspace,
    pub times: StageTimes,
}

/// A row group being read.
struct OpenTargets {
    targets: GroupTargets,
    reader: RowGroupReader,
    /// Index in the snapshot of the row group's first row.
    first_row: u64,
    /// Index in the snapshot of the next row.
    next_row: u64,
}

/// Wanted rows of a chunk, and where they go.
struct Wanted {
    passing: Passing,
    places: Vec<u32>,
}

// === impl BatchReader ===

impl BatchReader {
    /// The rows of a batch.
    pub(super) async fn read(&mut self, targets: Targets) -> Result<RecordBatch, StreamError> {
        let Targets { groups, distinct, repeated } = targets;
        let (executable, workspace) = (self.prepared.compiled.executable.clone(), mem::take(&mut self.workspace));
        let cpu = self.environment.cpu.timed();
        let mut builder = cpu.run(move || executable.scattered(distinct, workspace)).await?;
        let (snapshot, rows) = (Arc::clone(&self.prepared.snapshot), Arc::clone(&self.prepared.compiled.rows));
        let mut opened = fetched_ahead(groups.into_iter().map(|group| {
            let (environment, prepared) = (Arc::clone(&self.environment), self.prepared.clone());
            open(environment, prepared, self.by, group)
        }));
        loop {
            let start = Instant::now();
            let Some(group) = opened.next().await else { break };
            let mut group = group?;
            self.times.add_opened(start, group.reader.fetch_time());
            let row_group = &snapshot.row_groups()[group.targets.row_group];
            while !group.targets.is_done() {
                let (chunk_rows, mut times) = (Arc::clone(&rows), mem::take(&mut self.times));
                let work = move || {
                    let wanted = group.next_wanted(&chunk_rows, &mut times);
                    (group, times, wanted)
                };
                let wanted;
                (group, self.times, wanted) =
                    decode(&cpu, &snapshot, row_group, rows.projection.schema(), work).await?;
                let Some(Wanted { mut passing, places }) = wanted? else { return Err(self.prepared.miscounted()) };
                if rows.has_functions() && !places.is_empty() {
                    let (budget, index) = (&self.environment.budget, group.targets.row_group);
                    passing = self.prepared.with_functions(passing, index, budget, &mut self.times).await?;
                }
                let start = Instant::now();
                let work = move || {
                    let scattered = builder.scatter(&passing.rows, 0..passing.rows.num_rows(), &places);
                    (builder, scattered.map_err(|error| passing.locate(error)))
                };
                let scattered;
                (builder, scattered) = cpu.run(work).await?;
                scattered?;
                self.times.add_since(Stage::Assemble, start);
                self.times.add(Stage::Queue, cpu.take_queued());
            }
        }
        let (batch, workspace) = cpu.run(move || builder.finish()).await?;
        self.workspace = workspace;
        let batch = batch?;
        match repeated {
            Some(places) => Ok(cpu.run(move || take_record_batch(&batch, &places)).await??),
            None => Ok(batch),
        }
    }
}

/// Opens a row group at the first row that its targets need.
async fn open(
    environment: Arc<Environment>,
    prepared: Prepared,
    by: TakeBy,
    mut targets: GroupTargets,
) -> Result<OpenTargets, StreamError> {
    let (snapshot, rows) = (&prepared.snapshot, &prepared.compiled.rows);
    let group = &snapshot.row_groups()[targets.row_group];
    // The passing rows before a position must be counted.
    let needed = if by == TakeBy::RowIds || rows.all_pass() { targets.begin_at_first() } else { ALL_ROWS };
    let Environment { cpu, budget, .. } = environment.as_ref();
    let next_row = group.rows.start + needed.start;
    let shared = Arc::default();
    let reader = scan::open_shared(snapshot, group, &rows.projection, needed, cpu, budget, &shared).await?;
    Ok(OpenTargets { targets, reader, first_row: group.rows.start, next_row })
}

// === impl OpenTargets ===

impl OpenTargets {
    /// The wanted rows of the next chunk; none at the end of the row group.
    fn next_wanted(&mut self, rows: &Rows, times: &mut StageTimes) -> Result<Option<Wanted>, StreamError> {
        let (targets, first_row, mut places) = (&mut self.targets, self.first_row, Vec::new());
        let choose = |passing: Option<&_>, count| {
            let chosen = targets.choose(passing, count).map_err(|Dropped { index, row }| {
                let row = first_row + row;
                PlanError::field(TakeBy::RowIds.path(index), format!("row {row} does not pass the plan's filter"))
            })?;
            places = chosen.places;
            Ok(chosen.rows)
        };
        let Some(next) = rows.next_wanted(&mut self.reader, self.next_row, choose, times)? else { return Ok(None) };
        self.next_row += next.stored;
        let mut passing = next.passing;
        // Without the dictionaries and buffers of the whole chunk, which rows of many row groups would keep.
        passing.rows = compact(&passing.rows)?;
        Ok(Some(Wanted { passing, places }))
    }
}
