//! What concurrent readers of a row group share: fetched bytes, decompressed pages, and the places of pages.

use std::{
    collections::HashMap,
    ops::Range,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use bytes::Bytes;
use forebay_catalog::{File, RowGroup, Snapshot};
use forebay_pages::{Column, ColumnChunk};
use forebay_runtime::{
    cpu_pool::CpuPool,
    metrics::{self, Cache},
};
use futures::future::try_join_all;
use parquet::file::metadata::ColumnChunkMetaData;
use tokio::sync::OnceCell;

use super::{
    cached_chunks::RowGroupChunks,
    chunks::FetchedChunk,
    error::ScanError,
    fetch::{self, merged_for, within},
    projection::Projection,
    row_group_pages::{RecentPages, RowGroupKey, RowGroupPages},
};

/// Row groups that streams have open: those that read the same columns at the same time share the fetched bytes and the
/// decompressed pages. What no reader holds is freed, except for the places of some pages.
#[derive(Debug, Default)]
pub struct Sharing {
    open: Mutex<HashMap<RowGroupKey, Weak<SharedBytes>>>,
    kept: Arc<RecentPages>,
}

/// Bytes and pages of one row group, shared by its concurrent readers.
#[derive(Debug, Default)]
pub struct SharedBytes {
    reads: Mutex<Vec<Arc<SharedRead>>>,
    chunks: Mutex<Vec<KnownChunk>>,
    pages: OnceCell<Arc<RowGroupPages>>,
    /// Where the places of pages are kept, and under which key.
    kept: Option<(Arc<RecentPages>, RowGroupKey)>,
    /// Where chunks with decompressed pages are kept.
    cached: Option<RowGroupChunks>,
}

/// Ranges of the file that one reader needed first, fetched by any reader that needs some of them.
#[derive(Debug, Default)]
struct SharedRead {
    /// Ascending, without overlaps.
    ranges: Vec<Range<u64>>,
    bytes: OnceCell<Vec<Bytes>>,
}

/// The chunk of a leaf column, or the pages of it from a row on.
#[derive(Debug)]
struct KnownChunk {
    leaf: usize,
    first_row: usize,
    /// As the file has it; its pages may be decompressed.
    column: Column,
    chunk: Arc<ColumnChunk>,
}

// === impl Sharing ===

impl Sharing {
    /// The bytes of a row group's columns, fetched or not. With `cached`, chunks are kept there with decompressed pages, and
    /// read from there.
    pub fn bytes_of(
        &self,
        snapshot: &Snapshot,
        row_group: usize,
        projection: &Projection,
        cached: Option<RowGroupChunks>,
    ) -> Arc<SharedBytes> {
        let key =
            (snapshot.dataset().to_owned(), snapshot.state().to_owned(), row_group, projection.columns().to_vec());
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bytes) = open.get(&key).and_then(Weak::upgrade) {
            return bytes;
        }
        open.retain(|_, bytes| bytes.strong_count() > 0);
        let kept = Some((Arc::clone(&self.kept), key.clone()));
        let bytes = Arc::new(SharedBytes { kept, cached, ..SharedBytes::default() });
        open.insert(key, Arc::downgrade(&bytes));
        bytes
    }
}

// === impl SharedBytes ===

impl SharedBytes {
    /// The chunk of a leaf column, or a run of its pages, opened by the first reader; `None` if the Parquet library must
    /// read it.
    pub(super) fn chunk(
        &self,
        leaf: usize,
        (fetched, stored): (&FetchedChunk, &ColumnChunkMetaData),
        column: Column,
    ) -> Option<Arc<ColumnChunk>> {
        let (first_row, rows) = fetched.run().map_or((0, None), |run| (run.first_row(), Some(run.row_count())));
        let first_row = usize::try_from(first_row).ok()?;
        let rows = rows.map_or(Some(column.rows), |rows| usize::try_from(rows).ok())?;
        let column = Column { rows, ..column };
        let mut chunks = self.chunks.lock().unwrap_or_else(PoisonError::into_inner);
        let is_same =
            |known: &&KnownChunk| (known.leaf, known.first_row) == (leaf, first_row) && known.column == column;
        if let Some(known) = chunks.iter().find(is_same) {
            return Some(Arc::clone(&known.chunk));
        }
        let fetched = fetched.clone().without_rest(stored);
        let chunk = ColumnChunk::open_pages(fetched.pieces(), first_row, column.clone())?;
        let chunk = match &self.cached {
            Some(cached) if fetched.run().is_none() => cached.kept(leaf, chunk),
            _ => chunk,
        };
        chunks.push(KnownChunk { leaf, first_row, column, chunk: Arc::clone(&chunk) });
        Some(chunk)
    }

