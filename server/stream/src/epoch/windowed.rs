//! The windows of a row group: made of rows that are computed once, from this row group and those around it.

use std::{
    mem,
    ops::Range,
    sync::Arc,
    time::{Duration, Instant},
};

use arrow::{array::RecordBatch, compute::concat_batches};
use forebay_cache::CachedChunks;
use forebay_catalog::RowGroup;
use forebay_kernels::{BatchBuilder, PlacedWindow, Workspace};
use forebay_runtime::metrics::{Stage, StageTimes};

use super::{
    run::RunRows,
    stored::{self, stored_rows},
};
use crate::{
    environment::Environment,
    error::StreamError,
    prepare::{dataset::PreparedDataset, ordered::Ordered, windows::EpochWindows},
    rows::{
        drive::Next,
        passing::Passing,
        prefilter::NextRows,
        reader::{PartOfBlock, RowReader},
    },
};

/// Bytes of windows that are made at once, if a window takes less.
const WINDOWS_BYTES_MAX: u64 = 1 << 20;

/// Makes windows of a row group.
pub(super) struct WindowedReader {
    environment: Arc<Environment>,
    prepared: PreparedDataset,
    chunks: Option<Arc<CachedChunks>>,
    windows: Arc<EpochWindows>,
    /// The first window of the row group, among all of the epoch in file order, as are the next ones.
    first: u64,
    next: u64,
    end: u64,
    rows: ComputedRows,
    reading: Option<RowsOfRowGroup>,
    fetch_time: Duration,
}

/// The latest computed rows.
pub(crate) struct ComputedRows {
    batch: Option<RecordBatch>,
    /// The place of the first one among all rows that pass.
    start: u64,
    workspace: Workspace,
}

/// A row group whose rows are read.
struct RowsOfRowGroup {
    stored: RowReader,
    /// The place of its next row among all rows that pass, and that of its last needed row.
    next: u64,
    end: u64,
}

/// Bytes that a reader keeps besides a decoded block of a row group: computed rows, copied when they are joined to the next
/// ones, and windows.
pub(super) fn held_bytes(prepared: &PreparedDataset, windows: &EpochWindows, group: &RowGroup) -> u64 {
    let block_rows = prepared.compiled.rows.projection.block_rows(&prepared.snapshot, group);
    let rows = windows.window_rows().saturating_add(block_rows);
    let row_bytes = windows.outputs.rows.row_bytes().unwrap_or(0) as u64 + prepared.compiled.stored_row_bytes;
    rows.saturating_mul(row_bytes).saturating_mul(2).saturating_add(WINDOWS_BYTES_MAX.max(prepared.wire_row_bytes()))
}

impl WindowedReader {
    /// A reader of these windows of a row group; with `continues`, another reader passes on the rows of the windows before, see
    /// [`Self::take_over`]. Fetches the bytes of the first rows.
    pub(super) async fn open(
        environment: &Arc<Environment>,
        prepared: &PreparedDataset,
        chunks: Option<&Arc<CachedChunks>>,
        windows: &Arc<EpochWindows>,
        (row_group, needed): (usize, Range<u64>),
        continues: bool,
    ) -> Result<Self, StreamError> {
        let of_group = windows.of(row_group);
        let (first, end) = (of_group.start, of_group.start.saturating_add(needed.end).min(of_group.end));
        let next = first + needed.start;
        // Without the rows of its batch, they are those after the windows before.
        let before = next.checked_sub(1).filter(|_| continues).and_then(|before| windows.rows(before));
        let start = before.map_or(0, |rows| rows.future().end);
        let rows = ComputedRows { batch: None, start, workspace: Workspace::default() };
        let mut reader = Self {
            environment: Arc::clone(environment),
            prepared: prepared.clone(),
            chunks: chunks.cloned(),
            windows: Arc::clone(windows),
            first,
            next,
            end,
            rows,
            reading: None,
            fetch_time: Duration::ZERO,
        };
        reader.open_next().await?;
        Ok(reader)
    }

    /// Takes over the rows that a reader of the windows before has computed.
    pub(super) fn take_over(&mut self, rows: ComputedRows) {
        self.rows = rows;
    }

    /// The rows that it has computed, for the next reader.
    pub(super) fn into_rows(self) -> ComputedRows {
        self.rows
    }

    pub(super) fn fetch_time(&self) -> Duration {
        self.fetch_time
    }

