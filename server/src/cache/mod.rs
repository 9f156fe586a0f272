//! Finished rows of row groups, in memory and on disk: what the kernels made of the passing rows, before any shuffle. The streams of
//! a plan share them: other epochs, ranks, seeds and jobs copy rows that one of them computed.
//!
//! ```text
//! RowCache ─ open(key) ─▶ PlanRows (one stream) ─ group(row group) ─▶ CachedGroup ─▶ finished chunks, claims
//! ```
//!
//! A row group is admitted before its rows are computed, so those that do not fit cost nothing. Rows of plans that
//! streams read are never evicted, and rows that were read once evict nothing: a scan larger than the cache keeps a
//! constant part of itself there, which is the most that any order of scans could use.
//!
//! With a [disk tier](DiskTier), finished chunks are also written to files. Row groups for which the memory has no room are
//! read from there and written there, chunk by chunk.
//!
//! This module has no access to plans or datasets. Its users name everything that decides the rows in a key.

mod disk;
mod group;

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

pub use disk::{CacheDirError, DiskTier};
pub use group::{CachedGroup, ChunkClaim, GroupChunks};

use crate::metrics;

/// Plans without rows in the cache whose earlier requests are remembered.
const PLANS_REMEMBERED: usize = 16;

/// Row groups of a plan whose first request is remembered. Others evict nothing.
const REQUESTS_REMEMBERED: usize = 1 << 16;

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

#[derive(Debug)]
struct Contents {
    capacity: u64,
    /// Bytes of the admitted row groups.
    used: u64,
    /// The number of readers so far.
    readers: u64,
    plans: HashMap<String, CachedPlan>,
}

#[derive(Debug, Default)]
struct CachedPlan {
    groups: BTreeMap<usize, KeptGroup>,
    bytes: u64,
    /// Open readers.
    readers: usize,
    /// The reader that was opened last.
    last_reader: u64,
    /// The reader that first requested a row group for which there was no room.
    requested: HashMap<usize, u64>,
}

#[derive(Debug)]
struct KeptGroup {
    /// The state of the file whose rows these are.
    file: String,
    group: Arc<CachedGroup>,
    bytes: u64,
}

fn lock(contents: &Mutex<Contents>) -> MutexGuard<'_, Contents> {
    contents.lock().unwrap_or_else(PoisonError::into_inner)
}

// === impl RowCache ===

impl RowCache {
    /// A cache of at most `capacity` bytes; 0: none.
    pub fn new(capacity: u64) -> Self {
        let contents = Contents { capacity, used: 0, readers: 0, plans: HashMap::new() };
        Self { contents: (capacity > 0).then(|| Arc::new(Mutex::new(contents))), disk: None }
    }

    /// The cache with a disk tier, which is not used without memory.
    #[must_use]
    pub fn with_disk(self, disk: Option<Arc<DiskTier>>) -> Self {
        Self { disk: disk.filter(|_| self.contents.is_some()), ..self }
    }

    /// The most bytes that it keeps; 0: it is off.
    pub fn capacity(&self) -> u64 {
        self.contents.as_ref().map_or(0, |contents| lock(contents).capacity)
    }

    /// The bytes of the row groups that it keeps of a plan.
    pub fn bytes_of(&self, key: &str) -> u64 {
        self.contents.as_ref().map_or(0, |contents| lock(contents).plans.get(key).map_or(0, |plan| plan.bytes))
    }

    /// Opens the rows with this key for a stream; none if the cache is off. The key must name everything that decides
    /// the rows, except the state of their file. Without `admits`, the stream reads what is there and adds nothing.
    pub fn open(&self, key: String, admits: bool) -> Option<PlanRows> {
        let shared = self.contents.as_ref()?;
        let mut contents = lock(shared);
        contents.readers += 1;
        let reader = contents.readers;
        let plan = contents.plans.entry(key.clone()).or_default();
        plan.readers += 1;
        plan.last_reader = reader;
        contents.forget_plans();
        drop(contents);
        if let Some(disk) = &self.disk {
            disk.open_plan(&key);
        }
        Some(PlanRows { contents: Arc::clone(shared), disk: self.disk.clone(), key, reader, admits })
    }
}

// === impl PlanRows ===

