//! A rank's rows in file order: its pieces of row groups, one after another, cut into batches of exactly the asked size.

use std::{mem, sync::Arc, time::Instant};

use arrow::{
    array::{RecordBatch, UInt64Array},
    compute::take_record_batch,
};
use forebay_kernels::Workspace;
use futures::StreamExt;

use crate::stream::{
    Ahead, FETCH_AHEAD, Prepared, StreamError, Streams, decode,
    device::{Builder, Placed},
    epoch::batches::{Ended, Outlet},
    epoch::group::{OpenGroup, Run},
    epoch::task::{AheadSender, fetched_ahead},
};
use crate::{
    log::PARTS,
    metrics::{Stage, StageTimes},
    order::{Piece, Sequence, Share},
    scan::Sharing,
};

/// Runs that wait to be computed from, beside one that is and one that is being decoded.
const RUNS_AHEAD: usize = 1;

/// Fills batches from chunks; lives on the CPU pool while it works.
struct Filler {
    placed: Placed,
    batch_size: u64,
    /// Rows that are still to be put into batches, repeats included.
    due: u64,
    builder: Option<Builder>,
    /// What the batch before left behind: dictionaries that went through the chains.
    workspace: Workspace,
}

/// Sends a share's batches: row groups are fetched, runs decoded and batches filled at the same time.
pub(crate) async fn send(
    streams: &Arc<Streams>,
    prepared: &Prepared,
    share: &Share,
    outlet: &mut Outlet,
) -> Result<(), Ended> {
    let mut filler = Filler::new(prepared, share.row_count());
    let pieces = pieces(prepared, &prepared.epoch.sequence(), share);
    let mut runs = Ahead::start(RUNS_AHEAD, |sender| decode(Arc::clone(streams), prepared.clone(), pieces, sender));
    while let Some(run) = runs.next().await {
        let (run, times) = run?;
        outlet.times.merge(times);
        let work = move || {
            let start = Instant::now();
            let full = filler.fill(&run);
            (filler, full, start.elapsed())
        };
        let (full, taken);
        (filler, full, taken) = streams.cpu.run(work).await?;
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

/// Sends the runs of the pieces, in their order.
async fn decode(
    streams: Arc<Streams>,
    prepared: Prepared,
    pieces: Vec<Piece>,
    sender: AheadSender<(Run, StageTimes)>,
) -> Result<(), StreamError> {
    let (snapshot, rows) = (&prepared.snapshot, &prepared.compiled.rows);
    let sharing = Arc::<Sharing>::default();
    let mut groups = fetched_ahead(pieces.into_iter().map(|piece| {
        let (snapshot, rows) = (Arc::clone(snapshot), Arc::clone(rows));
        let (streams, sharing) = (Arc::clone(&streams), Arc::clone(&sharing));
        async move {
            let (cpu, budget) = (&streams.cpu, &streams.budget);
            let opened = OpenGroup::open(&snapshot, piece, &rows, cpu, budget, &sharing).await;
            opened.map(|group| (piece, group))
        }
    }));
    let (mut times, columns) = (StageTimes::default(), prepared.compiled.rows.projection.schema());
    loop {
        let start = Instant::now();
        let Some(opened) = groups.next().await else { break };
        let (piece, mut group) = opened?;
        // What lies in the queue for the CPU is no wait for storage.
        times.add(Stage::Fetch, start.elapsed().min(group.fetch_time()));
        while !group.is_past(&piece) {
            let rows = Arc::clone(rows);
            let span = tracing::info_span!(target: PARTS, "decode", row_group = piece.row_group as i64);
            let work = move || {
                let _in_span = span.entered();
                let run = group.next_run(&piece, &rows, &mut times);
                (group, times, run)
            };
            let row_group = &snapshot.row_groups()[piece.row_group];
            let run;
            (group, times, run) = decode::decode(&streams.cpu, snapshot, row_group, columns, work).await?;
            let run = run?.ok_or_else(|| prepared.miscounted())?;
            if sender.send(Ok((run, mem::take(&mut times)))).await.is_err() {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// The compressed row groups in flight, and the decoded chunks: one computed from, those that wait, one being decoded.
pub(crate) fn reading_bytes(prepared: &Prepared, pieces: &[Piece]) -> u64 {
    let projection = &prepared.compiled.rows.projection;
    let groups = prepared.snapshot.row_groups();
    let (mut fetched, mut chunk) = (0, 0);
    for piece in pieces {
        let group = &groups[piece.row_group];
        fetched = projection.stored_bytes(&prepared.snapshot, group).max(fetched);
        let decoding = projection.chunk_bytes(&prepared.snapshot, group);
        chunk = decoding.saturating_add(projection.decoder_bytes(&prepared.snapshot, group)).max(chunk);
    }
    chunk.saturating_mul(RUNS_AHEAD as u64 + 2).saturating_add(fetched.saturating_mul(FETCH_AHEAD as u64 + 1))
}

/// The reads that yield a share, its repeats at the end.
pub(crate) fn pieces(prepared: &Prepared, sequence: &Sequence, share: &Share) -> Vec<Piece> {
    prepared.epoch.runs(share).into_iter().flat_map(|run| sequence.pieces(run)).collect()
}

impl Filler {
    fn new(prepared: &Prepared, due: u64) -> Self {
        Self {
            placed: prepared.compiled.placed.clone(),
            batch_size: prepared.request.batch_size,
            due,
            builder: None,
            workspace: Workspace::default(),
        }
    }

    /// Computes rows into batches and returns those that became full.
    fn fill(&mut self, run: &Run) -> Result<Vec<RecordBatch>, StreamError> {
        let mut full = Vec::new();
        let (mut next, end) = (run.rows.start, run.rows.end);
        while next < end {
            let mut builder = self.take_builder();
            let count = (end - next).min(builder.capacity() - builder.len());
            builder.append(&run.chunk, next..next + count)?;
            next += count;
            self.due -= count as u64;
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

    /// The batch being filled, or a new one for the rows that are due.
    fn take_builder(&mut self) -> Builder {
        let rows = self.batch_size.min(self.due) as usize;
        mem::take(&mut self.builder).unwrap_or_else(|| self.placed.builder(rows, mem::take(&mut self.workspace)))
    }

    /// A last batch that is not full repeats its own rows until it is (PAD with fewer rows than a batch).
    fn pad_last(&mut self, batch_rows: u64) -> Result<Option<RecordBatch>, StreamError> {
        let Some(builder) = self.builder.take() else { return Ok(None) };
        let part = builder.finish().0?;
        let rows = part.num_rows() as u64;
        let repeated = UInt64Array::from_iter_values((0..batch_rows).map(|row| row % rows.max(1)));
        self.due = 0;
        Ok(Some(take_record_batch(&part, &repeated)?))
    }
}