    /// Whether chunks are kept with decompressed pages: their readers fetch whole chunks.
    pub(super) fn is_cached(&self) -> bool {
        self.cached.is_some()
    }

    /// Whether the chunk of a leaf column is here with decompressed pages, so that nothing of it is fetched.
    pub(super) fn has_cached(&self, leaf: usize, column: Column) -> bool {
        let Some(cached) = &self.cached else { return false };
        let mut chunks = self.chunks.lock().unwrap_or_else(PoisonError::into_inner);
        if chunks.iter().any(|known| (known.leaf, known.first_row) == (leaf, 0) && known.column == column) {
            return true;
        }
        let Some(chunk) = cached.get(leaf, &column) else { return false };
        chunks.push(KnownChunk { leaf, first_row: 0, column, chunk });
        true
    }

    /// The places of the pages of the columns, read by the first reader.
    pub async fn pages(
        &self,
        snapshot: &Snapshot,
        row_group: &RowGroup,
        projection: &Projection,
        cpu: &CpuPool,
    ) -> Result<Arc<RowGroupPages>, ScanError> {
        let read = async || {
            if let Some(pages) = self.kept.as_ref().and_then(|(kept, key)| kept.get(key)) {
                return Ok(pages);
            }
            let pages = Arc::new(RowGroupPages::read(snapshot, row_group, projection, cpu).await?);
            if let Some((kept, key)) = &self.kept {
                kept.add(key, &pages);
            }
            Ok(pages)
        };
        self.pages.get_or_try_init(read).await.map(Arc::clone)
    }

    /// Returns the bytes of the ranges, in order. Those that a reader has fetched, or is fetching, are not fetched again.
    pub(super) async fn ranges(
        &self,
        snapshot: &Snapshot,
        file: &File,
        wanted: &[Range<u64>],
    ) -> Result<Vec<Bytes>, ScanError> {
        let places = self.places(snapshot, wanted);
        if places.is_empty() {
            return Ok(Vec::new());
        }
        metrics::cache_requests(Cache::RowGroups, places.iter().all(|(read, _)| read.bytes.initialized()), 1);
        let mut due: Vec<&SharedRead> = Vec::new();
        for (read, _) in &places {
            if !read.bytes.initialized() && !due.iter().any(|known| std::ptr::eq(*known, read.as_ref())) {
                due.push(read);
            }
        }
        try_join_all(due.into_iter().map(|read| read.fetch(snapshot, file))).await?;
        let mut found = Vec::with_capacity(wanted.len());
        for (range, (read, place)) in wanted.iter().zip(&places) {
            let fetched = read.fetch(snapshot, file).await?;
            found.push(within(&fetched[*place], read.ranges[*place].start, range));
        }
        Ok(found)
    }

    /// The read of each range and its place in it. Those that no read has become one read together.
    fn places(&self, snapshot: &Snapshot, wanted: &[Range<u64>]) -> Vec<(Arc<SharedRead>, usize)> {
        let mut reads = self.reads.lock().unwrap_or_else(PoisonError::into_inner);
        let known = |reads: &[Arc<SharedRead>], range: &Range<u64>| {
            reads.iter().find_map(|read| Some((Arc::clone(read), read.place_of(range)?)))
        };
        let missing: Vec<Range<u64>> = wanted.iter().filter(|range| known(&reads, range).is_none()).cloned().collect();
        if !missing.is_empty() {
            let ranges = merged_for(snapshot.store(), &missing);
            reads.push(Arc::new(SharedRead { ranges, bytes: OnceCell::new() }));
        }
        wanted.iter().filter_map(|range| known(&reads, range)).collect()
    }
}

// === impl SharedRead ===

impl SharedRead {
    /// The place of the range that has all bytes of another one.
    fn place_of(&self, wanted: &Range<u64>) -> Option<usize> {
        let place = self.ranges.partition_point(|range| range.start <= wanted.start).checked_sub(1)?;
        (wanted.end <= self.ranges[place].end).then_some(place)
    }

    /// The bytes of the ranges. If the reader that fetches them fails or ends, the next one fetches them.
    async fn fetch(&self, snapshot: &Snapshot, file: &File) -> Result<&[Bytes], ScanError> {
        let bytes = self.bytes.get_or_try_init(|| fetch::read(snapshot, file, &self.ranges)).await?;
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_has_the_ranges_within_its_own() {
        let read = SharedRead { ranges: vec![10..20, 30..50], bytes: OnceCell::new() };
        assert_eq!(
            [10..20, 12..18, 30..50, 49..50].map(|range| read.place_of(&range)),
            [Some(0), Some(0), Some(1), Some(1)]
        );
        assert_eq!([0..5, 5..12, 15..25, 20..30, 45..51, 60..70].map(|range| read.place_of(&range)), [None; 6]);
    }
}
