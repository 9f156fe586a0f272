//! Delta tables: the log is replayed by the Delta kernel.
//!
//! Reader features that the kernel does not support are refused by their names. So are types that have no Arrow type
//! here, before any file of the table is opened.

mod blocking_store;
mod columns;
mod engine;
mod files;
mod history;

use std::sync::Arc;

use arrow::datatypes::DataType;
use delta_kernel::{KernelError, Snapshot, scan::StatsOptions, schema::StructType, table_features::ColumnMappingMode};
use object_store::path::Path;
use tokio::runtime::Handle;

use self::{blocking_store::BlockingStore, engine::LogEngine, history::History};
use crate::{
    error::LakeError,
    store::TableStore,
    table::{Column, LakeTable, TableLog, TableState},
};

/// Whether this build reads Delta tables.
pub const IS_BUILT: bool = true;

/// The folder of the log.
const LOG: &str = "_delta_log";

/// Reads a version of a table, by default the newest, unless it is among those `known`. Must run on a Tokio runtime.
///
/// Replaying a long log takes seconds of CPU time: it runs on the runtime's threads for blocking calls.
pub async fn read(store: TableStore, version: Option<u64>, known: Vec<TableState>) -> Result<TableLog, LakeError> {
    let runtime = Handle::current();
    let read = tokio::task::spawn_blocking(move || {
        let engine = LogEngine::new(BlockingStore::new(store, runtime));
        replay(&engine, version, &known).map_err(|error| explained(&engine, version, error))
    });
    read.await.unwrap_or_else(|ended| Err(LakeError::Corrupt(format!("the log cannot be replayed: {ended}"))))
}

/// Why a log was not read: by the kernel, or by what the kernel read.
enum ReplayError {
    Kernel(KernelError),
    Table(LakeError),
}

impl From<KernelError> for ReplayError {
    fn from(error: KernelError) -> Self {
        Self::Kernel(error)
    }
}

impl From<LakeError> for ReplayError {
    fn from(error: LakeError) -> Self {
        Self::Table(error)
    }
}

fn replay(engine: &LogEngine, version: Option<u64>, known: &[TableState]) -> Result<TableLog, ReplayError> {
    let root = engine.table_url()?;
    let mut builder = Snapshot::builder_for(root.as_str());
    if let Some(version) = version {
        builder = builder.at_version(version);
    }
    let snapshot = builder.build(engine)?;
    let configuration = snapshot.table_configuration();
    let state = TableState { id: configuration.metadata().id().to_owned(), version: snapshot.version().to_string() };
    if let Some(index) = known.iter().position(|known| *known == state) {
        return Ok(TableLog::Known(index));
    }
    let mapping = configuration.column_mapping_mode();
    let schema = snapshot.schema();
    let columns = columns::columns(&schema, mapping)?;
    let partition_columns = configuration.logical_partition_columns().to_vec();
    let keys = partition_keys(&schema, &partition_columns, mapping)?;
    refuse_bytes(&columns, &partition_columns)?;
    let scan =
        Arc::clone(&snapshot).scan_builder().without_row_transforms().with_stats(StatsOptions::none()).build()?;
    let mut files = Vec::new();
    for batch in scan.scan_metadata(engine)? {
        files = batch?.visit_scan_files(files, Vec::push)?;
    }
    let mut files = files::table_files(engine, &root, &state.version, &keys, files)?;
    files.sort_by(|a, b| a.path.cmp(&b.path));
    let table = LakeTable { version: state.version.clone(), columns, partition_columns, files };
    Ok(TableLog::Version(table, state))
}

/// The names of partition columns in the log: those in data files, also where columns are mapped by ID.
fn partition_keys(
    schema: &StructType,
    columns: &[String],
    mapping: ColumnMappingMode,
) -> Result<Vec<String>, LakeError> {
    let missing =
        |name: &String| LakeError::Corrupt(format!("the partition column \"{name}\" is not a column of the table"));
    let key = |name: &String| {
        let field = schema.field(name).ok_or_else(|| missing(name))?;
        Ok(field.physical_name(mapping).to_owned())
    };
    columns.iter().map(key).collect()
}

/// Writers disagree about the text form of bytes.
fn refuse_bytes(columns: &[Column], partition_columns: &[String]) -> Result<(), LakeError> {
    let is_bytes = |column: &&Column| {
        partition_columns.contains(column.field.name()) && *column.field.data_type() == DataType::Binary
    };
    columns.iter().find(is_bytes).map_or(Ok(()), |column| {
        Err(LakeError::Unsupported(format!(
            "the partition column \"{}\" has the type binary, which is not supported for partitions",
            column.field.name()
        )))
    })
}

/// The error of a replay in terms of the table.
fn explained(engine: &LogEngine, version: Option<u64>, error: ReplayError) -> LakeError {
    let error = match error {
        ReplayError::Table(error) => return error,
        ReplayError::Kernel(error) => error,
    };
    if let Some(failure) = engine.store().failure() {
        return failure;
    }
    let text = sentence(&error);
    if is_unsupported(&error) {
        return LakeError::Unsupported(format!("the table needs what this server does not support: {text}"));
    }
    let log = engine.store().root().clone().join(LOG);
    let listed = engine.store().list(&log, None);
    if let Some(failure) = engine.store().failure() {
        return failure;
    }
    let history = listed.unwrap_or_default();
    let names = history.iter().filter_map(|file| name_in(&log, &file.location));
    History::of(names).reason(version).unwrap_or_else(|| LakeError::Corrupt(format!("its log cannot be read: {text}")))
}

fn name_in<'a>(folder: &Path, file: &'a Path) -> Option<&'a str> {
    file.as_ref().strip_prefix(folder.as_ref())?.strip_prefix('/')
}

fn is_unsupported(error: &KernelError) -> bool {
    match error {
        KernelError::Backtraced { source, .. } => is_unsupported(source),
        KernelError::Unsupported(_) => true,
        _ => false,
    }
}

/// The message of an error, without a backtrace.
fn sentence(error: &KernelError) -> String {
    let error = match error {
        KernelError::Backtraced { source, .. } => return sentence(source),
        KernelError::Generic(text) | KernelError::Unsupported(text) => text.clone(),
        error => error.to_string(),
    };
    error.lines().next().unwrap_or_default().to_owned()
}