    /// Returns the next windows, of which the first `skip` of the row group are not needed; those `seen` are before them.
    /// Decodes: run it on the CPU pool.
    pub(super) fn next_block(
        &mut self,
        skip: u64,
        seen: &mut u64,
        times: &mut StageTimes,
    ) -> Result<Next<RunRows>, StreamError> {
        if self.first + skip > self.next {
            self.next = self.first + skip;
            *seen = skip;
        }
        loop {
            if self.next >= self.end {
                return Ok(Next::End);
            }
            let start = Instant::now();
            if let Some(windows) = self.made()? {
                times.add_since(Stage::Assemble, start);
                self.next += windows.num_rows() as u64;
                return Ok(Next::Rows(RunRows::Finished(windows)));
            }
            let Some(reading) = &mut self.reading else { return Ok(Next::Blocked) };
            let needed = self.windows.span(&(self.next..self.next + 1)).start;
            let from = needed.max(self.rows.end());
            if reading.next >= reading.end || reading.next > from {
                self.reading = None;
                return Ok(Next::Blocked);
            }
            match reading.stored.next_part((from.saturating_sub(reading.next), None), times)? {
                Next::Rows(PartOfBlock { next: NextRows { passing, .. }, .. }) => {
                    let (start, count) = (reading.next, passing.rows.num_rows());
                    reading.next += count as u64;
                    let unneeded = from.saturating_sub(start).min(count as u64) as usize;
                    let started = Instant::now();
                    let passing = passing.slice(unneeded..count);
                    self.rows.add(&passing, start + unneeded as u64, needed, &self.windows)?;
                    times.add_since(Stage::Assemble, started);
                }
                Next::Blocked => return Ok(Next::Blocked),
                Next::End => return Err(self.prepared.miscounted()),
            }
        }
    }

    /// Waits until [`Self::next_block`] is not blocked.
    pub(super) async fn prepare(&mut self, times: &mut StageTimes) -> Result<(), StreamError> {
        if let Some(reading) = &mut self.reading {
            return reading.stored.complete(times).await;
        }
        let start = Instant::now();
        self.open_next().await?;
        times.add_opened(start, self.fetch_time);
        Ok(())
    }

    /// Opens the row group of the next row that a window lacks.
    async fn open_next(&mut self) -> Result<(), StreamError> {
        let Self { environment, prepared, windows, .. } = self;
        let span = windows.span(&(self.next..self.end));
        let from = span.start.max(self.rows.end());
        if from >= span.end {
            return if self.next < self.end { Err(prepared.miscounted()) } else { Ok(()) };
        }
        let row_group = windows.row_group_at(from);
        let of_group = windows.rows_of(row_group);
        let end = span.end.min(of_group.end);
        let stored = stored_rows(prepared, row_group, &(from - of_group.start..end - of_group.start));
        let next = of_group.start + stored.start;
        let opened = stored::open(environment, prepared, self.chunks.as_ref(), row_group, stored).await?;
        self.fetch_time = opened.fetch_time();
        self.reading = Some(RowsOfRowGroup { stored: opened, next, end });
        Ok(())
    }

    /// The next windows whose rows are all there; none if the next one lacks some.
    fn made(&self) -> Result<Option<RecordBatch>, StreamError> {
        let (Some(batch), outputs) = (&self.rows.batch, &self.windows.outputs) else { return Ok(None) };
        let bytes = self.prepared.compiled.program.row_bytes().unwrap_or(0).max(1) as u64;
        let end = self.end.min(self.next + (WINDOWS_BYTES_MAX / bytes).max(1));
        let place = |row: u64| (row - self.rows.start) as usize;
        let windows = (self.next..end).map_while(|window| self.windows.rows(window));
        let windows =
            windows.take_while(|rows| rows.past.start >= self.rows.start && rows.future().end <= self.rows.end());
        let placed = windows.map(|rows| PlacedWindow {
            past: place(rows.past.start)..place(rows.past.end),
            future: place(rows.past.end)..place(rows.future().end),
        });
        let placed: Vec<PlacedWindow> = placed.collect();
        if placed.is_empty() {
            return Ok(None);
        }
        Ok(Some(outputs.windowing.assemble(batch, outputs.padding.as_ref(), &placed)?))
    }
}

// === impl ComputedRows ===

impl ComputedRows {
    /// The place after the last one among all rows that pass.
    fn end(&self) -> u64 {
        self.start + self.batch.as_ref().map_or(0, |batch| batch.num_rows() as u64)
    }

    /// Adds rows, of which the first is at the place `start` among all rows that pass, and drops those before `needed`.
    fn add(&mut self, passing: &Passing, start: u64, needed: u64, windows: &EpochWindows) -> Result<(), StreamError> {
        let count = passing.rows.num_rows();
        if count == 0 {
            return Ok(());
        }
        let program = Arc::clone(&windows.outputs.rows);
        let mut builder = BatchBuilder::new(program, count).reuse(mem::take(&mut self.workspace));
        builder.append(&passing.rows, 0..count).map_err(|error| passing.locate(error))?;
        let (computed, workspace) = builder.finish_and_keep();
        self.workspace = workspace;
        let (computed, end) = (computed?, self.end());
        let earlier = self.batch.take().filter(|_| end == start && needed < end);
        let Some(earlier) = earlier else {
            (self.batch, self.start) = (Some(computed), start);
            return Ok(());
        };
        let unneeded = needed.saturating_sub(self.start);
        let kept = earlier.slice(unneeded as usize, earlier.num_rows() - unneeded as usize);
        self.batch = Some(concat_batches(&computed.schema(), [&kept, &computed])?);
        self.start += unneeded;
        Ok(())
    }
}
