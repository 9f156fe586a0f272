//! Reads byte ranges of a pinned file, adjacent ones in one request, and checks that the file is still the pinned one.

use std::ops::Range;

use bytes::Bytes;
use forebay_catalog::{File, Snapshot, Store, StoreError};
use forebay_runtime::log::PARTS;
use tracing::Instrument;

use super::error::ScanError;

/// Largest gap and largest read over a network. Reading a small gap costs less than another request; beyond the largest
/// read, several parallel requests are faster.
const REMOTE_READ_BYTES: (u64, u64) = (1 << 20, 16 << 20);

/// Largest gap and largest read on a local disk. A read is cheap there, but allocating a large buffer is not, while the
/// allocator reuses small ones: with one read per row group (12 MB), an eighth of all CPU time was spent on allocation.
const LOCAL_READ_BYTES: (u64, u64) = (64 << 10, 1 << 20);

/// Largest gap between ranges that are read at once.
pub(super) fn gap_bytes(store: &Store) -> u64 {
    limits(store).0
}

/// Reads the ranges and returns their bytes in order.
pub(super) async fn ranges(snapshot: &Snapshot, file: &File, ranges: &[Range<u64>]) -> Result<Vec<Bytes>, ScanError> {
    let reads = merged_for(snapshot.store(), ranges);
    let pieces = read(snapshot, file, &reads).await?;
    let found = |wanted: &Range<u64>| {
        // Reads are sorted, and each range is within one of them.
        let index = reads.partition_point(|read| read.start <= wanted.start).saturating_sub(1);
        within(&pieces[index], reads[index].start, wanted)
    };
    Ok(ranges.iter().map(found).collect())
}

/// Sends a request for each of the reads.
pub(super) async fn read(snapshot: &Snapshot, file: &File, reads: &[Range<u64>]) -> Result<Vec<Bytes>, ScanError> {
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
    let bytes: u64 = reads.iter().map(|read| read.end - read.start).sum();
    let (count, bytes) = (reads.len() as i64, bytes as i64);
    let span = tracing::info_span!(target: PARTS, "fetch", file = file.display(), reads = count, bytes);
    snapshot.store().read(file.object(), reads).instrument(span).await.map_err(failed)
}

/// The bytes of a range within those of a read that begins at `start`.
pub(super) fn within(read: &Bytes, start: u64, wanted: &Range<u64>) -> Bytes {
    let from = (wanted.start - start) as usize;
    read.slice(from..from + (wanted.end - wanted.start) as usize)
}

/// The reads that cover the ranges, sorted.
pub(super) fn merged_for(store: &Store, ranges: &[Range<u64>]) -> Vec<Range<u64>> {
    let (gap, most) = limits(store);
    merged(ranges, gap, most)
}

fn limits(store: &Store) -> (u64, u64) {
    if store.is_local() { LOCAL_READ_BYTES } else { REMOTE_READ_BYTES }
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
