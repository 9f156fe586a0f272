//! What the cache keeps in memory, under keys: which entries are admitted, and which give way to others.
//!
//! An entry is the finished rows of a row group, or a decompressed column chunk. Entries of a key that streams have open are
//! never evicted, and an entry that was requested once evicts nothing.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use forebay_pages::ColumnChunk;
use forebay_runtime::metrics;

use super::row_group::CachedRowGroup;

/// Keys without entries whose earlier requests are remembered.
pub(super) const KEYS_REMEMBERED: usize = 16;

/// Entries of a key whose first request is remembered. Others evict nothing.
const REQUESTS_REMEMBERED: usize = 1 << 16;

/// The entries in memory, up to a number of bytes.
#[derive(Debug)]
pub(super) struct Contents {
    capacity: u64,
    /// Bytes of the admitted entries.
    used: u64,
    /// The number of readers so far.
    readers: u64,
    keys: HashMap<String, CachedKey>,
}

/// An admitted entry.
#[derive(Clone, Debug)]
pub(super) enum CachedValue {
    /// The finished rows of a row group.
    Rows(Arc<CachedRowGroup>),
    /// A column chunk with its pages decompressed.
    Chunk(Arc<ColumnChunk>),
}

/// What is kept under one key.
#[derive(Debug, Default)]
struct CachedKey {
    entries: BTreeMap<usize, CacheEntry>,
    bytes: u64,
    /// Open readers.
    readers: usize,
    /// The reader that was opened last.
    last_reader: u64,
    /// The reader that first requested an entry for which there was no room.
    requested: HashMap<usize, u64>,
}

#[derive(Debug)]
struct CacheEntry {
    /// The state of the file that it is from.
    file: String,
    kept: CachedValue,
    bytes: u64,
}

pub(super) fn lock(contents: &Mutex<Contents>) -> MutexGuard<'_, Contents> {
    contents.lock().unwrap_or_else(PoisonError::into_inner)
}

// === impl Contents ===

impl Contents {
    pub(super) fn new(capacity: u64) -> Self {
        Self { capacity, used: 0, readers: 0, keys: HashMap::new() }
    }

    /// The most bytes that it keeps.
    pub(super) fn capacity(&self) -> u64 {
        self.capacity
    }

    /// The bytes of the entries of a key.
    pub(super) fn bytes_of(&self, key: &str) -> u64 {
        self.keys.get(key).map_or(0, |kept| kept.bytes)
    }

    #[cfg(test)]
    pub(super) fn key_count(&self) -> usize {
        self.keys.len()
    }

    /// Opens a key for a stream, and returns the number of the reader. Until it is closed, its entries are not evicted.
    pub(super) fn open(&mut self, key: &str) -> u64 {
        self.readers += 1;
        let reader = self.readers;
        let kept = self.keys.entry(key.to_owned()).or_default();
        kept.readers += 1;
        kept.last_reader = reader;
        self.forget_keys();
        reader
    }

    /// Closes a key that a stream opened.
    pub(super) fn close(&mut self, key: &str) {
        if let Some(kept) = self.keys.get_mut(key) {
            kept.readers -= 1;
        }
        self.forget_keys();
    }

    /// The entry of a key with an index, and the state of the file that it is from.
    pub(super) fn get(&self, key: &str, index: usize) -> Option<(&CachedValue, &str)> {
        self.keys.get(key)?.entries.get(&index).map(|entry| (&entry.kept, entry.file.as_str()))
    }

    /// Whether an entry of a key fits, if necessary after evicting those of keys that no stream has open, longest unused
    /// first. Only the second stream that requests the entry evicts others.
    pub(super) fn makes_room(&mut self, key: &str, (index, bytes): (usize, u64), reader: u64) -> bool {
        if bytes <= self.capacity - self.used {
            return true;
        }
        if bytes > self.capacity || !self.is_requested_again(key, index, reader) {
            return false;
        }
        let idle = |(other, kept): (&String, &CachedKey)| {
            (other != key && kept.readers == 0 && kept.bytes > 0).then(|| (kept.last_reader, other.clone(), kept.bytes))
        };
        let mut idle: Vec<(u64, String, u64)> = self.keys.iter().filter_map(idle).collect();
        let idle_bytes: u64 = idle.iter().map(|(_, _, bytes)| bytes).sum();
        if bytes > self.capacity - (self.used - idle_bytes) {
            return false;
        }
        idle.sort_unstable();
        for (_, other, _) in idle {
            while bytes > self.capacity - self.used
                && let Some(index) = self.keys.get(&other).and_then(|kept| kept.entries.keys().next_back().copied())
            {
                self.evict(&other, index);
            }
        }
        bytes <= self.capacity - self.used
    }

    /// Adds an entry for which [`Self::makes_room`] made room.
    pub(super) fn insert(&mut self, key: &str, (index, bytes): (usize, u64), file: &str, kept: CachedValue) {
        let Some(of_key) = self.keys.get_mut(key) else { return };
        of_key.requested.remove(&index);
        of_key.bytes += bytes;
        self.used += bytes;
        let replaced = of_key.entries.insert(index, CacheEntry { file: file.to_owned(), kept, bytes });
        if let Some(replaced) = replaced {
            of_key.bytes -= replaced.bytes;
            self.used -= replaced.bytes;
        }
        metrics::cache_bytes(self.used);
    }

    pub(super) fn evict(&mut self, key: &str, index: usize) {
        let Some(of_key) = self.keys.get_mut(key) else { return };
        let Some(evicted) = of_key.entries.remove(&index) else { return };
        if let CachedValue::Rows(group) = &evicted.kept {
            group.offer_to_disk();
        }
        of_key.bytes -= evicted.bytes;
        self.used -= evicted.bytes;
        metrics::cache_evicted();
        metrics::cache_bytes(self.used);
    }

    /// Whether another stream requested an entry before. Remembers the request.
    fn is_requested_again(&mut self, key: &str, index: usize, reader: u64) -> bool {
        let Some(kept) = self.keys.get_mut(key) else { return false };
        if let Some(first) = kept.requested.get(&index) {
            return *first != reader;
        }
        if kept.requested.len() < REQUESTS_REMEMBERED {
            kept.requested.insert(index, reader);
        }
        false
    }

    /// Forgets the keys without entries and streams, except those opened last.
    fn forget_keys(&mut self) {
        let is_empty = |kept: &CachedKey| kept.readers == 0 && kept.entries.is_empty();
        let mut empty: Vec<u64> =
            self.keys.values().filter(|kept| is_empty(kept)).map(|kept| kept.last_reader).collect();
        if let Some(surplus) = empty.len().checked_sub(KEYS_REMEMBERED).filter(|surplus| *surplus > 0) {
            empty.sort_unstable();
            let oldest_kept = empty[surplus];
            self.keys.retain(|_, kept| !is_empty(kept) || kept.last_reader >= oldest_kept);
        }
    }
}
