//! A rank's rows in file order: its pieces of row groups, one after another, cut into batches of exactly the asked size.

use std::{mem, sync::Arc, time::Instant};

use arrow::{
    array::{RecordBatch, UInt64Array},
    compute::take_record_batch,
};
use forebay_kernels::Workspace;
use futures::StreamExt;

use super::{
    FETCH_AHEAD, Prepared, StreamError, Streams,
    batches::{Ended, Outlet},
    device::{Builder, Placed},
    group::{OpenGroup, Run},
    rows::Rows,
};
use crate::{
    metrics::{Stage, StageTimes},
    order::{Piece, Sequence, Share},
    runtime,
    scan::{self, Sharing},
};

/// Fills batches from chunks; lives on the CPU pool while it works.
struct Filler {
    rows: Arc<Rows>,
    placed: Placed,
    batch_size: u64,
    /// Rows that are still to be put into batches, repeats included.
    due: u64,
    builder: Option<Builder>,
    /// What the batch before left behind: dictionaries that went through the chains.
    workspace: Workspace,
    times: StageTimes,
}

/// Sends a share's batches.
pub(super) async fn send(
    streams: &Streams,
    prepared: &Prepared,
    share: &Share,
    outlet: &mut Outlet,
) -> Result<(), Ended> {
    let mut filler = Filler::new(prepared, share.row_count());
    let snapshot = &prepared.snapshot;
    let sharing = &Sharing::default();
    let pieces = pieces(prepared, &prepared.epoch.sequence(), share);
    let mut groups = futures::stream::iter(pieces.into_iter().map(|piece| async move {
        let opened = OpenGroup::open(snapshot, piece, &prepared.compiled.rows, &streams.cpu, sharing).await;
        opened.map(|group| (piece, group))
    }))
    .buffered(FETCH_AHEAD);
    loop {
        let start = Instant::now();
        let Some(opened) = groups.next().await else { break };
        filler.times.add_since(Stage::Fetch, start);
        let (piece, mut group) = opened?;
        while !group.is_past(&piece) {
            let work = move || {
                let made = filler.advance(&mut group, &piece);
                (filler, group, made)
            };
            let place = &snapshot.row_groups()[piece.row_group];
            let done = streams.cpu.run(work).await.map_err(|panic| scan::panicked(snapshot, place, &panic))?;
            let made;
            (filler, group, made) = done;
            for batch in made?.ok_or_else(|| outlet.miscounted())? {
                mem::take(&mut filler.times).record();
                outlet.send(batch).await?;
            }
        }
    }
    if let Some(batch) = filler.pad_last(outlet.batch_rows())? {
        outlet.send(batch).await?;
    }
    filler.times.record();
    Ok(())
}

/// The compressed row groups in flight, and two decoded chunks: one is decoded while another is computed from.
pub(super) fn reading_bytes(prepared: &Prepared, pieces: &[Piece]) -> u64 {
    let projection = &prepared.compiled.rows.projection;
    let groups = prepared.snapshot.row_groups();
    let (mut fetched, mut chunk) = (0, 0);
    for piece in pieces {
        let group = &groups[piece.row_group];
        fetched = projection.stored_bytes(&prepared.snapshot, group).max(fetched);
        let decoding = projection.chunk_bytes(&prepared.snapshot, group);
        chunk = decoding.saturating_add(projection.decoder_bytes(&prepared.snapshot, group)).max(chunk);
    }
    chunk.saturating_mul(2).saturating_add(fetched.saturating_mul(FETCH_AHEAD as u64 + 1))
}

/// The reads that yield a share, its repeats at the end.
pub(super) fn pieces(prepared: &Prepared, sequence: &Sequence, share: &Share) -> Vec<Piece> {
    prepared.epoch.runs(share).into_iter().flat_map(|run| sequence.pieces(run)).collect()
}

impl Filler {
    fn new(prepared: &Prepared, due: u64) -> Self {
        Self {
            rows: Arc::clone(&prepared.compiled.rows),
            placed: prepared.compiled.placed.clone(),
            batch_size: prepared.request.batch_size,
            due,
            builder: None,
            workspace: Workspace::default(),
            times: StageTimes::default(),
        }
    }

    /// Takes the next rows of a piece. Returns the batches that became full; nothing where the row group has ended.
    fn advance(&mut self, group: &mut OpenGroup, piece: &Piece) -> Result<Option<Vec<RecordBatch>>, StreamError> {
        let Some(run) = group.next_run(piece, &self.rows, &mut self.times)? else { return Ok(None) };
        let rows = Arc::clone(&self.rows);
        // One core computes these rows while another decodes the next ones.
        let (full, ()) = runtime::both(|| self.fill(&run), || group.decode_ahead(piece, &rows));
        full.map(Some)
    }

    /// Computes rows into batches and returns those that became full.
    fn fill(&mut self, run: &Run) -> Result<Vec<RecordBatch>, StreamError> {
        let start = Instant::now();
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
        self.times.add_since(Stage::Assemble, start);
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
