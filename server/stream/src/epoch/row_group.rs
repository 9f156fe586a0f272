//! A row group being read: its passing rows, run by run, from any piece of it. Rows come from the cache if
//! their row group is in it.

use std::{ops::Range, sync::Arc, time::Duration};

use forebay_cache::{CachedChunks, PlanRows};
use forebay_order::Piece;
use forebay_runtime::metrics::{self, StageTimes};
use forebay_scan::{ALL_ROWS, SharedBytes};

use super::{
    balanced::BalancedReader,
    cached::CachedReader,
    divided::{DividedReader, DividedRowGroups},
    packed::PackedReader,
    run::{Run, RunRows},
    sequences::SequencesReader,
    stored::{self, stored_rows},
    windowed::{ComputedRows, WindowedReader},
};
use crate::{
    environment::Environment,
    error::StreamError,
    prepare::{
        cache_level::CacheLevel,
        dataset::{PreparedDataset, Units},
        drawn::RowDraws,
    },
    rows::{
        drive::{Next, RowSource},
        reader::{PartOfBlock, RowReader},
    },
};

/// Opens the row groups of a stream. Cheap to clone.
#[derive(Clone)]
pub(crate) struct RowGroupOpener {
    pub environment: Arc<Environment>,
    pub prepared: PreparedDataset,
    /// The plan's rows in the cache, and their bytes; none if they are not cached.
    cached: Option<(Arc<PlanRows>, u64)>,
    /// The snapshot's column chunks in the cache; none if they are not cached for this plan.
    chunks: Option<Arc<CachedChunks>>,
    /// The row groups that the buckets of a stream read together, and the index of the bucket; none: they are read alone.
    divided: Option<(Arc<DividedRowGroups>, usize)>,
}

/// A row group being read, up to the last run.
pub(crate) struct OpenRowGroup {
    /// The row group's index in the snapshot.
    index: usize,
    source: RowGroupSource,
    /// Passing rows before the next one.
    seen: u64,
    /// Passing rows up to the last one that can be read.
    end: u64,
    /// Whether the rows are copied to other places, so that no byte of a batch depends on the rows around its own.
    is_copied: bool,
    /// The block read last, and how many of its passing rows have been returned.
    pending: Option<(RunRows, usize)>,
}

/// The source of the rows.
enum RowGroupSource {
    Stored(Box<RowReader>),
    /// A row group for which the cache, which is on, has no room.
    Missed(Box<RowReader>),
    Cached(Box<CachedReader>),
    /// Rows are repeated and left out.
    Balanced(Box<BalancedReader>),
    /// The rows are sequences.
    Packed(Box<PackedReader>),
    /// Some of a row group's sequences.
    Sequences(Box<SequencesReader>),
    /// The rows are windows.
    Windowed(Box<WindowedReader>),
    /// Other buckets have the other rows.
    Divided(Box<DividedReader>),
}

// === impl RowGroupOpener ===

impl RowGroupOpener {
    /// Opens row groups for a stream. With `admits`, the rows that it computes are cached.
    pub(crate) fn new(environment: &Arc<Environment>, prepared: &PreparedDataset, admits: bool) -> Self {
        let (cache, mut cached, mut chunks) = (&environment.cache, None, None);
        match prepared.cache_level(cache.capacity()) {
            CacheLevel::Rows(row_bytes) => {
                let plan = cache.open(prepared.rows_key(), admits);
                cached = plan.map(|plan| (Arc::new(plan), row_bytes));
            }
            CacheLevel::Chunks => chunks = cache.open_chunks(prepared.chunks_key(), admits).map(Arc::new),
            CacheLevel::Off => {}
        }
        Self { environment: Arc::clone(environment), prepared: prepared.clone(), cached, chunks, divided: None }
    }

    /// Reads the rows of a bucket together with those of the others, unless they are cached.
    pub(super) fn divided(self, row_groups: &Arc<DividedRowGroups>, bucket: usize) -> Self {
        let divided = self.cached.is_none().then(|| (Arc::clone(row_groups), bucket));
        Self { divided, ..self }
    }

    /// The snapshot's column chunks in the cache.
    pub(super) fn chunks(&self) -> Option<&Arc<CachedChunks>> {
        self.chunks.as_ref()
    }

    /// The bytes of a row group: while they are held, all who open it share them.
    pub(super) fn shared(&self, row_group: usize) -> Arc<SharedBytes> {
        stored::shared(&self.environment, &self.prepared, self.chunks.as_ref(), row_group)
    }

    /// Opens a piece's row group, to copy `rows` passing rows from the piece's first one on, at least the piece. Fetches
    /// their bytes, unless another reader has them or the rows are cached.
    pub(crate) async fn open(&self, piece: Piece, rows: u64) -> Result<OpenRowGroup, StreamError> {
        self.open_continuing(piece, rows, false).await
    }

