//! Byte ranges of a pinned file: neighbours in one request, each checked to come from the file that was pinned.

use std::{
    collections::HashMap,
    ops::Range,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use tokio::sync::OnceCell;
use tracing::Instrument;

use super::ScanError;
use crate::{
    catalog::{File, Snapshot, StoreError},
    log::PARTS,
    metrics::{self, Cache},
};

/// Over a network, gaps up to the first size are read with their neighbours, as a request costs more than the bytes, and
/// reads grow to the second one: then several at once are quicker.
const REMOTE_READ_BYTES: (u64, u64) = (1 << 20, 16 << 20);

/// On a disk a read costs little. Memory that the system has to find for a large one costs more, while that of small
/// ones comes back to be used again: with one read a row group (12 MB) an eighth of all CPU time went there.
const LOCAL_READ_BYTES: (u64, u64) = (64 << 10, 1 << 20);

/// Reads of a row group that are on their way at a time.
const READS_AT_ONCE: usize = 8;

/// Bytes that the readers of one stream have in common, by row group. What no reader holds any more is let go.
#[derive(Debug, Default)]
pub struct Sharing(Mutex<HashMap<usize, Weak<SharedBytes>>>);

/// What was fetched of one row group, for all that read it at the same time.
#[derive(Debug, Default)]
pub struct SharedBytes(OnceCell<Vec<(Range<u64>, Bytes)>>);

impl Sharing {
    /// The bytes of a row group of the snapshot, fetched or not.
    pub fn bytes_of(&self, row_group: usize) -> Arc<SharedBytes> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bytes) = known.get(&row_group).and_then(Weak::upgrade) {
            return bytes;
        }
        known.retain(|_, bytes| bytes.strong_count() > 0);
        let bytes = Arc::default();
        known.insert(row_group, Arc::downgrade(&bytes));
        bytes
    }
}

impl SharedBytes {
    /// Reads the ranges, in their order, or takes them from what the first reader fetched.
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
        metrics::cache_requests(Cache::RowGroups, self.0.initialized(), 1);
        let fetched = self.0.get_or_try_init(fetch).await?;
        let of =
            |wanted: &Range<u64>| fetched.iter().find(|(range, _)| range == wanted).map(|(_, bytes)| bytes.clone());
        match wanted.iter().map(of).collect() {
            Some(pieces) => Ok(pieces),
            // This reader needs other pages than the first one did.
            None => ranges(snapshot, file, wanted).await,
        }
    }
}

/// Reads the ranges, in their order.
async fn ranges(snapshot: &Snapshot, file: &File, ranges: &[Range<u64>]) -> Result<Vec<Bytes>, ScanError> {
    let (store, object) = (snapshot.store(), file.object());
    let failed = |source: StoreError| {
        let file = file.display().to_owned();
        if source.is_change() {
            snapshot.set_outdated();
            ScanError::Changed { dataset: snapshot.dataset().to_owned(), file }
        } else {
            ScanError::Storage { file, source }
        }
    };
    let (gap, most) = if store.is_local() { LOCAL_READ_BYTES } else { REMOTE_READ_BYTES };
    let reads = merged(ranges, gap, most);
    let bytes: u64 = reads.iter().map(|read| read.end - read.start).sum();
    let span = tracing::info_span!(target: PARTS, "fetch", file = file.display(), reads = reads.len() as i64, bytes = bytes as i64);
    let read = reads.clone().into_iter().map(|read| store.get(object, read));
    let fetched = async {
        let pieces: Vec<Bytes> = futures::stream::iter(read).buffered(READS_AT_ONCE).try_collect().await?;
        store.check_after_reads(object).await?;
        Ok(pieces)
    };
    let pieces = fetched.instrument(span).await.map_err(failed)?;
    let found = |wanted: &Range<u64>| {
        // Reads rise, and each range lies in one of them.
        let index = reads.partition_point(|read| read.start <= wanted.start).saturating_sub(1);
        let start = (wanted.start - reads[index].start) as usize;
        pieces[index].slice(start..start + (wanted.end - wanted.start) as usize)
    };
    Ok(ranges.iter().map(found).collect())
}

/// The reads that hold these ranges: neighbours with a gap of at most `gap` bytes in one, while it has at most `most`.
fn merged(ranges: &[Range<u64>], gap: u64, most: u64) -> Vec<Range<u64>> {
    let mut sorted = ranges.to_vec();
    sorted.sort_by_key(|range| (range.start, range.end));
    let mut reads: Vec<Range<u64>> = Vec::with_capacity(sorted.len());
    for range in sorted {
        match reads.last_mut() {
            // What overlaps has to be in one.
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
    fn neighbours_are_read_together_up_to_a_size() {
        assert_eq!(merged(&[0..4, 4..8, 9..10, 12..14], 1, 100), [0..10, 12..14]);
        assert_eq!(merged(&[0..4, 4..8, 8..12], 1, 8), [0..8, 8..12]);
        assert_eq!(merged(&[8..30, 0..4, 4..8], 0, 8), [0..8, 8..30]);
        assert_eq!(merged(&[0..20, 10..30, 10..12, 40..41], 0, 8), [0..30, 40..41]);
        assert_eq!(merged(&[], 1, 1), []);
    }
}
