//! The finished rows of one row group, block by block.
//!
//! A block is missing, claimed or finished, and missing ones may be on disk. One reader claims a missing block for as long as a CPU job decodes and
//! computes it, and never while it waits for a client; others wait for the claim to end without blocking a thread, for at
//! most [`CLAIM_WAIT_MAX`]. A claim that is dropped, after an error or with its stream, leaves the block missing.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use arrow::array::RecordBatch;
use tokio::{sync::watch, time};

use super::disk::DiskRowGroup;

/// The longest wait for a block that another reader claimed. Longer than a block takes on a busy machine: a reader that waits
/// no longer computes the block a second time.
pub const CLAIM_WAIT_MAX: Duration = Duration::from_secs(5);

/// Bytes that a finished block takes besides its rows: arrays, buffers and its place.
const BLOCK_BYTES: u64 = 1024;

/// The blocks of a row group: as many stored rows each, except the last one.
#[derive(Clone, Copy, Debug)]
pub struct RowGroupBlocks {
    /// Stored rows of the row group.
    pub stored: u64,
    /// Those that pass.
    pub passing: u64,
    /// Stored rows of a block.
    pub block_rows: u64,
    /// Bytes of a finished row.
    pub row_bytes: u64,
}

/// The finished rows of a row group, as far as they have been computed.
#[derive(Debug)]
pub struct CachedRowGroup {
    blocks: Mutex<Vec<Block>>,
    changes: watch::Sender<()>,
    /// Its blocks on disk, if there is a disk tier.
    disk: Option<DiskRowGroup>,
    /// Whether finished rows stay in memory. If not, they are only written to disk.
    retains: bool,
}

/// The right and the duty to compute a block. Dropping it lets another reader compute the block.
#[derive(Debug)]
pub struct BlockClaim {
    group: Arc<CachedRowGroup>,
    block: usize,
}

#[derive(Debug)]
struct Block {
    /// The number of its passing rows, once it is known.
    passing: Option<u64>,
    rows: BlockRows,
}

#[derive(Debug)]
enum BlockRows {
    Missing,
    Claimed,
    Finished(RecordBatch),
}

// === impl RowGroupBlocks ===

impl RowGroupBlocks {
    /// Bytes of the finished rows.
    pub fn bytes(&self) -> u64 {
        let blocks = self.stored.div_ceil(self.block_rows.max(1));
        self.passing.saturating_mul(self.row_bytes).saturating_add(blocks.saturating_mul(BLOCK_BYTES))
    }

    /// The number of blocks.
    pub(super) fn count(&self) -> usize {
        self.stored.div_ceil(self.block_rows.max(1)) as usize
    }

    /// Stored rows of a block.
    pub fn stored_in(&self, block: usize) -> u64 {
        let start = (block as u64).saturating_mul(self.block_rows);
        self.stored.saturating_sub(start).min(self.block_rows)
    }
}

// === impl CachedRowGroup ===

impl CachedRowGroup {
    /// A row group of which no block is in memory. [`RowGroupBlocks::bytes`] bounds the number of blocks.
    pub(super) fn new(blocks: &RowGroupBlocks, disk: Option<DiskRowGroup>, retains: bool) -> Self {
        let count = blocks.count();
        let all_pass = blocks.passing == blocks.stored;
        let on_disk = |index| disk.as_ref().and_then(|disk| disk.rows_of(index));
        let passing = |index| if all_pass { Some(blocks.stored_in(index)) } else { on_disk(index) };
        let block = |index| Block { passing: passing(index), rows: BlockRows::Missing };
        let blocks = Mutex::new((0..count).map(block).collect());
        Self { blocks, changes: watch::Sender::new(()), disk, retains }
    }

    /// Whether a block is not in memory but on disk.
    pub fn is_on_disk(&self, block: usize) -> bool {
        self.disk.as_ref().is_some_and(|disk| disk.rows_of(block).is_some())
    }

    /// Reads a block from disk, and keeps it in memory if the row group is there; none if it is not on disk, or damaged.
    pub async fn load(self: &Arc<Self>, block: usize) -> Option<RecordBatch> {
        let disk = self.disk.as_ref()?;
        // Another reader that began to compute the block finishes it.
        let claim = self.claim(block);
        let rows = disk.load(block, self.passing(block)).await?;
        if let Some(claim) = claim {
            claim.keep(rows.clone());
        }
        Some(rows)
    }

