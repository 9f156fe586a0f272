//! Reads byte ranges of a pinned file, adjacent ones in one request, and checks that the file is still the pinned one.
//! Concurrent readers of a row group share what is read.

use std::{
    collections::HashMap,
    ops::Range,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use bytes::Bytes;
use forebay_pages::{Column, ColumnChunk};
use tokio::sync::OnceCell;
use tracing::Instrument;

use super::{error::ScanError, projection::Projection};
use crate::{
    catalog::{File, Snapshot, StoreError},
    log::PARTS,
    metrics::{self, Cache},
};

/// Largest gap and largest read over a network. Reading a small gap costs less than another request; beyond the largest
/// read, several parallel requests are faster.
const REMOTE_READ_BYTES: (u64, u64) = (1 << 20, 16 << 20);

/// Largest gap and largest read on a local disk. A read is cheap there, but allocating a large buffer is not, while the
/// allocator reuses small ones: with one read per row group (12 MB), an eighth of all CPU time was spent on allocation.
const LOCAL_READ_BYTES: (u64, u64) = (64 << 10, 1 << 20);

/// Row groups that streams have open: those that read the same columns at the same time share the fetched bytes and the
/// decompressed pages. What no reader holds is freed.
#[derive(Debug, Default)]
pub struct Sharing(Mutex<HashMap<RowGroupKey, Weak<SharedBytes>>>);

/// Dataset, digest of the snapshot, row group, and columns.
type RowGroupKey = (String, String, usize, Vec<usize>);

/// Bytes and pages of one row group, shared by its concurrent readers.
#[derive(Debug, Default)]
pub struct SharedBytes {
    fetched: OnceCell<Vec<(Range<u64>, Bytes)>>,
    /// With the index of the leaf column.
    chunks: Mutex<Vec<(usize, Arc<ColumnChunk>)>>,
}

impl Sharing {
    /// The bytes of a row group's columns, fetched or not.
    pub fn bytes_of(&self, snapshot: &Snapshot, row_group: usize, projection: &Projection) -> Arc<SharedBytes> {
        let key =
            (snapshot.dataset().to_owned(), snapshot.digest().to_owned(), row_group, projection.columns().to_vec());
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bytes) = known.get(&key).and_then(Weak::upgrade) {
            return bytes;
        }
        known.retain(|_, bytes| bytes.strong_count() > 0);
        let bytes = Arc::default();
        known.insert(key, Arc::downgrade(&bytes));
        bytes
    }
}

impl SharedBytes {
    /// The chunk of a leaf column, opened by the first reader; `None` if the Parquet library must read it.
    pub(super) fn chunk(&self, leaf: usize, bytes: &Bytes, column: Column) -> Option<Arc<ColumnChunk>> {
        let mut chunks = self.chunks.lock().unwrap_or_else(PoisonError::into_inner);
        let known = chunks.iter().find(|(known, chunk)| *known == leaf && *chunk.column() == column);
        if let Some((_, chunk)) = known {
            return Some(Arc::clone(chunk));
        }
        let chunk = ColumnChunk::open(Bytes::clone(bytes), column)?;
        chunks.push((leaf, Arc::clone(&chunk)));
        Some(chunk)
    }

    /// Returns the bytes of the ranges, in order: from the first reader's fetch if it has them.
    pub(super) async fn ranges(
        &self,
        snapshot: &Snapshot,
        file: &File,
        wanted: &[Range<u64>],
    ) -> Result<Vec<Bytes>, ScanError> {
        if wanted.is_empty() {
            return Ok(Vec::new());
        }
        let fetch = async || {
            let pieces = ranges(snapshot, file, wanted).await?;
            Ok::<_, ScanError>(wanted.iter().cloned().zip(pieces).collect())
        };
        metrics::cache_requests(Cache::RowGroups, self.fetched.initialized(), 1);
        let fetched = self.fetched.get_or_try_init(fetch).await?;
        let of =
            |wanted: &Range<u64>| fetched.iter().find(|(range, _)| range == wanted).map(|(_, bytes)| bytes.clone());
        match wanted.iter().map(of).collect() {
            Some(pieces) => Ok(pieces),
            // This reader needs ranges that the first one did not fetch.
            None => ranges(snapshot, file, wanted).await,
        }
    }
}

/// Reads the ranges and returns their bytes in order.
async fn ranges(snapshot: &Snapshot, file: &File, ranges: &[Range<u64>]) -> Result<Vec<Bytes>, ScanError> {
    let (store, object) = (snapshot.store(), file.object());
    let failed = |source: StoreError| {
        let file = file.display().to_owned();
        if source.is_change() {
            snapshot.set_outdated();
            let of_version = snapshot.table_title().map(|version| format!(" of {version} of its table"));
            let of_version = of_version.unwrap_or_default();
            ScanError::Changed { dataset: snapshot.dataset().to_owned(), file, of_version }
        } else {
            ScanError::Storage { file, source }
        }
    };
    let (gap, most) = if store.is_local() { LOCAL_READ_BYTES } else { REMOTE_READ_BYTES };
    let reads = merged(ranges, gap, most);
    let bytes: u64 = reads.iter().map(|read| read.end - read.start).sum();
    let (count, bytes) = (reads.len() as i64, bytes as i64);
    let span = tracing::info_span!(target: PARTS, "fetch", file = file.display(), reads = count, bytes);
    let pieces = store.read(object, &reads).instrument(span).await.map_err(failed)?;
    let found = |wanted: &Range<u64>| {
        // Reads are sorted, and each range is within one of them.
        let index = reads.partition_point(|read| read.start <= wanted.start).saturating_sub(1);
        let start = (wanted.start - reads[index].start) as usize;
        pieces[index].slice(start..start + (wanted.end - wanted.start) as usize)
    };
    Ok(ranges.iter().map(found).collect())
}

/// Reads that cover the ranges: merges ranges at most `gap` bytes apart into reads of at most `most` bytes.
fn merged(ranges: &[Range<u64>], gap: u64, most: u64) -> Vec<Range<u64>> {
    let mut sorted = ranges.to_vec();
    sorted.sort_by_key(|range| (range.start, range.end));
    let mut reads: Vec<Range<u64>> = Vec::with_capacity(sorted.len());
    for range in sorted {
        match reads.last_mut() {
            // Overlapping ranges must be in one read.
            Some(last) if range.start < last.end => last.end = last.end.max(range.end),
            Some(last) if range.start - last.end <= gap && range.end - last.start <= most => last.end = range.end,
            _ => reads.push(range),
        }
    }
    reads
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merges_adjacent_ranges_up_to_a_size() {
        assert_eq!(merged(&[0..4, 4..8, 9..10, 12..14], 1, 100), [0..10, 12..14]);
        assert_eq!(merged(&[0..4, 4..8, 8..12], 1, 8), [0..8, 8..12]);
        assert_eq!(merged(&[8..30, 0..4, 4..8], 0, 8), [0..8, 8..30]);
        assert_eq!(merged(&[0..20, 10..30, 10..12, 40..41], 0, 8), [0..30, 40..41]);
        assert_eq!(merged(&[], 1, 1), []);
    }
}
