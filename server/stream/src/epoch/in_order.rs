//! A rank's rows in file order: its pieces of row groups, one after another, cut into batches of the requested size.

use std::{mem, ops::ControlFlow, time::Instant};

use arrow::{
    array::{RecordBatch, UInt64Array},
    compute::take_record_batch,
};
use forebay_order::{Piece, Sequence, Share};
use forebay_runtime::metrics::{Stage, StageTimes};
use futures::StreamExt;

use super::{
    outlet::{Ended, Outlet},
    piece::PieceReader,
    row_group::RowGroupOpener,
    run::Run,
};
use crate::{
    ahead::{Ahead, AheadSender, fetched_ahead},
    device::{Builder, Executable, Workspace},
    error::StreamError,
    prepare::dataset::PreparedDataset,
    rows::drive::{RowSink, drive},
};

/// Runs that wait between decoding and computing.
pub(super) const RUNS_AHEAD: usize = 1;

/// Fills batches from blocks, on the CPU pool.
struct Filler {
    executable: Executable,
    batch_size: u64,
    /// Rows left to put into batches, repeats included.
    rows_left: u64,
    builder: Option<Builder>,
    /// Dictionaries that went through the chains for the previous batch.
    workspace: Workspace,
}

/// Hands runs on to be computed from, with the time that they took.
struct RunSender(AheadSender<(Run, StageTimes)>);

/// Sends a share's batches: fetches row groups, decodes runs and fills batches concurrently.
pub(crate) async fn send(opener: &RowGroupOpener, share: &Share, outlet: &mut Outlet) -> Result<(), Ended> {
    let RowGroupOpener { environment, prepared, .. } = opener;
    let mut filler = Filler::new(prepared, share.row_count());
    let pieces = pieces(prepared, &prepared.epoch.sequence(), share);
    let mut runs = Ahead::start(RUNS_AHEAD, |sender| decode_runs(opener.clone(), pieces, sender));
    let cpu = environment.cpu.timed();
    while let Some(run) = runs.next().await {
        let (run, times) = run?;
        outlet.times.merge(times);
        let work = move || {
            let start = Instant::now();
            let full = filler.fill(&run);
            (filler, full, start.elapsed())
        };
        let (full, taken);
        (filler, full, taken) = cpu.run(work).await?;
        outlet.times.add(Stage::Queue, cpu.take_queued());
        outlet.times.add(Stage::Assemble, taken);
        for batch in full? {
            outlet.send(batch).await?;
        }
    }
    if let Some(batch) = filler.pad_last(outlet.batch_rows())? {
        outlet.send(batch).await?;
    }
    Ok(())
}

/// Sends the runs of the pieces, in order.
async fn decode_runs(
    opener: RowGroupOpener,
    pieces: Vec<Piece>,
    sender: AheadSender<(Run, StageTimes)>,
) -> Result<(), StreamError> {
    let RowGroupOpener { environment, prepared, .. } = &opener;
    let mut before: Option<Piece> = None;
    let mut groups = fetched_ahead(pieces.into_iter().map(|piece| {
        let (opener, continues) =
            (opener.clone(), before.is_some_and(|before| follows(&opener.prepared, &before, &piece)));
        before = Some(piece);
        async move { Ok((piece, continues, opener.open_in_order(piece, continues).await?)) }
    }));
    let scan = prepared.scan(environment).timed();
    let (mut computed, mut times, mut runs) = (None, StageTimes::default(), RunSender(sender));
    loop {
        let start = Instant::now();
        let Some(opened) = groups.next().await else { return Ok(()) };
        let (piece, continues, mut group) = opened?;
        times.add_opened(start, group.fetch_time());
        if let Some(computed) = computed.take().filter(|_| continues) {
            group.continue_from(computed);
        }
        let reader = PieceReader::passed_on(group, piece, prepared);
        let (read, flow);
        (read, runs, flow) = drive(&scan, piece.row_group, (reader, runs), &mut times).await?;
        if flow.is_break() {
            return Ok(());
        }
        computed = read.group.into_computed();
    }
}

impl RowSink<Run> for RunSender {
    type Output = Run;

    fn add(&mut self, run: Run, _: &mut StageTimes) -> Result<Option<Run>, StreamError> {
        Ok(Some(run))
    }

    async fn take(&mut self, run: Run, times: &mut StageTimes) -> Result<ControlFlow<()>, StreamError> {
        let is_sent = self.0.send(Ok((run, mem::take(times)))).await.is_ok();
        Ok(if is_sent { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
    }
}

/// Whether the windows of a piece are those after the ones of another piece, in file order.
fn follows(prepared: &PreparedDataset, before: &Piece, piece: &Piece) -> bool {
    let passing = prepared.epoch.passing();
    let between = before.row_group + 1..piece.row_group;
    prepared.windows().is_some()
        && before.row_group < piece.row_group
        && before.skip + before.take == passing[before.row_group]
        && piece.skip == 0
        && passing[between].iter().all(|rows| *rows == 0)
}

/// The pieces that make up a share, its repeats at the end.
pub(crate) fn pieces(prepared: &PreparedDataset, sequence: &Sequence, share: &Share) -> Vec<Piece> {
    prepared.epoch.runs(share).into_iter().flat_map(|run| sequence.pieces(run)).collect()
}

// === impl Filler ===

impl Filler {
    fn new(prepared: &PreparedDataset, rows_left: u64) -> Self {
        Self {
            executable: prepared.compiled.executable.clone(),
            batch_size: prepared.request.batch_size,
            rows_left,
            builder: None,
            workspace: Workspace::default(),
        }
    }

    /// Computes rows into batches and returns the full ones.
    fn fill(&mut self, run: &Run) -> Result<Vec<RecordBatch>, StreamError> {
        let mut full = Vec::new();
        let (mut next, end) = (run.range.start, run.range.end);
        while next < end {
            let mut builder = self.take_builder();
            let count = (end - next).min(builder.capacity() - builder.len());
            run.append_to(&mut builder, next..next + count)?;
            next += count;
            self.rows_left -= count as u64;
            if builder.is_full() {
                let (batch, workspace) = builder.finish();
                self.workspace = workspace;
                full.push(batch?);
            } else {
                self.builder = Some(builder);
            }
        }
        Ok(full)
    }

    /// Takes the batch being filled, or starts one for the rows left.
    fn take_builder(&mut self) -> Builder {
        let rows = self.batch_size.min(self.rows_left) as usize;
        mem::take(&mut self.builder).unwrap_or_else(|| self.executable.builder(rows, mem::take(&mut self.workspace)))
    }

    /// Repeats the rows of an incomplete last batch until it is full (PAD with fewer rows than a batch).
    fn pad_last(&mut self, batch_rows: u64) -> Result<Option<RecordBatch>, StreamError> {
        let Some(builder) = self.builder.take() else { return Ok(None) };
        let part = builder.finish().0?;
        let rows = part.num_rows() as u64;
        let repeated = UInt64Array::from_iter_values((0..batch_rows).map(|row| row % rows.max(1)));
        self.rows_left = 0;
        Ok(Some(take_record_batch(&part, &repeated)?))
    }
}
