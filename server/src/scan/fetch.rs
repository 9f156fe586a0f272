//! Byte ranges of a pinned file: neighbours in one request, each checked to come from the file that was pinned.

use std::{
    collections::HashMap,
    ops::Range,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use bytes::Bytes;
use object_store::coalesce_ranges;
use tokio::sync::OnceCell;

use super::ScanError;
use crate::catalog::{File, Snapshot, StoreError};

/// Gaps up to this size are read with their neighbours: a request costs more than the bytes.
const COALESCE_BYTES: u64 = 1 << 20;

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
        let fetch = async || {
            let pieces = ranges(snapshot, file, wanted).await?;
            Ok::<_, ScanError>(wanted.iter().cloned().zip(pieces).collect())
        };
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
            ScanError::Changed { dataset: snapshot.dataset().to_owned(), file }
        } else {
            ScanError::Storage { file, source }
        }
    };
    let read = async |range: Range<u64>| store.get(object, range).await;
    let pieces = coalesce_ranges(ranges, read, COALESCE_BYTES).await.map_err(failed)?;
    store.check_after_reads(object).await.map_err(failed)?;
    Ok(pieces)
}
