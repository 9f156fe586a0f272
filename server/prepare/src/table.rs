//! A snapshot as a table of DataFusion. Plans scans only; the reads are in `pinned_reader`, or on a cluster.

use std::sync::Arc;

use arrow::datatypes::{FieldRef, Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::{
    catalog::{Session, TableProvider},
    common::{ScalarValue, Statistics, stats::Precision},
    config::TableParquetOptions,
    datasource::{
        listing::PartitionedFile,
        physical_plan::{FileGroup, FileScanConfigBuilder, ParquetSource},
        source::DataSourceExec,
        table_schema::TableSchema,
    },
    error::DataFusionError,
    execution::object_store::ObjectStoreUrl,
    logical_expr::{Expr, TableType},
    physical_plan::ExecutionPlan,
};
use forebay_catalog::{Int96Unit, Snapshot};
#[cfg(feature = "ballista")]
use object_store::{ObjectMeta, path::Path};

use crate::pinned_reader::PinnedReaders;

/// The files of a snapshot as one table.
#[derive(Debug)]
pub(crate) struct SnapshotTable {
    snapshot: Arc<Snapshot>,
    store_url: ObjectStoreUrl,
    reads: Reads,
    /// The columns of the files, then those of their folders.
    schema: TableSchema,
}

/// Who reads the files of a plan.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Reads {
    /// This process, with the footers that it has.
    Here,
    /// Other processes, at the paths that this function gives.
    #[cfg(feature = "ballista")]
    Elsewhere(fn(&ObjectMeta) -> Result<Path, DataFusionError>),
}

// === impl SnapshotTable ===

impl SnapshotTable {
    /// A table whose store is registered under `store_url` where it is read.
    pub(crate) fn new(snapshot: Arc<Snapshot>, store_url: ObjectStoreUrl, reads: Reads) -> Self {
        let fields = snapshot.schema().fields().iter().map(Arc::clone).enumerate();
        let (of_folders, of_files): (Vec<_>, Vec<_>) = fields.partition(|(column, _)| snapshot.is_partition(*column));
        let fields = |columns: Vec<(usize, FieldRef)>| columns.into_iter().map(|(_, field)| field).collect::<Vec<_>>();
        let of_files = Schema::new_with_metadata(fields(of_files), snapshot.schema().metadata().clone());
        let schema = TableSchema::builder(Arc::new(of_files)).with_table_partition_cols(fields(of_folders)).build();
        Self { snapshot, store_url, reads, schema }
    }

    /// A file of the snapshot with the values of its folder.
    fn file(&self, index: usize) -> Result<PartitionedFile, DataFusionError> {
        let values = (0..self.snapshot.schema().fields().len())
            .filter_map(|column| self.snapshot.partition_values(column))
            .map(|values| ScalarValue::try_from_array(values, index));
        let object = self.snapshot.files()[index].object().clone();
        let object = match self.reads {
            Reads::Here => object,
            #[cfg(feature = "ballista")]
            Reads::Elsewhere(path) => ObjectMeta { location: path(&object)?, ..object },
        };
        let file = PartitionedFile::new_from_meta(object);
        Ok(file.with_partition_values(values.collect::<Result<_, _>>()?))
    }

    /// Rows and decoded bytes, for the choice of joins.
    fn known_statistics(&self) -> Statistics {
        let mut statistics = Statistics::new_unknown(self.schema.table_schema());
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
        Arc::clone(self.schema.table_schema())
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
        // Only the statistics in the snapshot's footers are known to be trustworthy: neither those of pages, nor those that
        // another machine reads.
        global.enable_page_index = false;
        global.pruning = matches!(self.reads, Reads::Here);
        let options = TableParquetOptions { global, ..TableParquetOptions::default() };
        let source = ParquetSource::new(self.schema.clone()).with_table_parquet_options(options);
        let source = match self.reads {
            Reads::Here => source.with_parquet_file_reader_factory(Arc::new(PinnedReaders::new(&self.snapshot))),
            #[cfg(feature = "ballista")]
            Reads::Elsewhere(_) => source,
        };
        let files = (0..self.snapshot.files().len()).map(|index| self.file(index)).collect::<Result<_, _>>()?;
        let groups = FileGroup::new(files).split_files(state.config_options().execution.target_partitions);
        let config = FileScanConfigBuilder::new(self.store_url.clone(), Arc::new(source))
            .with_file_groups(groups)
            .with_statistics(self.known_statistics())
            .with_projection_indices(projection.cloned())?
            .with_limit(limit)
            .build();
        Ok(DataSourceExec::from_data_source(config))
    }
}
