//! Reads of pinned files: a file that was replaced is an error, never other rows.

use std::{collections::HashMap, ops::Range, sync::Arc};

use bytes::Bytes;
use datafusion::{
    datasource::{
        listing::PartitionedFile,
        physical_plan::{ParquetFileMetrics, ParquetFileReaderFactory},
    },
    error::DataFusionError,
    physical_plan::metrics::ExecutionPlanMetricsSet,
};
use forebay_catalog::{File, Snapshot, Store, StoreError};
use futures::{FutureExt, future::BoxFuture};
use object_store::path::Path;
use parquet::{
    arrow::{arrow_reader::ArrowReaderOptions, async_reader::AsyncFileReader},
    errors::{ParquetError, Result},
    file::metadata::ParquetMetaData,
};

/// Gaps between ranges that are read rather than skipped by another request.
const COALESCED_BYTES: u64 = 1 << 20;

/// Readers of the files of a snapshot.
#[derive(Debug)]
pub(crate) struct PinnedReaders {
    store: Store,
    files: HashMap<Path, Arc<File>>,
}

struct PinnedReader {
    store: Store,
    file: Arc<File>,
    metrics: ParquetFileMetrics,
}

// === impl PinnedReaders ===

impl PinnedReaders {
    pub(crate) fn new(snapshot: &Snapshot) -> Self {
        let files = snapshot.files().iter().map(|file| (file.object().location.clone(), Arc::clone(file)));
        Self { store: snapshot.store().clone(), files: files.collect() }
    }
}

impl ParquetFileReaderFactory for PinnedReaders {
    fn create_reader(
        &self,
        partition_index: usize,
        partitioned_file: PartitionedFile,
        _metadata_size_hint: Option<usize>,
        metrics: &ExecutionPlanMetricsSet,
    ) -> std::result::Result<Box<dyn AsyncFileReader + Send>, DataFusionError> {
        let location = &partitioned_file.object_meta.location;
        let file = self.files.get(location).ok_or_else(|| DataFusionError::Internal(format!("no file {location}")))?;
        let metrics = ParquetFileMetrics::new(partition_index, file.display(), metrics);
        Ok(Box::new(PinnedReader { store: self.store.clone(), file: Arc::clone(file), metrics }))
    }
}

// === impl PinnedReader ===

impl AsyncFileReader for PinnedReader {
    fn get_bytes(&mut self, range: Range<u64>) -> BoxFuture<'_, Result<Bytes>> {
        self.metrics.bytes_scanned.add((range.end - range.start) as usize);
        async move { self.store.get(self.file.object(), range).await.map_err(external) }.boxed()
    }

    fn get_byte_ranges(&mut self, ranges: Vec<Range<u64>>) -> BoxFuture<'_, Result<Vec<Bytes>>> {
        self.metrics.bytes_scanned.add(ranges.iter().map(|range| range.end - range.start).sum::<u64>() as usize);
        let (store, file) = (&self.store, &self.file);
        async move {
            let fetch = |range| async move { store.get(file.object(), range).await };
            object_store::coalesce_ranges(&ranges, fetch, COALESCED_BYTES).await.map_err(external)
        }
        .boxed()
    }

    fn get_metadata<'a>(
        &'a mut self,
        _options: Option<&'a ArrowReaderOptions>,
    ) -> BoxFuture<'a, Result<Arc<ParquetMetaData>>> {
        let metadata = Arc::clone(self.file.metadata().metadata());
        async move { Ok(metadata) }.boxed()
    }
}

fn external(error: StoreError) -> ParquetError {
    ParquetError::External(Box::new(error))
}
