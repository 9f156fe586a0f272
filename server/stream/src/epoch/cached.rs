//! A row group in the cache of finished rows: takes the blocks that are in memory or on disk, computes the
//! missing ones for all streams, and waits for those that another stream computes, but not without end: after
//! [`CLAIM_WAIT_MAX`](forebay_cache::CLAIM_WAIT_MAX) it computes a block for itself.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use arrow::array::RecordBatch;
use forebay_cache::{BlockClaim, CachedRowGroup, PlanRows, RowGroupBlocks};
use forebay_kernels::compact;
use forebay_order::Piece;
use forebay_runtime::metrics::{self, Stage, StageTimes};
use forebay_scan::SharedBytes;

use super::run::RunRows;
use crate::{
    device::Workspace,
    environment::Environment,
    error::StreamError,
    prepare::{cache_level::file_state, dataset::PreparedDataset, ordered::Ordered},
    rows::{drive::Next, history::blocks::BlockReader, passing::Passing},
};

/// A row group that the cache has room for.
pub(super) struct CachedReader {
    environment: Arc<Environment>,
    prepared: PreparedDataset,
    row_group: usize,
    /// The stored rows up to the last one that is read.
    end: u64,
    group: Arc<CachedRowGroup>,
    blocks: RowGroupBlocks,
    /// The index of the next block.
    block: usize,
    /// A block that was read from disk, and its index.
    loaded: Option<(usize, RecordBatch)>,
    /// Decodes the blocks from this index on; none: no block had to be computed yet.
    reader: Option<(BlockReader, usize)>,
    /// The row group's bytes, which survive a change of the reader.
    bytes: Arc<SharedBytes>,
    workspace: Workspace,
    /// The next block, derived, while it gets the columns of functions.
    derived: Option<DerivedBlock>,
    /// A block that is computed without waiting: another reader claimed it for too long, or its file is damaged.
    unawaited: Option<usize>,
    fetch_time: Duration,
    /// Keeps the rows from being evicted. Last, so that the row group is released before.
    _plan: Arc<PlanRows>,
}

/// A block whose rows the kernels have not computed.
struct DerivedBlock {
    /// None: the rows are for this reader alone.
    claim: Option<BlockClaim>,
    passing: Passing,
    /// Whether it has the columns of functions.
    is_complete: bool,
}

impl CachedReader {
    /// Opens a piece's row group, to read rows up to the stored row `end`, and returns the number of passing rows before
    /// the next block; none if the cache has no room for it. Fetches their bytes unless all blocks of the piece are
    /// finished.
    pub(super) async fn open(
        environment: &Arc<Environment>,
        prepared: &PreparedDataset,
        (plan, row_bytes): (&Arc<PlanRows>, u64),
        piece: Piece,
        end: u64,
    ) -> Result<Option<(Self, u64)>, StreamError> {
        let blocks = prepared.row_group_blocks(piece.row_group, row_bytes);
        let file = file_state(&prepared.snapshot, piece.row_group);
        let Some(group) = plan.group(piece.row_group, &file, &blocks) else { return Ok(None) };
        let projection = &prepared.compiled.rows.projection;
        let mut opened = Self {
            environment: Arc::clone(environment),
            prepared: prepared.clone(),
            row_group: piece.row_group,
            end,
            group,
            blocks,
            block: 0,
            loaded: None,
            reader: None,
            bytes: environment.sharing.bytes_of(&prepared.snapshot, piece.row_group, projection, None),
            workspace: Workspace::default(),
            derived: None,
            unawaited: None,
            fetch_time: Duration::ZERO,
            _plan: Arc::clone(plan),
        };
        let mut seen = 0;
        opened.pass_over(piece.skip, &mut seen);
        let rows = (piece.skip + piece.take).saturating_sub(seen);
        if let Some(unfinished) = opened.group.first_unfinished(opened.block, rows) {
            opened.read_from(unfinished).await?;
        }
        Ok(Some((opened, seen)))
    }

    pub(super) fn fetch_time(&self) -> Duration {
        self.fetch_time
    }

    /// Whether [`Self::next_block`] returns a finished block.
    pub(super) fn is_finished(&mut self, skip: u64, seen: &mut u64) -> bool {
        self.pass_over(skip, seen);
        self.finished().is_some()
    }

    /// The rows of the next block, if they are in memory or were read from disk.
    fn finished(&self) -> Option<RecordBatch> {
        let loaded = self.loaded.as_ref().filter(|(block, _)| *block == self.block);
        loaded.map(|(_, rows)| rows.clone()).or_else(|| self.group.finished(self.block))
    }

