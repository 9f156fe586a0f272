//! Interleaves the rows of a rank's lanes: one row of each lane's window in turn.

use std::{ops::Range, time::Instant};

use arrow::array::RecordBatch;
use forebay_kernels::Interleave;
use forebay_order::Lane;
use forebay_runtime::{
    metrics::{Stage, StageTimes},
    tenant::Tenant,
};
use tokio::{sync::mpsc, task::JoinSet};
use tracing::Instrument;

use super::lane_task::{LaneTask, ShuffledEpoch, TimedWindow};
use crate::{error::StreamError, prepare::ordered::Ordered};

/// Windows of a lane that wait while batches take rows of the one before.
pub(super) const WINDOWS_AHEAD: usize = 1;

/// Rows of several lanes in turn. Dropping it ends the lanes' tasks.
pub(super) struct LaneInterleaver {
    epoch: ShuffledEpoch,
    feeds: Vec<LaneFeed>,
    /// The row to take next, counted over all lanes.
    next_row: u64,
    _tasks: JoinSet<()>,
}

/// The windows of one lane, in order.
struct LaneFeed {
    lane: Lane,
    receiver: mpsc::Receiver<Result<TimedWindow, StreamError>>,
    /// The index of the window to receive next.
    next_window: u64,
    /// The window received last, until its last row is read.
    window: Option<RecordBatch>,
    /// The offsets of its rows in the lane.
    offsets: Range<u64>,
}

impl LaneInterleaver {
    /// Starts to compute rows `start..end`, counted over the lanes in turn.
    pub(super) fn start(epoch: &ShuffledEpoch, lanes: &[Lane], start: u64, end: u64) -> Self {
        // All are made before the first one runs: those that begin in the same row group fetch it once.
        let made = lanes.iter().zip(0..).map(|(lane, place)| {
            // The lane's offset of the first row at or after a row of all lanes.
            let offset = |row: u64| row.saturating_sub(place).div_ceil(lanes.len() as u64);
            let (first, last) = (offset(start), offset(end));
            let next_window = lane.window_at(first);
            let windows = next_window..if last > first { lane.window_at(last - 1) + 1 } else { next_window };
            let task = if windows.is_empty() {
                LaneTask::new(epoch, lane.start)
            } else {
                let (first_row, last_row) = (lane.offsets(next_window).start, lane.offsets(windows.end - 1).end);
                LaneTask::new(epoch, lane.start + last_row).beginning_at(lane.start + first_row)
            };
            (task, *lane, windows)
        });
        let made: Vec<_> = made.collect();
        let (mut tasks, tenant) = (JoinSet::new(), Tenant::current());
        let feeds = made.into_iter().map(|(task, lane, windows)| {
            let (sender, receiver) = mpsc::channel(WINDOWS_AHEAD);
            let next_window = windows.start;
            tasks.spawn(tenant.scope(task.run(lane, windows, sender)).in_current_span());
            LaneFeed { lane, receiver, next_window, window: None, offsets: 0..0 }
        });
        Self { epoch: epoch.clone(), feeds: feeds.collect(), next_row: start, _tasks: tasks }
    }

    /// Appends the next rows to a batch.
    pub(super) async fn take(
        &mut self,
        mut batch: Interleave,
        rows: u64,
        times: &mut StageTimes,
    ) -> Result<Interleave, StreamError> {
        let end = self.next_row + rows;
        while self.next_row < end {
            let (windows, count) = self.windows_for(end - self.next_row, times).await?;
            let appended = self.epoch.opener.environment.cpu.run_short(move || {
                let start = Instant::now();
                let appended = batch.append(&windows, 0, count as usize);
                appended.map(|()| (batch, start.elapsed()))
            });
            let spent;
            (batch, spent) = appended.await??;
            times.add(Stage::Assemble, spent);
            self.next_row += count;
        }
        Ok(batch)
    }

    /// Drops the current windows, so that others may use their memory.
    pub(super) fn release_windows(&mut self) {
        self.feeds.iter_mut().for_each(|feed| feed.window = None);
    }

    /// Returns the rest of the window of each lane, from the lane of the next row on, and the number of rows, at most
    /// `rows`, that they have in turn. Receives the windows that these rows need.
    async fn windows_for(&mut self, rows: u64, times: &mut StageTimes) -> Result<(Vec<RecordBatch>, u64), StreamError> {
        let lanes = self.feeds.len() as u64;
        let (mut windows, mut count) = (Vec::with_capacity(self.feeds.len()), rows);
        for row in self.next_row..self.next_row + rows.min(lanes) {
            let offset = row / lanes;
            let window = match self.feeds.get_mut((row % lanes) as usize) {
                Some(feed) => feed.window_from(offset, times).await?,
                None => None,
            };
            let window = window.ok_or_else(|| self.epoch.opener.prepared.miscounted())?;
            // The lane has every `lanes`-th row.
            count = count.min(row - self.next_row + lanes * window.num_rows() as u64);
            windows.push(window);
        }
        Ok((windows, count))
    }
}

// === impl LaneFeed ===

impl LaneFeed {
    /// Returns the rows of a window from an offset to the window's end; receives the window if it is the next one.
    async fn window_from(&mut self, offset: u64, times: &mut StageTimes) -> Result<Option<RecordBatch>, StreamError> {
        if offset >= self.offsets.end {
            // The lane's task computes another window in the memory of this one.
            self.window = None;
            let Some(received) = self.receiver.recv().await else { return Ok(None) };
            let (window, spent) = received?;
            times.merge(spent);
            self.offsets = self.lane.offsets(self.next_window);
            self.next_window += 1;
            self.window = Some(window);
        }
        let (first, end) = (offset.checked_sub(self.offsets.start), self.offsets.end.checked_sub(offset));
        let rest = self.window.as_ref().zip(first).zip(end).filter(|(_, rows)| *rows > 0);
        Ok(rest.map(|((window, first), rows)| window.slice(first as usize, rows as usize)))
    }
}
