//! Finished rows of row groups, in memory and on disk: what the kernels made of the passing rows, before any shuffle. The streams of
//! a plan share them: other epochs, ranks, seeds and jobs copy rows that one of them computed.
//!
//! ```text
//! RowCache ─ open(key) ─▶ PlanRows (one stream) ─ group(row group) ─▶ CachedRowGroup ─▶ finished blocks, claims
//! ```
//!
//! A row group is admitted before its rows are computed, so those that do not fit cost nothing. Rows of plans that
//! streams read are never evicted, and rows that were read once evict nothing: a scan larger than the cache keeps a
//! constant part of itself there, which is the most that any order of scans could use.
//!
//! Plans whose rows differ in size keep [decompressed column chunks](CachedChunks) instead, in the same memory.
//!
//! With a [disk tier](DiskTier), finished blocks are also written to files. Row groups for which the memory has no room are
//! read from there and written there, block by block.
//!
//! This crate has no access to plans or datasets. Its users name everything that decides the rows in a key.

#![forbid(unsafe_code)]

mod chunks;
mod contents;
mod disk;
mod row_group;

use std::sync::{Arc, Mutex};

pub use chunks::CachedChunks;
use contents::{CachedValue, Contents, lock};
pub use disk::{CacheDirError, DiskTier};
pub use row_group::{BlockClaim, CLAIM_WAIT_MAX, CachedRowGroup, RowGroupBlocks};

/// Finished rows of row groups, up to a number of bytes. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct RowCache {
    contents: Option<Arc<Mutex<Contents>>>,
    disk: Option<Arc<DiskTier>>,
}

/// The rows of one plan for one stream. While it exists, they are not evicted.
#[derive(Debug)]
pub struct PlanRows {
    contents: Arc<Mutex<Contents>>,
    disk: Option<Arc<DiskTier>>,
    key: String,
    reader: u64,
    admits: bool,
}

// === impl RowCache ===

impl RowCache {
    /// A cache of at most `capacity` bytes; 0: none.
    pub fn new(capacity: u64) -> Self {
        Self { contents: (capacity > 0).then(|| Arc::new(Mutex::new(Contents::new(capacity)))), disk: None }
    }

    /// The cache with a disk tier, which is not used without memory.
    #[must_use]
    pub fn with_disk(self, disk: Option<Arc<DiskTier>>) -> Self {
        Self { disk: disk.filter(|_| self.contents.is_some()), ..self }
    }

    /// The most bytes that it keeps; 0: it is off.
    pub fn capacity(&self) -> u64 {
        self.contents.as_ref().map_or(0, |contents| lock(contents).capacity())
    }

    /// The bytes that it keeps under a key.
    pub fn bytes_of(&self, key: &str) -> u64 {
        self.contents.as_ref().map_or(0, |contents| lock(contents).bytes_of(key))
    }

    /// Opens the rows with this key for a stream; none if the cache is off. The key must name everything that decides
    /// the rows, except the state of their file. Without `admits`, the stream reads what is there and adds nothing.
    pub fn open(&self, key: String, admits: bool) -> Option<PlanRows> {
        let shared = self.contents.as_ref()?;
        let reader = lock(shared).open(&key);
        if let Some(disk) = &self.disk {
            disk.open_plan(&key);
        }
        Some(PlanRows { contents: Arc::clone(shared), disk: self.disk.clone(), key, reader, admits })
    }

    /// Opens the column chunks with this key for a stream; none if the cache is off. The key must name the snapshot and
    /// the columns' types. Without `admits`, the stream reads what is there and adds nothing.
    pub fn open_chunks(&self, key: String, admits: bool) -> Option<CachedChunks> {
        self.contents.as_ref().map(|contents| CachedChunks::new(contents, key, admits))
    }
}

// === impl PlanRows ===

impl PlanRows {
    /// The rows of a row group, finished or not; none if there is no room for all of them, and none are on disk. `file` names the state of
    /// the row group's file: rows of another state are dropped.
    pub fn group(&self, index: usize, file: &str, blocks: &RowGroupBlocks) -> Option<Arc<CachedRowGroup>> {
        let mut contents = lock(&self.contents);
        match contents.get(&self.key, index) {
            Some((CachedValue::Rows(group), known)) if known == file => return Some(Arc::clone(group)),
            // Streams of the other state still read it.
            Some((CachedValue::Rows(group), _)) if Arc::strong_count(group) > 1 => return None,
            Some(_) => contents.evict(&self.key, index),
            None => {}
        }
        let bytes = blocks.bytes();
        let disk = self.disk.as_ref().map(|disk| disk.group(&self.key, index, file, self.admits));
        if !self.admits || !contents.makes_room(&self.key, (index, bytes), self.reader) {
            drop(contents);
            // Its rows pass through memory, a block at a time.
            let disk = disk.filter(|disk| {
                disk.has_room(bytes) || (0..blocks.count()).any(|block| disk.rows_of(block).is_some())
            })?;
            return Some(Arc::new(CachedRowGroup::new(blocks, Some(disk), false)));
        }
        let group = Arc::new(CachedRowGroup::new(blocks, disk, true));
        contents.insert(&self.key, (index, bytes), file, CachedValue::Rows(Arc::clone(&group)));
        Some(group)
    }
}

impl Drop for PlanRows {
    fn drop(&mut self) {
        lock(&self.contents).close(&self.key);
        if let Some(disk) = &self.disk {
            disk.close_plan(&self.key);
        }
    }
}

#[cfg(test)]
mod tests;
