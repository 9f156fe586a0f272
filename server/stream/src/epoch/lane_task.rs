//! The task of one lane: computes its windows ahead, writing every row directly to its permuted place.

use std::{convert::Infallible, mem, ops::Range, sync::Arc, time::Instant};

use arrow::array::RecordBatch;
use forebay_order::{Lane, Sequence, Window};
use forebay_runtime::{
    log::PARTS,
    metrics::{Stage, StageTimes},
};
use forebay_scan::SharedBytes;
use futures::StreamExt;
use tokio::sync::mpsc;
use tracing::Instrument;

use super::{
    piece::PieceReader,
    row_group::{OpenRowGroup, RowGroupOpener},
    run::Run,
};
use crate::{
    ahead::fetched_ahead,
    device::{Builder, Workspace},
    error::StreamError,
    rows::{
        drive::{RowSink, drive},
        scan::RowScan,
    },
};

/// A shuffled epoch whose lanes are read, or a source of a mixture. Cheap to clone.
#[derive(Clone)]
pub(super) struct ShuffledEpoch {
    pub opener: RowGroupOpener,
    pub sequence: Arc<Sequence>,
}

/// A window and the time that each stage of computing it took.
pub(super) type TimedWindow = (RecordBatch, StageTimes);

/// Computes a lane's windows.
pub(super) struct LaneTask {
    epoch: ShuffledEpoch,
    /// The place in the sequence after the last row that its windows have.
    end: u64,
    /// The bytes of the row group with the first row, until it is open: another lane may begin in it and leave it earlier.
    first: Option<Arc<SharedBytes>>,
    /// The row group in which the previous window ended.
    open: Option<OpenRowGroup>,
    /// Dictionaries that went through the chains for the previous window.
    workspace: Workspace,
    times: StageTimes,
    /// Its CPU pool measures how long the lane's jobs wait.
    scan: RowScan,
}

/// Writes rows to their places in a window.
struct Scatter {
    builder: Builder,
    places: Vec<u32>,
    done: usize,
}

impl LaneTask {
    /// A task whose windows end before or at a place in the sequence.
    pub(super) fn new(epoch: &ShuffledEpoch, end: u64) -> Self {
        Self {
            epoch: epoch.clone(),
            end,
            first: None,
            open: None,
            workspace: Workspace::default(),
            times: StageTimes::default(),
            scan: epoch.opener.prepared.scan(&epoch.opener.environment).timed(),
        }
    }

    /// From now on, shares what other lanes fetch of the row group with the first row, which has this place.
    pub(super) fn beginning_at(mut self, place: u64) -> Self {
        let ShuffledEpoch { opener, sequence } = &self.epoch;
        self.first = Some(opener.shared(sequence.row_group_at(place)));
        self
    }

    /// Sends a lane's windows of these indices, until the lane ends or a window fails.
    pub(super) async fn run(
        mut self,
        lane: Lane,
        windows: Range<u64>,
        sender: mpsc::Sender<Result<TimedWindow, StreamError>>,
    ) {
        for index in windows {
            let window = lane.window(index);
            if window.rows.is_empty() {
                break;
            }
            // Reserving first keeps the number of windows within the memory reservation.
            let Ok(permit) = sender.reserve().await else { return };
            let computed = self.timed(window, lane.index, index).await;
            let is_failed = computed.is_err();
            permit.send(computed);
            if is_failed {
                return;
            }
        }
        drop(sender);
        // Another lane may end in the row group that is open, and shares what was fetched of it: it is kept until the end of
        // the stream, which ends this task.
        std::future::pending::<()>().await;
    }

    /// Computes a window; its lane and index are for the trace.
    pub(super) async fn timed(&mut self, window: Window, lane: u64, index: u64) -> Result<TimedWindow, StreamError> {
        let span = tracing::info_span!(target: PARTS, "window", lane = lane as i64, window = index as i64);
        let computed = self.compute(window).instrument(span).await;
        self.times.add(Stage::Queue, self.scan.cpu.take_queued());
        computed.map(|window| (window, mem::take(&mut self.times)))
    }

    async fn compute(&mut self, window: Window) -> Result<RecordBatch, StreamError> {
        let (window_start, row_count) = (window.rows.start, (window.rows.end - window.rows.start) as usize);
        let ShuffledEpoch { opener, sequence, .. } = self.epoch.clone();
        let prepared = opener.prepared.clone();
        let pieces = sequence.pieces(window.rows.clone());
        let executable = prepared.compiled.executable.clone();
        let workspace = mem::take(&mut self.workspace);
        let begin =
            move || Scatter { builder: executable.scattered(row_count, workspace), places: window.places(), done: 0 };
        let mut scatter = self.scan.cpu.run(begin).await?;
        let mut open = self.open.take();
        let (mut place, end) = (window_start, self.end);
        let mut groups = fetched_ahead(pieces.into_iter().map(|piece| {
            // The row group is fetched for the windows that follow, too.
            let rows = sequence.reach(place..end);
            place += piece.take;
            // The previous window may have ended in the row group in which this one begins.
            let open = open.take().filter(|open| open.leads_to(&piece));
            let opener = opener.clone();
            async move {
                match open {
                    Some(group) => Ok((piece, group)),
                    None => Ok((piece, opener.open(piece, rows).await?)),
                }
            }
        }));
        loop {
            let start = Instant::now();
            let Some(opened) = groups.next().await else { break };
            let (piece, group) = opened?;
            self.first = None;
            self.times.add_opened(start, group.fetch_time());
            let reader = PieceReader::new(group, piece, &prepared);
            let read;
            (read, scatter, _) = drive(&self.scan, piece.row_group, (reader, scatter), &mut self.times).await?;
            self.open = Some(read.group);
        }
        let (window, workspace) = self.scan.cpu.run(move || scatter.builder.finish()).await?;
        self.workspace = workspace;
        Ok(window?)
    }
}

// === impl Scatter ===

impl RowSink<Run> for Scatter {
    type Output = Infallible;

    fn add(&mut self, run: Run, times: &mut StageTimes) -> Result<Option<Infallible>, StreamError> {
        let (start, count) = (Instant::now(), run.range.len());
        run.scatter_to(&mut self.builder, &self.places[self.done..self.done + count])?;
        self.done += count;
        times.add_since(Stage::Assemble, start);
        Ok(None)
    }
}
