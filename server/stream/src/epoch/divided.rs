//! Row groups that several buckets of a stream read at about the same time: each block is decoded once, and its rows are divided
//! among the buckets.
//!
//! The first reader that needs a block decodes it for all, if a step of its bucket is near: others follow it. So a bucket of few rows,
//! which has to read far for a batch, does not run ahead. Rows are kept until their bucket takes them, a limited number for each
//! bucket, the latest ones: a reader whose rows are no longer there decodes the row group again, for itself.

use std::{
    collections::{HashMap, VecDeque},
    ops::{ControlFlow, Range},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicUsize, Ordering},
    },
    time::Instant,
};

use arrow::array::BooleanArray;
use forebay_cache::CachedChunks;
use forebay_kernels::KernelError;
use forebay_runtime::metrics::{Stage, StageTimes};
use forebay_scan::ALL_ROWS;
use tokio::sync::watch;

use super::{run::RunRows, stored};
use crate::{
    environment::Environment,
    error::StreamError,
    prepare::{bucketed::PreparedBuckets, dataset::PreparedDataset},
    rows::{
        drive::{Next, RowSink, drive},
        group::GroupColumn,
        passing::Passing,
        prefilter::NextRows,
        reader::RowReader,
    },
};

/// The row groups that the buckets of a stream have open.
pub(super) struct DividedRowGroups {
    environment: Arc<Environment>,
    /// The rows of all buckets.
    all: PreparedDataset,
    chunks: Option<Arc<CachedChunks>>,
    divider: Arc<Divider>,
    open: Mutex<HashMap<usize, Weak<DividedRowGroup>>>,
    kept: Mutex<Vec<KeptRows>>,
    /// The steps of each bucket that are near.
    near: Vec<AtomicUsize>,
    /// Changes when a block is decoded, and when a step of another bucket is near.
    changes: watch::Sender<u64>,
}

/// Divides rows among buckets.
struct Divider {
    column: Arc<GroupColumn>,
    /// The number of each bucket.
    numbers: Vec<u64>,
}

/// The rows of a bucket that are kept for its readers.
struct KeptRows {
    limit: u64,
    rows: u64,
    /// The blocks that have them, the earliest first; also of some that a reader has.
    blocks: VecDeque<(Arc<DividedRowGroup>, usize)>,
}

/// A row group, decoded up to a block.
struct DividedRowGroup {
    index: usize,
    blocks: Mutex<DividedBlocks>,
    /// Decodes the next block; none: the row group is not open.
    reader: tokio::sync::Mutex<Option<RowReader>>,
}

/// The decoded blocks of a row group.
#[derive(Default)]
struct DividedBlocks {
    /// Stored rows of all of them.
    stored: u64,
    blocks: Vec<DividedBlock>,
    is_complete: bool,
}

/// The rows of a block by bucket.
struct DividedBlock {
    counts: Vec<u64>,
    /// None: no rows, or a reader has them, or they were dropped.
    rows: Vec<Option<Passing>>,
}

/// Reads the rows of one bucket of a row group.
pub(super) struct DividedReader {
    divided: Arc<DividedRowGroups>,
    bucket: usize,
    prepared: PreparedDataset,
    row_group: Arc<DividedRowGroup>,
    /// The index of the next block.
    next: usize,
    /// The rows of the bucket before it.
    seen: u64,
    /// Reads the bucket's rows alone, of which the first were returned before.
    alone: Option<(RowReader, u64)>,
}

/// Keeps the rows of one block, divided.
struct OneBlock {
    divider: Arc<Divider>,
    block: Option<(DividedBlock, u64)>,
}

// === impl DividedRowGroups ===

impl DividedRowGroups {
    /// Those of a stream's buckets, each of which keeps a limited number of rows.
    pub(super) fn new(
        environment: &Arc<Environment>,
        prepared: &PreparedBuckets,
        chunks: Option<Arc<CachedChunks>>,
        limits: Vec<u64>,
    ) -> Arc<Self> {
        let divider = Arc::new(Divider { column: Arc::clone(&prepared.column), numbers: prepared.numbers.clone() });
        let near = limits.iter().map(|_| AtomicUsize::new(0)).collect();
        let kept = limits.into_iter().map(|limit| KeptRows { limit, rows: 0, blocks: VecDeque::new() });
        Arc::new(Self {
            environment: Arc::clone(environment),
            all: prepared.all.clone(),
            chunks,
            divider,
            open: Mutex::default(),
            kept: Mutex::new(kept.collect()),
            near,
            changes: watch::channel(0).0,
        })
    }

    /// Notes that a step of a bucket is near.
    pub(super) fn expect(&self, bucket: usize) {
        if self.near[bucket].fetch_add(1, Ordering::SeqCst) == 0 {
            self.note_change();
        }
    }

