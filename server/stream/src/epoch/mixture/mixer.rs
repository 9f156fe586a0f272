//! Puts the rows of every source's feeds at their positions in a batch.

use std::{ops::Range, time::Instant};

use arrow::array::RecordBatch;
use forebay_kernels::Interleave;
use forebay_runtime::{
    metrics::{Stage, StageTimes},
    tenant::Tenant,
};
use tokio::{sync::mpsc, task::JoinSet};
use tracing::Instrument;

use super::{
    feed::{FeedTask, MixedEpoch},
    positions::RankPositions,
};
use crate::{
    epoch::{interleave::WINDOWS_AHEAD, lane_task::TimedWindow},
    error::StreamError,
    prepare::ordered::Ordered,
};

/// Rows of all sources at their positions. Dropping it ends the feeds' tasks.
pub(super) struct Mixer {
    epoch: MixedEpoch,
    positions: RankPositions,
    /// The row to take next, of the rank's sequence.
    next_row: u64,
    /// A feed for each lane and source; the sources of a lane follow each other.
    feeds: Vec<Feed>,
    _tasks: JoinSet<()>,
}

/// The windows of one source in one lane, in order.
struct Feed {
    receiver: mpsc::Receiver<Result<TimedWindow, StreamError>>,
    /// The window received last, until its last row is used.
    window: Option<RecordBatch>,
    /// The row of it to take next.
    next: usize,
    /// The index of the window among those of the rows that are being collected.
    place: Option<usize>,
}

/// A row of a batch: the index of its window, and of the row in it.
type WindowRow = (usize, usize);

impl Mixer {
    /// Starts to compute the rows `rows` of a rank's sequence.
    pub(super) fn start(epoch: &MixedEpoch, positions: RankPositions, rows: Range<u64>) -> Self {
        let (mut tasks, tenant) = (JoinSet::new(), Tenant::current());
        let lanes = epoch.lanes();
        let mut feeds = Vec::new();
        for turn in 0..positions.lane_count(lanes) {
            for source in 0..epoch.mixture.sources.len() {
                let (sender, receiver) = mpsc::channel(WINDOWS_AHEAD);
                let lane = positions.at(turn) % lanes;
                let of_lane = FeedTask::new(epoch, source, lane, positions.at(rows.start)..positions.at(rows.end));
                if let Some(task) = of_lane.filter(|_| !rows.is_empty()) {
                    tasks.spawn(tenant.scope(task.run(sender)).in_current_span());
                }
                feeds.push(Feed { receiver, window: None, next: 0, place: None });
            }
        }
        Self { epoch: epoch.clone(), positions, next_row: rows.start, feeds, _tasks: tasks }
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
            let (windows, taken) = self.collect(end, times).await?;
            self.next_row += taken.len() as u64;
            let appended = self.epoch.environment.cpu.run_short(move || {
                let start = Instant::now();
                let appended = batch.append_rows(&windows, &taken);
                appended.map(|()| (batch, start.elapsed()))
            });
            let spent;
            (batch, spent) = appended.await??;
            times.add(Stage::Assemble, spent);
        }
        Ok(batch)
    }

    /// Drops the current windows, so that others may use their memory.
    pub(super) fn release_windows(&mut self) {
        self.feeds.iter_mut().for_each(|feed| feed.window = None);
    }

    /// Collects rows up to `end`, at least one, until a feed needs another window.
    async fn collect(
        &mut self,
        end: u64,
        times: &mut StageTimes,
    ) -> Result<(Vec<RecordBatch>, Vec<WindowRow>), StreamError> {
        let (mut windows, mut taken) = (Vec::new(), Vec::with_capacity((end - self.next_row) as usize));
        self.feeds.iter_mut().for_each(|feed| feed.place = None);
        let sources = self.epoch.mixture.sources.len();
        let turns = (self.feeds.len() / sources.max(1)).max(1) as u64;
        for row in self.next_row..end {
            let source = self.epoch.mixture.order.pattern().at(self.positions.at(row)).0;
            let feed = &mut self.feeds[(row % turns) as usize * sources + source];
            if feed.is_used_up() {
                // Batches are assembled from pieces between the ends of windows, for every first position of a stream.
                if feed.place.is_some() {
                    break;
                }
                feed.receive(times).await?.ok_or_else(|| self.epoch.mixture.sources[source].miscounted())?;
            }
            taken.push(feed.take(&mut windows).ok_or_else(|| self.epoch.mixture.sources[source].miscounted())?);
        }
        Ok((windows, taken))
    }
}

// === impl Feed ===

impl Feed {
    fn is_used_up(&self) -> bool {
        self.window.as_ref().is_none_or(|window| self.next >= window.num_rows())
    }

    /// Receives the next window; none if there is none.
    async fn receive(&mut self, times: &mut StageTimes) -> Result<Option<()>, StreamError> {
        // The feed's task computes another window in the memory of this one.
        self.window = None;
        let Some(received) = self.receiver.recv().await else { return Ok(None) };
        let (window, spent) = received?;
        times.merge(spent);
        (self.window, self.next) = (Some(window), 0);
        Ok(Some(()))
    }

    /// The next row, whose window is among `windows` afterwards; none if there is no window.
    fn take(&mut self, windows: &mut Vec<RecordBatch>) -> Option<WindowRow> {
        let place = if let Some(place) = self.place {
            place
        } else {
            windows.push(self.window.clone()?);
            *self.place.insert(windows.len() - 1)
        };
        let row = self.next;
        self.next += 1;
        Some((place, row))
    }
}
