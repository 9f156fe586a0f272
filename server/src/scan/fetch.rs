//! Byte ranges of a pinned file: neighbours in one request, each checked to come from the file that was pinned.

use std::{
    collections::HashMap,
    ops::Range,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use bytes::Bytes;
use object_store::{Error, GetOptions, GetRange, ObjectStore, ObjectStoreExt, coalesce_ranges};

use tokio::sync::OnceCell;

use super::ScanError;
use crate::{
    catalog::{File, Snapshot},
    metrics,
};

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
    let store = snapshot.store();
    let object = file.object();
    let read = async |range: Range<u64>| {
        let options = GetOptions {
            range: Some(GetRange::Bounded(range.clone())),
            if_match: object.e_tag.clone(),
            ..GetOptions::default()
        };
        let result = match store.get_opts(&object.location, options).await {
            Ok(result) => result.bytes().await,
            Err(source) => Err(source),
        };
        metrics::storage_request("get", result.is_ok(), result.as_ref().map_or(0, |bytes| bytes.len() as u64));
        match result {
            Ok(bytes) if bytes.len() as u64 != range.end - range.start => Err(changed(snapshot, file)),
            other => other.map_err(|source| storage(snapshot, file, source)),
        }
    };
    let pieces = coalesce_ranges(ranges, read, COALESCE_BYTES).await?;

    // A file on a local disk can be overwritten between the check and the read: look again after it.
    let now = store.head(&object.location).await;
    metrics::storage_request("head", now.is_ok(), 0);
    let now = now.map_err(|source| storage(snapshot, file, source))?;
    if now.e_tag != object.e_tag || now.size != object.size {
        return Err(changed(snapshot, file));
    }
    Ok(pieces)
}

fn storage(snapshot: &Snapshot, file: &File, source: Error) -> ScanError {
    match source {
        Error::NotFound { .. } | Error::Precondition { .. } => changed(snapshot, file),
        source => ScanError::Storage { file: file.display().to_owned(), source },
    }
}

fn changed(snapshot: &Snapshot, file: &File) -> ScanError {
    ScanError::Changed { dataset: snapshot.dataset().to_owned(), file: file.display().to_owned() }
}
