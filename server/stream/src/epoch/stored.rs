//! Opens the stored rows of a row group for an epoch.

use std::{ops::Range, sync::Arc};

use forebay_cache::CachedChunks;
use forebay_scan::{RowGroupChunks, SharedBytes};

use crate::{
    environment::Environment,
    error::StreamError,
    prepare::{cache_level::file_state, dataset::PreparedDataset},
    rows::reader::RowReader,
};

/// The stored rows of a row group that are decoded for these passing ones.
pub(super) fn stored_rows(prepared: &PreparedDataset, row_group: usize, passing: &Range<u64>) -> Range<u64> {
    let (snapshot, rows) = (&prepared.snapshot, &prepared.compiled.rows);
    rows.stored_rows(snapshot, &snapshot.row_groups()[row_group], passing)
}

/// Opens a row group to read these stored rows, whose bytes it shares with the other readers of the row group. `chunks` is
/// the cache of the snapshot's column chunks.
pub(super) async fn open(
    environment: &Environment,
    prepared: &PreparedDataset,
    chunks: Option<&Arc<CachedChunks>>,
    row_group: usize,
    stored: Range<u64>,
) -> Result<RowReader, StreamError> {
    let shared = shared(environment, prepared, chunks, row_group);
    prepared.scan(environment).open_at(row_group, stored, &shared).await
}

/// The bytes of a row group that its readers share, fetched or not.
pub(super) fn shared(
    environment: &Environment,
    prepared: &PreparedDataset,
    chunks: Option<&Arc<CachedChunks>>,
    row_group: usize,
) -> Arc<SharedBytes> {
    let (snapshot, projection) = (&prepared.snapshot, &prepared.compiled.rows.projection);
    let chunks = chunks.map(|chunks| RowGroupChunks::new(chunks, row_group, file_state(snapshot, row_group)));
    environment.sharing.bytes_of(snapshot, row_group, projection, chunks)
}