    /// Returns the next block: from the cache, or computed. Passes over blocks before the first `skip` passing rows, of
    /// which it has `seen` some.
    pub(super) fn next_block(
        &mut self,
        skip: u64,
        seen: &mut u64,
        times: &mut StageTimes,
    ) -> Result<Next<RunRows>, StreamError> {
        self.pass_over(skip, seen);
        if self.group.is_past_end(self.block) {
            return Ok(Next::End);
        }
        // First: its claim is this reader's, which must not wait for it, whatever others did to the block meanwhile.
        if let Some(derived) = self.derived.take_if(|derived| derived.is_complete) {
            self.block += 1;
            return Ok(Next::Rows(self.finish(derived.claim, derived.passing, times)));
        }
        if let Some(finished) = self.finished() {
            metrics::cache_blocks(true, 1);
            self.loaded = None;
            self.block += 1;
            return Ok(Next::Rows(RunRows::Finished(finished)));
        }
        let is_awaited = self.unawaited != Some(self.block);
        if self.derived.is_some() || is_awaited && self.group.is_on_disk(self.block) {
            return Ok(Next::Blocked);
        }
        let Some((reader, _)) = self.reader.as_mut().filter(|(_, next)| *next == self.block) else {
            return Ok(Next::Blocked);
        };
        let claim = self.group.claim(self.block);
        if claim.is_none() && is_awaited {
            return Ok(Next::Blocked);
        }
        let first_row = self.prepared.snapshot.row_groups()[self.row_group].rows.start
            + (self.block as u64).saturating_mul(self.blocks.block_rows);
        let Some(next) = self.prepared.compiled.rows.next(reader, first_row, times)? else { return Ok(Next::End) };
        // Blocks are found by their index: one of another size must not be cached, and no later one.
        if next.stored != self.blocks.stored_in(self.block) {
            return Err(self.prepared.miscounted());
        }
        let passing = next.passing.rows.num_rows() as u64;
        let is_skipped = *seen + passing <= skip;
        self.reader.as_mut().into_iter().for_each(|(_, next)| *next += 1);
        if !self.prepared.compiled.rows.functions().is_empty() && !is_skipped {
            self.derived = Some(DerivedBlock { claim, passing: next.passing, is_complete: false });
            return Ok(Next::Blocked);
        }
        self.block += 1;
        if is_skipped {
            if let Some(claim) = claim {
                claim.count(passing);
            }
            return Ok(Next::Rows(RunRows::Stored(next.passing)));
        }
        Ok(Next::Rows(self.finish(claim, next.passing, times)))
    }

    /// Computes a block, and keeps its finished rows if it was claimed.
    fn finish(&mut self, claim: Option<BlockClaim>, passing: Passing, times: &mut StageTimes) -> RunRows {
        metrics::cache_blocks(false, 1);
        let start = Instant::now();
        let finished = self.compute(&passing);
        times.add_since(Stage::Assemble, start);
        // A row that no output can hold fails only the streams that read it: they compute it, and report it.
        let Some(finished) = finished else { return RunRows::Stored(passing) };
        if let Some(claim) = claim {
            claim.finish(finished.clone());
        }
        RunRows::Finished(finished)
    }

    /// Waits until the next block is finished or read from disk, or this reader can compute it.
    pub(super) async fn prepare(&mut self, times: &mut StageTimes) -> Result<(), StreamError> {
        if let Some(DerivedBlock { claim, passing, .. }) = self.derived.take() {
            let scan = self.prepared.scan(&self.environment);
            let passing = scan.with_functions(passing, self.row_group, times).await?;
            self.derived = Some(DerivedBlock { claim, passing, is_complete: true });
            return Ok(());
        }
        let start = Instant::now();
        let ready = self.wait().await;
        times.add_since(Stage::Queue, start);
        ready
    }

    async fn wait(&mut self) -> Result<(), StreamError> {
        let mut is_available = self.group.unclaimed(self.block).await;
        if self.finished().is_none() && self.group.is_on_disk(self.block) {
            self.loaded = self.group.load(self.block).await.map(|rows| (self.block, rows));
            is_available = self.loaded.is_some();
        }
        if !is_available {
            self.unawaited = Some(self.block);
        }
        let is_ready = self.finished().is_some() || self.reader.as_ref().is_some_and(|(_, next)| *next == self.block);
        if is_ready { Ok(()) } else { self.read_from(self.block).await }
    }

    fn pass_over(&mut self, skip: u64, seen: &mut u64) {
        while let Some(passing) = self.group.passing(self.block)
            && (passing == 0 || *seen + passing <= skip)
        {
            *seen += passing;
            self.block += 1;
        }
    }

    /// Opens the decoders at a block.
    async fn read_from(&mut self, block: usize) -> Result<(), StreamError> {
        // Frees the memory of the earlier decoders.
        self.reader = None;
        let rows = (block as u64).saturating_mul(self.blocks.block_rows)..self.end;
        let reader = self.prepared.scan(&self.environment).open_blocks(self.row_group, rows, &self.bytes).await?;
        self.fetch_time += reader.fetch_time();
        self.reader = Some((reader, block));
        Ok(())
    }

    /// The finished rows of a block; none if a kernel fails.
    fn compute(&mut self, passing: &Passing) -> Option<RecordBatch> {
        let (rows, workspace) = (passing.rows.num_rows(), std::mem::take(&mut self.workspace));
        let mut builder = self.prepared.compiled.executable.builder(rows, workspace);
        let is_pinned = builder.is_on_gpu();
        let appended = builder.append(&passing.rows, 0..rows);
        let (finished, workspace) = builder.finish();
        self.workspace = workspace;
        let finished = appended.and(finished).ok()?;
        // The cache must not keep a GPU's pinned memory.
        if is_pinned { compact(&finished).ok() } else { Some(finished) }
    }
}