    async fn open_continuing(&self, piece: Piece, rows: u64, continues: bool) -> Result<OpenRowGroup, StreamError> {
        let end = piece.skip.saturating_add(rows.max(piece.take));
        if let Some(windows) = self.prepared.windows() {
            let (chunks, of_group) = (self.chunks.as_ref(), (piece.row_group, piece.skip..end));
            let reader =
                WindowedReader::open(&self.environment, &self.prepared, chunks, windows, of_group, continues).await?;
            let source = RowGroupSource::Windowed(Box::new(reader));
            return Ok(OpenRowGroup {
                index: piece.row_group,
                source,
                seen: piece.skip,
                end,
                is_copied: true,
                pending: None,
            });
        }
        let needed = needed_rows(&self.prepared, piece.row_group, &(piece.skip..end));
        if let Some((plan, row_bytes)) = &self.cached
            && let Some((reader, seen)) =
                CachedReader::open(&self.environment, &self.prepared, (plan, *row_bytes), piece, needed.end).await?
        {
            let source = RowGroupSource::Cached(Box::new(reader));
            return Ok(OpenRowGroup { index: piece.row_group, source, seen, end, is_copied: true, pending: None });
        }
        if let Units::Sequences(output) = &self.prepared.units
            && end - piece.skip < self.prepared.epoch.passing()[piece.row_group]
            && let Some(reader) =
                SequencesReader::new(&self.environment, &self.prepared, self.chunks.as_ref(), output, piece.row_group)
        {
            let source = RowGroupSource::Sequences(Box::new(reader));
            return Ok(OpenRowGroup { index: piece.row_group, source, seen: 0, end, is_copied: true, pending: None });
        }
        if let Some((row_groups, bucket)) = &self.divided {
            let reader = row_groups.open(*bucket, &self.prepared, piece.row_group).await?;
            let source = RowGroupSource::Divided(Box::new(reader));
            return Ok(OpenRowGroup { index: piece.row_group, source, seen: 0, end, is_copied: true, pending: None });
        }
        let unread = needed.start;
        let chunks = self.chunks.as_ref();
        let stored = stored::open(&self.environment, &self.prepared, chunks, piece.row_group, needed).await?;
        let budget = &self.environment.budget;
        let source = match &self.prepared.units {
            Units::Drawn(drawn) => {
                let draws = RowDraws::new(drawn, piece.row_group);
                RowGroupSource::Balanced(Box::new(BalancedReader::new(stored, draws, budget)))
            }
            Units::Sequences(output) => RowGroupSource::Packed(Box::new(PackedReader::new(stored, output, budget))),
            Units::Rows | Units::Windows(_) if self.cached.is_some() => RowGroupSource::Missed(Box::new(stored)),
            Units::Rows | Units::Windows(_) => RowGroupSource::Stored(Box::new(stored)),
        };
        Ok(OpenRowGroup { index: piece.row_group, source, seen: unread, end, is_copied: true, pending: None })
    }

    /// The same for a piece whose rows stay together. With `continues`, it follows another one, see
    /// [`OpenRowGroup::continue_from`].
    pub(crate) async fn open_in_order(&self, piece: Piece, continues: bool) -> Result<OpenRowGroup, StreamError> {
        let opened = self.open_continuing(piece, piece.take, continues).await?;
        Ok(OpenRowGroup { is_copied: false, ..opened })
    }
}

/// The stored rows of a row group that are decoded for these of the epoch's rows. Windows also have rows of other row groups.
pub(crate) fn needed_rows(prepared: &PreparedDataset, row_group: usize, rows: &Range<u64>) -> Range<u64> {
    match &prepared.units {
        Units::Rows => stored_rows(prepared, row_group, rows),
        Units::Windows(windows) => stored_rows(prepared, row_group, &windows.rows_in(row_group, rows)),
        Units::Drawn(_) | Units::Sequences(_) => ALL_ROWS,
    }
}

// === impl OpenRowGroup ===

impl OpenRowGroup {
    /// The time that storage took.
    pub(crate) fn fetch_time(&self) -> Duration {
        match &self.source {
            RowGroupSource::Stored(stored) | RowGroupSource::Missed(stored) => stored.fetch_time(),
            RowGroupSource::Cached(cached) => cached.fetch_time(),
            RowGroupSource::Balanced(balanced) => balanced.stored.fetch_time(),
            RowGroupSource::Packed(packed) => packed.stored.fetch_time(),
            RowGroupSource::Sequences(_) | RowGroupSource::Divided(_) => Duration::ZERO,
            RowGroupSource::Windowed(windowed) => windowed.fetch_time(),
        }
    }