    /// Lets the finished blocks be written that are not on disk, before the row group leaves the memory.
    pub(super) fn offer_to_disk(&self) {
        let Some(disk) = &self.disk else { return };
        for (index, block) in self.blocks().iter().enumerate() {
            if let BlockRows::Finished(rows) = &block.rows {
                disk.offer(index, rows);
            }
        }
    }

    /// The passing rows of a block; none if they are not known, or if there is no such block.
    pub fn passing(&self, block: usize) -> Option<u64> {
        self.blocks().get(block)?.passing
    }

    /// Whether a block is after the last one.
    pub fn is_past_end(&self, block: usize) -> bool {
        block >= self.blocks().len()
    }

    /// The rows of a block, if they are finished.
    pub fn finished(&self, block: usize) -> Option<RecordBatch> {
        match &self.blocks().get(block)?.rows {
            BlockRows::Finished(rows) => Some(rows.clone()),
            BlockRows::Missing | BlockRows::Claimed => None,
        }
    }

    /// The first block that is not finished among those with the next `rows` passing rows, from a block on.
    pub fn first_unfinished(&self, from: usize, rows: u64) -> Option<usize> {
        let (blocks, mut left) = (self.blocks(), rows);
        for (index, block) in blocks.iter().enumerate().skip(from) {
            match (&block.rows, block.passing) {
                _ if left == 0 => return None,
                (BlockRows::Finished(finished), _) => left = left.saturating_sub(finished.num_rows() as u64),
                (_, Some(0)) => {}
                (BlockRows::Missing, Some(passing)) if self.is_on_disk(index) => left = left.saturating_sub(passing),
                _ => return Some(index),
            }
        }
        None
    }

    /// Claims a block, unless it is finished or claimed.
    pub fn claim(self: &Arc<Self>, block: usize) -> Option<BlockClaim> {
        let mut blocks = self.blocks();
        let missing = blocks.get_mut(block).filter(|block| matches!(block.rows, BlockRows::Missing))?;
        missing.rows = BlockRows::Claimed;
        Some(BlockClaim { group: Arc::clone(self), block })
    }

    /// Waits until a block is not claimed, but no longer than [`CLAIM_WAIT_MAX`]. Returns whether it is not.
    pub async fn unclaimed(&self, block: usize) -> bool {
        let mut changes = self.changes.subscribe();
        let released = async {
            // The sender is in `self`.
            while self.is_claimed(block) && changes.changed().await.is_ok() {}
        };
        time::timeout(CLAIM_WAIT_MAX, released).await.is_ok()
    }

    fn is_claimed(&self, block: usize) -> bool {
        self.blocks().get(block).is_some_and(|block| matches!(block.rows, BlockRows::Claimed))
    }

    fn blocks(&self) -> MutexGuard<'_, Vec<Block>> {
        self.blocks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl BlockClaim ===

impl BlockClaim {
    /// Keeps the finished rows of the block, and lets them be written to disk.
    pub fn finish(self, rows: RecordBatch) {
        if let Some(disk) = &self.group.disk {
            disk.offer(self.block, &rows);
        }
        self.keep(rows);
    }

    /// Keeps the rows of the block.
    fn keep(self, rows: RecordBatch) {
        if let Some(block) = self.group.blocks().get_mut(self.block) {
            block.passing = Some(rows.num_rows() as u64);
            block.rows = if self.group.retains { BlockRows::Finished(rows) } else { BlockRows::Missing };
        }
    }

    /// Keeps the number of the block's passing rows. The block is missing again.
    pub fn count(self, passing: u64) {
        if let Some(block) = self.group.blocks().get_mut(self.block) {
            block.passing = Some(passing);
        }
    }
}

impl Drop for BlockClaim {
    fn drop(&mut self) {
        if let Some(block) = self.group.blocks().get_mut(self.block)
            && matches!(block.rows, BlockRows::Claimed)
        {
            block.rows = BlockRows::Missing;
        }
        self.group.changes.send_replace(());
    }
}