    /// Notes that it is no longer.
    pub(super) fn served(&self, bucket: usize) {
        self.near[bucket].fetch_sub(1, Ordering::SeqCst);
    }

    fn note_change(&self) {
        self.changes.send_modify(|change| *change = change.wrapping_add(1));
    }

    /// Opens a row group to read the rows of a bucket; fetches its bytes, unless another reader has.
    pub(super) async fn open(
        self: &Arc<Self>,
        bucket: usize,
        prepared: &PreparedDataset,
        row_group: usize,
    ) -> Result<DividedReader, StreamError> {
        let row_group = self.row_group(row_group);
        let (divided, prepared) = (Arc::clone(self), prepared.clone());
        let mut reader = DividedReader { divided, bucket, prepared, row_group, next: 0, seen: 0, alone: None };
        if !reader.row_group.blocks().is_complete {
            let row_group = Arc::clone(&reader.row_group);
            let mut open = row_group.reader.lock().await;
            reader.open_stored(&mut open).await?;
        }
        Ok(reader)
    }

    fn row_group(&self, index: usize) -> Arc<DividedRowGroup> {
        let mut open = lock(&self.open);
        if let Some(row_group) = open.get(&index).and_then(Weak::upgrade) {
            return row_group;
        }
        open.retain(|_, row_group| row_group.strong_count() > 0);
        let row_group =
            Arc::new(DividedRowGroup { index, blocks: Mutex::default(), reader: tokio::sync::Mutex::default() });
        open.insert(index, Arc::downgrade(&row_group));
        row_group
    }

    /// Keeps the rows of a block, and drops the earliest ones of buckets that have too many.
    fn keep(&self, row_group: &Arc<DividedRowGroup>, (block, stored): (DividedBlock, u64)) {
        let counts = block.counts.clone();
        // Locked first: rows are counted before they can be taken.
        let mut kept = lock(&self.kept);
        let index = row_group.blocks().add(block, stored);
        for (bucket, (kept, count)) in kept.iter_mut().zip(counts).enumerate().filter(|(_, (_, count))| *count > 0) {
            kept.rows += count;
            kept.blocks.push_back((Arc::clone(row_group), index));
            while let Some((row_group, index)) = kept.blocks.front() {
                let taken = {
                    let mut blocks = row_group.blocks();
                    let is_kept = blocks.blocks[*index].rows[bucket].is_some();
                    if is_kept && kept.rows <= kept.limit {
                        break;
                    }
                    blocks.blocks[*index].rows[bucket].take()
                };
                kept.rows -= taken.map_or(0, |rows| rows.rows.num_rows() as u64);
                kept.blocks.pop_front();
            }
        }
    }

    /// Notes that a reader has rows of a bucket.
    fn taken(&self, bucket: usize, rows: u64) {
        lock(&self.kept)[bucket].rows -= rows;
    }
}

impl DividedRowGroup {
    fn blocks(&self) -> MutexGuard<'_, DividedBlocks> {
        lock(&self.blocks)
    }
}

