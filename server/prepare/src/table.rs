//! A snapshot as a table of DataFusion. Plans scans only; the reads are in `pinned_reader`.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::{
    catalog::{Session, TableProvider},
    common::{Statistics, stats::Precision},
    config::TableParquetOptions,
    datasource::{
        listing::PartitionedFile,
        physical_plan::{FileGroup, FileScanConfigBuilder, ParquetSource},
        source::DataSourceExec,
    },
    error::DataFusionError,
    execution::object_store::ObjectStoreUrl,
    logical_expr::{Expr, TableType},
    physical_plan::ExecutionPlan,
};
use forebay_server::catalog::{Int96Unit, Snapshot};

use crate::pinned_reader::PinnedReaders;

/// The files of a snapshot as one table.
#[derive(Debug)]
pub(crate) struct SnapshotTable {
    snapshot: Arc<Snapshot>,
    store_url: ObjectStoreUrl,
}

// === impl SnapshotTable ===

impl SnapshotTable {
    /// A table whose store is registered under `store_url`.
    pub(crate) fn new(snapshot: Arc<Snapshot>, store_url: ObjectStoreUrl) -> Self {
        Self { snapshot, store_url }
    }

    /// Rows and decoded bytes, for the choice of joins.
    fn known_statistics(&self) -> Statistics {
        let schema = self.snapshot.schema();
        let mut statistics = Statistics::new_unknown(schema);
        statistics.num_rows = Precision::Exact(usize::try_from(self.snapshot.row_count()).unwrap_or(usize::MAX));
        statistics.total_byte_size =
            Precision::Inexact(usize::try_from(decoded_bytes(&self.snapshot)).unwrap_or(usize::MAX));
        statistics
    }
}

/// The uncompressed bytes of a snapshot according to its footers.
pub(crate) fn decoded_bytes(snapshot: &Snapshot) -> u64 {
    let files = snapshot.files().iter();
    let groups = files.flat_map(|file| file.metadata().metadata().row_groups());
    groups.map(|group| u64::try_from(group.total_byte_size()).unwrap_or(0)).fold(0, u64::saturating_add)
}

#[async_trait]
impl TableProvider for SnapshotTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(self.snapshot.schema())
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn statistics(&self) -> Option<Statistics> {
        Some(self.known_statistics())
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        _filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>, DataFusionError> {
        let mut global = state.config_options().execution.parquet.clone();
        if self.snapshot.int96_unit() == Int96Unit::Microseconds {
            global.coerce_int96 = Some("us".to_owned());
        }
        let options = TableParquetOptions { global, ..TableParquetOptions::default() };
        let source = ParquetSource::new(self.schema())
            .with_table_parquet_options(options)
            .with_parquet_file_reader_factory(Arc::new(PinnedReaders::new(&self.snapshot)));
        let files = self.snapshot.files().iter().map(|file| PartitionedFile::new_from_meta(file.object().clone()));
        let groups = FileGroup::new(files.collect()).split_files(state.config_options().execution.target_partitions);
        let config = FileScanConfigBuilder::new(self.store_url.clone(), Arc::new(source))
            .with_file_groups(groups)
            .with_statistics(self.known_statistics())
            .with_projection_indices(projection.cloned())?
            .with_limit(limit)
            .build();
        Ok(DataSourceExec::from_data_source(config))
    }
}
