//! The finished rows of one row group, chunk by chunk.
//!
//! A chunk is missing, claimed or finished, and missing ones may be on disk. One reader claims a missing chunk for as long as a CPU job decodes and
//! computes it, and never while it waits for a client; others wait for the claim to end without blocking a thread, for at
//! most [`CLAIM_WAIT_MAX`]. A claim that is dropped, after an error or with its stream, leaves the chunk missing.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use arrow::array::RecordBatch;
use tokio::{sync::watch, time};

use super::disk::DiskGroup;

/// The longest wait for a chunk that another reader claimed. Longer than a chunk takes on a busy machine: a reader that waits
/// no longer computes the chunk a second time.
pub const CLAIM_WAIT_MAX: Duration = Duration::from_secs(5);

/// Bytes that a finished chunk takes besides its rows: arrays, buffers and its place.
const CHUNK_BYTES: u64 = 1024;

/// The chunks of a row group: as many stored rows each, except the last one.
#[derive(Clone, Copy, Debug)]
pub struct GroupChunks {
    /// Stored rows of the row group.
    pub stored: u64,
    /// Those that pass.
    pub passing: u64,
    /// Stored rows of a chunk.
    pub chunk_rows: u64,
    /// Bytes of a finished row.
    pub row_bytes: u64,
}

/// The finished rows of a row group, as far as they have been computed.
#[derive(Debug)]
pub struct CachedGroup {
    chunks: Mutex<Vec<Chunk>>,
    changes: watch::Sender<()>,
    /// Its chunks on disk, if there is a disk tier.
    disk: Option<DiskGroup>,
    /// Whether finished rows stay in memory. If not, they are only written to disk.
    retains: bool,
}

/// The right and the duty to compute a chunk. Dropping it lets another reader compute the chunk.
#[derive(Debug)]
pub struct ChunkClaim {
    group: Arc<CachedGroup>,
    chunk: usize,
}

#[derive(Debug)]
struct Chunk {
    /// The number of its passing rows, once it is known.
    passing: Option<u64>,
    rows: ChunkRows,
}

#[derive(Debug)]
enum ChunkRows {
    Missing,
    Claimed,
    Finished(RecordBatch),
}

// === impl GroupChunks ===

impl GroupChunks {
    /// Bytes of the finished rows.
    pub fn bytes(&self) -> u64 {
        let chunks = self.stored.div_ceil(self.chunk_rows.max(1));
        self.passing.saturating_mul(self.row_bytes).saturating_add(chunks.saturating_mul(CHUNK_BYTES))
    }

    /// The number of chunks.
    pub(super) fn count(&self) -> usize {
        self.stored.div_ceil(self.chunk_rows.max(1)) as usize
    }

    /// Stored rows of a chunk.
    pub fn stored_in(&self, chunk: usize) -> u64 {
        let start = (chunk as u64).saturating_mul(self.chunk_rows);
        self.stored.saturating_sub(start).min(self.chunk_rows)
    }
}

// === impl CachedGroup ===

impl CachedGroup {
    /// A row group of which no chunk is in memory. [`GroupChunks::bytes`] bounds the number of chunks.
    pub(super) fn new(chunks: &GroupChunks, disk: Option<DiskGroup>, retains: bool) -> Self {
        let count = chunks.count();
        let all_pass = chunks.passing == chunks.stored;
        let on_disk = |index| disk.as_ref().and_then(|disk| disk.rows_of(index));
        let passing = |index| if all_pass { Some(chunks.stored_in(index)) } else { on_disk(index) };
        let chunk = |index| Chunk { passing: passing(index), rows: ChunkRows::Missing };
        let chunks = Mutex::new((0..count).map(chunk).collect());
        Self { chunks, changes: watch::Sender::new(()), disk, retains }
    }

    /// Whether a chunk is not in memory but on disk.
    pub fn is_on_disk(&self, chunk: usize) -> bool {
        self.disk.as_ref().is_some_and(|disk| disk.rows_of(chunk).is_some())
    }

    /// Reads a chunk from disk, and keeps it in memory if the row group is there; none if it is not on disk, or damaged.
    pub async fn load(self: &Arc<Self>, chunk: usize) -> Option<RecordBatch> {
        let disk = self.disk.as_ref()?;
        // Another reader that began to compute the chunk finishes it.
        let claim = self.claim(chunk);
        let rows = disk.load(chunk, self.passing(chunk)).await?;
        if let Some(claim) = claim {
            claim.keep(rows.clone());
        }
        Some(rows)
    }

