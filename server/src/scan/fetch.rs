//! Byte ranges of a pinned file: neighbours in one request, each checked to come from the file that was pinned.

use std::ops::Range;

use bytes::Bytes;
use object_store::coalesce_ranges;

use super::ScanError;
use crate::catalog::{File, Snapshot, StoreError};

/// Gaps up to this size are read with their neighbours: a request costs more than the bytes.
const COALESCE_BYTES: u64 = 1 << 20;

/// Reads the ranges, in their order.
pub(super) async fn ranges(snapshot: &Snapshot, file: &File, ranges: &[Range<u64>]) -> Result<Vec<Bytes>, ScanError> {
    let (store, object) = (snapshot.store(), file.object());
    let failed = |source: StoreError| {
        let (dataset, file) = (snapshot.dataset().to_owned(), file.display().to_owned());
        if source.is_change() { ScanError::Changed { dataset, file } } else { ScanError::Storage { file, source } }
    };
    let read = async |range: Range<u64>| store.get(object, range).await;
    let pieces = coalesce_ranges(ranges, read, COALESCE_BYTES).await.map_err(failed)?;
    store.check_after_reads(object).await.map_err(failed)?;
    Ok(pieces)
}
