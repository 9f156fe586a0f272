//! Interleaves the rows of a rank's lanes: one row of each lane's window in turn.

use std::{sync::Arc, time::Instant};

use arrow::array::RecordBatch;
use forebay_kernels::Interleave;
use forebay_order::Lane;
use tokio::{sync::mpsc, task::JoinSet};
use tracing::Instrument;

use super::lane_task::{LaneTask, ShuffledEpoch, TimedWindow};
use crate::{
    metrics::{Stage, StageTimes},
    stream::error::StreamError,
};

/// Windows of a lane that wait while batches take rows of the one before.
pub(super) const WINDOWS_AHEAD: usize = 1;

/// Rows of several lanes in turn. Dropping it ends the lanes' tasks.
pub(super) struct LaneInterleaver {
    epoch: ShuffledEpoch,
    /// The windows of each lane, in order.
    feeds: Vec<mpsc::Receiver<Result<TimedWindow, StreamError>>>,
    /// The lanes' windows of one index; empty where a lane has none.
    windows: Arc<Vec<RecordBatch>>,
    /// The index of the windows to receive next.
    next_window: u64,
    /// The row to take next, counted over all lanes.
    next_row: u64,
    _tasks: JoinSet<()>,
}

impl LaneInterleaver {
    /// Starts to compute rows `start..end`, counted over the lanes in turn.
    pub(super) fn start(epoch: &ShuffledEpoch, lanes: &[Lane], start: u64, end: u64) -> Self {
        let lane_count = lanes.len().max(1) as u64;
        let window_of = |row: u64| row / lane_count / epoch.shuffle.window_rows;
        let windows = window_of(start)..if end > start { window_of(end - 1) + 1 } else { window_of(start) };
        let mut tasks = JoinSet::new();
        let feeds = lanes.iter().map(|lane| {
            let (sender, receiver) = mpsc::channel(WINDOWS_AHEAD);
            let task = LaneTask::new(epoch, *lane);
            tasks.spawn(task.run(windows.clone(), sender).in_current_span());
            receiver
        });
        let feeds = feeds.collect();
        Self {
            epoch: epoch.clone(),
            feeds,
            windows: Arc::default(),
            next_window: windows.start,
            next_row: start,
            _tasks: tasks,
        }
    }

    /// Appends the next rows to a batch.
    pub(super) async fn take(
        &mut self,
        mut batch: Interleave,
        rows: u64,
        times: &mut StageTimes,
    ) -> Result<Interleave, StreamError> {
        let end = self.next_row + rows;
        let (lanes, window_rows) = (self.feeds.len() as u64, self.epoch.shuffle.window_rows);
        while self.next_row < end {
            let index = self.next_row / lanes / window_rows;
            if index >= self.next_window {
                self.receive(times).await?;
            }
            let first = self.next_row - index * window_rows * lanes;
            let count = (end - self.next_row).min(window_rows * lanes - first);
            let windows = Arc::clone(&self.windows);
            let appended = self.epoch.environment.cpu.run_short(move || {
                let start = Instant::now();
                let appended = batch.append(&windows, first as usize, count as usize);
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
        self.windows = Arc::default();
    }

    /// Receives the next window of every lane that has one; fails if none has.
    async fn receive(&mut self, times: &mut StageTimes) -> Result<(), StreamError> {
        // Lane tasks compute the next windows in the memory of the current ones.
        self.release_windows();
        let mut windows = Vec::with_capacity(self.feeds.len());
        let mut is_any = false;
        for feed in &mut self.feeds {
            windows.push(match feed.recv().await {
                Some(computed) => {
                    let (window, spent) = computed?;
                    is_any = true;
                    times.merge(spent);
                    window
                }
                None => RecordBatch::new_empty(self.epoch.prepared.schema()),
            });
        }
        if !is_any {
            return Err(self.epoch.prepared.miscounted());
        }
        self.windows = Arc::new(windows);
        self.next_window += 1;
        Ok(())
    }
}
