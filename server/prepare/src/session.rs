//! The session of DataFusion: the given tables, a bounded memory pool and a directory to spill to.

use std::{num::NonZeroUsize, path::PathBuf, sync::Arc};

use datafusion::{
    common::TableReference,
    error::DataFusionError,
    execution::{
        context::SessionContext,
        disk_manager::{DiskManagerBuilder, DiskManagerMode},
        memory_pool::{FairSpillPool, TrackConsumersPool},
        object_store::ObjectStoreUrl,
        runtime_env::{RuntimeEnv, RuntimeEnvBuilder},
        session_state::SessionStateBuilder,
    },
    optimizer::Optimizer,
    prelude::SessionConfig,
};

use crate::{
    expressions,
    inputs::Input,
    table::{Reads, SnapshotTable},
};

/// Consumers of memory that an error names.
const CONSUMERS_SHOWN: NonZeroUsize = NonZeroUsize::MIN.saturating_add(2);

/// Memory that a sort keeps for merging what it spilled.
const SORT_MERGE_BYTES: usize = 10 << 20;

/// What a query may use.
#[derive(Clone, Debug)]
pub(crate) struct Limits {
    /// Bytes of memory.
    pub memory_bytes: usize,
    /// The directory of spilled data.
    pub spill_directory: PathBuf,
    /// Bytes of spilled data.
    pub spill_bytes: u64,
    /// Partitions that run at once.
    pub threads: usize,
}

/// Bytes of memory per thread for each row of a batch: an operator that merges holds some batches per spilled file.
const MEMORY_PER_BATCH_ROW: usize = 16 << 10;

/// Rows of a batch.
const BATCH_ROWS_MIN: usize = 256;
const BATCH_ROWS_MAX: usize = 8192;

/// How tables are joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Joins {
    /// The smaller table is held in memory.
    Hash,
    /// Both tables are sorted, and spill.
    SortMerge,
}

/// Opens a session whose only tables are the inputs.
pub(crate) fn open(inputs: &[Input], limits: &Limits, joins: Joins) -> Result<SessionContext, DataFusionError> {
    let builder = SessionStateBuilder::new()
        .with_default_features()
        .with_config(config(limits, joins))
        .with_runtime_env(runtime(limits)?);
    let context = expressions::session(builder, Optimizer::new().rules);
    for (index, input) in inputs.iter().enumerate() {
        let url = ObjectStoreUrl::parse(format!("input://{index}"))?;
        context.register_object_store(url.as_ref(), Arc::clone(input.snapshot.store().client()));
        let table = SnapshotTable::new(Arc::clone(&input.snapshot), url, Reads::Here);
        context.register_table(TableReference::bare(input.name.as_str()), Arc::new(table))?;
    }
    Ok(context)
}

/// The memory pool and the directory of spilled data.
pub(crate) fn runtime(limits: &Limits) -> Result<Arc<RuntimeEnv>, DataFusionError> {
    let pool = TrackConsumersPool::new(FairSpillPool::new(limits.memory_bytes), CONSUMERS_SHOWN);
    let directories = DiskManagerMode::Directories(vec![limits.spill_directory.clone()]);
    let disk = DiskManagerBuilder::default().with_mode(directories).with_max_temp_directory_size(limits.spill_bytes);
    RuntimeEnvBuilder::new().with_memory_pool(Arc::new(pool)).with_disk_manager_builder(disk).build_arc()
}

/// Positions in SQL for errors, numbers with all their digits, and text as plain text.
pub(crate) fn set_sql(config: &mut SessionConfig) {
    let options = config.options_mut();
    options.sql_parser.collect_spans = true;
    options.sql_parser.parse_float_as_decimal = true;
    options.sql_parser.map_string_types_to_utf8view = false;
    options.execution.parquet.schema_force_view_types = false;
}

fn config(limits: &Limits, joins: Joins) -> SessionConfig {
    let batch_rows = limits.memory_bytes / limits.threads.max(1) / MEMORY_PER_BATCH_ROW;
    let mut config = SessionConfig::new()
        .with_target_partitions(limits.threads)
        .with_batch_size(batch_rows.clamp(BATCH_ROWS_MIN, BATCH_ROWS_MAX))
        .with_information_schema(false);
    set_sql(&mut config);
    let options = config.options_mut();
    let share = limits.memory_bytes / (8 * limits.threads.max(1));
    options.execution.sort_spill_reservation_bytes = share.min(SORT_MERGE_BYTES);
    options.optimizer.prefer_hash_join = joins == Joins::Hash;
    config
}
