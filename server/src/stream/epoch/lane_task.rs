//! The task of one lane: computes its windows ahead, writing every row directly to its permuted place.

use std::{mem, ops::Range, sync::Arc, time::Instant};

use arrow::array::RecordBatch;
use forebay_order::{Lane, Piece, Sequence, Window};
use futures::StreamExt;
use tokio::sync::mpsc;
use tracing::Instrument;

use crate::{
    cpu_pool::CpuPool,
    log::PARTS,
    metrics::{Stage, StageTimes},
    stream::{
        decode::decode,
        device::{Builder, Workspace},
        epoch::{
            group::{GroupOpener, OpenGroup},
            run::NextRun,
            task::fetched_ahead,
        },
        error::StreamError,
        resolve::rows::Rows,
    },
};

/// A shuffled epoch whose lanes are read, or a source of a mixture. Cheap to clone.
#[derive(Clone)]
pub(super) struct ShuffledEpoch {
    pub opener: GroupOpener,
    pub sequence: Arc<Sequence>,
}

/// A window and the time that each stage of computing it took.
pub(super) type TimedWindow = (RecordBatch, StageTimes);

/// Computes a lane's windows.
pub(super) struct LaneTask {
    epoch: ShuffledEpoch,
    /// The place in the sequence after the last row that its windows have.
    end: u64,
    /// The row group in which the previous window ended.
    open: Option<OpenGroup>,
    /// Dictionaries that went through the chains for the previous window.
    workspace: Workspace,
    times: StageTimes,
    /// Measures how long the lane's jobs wait.
    cpu: CpuPool,
}

impl LaneTask {
    /// A task whose windows end before or at a place in the sequence.
    pub(super) fn new(epoch: &ShuffledEpoch, end: u64) -> Self {
        Self {
            epoch: epoch.clone(),
            end,
            open: None,
            workspace: Workspace::default(),
            times: StageTimes::default(),
            cpu: epoch.opener.environment.cpu.timed(),
        }
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
        self.times.add(Stage::Queue, self.cpu.take_queued());
        computed.map(|window| (window, mem::take(&mut self.times)))
    }

    async fn compute(&mut self, window: Window) -> Result<RecordBatch, StreamError> {
        let (window_start, row_count) = (window.rows.start, (window.rows.end - window.rows.start) as usize);
        let ShuffledEpoch { opener, sequence, .. } = self.epoch.clone();
        let prepared = opener.prepared.clone();
        let pieces = sequence.pieces(window.rows.clone());
        let executable = prepared.compiled.executable.clone();
        let workspace = mem::take(&mut self.workspace);
        let begin = move || (executable.scattered(row_count, workspace), window.places());
        let (mut builder, mut places) = self.cpu.run(begin).await?;
        let (snapshot, rows) = (&prepared.snapshot, &prepared.compiled.rows);
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
        let mut done = 0;
        loop {
            let start = Instant::now();
            let Some(opened) = groups.next().await else { break };
            let (piece, mut group) = opened?;
            self.times.add_opened(start, group.fetch_time());
            let row_group = &snapshot.row_groups()[piece.row_group];
            while !group.is_past(&piece) {
                let (chunk_rows, mut times) = (Arc::clone(rows), mem::take(&mut self.times));
                let work = move || {
                    let scattered = scatter(&mut group, &piece, &chunk_rows, &mut builder, &places[done..], &mut times);
                    (builder, places, group, times, scattered)
                };
                let scattered;
                (builder, places, group, self.times, scattered) =
                    decode(&self.cpu, snapshot, row_group, rows.projection.schema(), work).await?;
                let (count, is_blocked) = scattered?;
                done += count;
                if is_blocked {
                    group.prepare(&mut self.times).await?;
                } else if !group.is_past(&piece) {
                    return Err(prepared.miscounted());
                }
            }
            self.open = Some(group);
        }
        let (window, workspace) = self.cpu.run(move || builder.finish()).await?;
        self.workspace = workspace;
        Ok(window?)
    }
}

/// Writes the rows of a piece to their places, until the row group is blocked. Returns the number of rows, and whether it
/// is.
fn scatter(
    group: &mut OpenGroup,
    piece: &Piece,
    rows: &Rows,
    builder: &mut Builder,
    places: &[u32],
    times: &mut StageTimes,
) -> Result<(usize, bool), StreamError> {
    let mut done = 0;
    loop {
        let run = match group.next_run(piece, rows, times)? {
            NextRun::Run(run) => run,
            NextRun::Blocked => return Ok((done, true)),
            NextRun::End => return Ok((done, false)),
        };
        let start = Instant::now();
        let count = run.range.len();
        run.scatter_to(builder, &places[done..done + count])?;
        done += count;
        times.add_since(Stage::Assemble, start);
    }
}