impl PlanRows {
    /// The rows of a row group, finished or not; none if there is no room for all of them, and none are on disk. `file` names the state of
    /// the row group's file: rows of another state are dropped.
    pub fn group(&self, index: usize, file: &str, chunks: &GroupChunks) -> Option<Arc<CachedGroup>> {
        let mut contents = lock(&self.contents);
        let plan = contents.plans.get(&self.key)?;
        if let Some(kept) = plan.groups.get(&index) {
            if kept.file == file {
                return Some(Arc::clone(&kept.group));
            }
            // Streams of the other state still read it.
            if Arc::strong_count(&kept.group) > 1 {
                return None;
            }
            contents.evict(&self.key, index);
        }
        let bytes = chunks.bytes();
        let disk = self.disk.as_ref().map(|disk| disk.group(&self.key, index, file, self.admits));
        if !self.admits || !contents.makes_room(&self.key, (index, bytes), self.reader) {
            drop(contents);
            // Its rows pass through memory, a chunk at a time.
            let disk = disk.filter(|disk| {
                disk.has_room(bytes) || (0..chunks.count()).any(|chunk| disk.rows_of(chunk).is_some())
            })?;
            return Some(Arc::new(CachedGroup::new(chunks, Some(disk), false)));
        }
        let group = Arc::new(CachedGroup::new(chunks, disk, true));
        let kept = KeptGroup { file: file.to_owned(), group: Arc::clone(&group), bytes };
        contents.insert(&self.key, index, kept);
        Some(group)
    }
}

impl Drop for PlanRows {
    fn drop(&mut self) {
        let mut contents = lock(&self.contents);
        if let Some(plan) = contents.plans.get_mut(&self.key) {
            plan.readers -= 1;
        }
        contents.forget_plans();
        drop(contents);
        if let Some(disk) = &self.disk {
            disk.close_plan(&self.key);
        }
    }
}

// === impl Contents ===

impl Contents {
    /// Whether a row group of a plan fits, if necessary after evicting rows of plans that no stream reads, longest
    /// unused first. Only the second stream that requests the row group evicts others.
    fn makes_room(&mut self, key: &str, (index, bytes): (usize, u64), reader: u64) -> bool {
        if bytes <= self.capacity - self.used {
            return true;
        }
        if bytes > self.capacity || !self.is_requested_again(key, index, reader) {
            return false;
        }
        let idle = |(other, plan): (&String, &CachedPlan)| {
            (other != key && plan.readers == 0 && plan.bytes > 0).then(|| (plan.last_reader, other.clone(), plan.bytes))
        };
        let mut idle: Vec<(u64, String, u64)> = self.plans.iter().filter_map(idle).collect();
        let idle_bytes: u64 = idle.iter().map(|(_, _, bytes)| bytes).sum();
        if bytes > self.capacity - (self.used - idle_bytes) {
            return false;
        }
        idle.sort_unstable();
        for (_, other, _) in idle {
            while bytes > self.capacity - self.used
                && let Some(index) = self.plans.get(&other).and_then(|plan| plan.groups.keys().next_back().copied())
            {
                self.evict(&other, index);
            }
        }
        bytes <= self.capacity - self.used
    }

    /// Whether another stream requested a row group before. Remembers the request.
    fn is_requested_again(&mut self, key: &str, index: usize, reader: u64) -> bool {
        let Some(plan) = self.plans.get_mut(key) else { return false };
        if let Some(first) = plan.requested.get(&index) {
            return *first != reader;
        }
        if plan.requested.len() < REQUESTS_REMEMBERED {
            plan.requested.insert(index, reader);
        }
        false
    }

    fn insert(&mut self, key: &str, index: usize, kept: KeptGroup) {
        let Some(plan) = self.plans.get_mut(key) else { return };
        plan.requested.remove(&index);
        plan.bytes += kept.bytes;
        self.used += kept.bytes;
        plan.groups.insert(index, kept);
        metrics::cache_bytes(self.used);
    }

    fn evict(&mut self, key: &str, index: usize) {
        let Some(plan) = self.plans.get_mut(key) else { return };
        let Some(evicted) = plan.groups.remove(&index) else { return };
        evicted.group.offer_to_disk();
        plan.bytes -= evicted.bytes;
        self.used -= evicted.bytes;
        metrics::cache_evicted();
        metrics::cache_bytes(self.used);
    }

    /// Forgets the plans without rows and streams, except those opened last.
    fn forget_plans(&mut self) {
        let is_empty = |plan: &CachedPlan| plan.readers == 0 && plan.groups.is_empty();
        let mut empty: Vec<u64> =
            self.plans.values().filter(|plan| is_empty(plan)).map(|plan| plan.last_reader).collect();
        if let Some(surplus) = empty.len().checked_sub(PLANS_REMEMBERED).filter(|surplus| *surplus > 0) {
            empty.sort_unstable();
            let oldest_kept = empty[surplus];
            self.plans.retain(|_, plan| !is_empty(plan) || plan.last_reader >= oldest_kept);
        }
    }
}

#[cfg(test)]
mod tests;