    /// Whether a piece is ahead in this row group, and can be read.
    pub(crate) fn leads_to(&self, piece: &Piece) -> bool {
        self.index == piece.row_group && self.seen <= piece.skip && piece.skip + piece.take <= self.end
    }

    /// Whether the next run of a piece needs no CPU job: its rows are finished.
    pub(crate) fn is_finished(&mut self, piece: &Piece) -> bool {
        match (&self.pending, &mut self.source) {
            (Some((rows, _)), _) => matches!(rows, RunRows::Finished(_)),
            (None, RowGroupSource::Cached(cached)) => cached.is_finished(piece.skip, &mut self.seen),
            (None, _) => false,
        }
    }

    /// Returns the next passing rows of a piece, all of one block. Decodes: run it on the CPU pool, unless
    /// [`Self::is_finished`].
    pub(crate) fn next_run(&mut self, piece: &Piece, times: &mut StageTimes) -> Result<Next<Run>, StreamError> {
        let end = piece.skip + piece.take;
        while self.seen < end {
            let (block, first) = match self.pending.take() {
                Some(pending) => pending,
                None => match self.next_block(piece, times)? {
                    Next::Rows(block) => (block, 0),
                    Next::Blocked => return Ok(Next::Blocked),
                    Next::End => return Ok(Next::End),
                },
            };
            let count = (block.len() - first) as u64;
            let skipped = piece.skip.saturating_sub(self.seen).min(count);
            let taken = (count - skipped).min(end - self.seen - skipped);
            let start = first + skipped as usize;
            let range = start..start + taken as usize;
            self.seen += skipped + taken;
            if range.end < block.len() {
                self.pending = Some((block.clone(), range.end));
            }
            if !range.is_empty() {
                return Ok(Next::Rows(Run { rows: block, range }));
            }
        }
        Ok(Next::End)
    }

    /// Waits until [`Self::next_run`] is not blocked: until no other reader computes the next block, and if this one has
    /// to, until the bytes are fetched and the functions have returned.
    pub(crate) async fn prepare(&mut self, times: &mut StageTimes) -> Result<(), StreamError> {
        match &mut self.source {
            RowGroupSource::Stored(stored) | RowGroupSource::Missed(stored) => stored.complete(times).await,
            RowGroupSource::Cached(cached) => cached.prepare(times).await,
            RowGroupSource::Balanced(balanced) => balanced.stored.complete(times).await,
            RowGroupSource::Packed(packed) => packed.ready(times).await,
            RowGroupSource::Sequences(sequences) => sequences.prepare(times).await,
            RowGroupSource::Windowed(windowed) => windowed.prepare(times).await,
            RowGroupSource::Divided(divided) => divided.prepare(times).await,
        }
    }

    /// Takes over the rows that the reader of the piece before has computed, so that they are not read again.
    pub(crate) fn continue_from(&mut self, rows: ComputedRows) {
        if let RowGroupSource::Windowed(reader) = &mut self.source {
            reader.take_over(rows);
        }
    }

    /// The rows that windows of the next row group have, too.
    pub(crate) fn into_computed(self) -> Option<ComputedRows> {
        if let RowGroupSource::Windowed(reader) = self.source { Some(reader.into_rows()) } else { None }
    }

    /// Whether all rows of a piece have been returned.
    pub(crate) fn is_past(&self, piece: &Piece) -> bool {
        self.seen >= piece.skip + piece.take
    }

    fn next_block(&mut self, piece: &Piece, times: &mut StageTimes) -> Result<Next<RunRows>, StreamError> {
        let skip = piece.skip.saturating_sub(self.seen);
        let end = self.is_copied.then(|| self.end - self.seen);
        let (next, is_missed) = match &mut self.source {
            RowGroupSource::Stored(stored) => (stored.next_part((skip, end), times)?, false),
            RowGroupSource::Missed(stored) => (stored.next_part((skip, end), times)?, true),
            RowGroupSource::Cached(cached) => return cached.next_block(piece.skip, &mut self.seen, times),
            RowGroupSource::Balanced(balanced) => return balanced.next_block(times),
            RowGroupSource::Packed(packed) => return packed.next(times),
            RowGroupSource::Sequences(sequences) => return Ok(sequences.next_block()),
            RowGroupSource::Windowed(windowed) => return windowed.next_block(piece.skip, &mut self.seen, times),
            RowGroupSource::Divided(divided) => {
                return divided.next_block(piece.skip..self.end, &mut self.seen, times);
            }
        };
        Ok(next.map(|PartOfBlock { next, before }| {
            if is_missed && before + next.passing.rows.num_rows() as u64 > skip {
                metrics::cache_blocks(false, 1);
            }
            self.seen += before;
            RunRows::Stored(next.passing)
        }))
    }
}
