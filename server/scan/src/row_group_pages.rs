//! The pages of a row group's columns, read from the file when a reader needs only some of its rows. A few are kept, as
//! the neighbor of a lane reads the same row group at another time.

use std::{
    collections::{HashMap, VecDeque},
    ops::Range,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use forebay_catalog::{RowGroup, Snapshot};
use forebay_runtime::cpu_pool::CpuPool;
use parquet::basic::Compression;

use super::{error::ScanError, fetch, page_index::ChunkPages, projection::Projection};

/// Bytes of the indexes of a row group, at most; the chunks of others are read as a whole.
const INDEX_BYTES_MAX: u64 = 8 << 20;

/// Pages whose places are kept, at most, of 16 bytes each.
const PAGES_KEPT_MAX: usize = 1 << 19;

/// Row groups whose pages are kept, at most.
const GROUPS_KEPT_MAX: usize = 1 << 13;

/// Dataset, digest of the snapshot, row group, and columns.
pub(super) type RowGroupKey = (String, String, usize, Vec<usize>);

/// The pages of a row group's leaf columns.
#[derive(Debug, Default)]
pub struct RowGroupPages {
    /// With the index of the leaf column, ascending; columns whose index is absent or invalid are left out.
    leaves: Vec<(usize, Arc<ChunkPages>)>,
    /// Whether pages turned out to be others: all chunks are then read as a whole.
    is_refuted: AtomicBool,
}

/// The pages of the row groups that were read last.
#[derive(Debug, Default)]
pub(super) struct RecentPages(Mutex<Recent>);

#[derive(Debug, Default)]
struct Recent {
    groups: HashMap<RowGroupKey, Arc<RowGroupPages>>,
    /// The row groups as they were added.
    order: VecDeque<RowGroupKey>,
    /// Pages of all row groups.
    page_count: usize,
}

// === impl RowGroupPages ===

impl RowGroupPages {
    /// Reads the indexes of the columns' chunks.
    pub(super) async fn read(
        snapshot: &Snapshot,
        row_group: &RowGroup,
        projection: &Projection,
        cpu: &CpuPool,
    ) -> Result<Self, ScanError> {
        let indexes = index_ranges(snapshot, row_group, projection);
        let bytes = indexes.iter().fold(0, |sum: u64, (_, range)| sum.saturating_add(range.end - range.start));
        if indexes.is_empty() || bytes > INDEX_BYTES_MAX {
            return Ok(Self::default());
        }
        let ranges: Vec<_> = indexes.iter().map(|(_, range)| range.clone()).collect();
        let read = fetch::ranges(snapshot, snapshot.file_of(row_group), &ranges).await?;
        let part = projection.parts(snapshot, row_group, 1);
        let chunks: Vec<_> = part.iter().flat_map(|part| projection.leaves(snapshot, row_group, part)).collect();
        let rows = snapshot.stored_rows(row_group);
        let parse = move || {
            let parsed = indexes.iter().zip(&read).filter_map(|((leaf, _), index)| {
                let (_, chunk) = chunks.iter().find(|(known, _)| known == leaf)?;
                Some((*leaf, Arc::new(ChunkPages::parse(index, chunk.clone(), rows)?)))
            });
            parsed.collect::<Vec<_>>()
        };
        // A panic is as good as an invalid index.
        let leaves = cpu.run(parse).await.unwrap_or_default();
        Ok(Self { leaves, is_refuted: AtomicBool::new(false) })
    }

    /// The pages of a leaf column; `None` if they are not known.
    pub(super) fn of_leaf(&self, leaf: usize) -> Option<&Arc<ChunkPages>> {
        if self.is_refuted.load(Ordering::Relaxed) {
            return None;
        }
        let place = self.leaves.binary_search_by_key(&leaf, |(known, _)| *known).ok()?;
        Some(&self.leaves[place].1)
    }

    /// Records that the file's pages are others.
    pub(super) fn refute(&self) {
        self.is_refuted.store(true, Ordering::Relaxed);
    }

    fn page_count(&self) -> usize {
        self.leaves.iter().map(|(_, pages)| pages.page_count()).sum()
    }
}

/// The offset index in the file of each leaf column to read, and the chunk that it describes; those with an invalid
/// range are left out.
fn index_ranges(snapshot: &Snapshot, row_group: &RowGroup, projection: &Projection) -> Vec<(usize, Range<u64>)> {
    let size = snapshot.file_of(row_group).object().size;
    let mut found = Vec::new();
    projection.each_chunk(snapshot, row_group, |_, leaf, chunk| {
        let range = || {
            let start = u64::try_from(chunk.offset_index_offset()?).ok()?;
            let end = start.checked_add(u64::try_from(chunk.offset_index_length()?).ok()?)?;
            (start < end && end <= size).then_some(start..end)
        };
        // Pages in the old LZ4 format are checked one after another.
        if let Some(range) = range().filter(|_| chunk.compression() != Compression::LZ4) {
            found.push((leaf, range));
        }
    });
    found
}

// === impl RecentPages ===

impl RecentPages {
    pub(super) fn get(&self, key: &RowGroupKey) -> Option<Arc<RowGroupPages>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).groups.get(key).map(Arc::clone)
    }

    /// Keeps pages, and drops those that were added first.
    pub(super) fn add(&self, key: &RowGroupKey, pages: &Arc<RowGroupPages>) {
        let mut recent = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let recent = &mut *recent;
        match recent.groups.insert(key.clone(), Arc::clone(pages)) {
            Some(before) => recent.page_count -= before.page_count(),
            None => recent.order.push_back(key.clone()),
        }
        recent.page_count += pages.page_count();
        while recent.page_count > PAGES_KEPT_MAX || recent.order.len() > GROUPS_KEPT_MAX {
            let Some(oldest) = recent.order.pop_front() else { break };
            recent.page_count -= recent.groups.remove(&oldest).map_or(0, |pages| pages.page_count());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pages_added_last_are_kept() {
        let key = |index: usize| ("d".to_owned(), String::new(), index, Vec::new());
        let pages = |count: usize| {
            let chunk = Arc::new(ChunkPages::of_one_byte_pages(count));
            Arc::new(RowGroupPages { leaves: vec![(0, chunk)], is_refuted: AtomicBool::new(false) })
        };
        let kept = RecentPages::default();
        kept.add(&key(0), &pages(PAGES_KEPT_MAX / 2));
        kept.add(&key(1), &pages(PAGES_KEPT_MAX / 2));
        kept.add(&key(1), &pages(PAGES_KEPT_MAX / 2));
        assert!(kept.get(&key(0)).is_some() && kept.get(&key(1)).is_some());
        kept.add(&key(2), &pages(1));
        assert!(kept.get(&key(0)).is_none() && kept.get(&key(1)).is_some() && kept.get(&key(2)).is_some());
        let none = Arc::new(RowGroupPages::default());
        (3..GROUPS_KEPT_MAX + 4).for_each(|index| kept.add(&key(index), &none));
        assert!(kept.get(&key(2)).is_none() && kept.get(&key(4)).is_some());
        assert_eq!(kept.0.lock().unwrap().page_count, 0);
    }

    #[test]
    fn refuted_pages_are_not_used() {
        let leaves = vec![(3, Arc::new(ChunkPages::of_one_byte_pages(2)))];
        let pages = RowGroupPages { leaves, is_refuted: AtomicBool::new(false) };
        assert!(pages.of_leaf(3).is_some() && pages.of_leaf(2).is_none());
        pages.refute();
        assert!(pages.of_leaf(3).is_none());
    }
}