    /// Lets the finished chunks be written that are not on disk, before the row group leaves the memory.
    pub(super) fn offer_to_disk(&self) {
        let Some(disk) = &self.disk else { return };
        for (index, chunk) in self.chunks().iter().enumerate() {
            if let ChunkRows::Finished(rows) = &chunk.rows {
                disk.offer(index, rows);
            }
        }
    }

    /// The passing rows of a chunk; none if they are not known, or if there is no such chunk.
    pub fn passing(&self, chunk: usize) -> Option<u64> {
        self.chunks().get(chunk)?.passing
    }

    /// Whether a chunk is after the last one.
    pub fn is_past_end(&self, chunk: usize) -> bool {
        chunk >= self.chunks().len()
    }

    /// The rows of a chunk, if they are finished.
    pub fn finished(&self, chunk: usize) -> Option<RecordBatch> {
        match &self.chunks().get(chunk)?.rows {
            ChunkRows::Finished(rows) => Some(rows.clone()),
            ChunkRows::Missing | ChunkRows::Claimed => None,
        }
    }

    /// The first chunk that is not finished among those with the next `rows` passing rows, from a chunk on.
    pub fn first_unfinished(&self, from: usize, rows: u64) -> Option<usize> {
        let (chunks, mut left) = (self.chunks(), rows);
        for (index, chunk) in chunks.iter().enumerate().skip(from) {
            match (&chunk.rows, chunk.passing) {
                _ if left == 0 => return None,
                (ChunkRows::Finished(finished), _) => left = left.saturating_sub(finished.num_rows() as u64),
                (_, Some(0)) => {}
                (ChunkRows::Missing, Some(passing)) if self.is_on_disk(index) => left = left.saturating_sub(passing),
                _ => return Some(index),
            }
        }
        None
    }

    /// Claims a chunk, unless it is finished or claimed.
    pub fn claim(self: &Arc<Self>, chunk: usize) -> Option<ChunkClaim> {
        let mut chunks = self.chunks();
        let missing = chunks.get_mut(chunk).filter(|chunk| matches!(chunk.rows, ChunkRows::Missing))?;
        missing.rows = ChunkRows::Claimed;
        Some(ChunkClaim { group: Arc::clone(self), chunk })
    }

    /// Waits until a chunk is not claimed, but no longer than [`CLAIM_WAIT_MAX`]. Returns whether it is not.
    pub async fn unclaimed(&self, chunk: usize) -> bool {
        let mut changes = self.changes.subscribe();
        let released = async {
            // The sender is in `self`.
            while self.is_claimed(chunk) && changes.changed().await.is_ok() {}
        };
        time::timeout(CLAIM_WAIT_MAX, released).await.is_ok()
    }

    fn is_claimed(&self, chunk: usize) -> bool {
        self.chunks().get(chunk).is_some_and(|chunk| matches!(chunk.rows, ChunkRows::Claimed))
    }

    fn chunks(&self) -> MutexGuard<'_, Vec<Chunk>> {
        self.chunks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl ChunkClaim ===

impl ChunkClaim {
    /// Keeps the finished rows of the chunk, and lets them be written to disk.
    pub fn finish(self, rows: RecordBatch) {
        if let Some(disk) = &self.group.disk {
            disk.offer(self.chunk, &rows);
        }
        self.keep(rows);
    }

    /// Keeps the rows of the chunk.
    fn keep(self, rows: RecordBatch) {
        if let Some(chunk) = self.group.chunks().get_mut(self.chunk) {
            chunk.passing = Some(rows.num_rows() as u64);
            chunk.rows = if self.group.retains { ChunkRows::Finished(rows) } else { ChunkRows::Missing };
        }
    }

    /// Keeps the number of the chunk's passing rows. The chunk is missing again.
    pub fn count(self, passing: u64) {
        if let Some(chunk) = self.group.chunks().get_mut(self.chunk) {
            chunk.passing = Some(passing);
        }
    }
}

impl Drop for ChunkClaim {
    fn drop(&mut self) {
        if let Some(chunk) = self.group.chunks().get_mut(self.chunk)
            && matches!(chunk.rows, ChunkRows::Claimed)
        {
            chunk.rows = ChunkRows::Missing;
        }
        self.group.changes.send_replace(());
    }
}
