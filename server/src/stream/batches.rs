//! One rank's batches: its pieces of row groups, through filter and kernels, cut into batches of exactly the asked size.

use std::{mem, sync::Arc, time::Instant};

use arrow::{
    array::{RecordBatch, UInt64Array},
    compute::take_record_batch,
};
use forebay_kernels::{BatchBuilder, Program};
use forebay_proto::v1;
use futures::StreamExt;

use super::{
    Batch, BatchTask, FETCH_AHEAD, Prepared, StreamError, Streams,
    rows::Rows,
    task::{BatchSender, Gone},
};
use crate::{
    budget::Reservation,
    catalog::RowGroup,
    metrics::{Stage, StageTimes},
    order::{Piece, Share},
    scan::{self, RowGroupReader},
};

/// Batches of a stream that exist at once: one filled, those that wait, one on the wire.
const BATCHES_HELD: u64 = super::BATCHES_AHEAD as u64 + 2;

/// Fills batches from chunks; lives on the CPU pool while it works.
struct Filler {
    rows: Arc<Rows>,
    program: Arc<Program>,
    batch_size: u64,
    /// Rows that are still to be put into batches, repeats included.
    due: u64,
    builder: Option<BatchBuilder>,
    times: StageTimes,
}

/// Where in a piece the reading stands.
struct Cursor {
    /// Index in the snapshot of the next stored row.
    next_row: u64,
    /// Passing rows left out before the piece begins.
    skip: u64,
    /// Passing rows of the piece still to come.
    take: u64,
}

/// Numbers the batches of a rank.
struct Numberer {
    prepared: Prepared,
    share: Share,
    step: u64,
    sent_rows: u64,
}

impl Streams {
    /// The batches of a rank, from the request's first step on.
    pub fn batches(self: &Arc<Self>, prepared: &Prepared, rank: u64) -> Result<BatchTask, StreamError> {
        let share = prepared.share(rank)?;
        let pieces = prepared.epoch.pieces(&share, prepared.request.first_step);
        let memory = self.budget.reserve(memory_bytes(prepared, &pieces))?;
        let (streams, prepared) = (Arc::clone(self), prepared.clone());
        Ok(BatchTask::start(move |sender| streams.send_batches(prepared, share, pieces, sender, memory)))
    }

    async fn send_batches(
        self: Arc<Self>,
        prepared: Prepared,
        share: Share,
        pieces: Vec<Piece>,
        sender: BatchSender,
        memory: Reservation,
    ) -> Result<(), StreamError> {
        let mut numberer = Numberer::new(&prepared, share);
        let mut filler = Filler::new(&prepared, numberer.due_rows());
        if filler.due == 0 {
            let empty = filler.take_builder().finish()?;
            let _ = sender.send(Ok(numberer.number(empty))).await;
            return Ok(());
        }
        let snapshot = Arc::clone(&prepared.snapshot);
        let mut readers = futures::stream::iter(pieces.into_iter().map(|piece| {
            let (snapshot, rows, cpu) = (&snapshot, &prepared.compiled.rows, &self.cpu);
            async move {
                let group = &snapshot.row_groups()[piece.row_group];
                // Without a filter, chunks before the piece need not be decoded. Whole ones: a batch is made of the same
                // pieces of the same chunks wherever its stream began, so that it is the same to the byte.
                let chunk_rows = rows.projection.chunk_rows(snapshot, group);
                let unread = if rows.all_pass() { piece.skip / chunk_rows * chunk_rows } else { 0 };
                let reader = scan::open(snapshot, group, &rows.projection, unread, cpu).await?;
                let cursor =
                    Cursor { next_row: group.rows.start + unread, skip: piece.skip - unread, take: piece.take };
                Ok::<_, StreamError>((group, reader, cursor))
            }
        }))
        .buffered(FETCH_AHEAD);
        loop {
            let start = Instant::now();
            let Some(opened) = readers.next().await else { break };
            filler.times.add_since(Stage::Fetch, start);
            let (group, mut reader, mut cursor) = opened?;
            while cursor.take > 0 {
                let work = move || {
                    let made = filler.advance(&mut reader, &mut cursor);
                    (filler, reader, cursor, made)
                };
                let done = self.cpu.run(work).await.map_err(|panic| scan::panicked(&snapshot, group, &panic))?;
                let made;
                (filler, reader, cursor, made) = done;
                let (ended, batches) = made?;
                for batch in batches {
                    if send(&sender, numberer.number(batch), &mut filler.times).await.is_err() {
                        return Ok(());
                    }
                }
                if ended && cursor.take > 0 {
                    return Err(numberer.miscounted(cursor.take));
                }
            }
        }
        if let Some(batch) = filler.pad_last(numberer.batch_rows())? {
            let _ = send(&sender, numberer.number(batch), &mut filler.times).await;
        }
        filler.times.record();
        drop(memory);
        Ok(())
    }
}

async fn send(sender: &BatchSender, batch: Batch, times: &mut StageTimes) -> Result<(), Gone> {
    let start = Instant::now();
    let sent = sender.send(Ok(batch)).await;
    times.add_since(Stage::SendWait, start);
    times.record();
    sent.map_err(|_| Gone)
}