impl DividedBlocks {
    /// Adds a block of so many stored rows, and returns its index.
    fn add(&mut self, block: DividedBlock, stored: u64) -> usize {
        self.stored += stored;
        self.blocks.push(block);
        self.blocks.len() - 1
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

// === impl DividedReader ===

impl DividedReader {
    /// Returns the rows of the next block that has some of the bucket's from `skip` on, of which those up to `end` can be read;
    /// counts those before them in `seen`. Decodes, if the bucket is read alone: run it on the CPU pool.
    pub(super) fn next_block(
        &mut self,
        Range { start: skip, end }: Range<u64>,
        seen: &mut u64,
        times: &mut StageTimes,
    ) -> Result<Next<RunRows>, StreamError> {
        if self.alone.is_some() {
            return self.next_alone(skip.saturating_sub(*seen), times);
        }
        self.seen = *seen;
        let mut blocks = self.row_group.blocks();
        while let Some(block) = blocks.blocks.get_mut(self.next) {
            let count = block.counts[self.bucket];
            if count > 0 && self.seen + count > skip {
                // Another lane of the bucket may read the rows that this one does not.
                let is_whole = self.seen >= skip && self.seen + count <= end;
                let rows = &mut block.rows[self.bucket];
                let found = if is_whole { rows.take() } else { rows.clone() };
                drop(blocks);
                let Some(found) = found else { return Ok(Next::Blocked) };
                if is_whole {
                    self.divided.taken(self.bucket, count);
                }
                self.next += 1;
                return Ok(Next::Rows(RunRows::Stored(found)));
            }
            (self.next, self.seen) = (self.next + 1, self.seen + count);
            *seen = self.seen;
        }
        Ok(if blocks.is_complete { Next::End } else { Next::Blocked })
    }

    /// Waits until the next block is decoded, and decodes it if no other reader does.
    pub(super) async fn prepare(&mut self, times: &mut StageTimes) -> Result<(), StreamError> {
        if let Some((alone, _)) = &mut self.alone {
            return alone.complete(times).await;
        }
        if self.is_decoded() {
            return self.read_alone(times).await;
        }
        let row_group = Arc::clone(&self.row_group);
        // While another bucket's reader decodes, no CPU thread is missing.
        self.await_turn().await;
        let mut open = row_group.reader.lock().await;
        if self.is_decoded() || row_group.blocks().is_complete {
            return Ok(());
        }
        let start = Instant::now();
        self.open_stored(&mut open).await?;
        let Some(reader) = open.take() else { return Ok(()) };
        times.add_opened(start, reader.fetch_time());
        let scan = self.divided.all.scan(&self.divided.environment);
        let sink = OneBlock { divider: Arc::clone(&self.divided.divider), block: None };
        let (reader, OneBlock { block, .. }, flow) = drive(&scan, row_group.index, (reader, sink), times).await?;
        match block {
            Some(block) => self.divided.keep(&row_group, block),
            None => row_group.blocks().is_complete = true,
        }
        self.divided.note_change();
        if flow.is_break() {
            *open = Some(reader);
        }
        Ok(())
    }

    /// Waits until the next block is decoded, or a step of the bucket is near.
    async fn await_turn(&mut self) {
        let mut changes = self.divided.changes.subscribe();
        while self.divided.near[self.bucket].load(Ordering::SeqCst) == 0
            && !self.is_decoded()
            && !self.row_group.blocks().is_complete
        {
            // The sender is that of the row groups, which outlive their readers.
            if changes.changed().await.is_err() {
                return;
            }
        }
    }

    fn is_decoded(&self) -> bool {
        self.next < self.row_group.blocks().blocks.len()
    }

    /// Opens the row group at the next block, unless it is open.
    async fn open_stored(&mut self, reader: &mut Option<RowReader>) -> Result<(), StreamError> {
        if reader.is_none() {
            let DividedRowGroups { environment, all, chunks, .. } = &*self.divided;
            let rows = self.row_group.blocks().stored..ALL_ROWS.end;
            *reader = Some(stored::open(environment, all, chunks.as_ref(), self.row_group.index, rows).await?);
        }
        Ok(())
    }

    /// Reads the bucket's rows alone from now on.
    async fn read_alone(&mut self, times: &mut StageTimes) -> Result<(), StreamError> {
        let (start, DividedRowGroups { environment, chunks, .. }) = (Instant::now(), &*self.divided);
        let reader = stored::open(environment, &self.prepared, chunks.as_ref(), self.row_group.index, ALL_ROWS).await?;
        times.add_opened(start, reader.fetch_time());
        self.alone = Some((reader, self.seen));
        Ok(())
    }

    fn next_alone(&mut self, skip: u64, times: &mut StageTimes) -> Result<Next<RunRows>, StreamError> {
        while let Some((reader, returned)) = &mut self.alone {
            let passing = match reader.next_part((*returned + skip, None), times)? {
                Next::Rows(part) => part.next.passing,
                Next::Blocked => return Ok(Next::Blocked),
                Next::End => return Ok(Next::End),
            };
            let count = passing.rows.num_rows();
            // At most the number of rows.
            let first = (*returned).min(count as u64) as usize;
            *returned -= first as u64;
            if first < count {
                return Ok(Next::Rows(RunRows::Stored(passing.slice(first..count))));
            }
        }
        Ok(Next::End)
    }
}

// === impl OneBlock ===

impl RowSink<NextRows> for OneBlock {
    type Output = ();

    fn add(&mut self, rows: NextRows, times: &mut StageTimes) -> Result<Option<()>, StreamError> {
        let start = Instant::now();
        self.block = Some((self.divider.divide(&rows.passing)?, rows.stored));
        times.add_since(Stage::Transform, start);
        Ok(Some(()))
    }

    async fn take(&mut self, (): (), _: &mut StageTimes) -> Result<ControlFlow<()>, StreamError> {
        Ok(ControlFlow::Break(()))
    }
}

impl Divider {
    fn divide(&self, passing: &Passing) -> Result<DividedBlock, StreamError> {
        let name = &self.column.name;
        let lengths = passing.rows.column_by_name(name);
        let lengths = lengths.ok_or_else(|| KernelError::MissingColumn { column: name.clone() })?;
        let found = self.column.buckets_of(lengths)?.unwrap_or_else(|| vec![0; 0].into());
        let mut block = DividedBlock { counts: Vec::new(), rows: Vec::new() };
        for number in &self.numbers {
            let is_of = BooleanArray::from_unary(&found, |found| found == *number);
            let count = is_of.true_count();
            block.counts.push(count as u64);
            block.rows.push(if count == 0 { None } else { Some(passing.only(&is_of)?) });
        }
        Ok(block)
    }
}