/// What a stream holds at most: the compressed row groups in flight, a decoded chunk, and its batches.
fn memory_bytes(prepared: &Prepared, pieces: &[Piece]) -> u64 {
    let projection = &prepared.compiled.rows.projection;
    let groups = prepared.snapshot.row_groups();
    let largest = |bytes: &dyn Fn(&RowGroup) -> u64| {
        pieces.iter().map(|piece| bytes(&groups[piece.row_group])).max().unwrap_or(0)
    };
    let fetched =
        largest(&|group| projection.stored_bytes(&prepared.snapshot, group)).saturating_mul(FETCH_AHEAD as u64 + 1);
    let chunk = largest(&|group| projection.chunk_bytes(&prepared.snapshot, group));
    fetched.saturating_add(chunk).saturating_add(prepared.batch_bytes().saturating_mul(BATCHES_HELD))
}

// === impl Filler ===

impl Filler {
    fn new(prepared: &Prepared, due: u64) -> Self {
        Self {
            rows: Arc::clone(&prepared.compiled.rows),
            program: Arc::clone(&prepared.compiled.program),
            batch_size: prepared.request.batch_size,
            due,
            builder: None,
            times: StageTimes::default(),
        }
    }

    /// Takes the next chunk of a piece. Returns whether the row group has ended, and the batches that became full.
    fn advance(
        &mut self,
        reader: &mut RowGroupReader,
        cursor: &mut Cursor,
    ) -> Result<(bool, Vec<RecordBatch>), StreamError> {
        let start = Instant::now();
        let Some(chunk) = reader.next_chunk()? else { return Ok((true, Vec::new())) };
        self.times.add_since(Stage::Decode, start);

        let start = Instant::now();
        let passing = self.rows.apply(&chunk, cursor.next_row)?;
        cursor.next_row += chunk.num_rows() as u64;
        self.times.add_since(Stage::Transform, start);

        let start = Instant::now();
        let count = passing.num_rows() as u64;
        let first = cursor.skip.min(count);
        let taken = (count - first).min(cursor.take);
        cursor.skip -= first;
        cursor.take -= taken;
        let full = self.fill(&passing, first as usize, taken as usize)?;
        self.times.add_since(Stage::Assemble, start);
        Ok((false, full))
    }

    fn fill(&mut self, rows: &RecordBatch, first: usize, count: usize) -> Result<Vec<RecordBatch>, StreamError> {
        let mut full = Vec::new();
        let (mut next, end) = (first, first + count);
        while next < end {
            let mut builder = self.take_builder();
            let run = (end - next).min(builder.capacity() - builder.len());
            builder.append(rows, next..next + run)?;
            next += run;
            self.due -= run as u64;
            if builder.is_full() {
                full.push(builder.finish()?);
            } else {
                self.builder = Some(builder);
            }
        }
        Ok(full)
    }

    /// The batch being filled, or a new one for the rows that are due.
    fn take_builder(&mut self) -> BatchBuilder {
        let rows = self.batch_size.min(self.due) as usize;
        mem::take(&mut self.builder).unwrap_or_else(|| BatchBuilder::new(Arc::clone(&self.program), rows))
    }

    /// A last batch that is not full repeats its own rows until it is (PAD with fewer rows than a batch).
    fn pad_last(&mut self, batch_rows: u64) -> Result<Option<RecordBatch>, StreamError> {
        let Some(builder) = self.builder.take() else { return Ok(None) };
        let part = builder.finish()?;
        let rows = part.num_rows() as u64;
        let repeated = UInt64Array::from_iter_values((0..batch_rows).map(|row| row % rows.max(1)));
        self.due = 0;
        Ok(Some(take_record_batch(&part, &repeated)?))
    }
}

// === impl Numberer ===

impl Numberer {
    fn new(prepared: &Prepared, share: Share) -> Self {
        let step = prepared.request.first_step;
        let sent_rows = step.saturating_mul(prepared.request.batch_size).min(share.row_count + share.padding_rows);
        Self { prepared: prepared.clone(), share, step, sent_rows }
    }

    fn due_rows(&self) -> u64 {
        self.share.row_count + self.share.padding_rows - self.sent_rows
    }

    /// Rows of the batch that comes next.
    fn batch_rows(&self) -> u64 {
        self.prepared.request.batch_size.min(self.due_rows())
    }

    fn number(&mut self, data: RecordBatch) -> Batch {
        let rows = data.num_rows() as u64;
        let padding_before = self.sent_rows.saturating_sub(self.share.row_count);
        self.sent_rows += rows;
        let header = v1::BatchHeader {
            epoch: self.prepared.request.epoch,
            step: self.step,
            position: self.prepared.request.position(self.step),
            rows,
            padding_rows: self.sent_rows.saturating_sub(self.share.row_count) - padding_before,
            last: self.due_rows() == 0,
            checksum: 0,
        };
        self.step += 1;
        Batch { header, data }
    }

    fn miscounted(&self, missing: u64) -> StreamError {
        let counted = self.prepared.epoch.row_count();
        StreamError::Miscounted { counted, read: counted.saturating_sub(missing) }
    }
}
