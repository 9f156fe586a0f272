//! Iceberg tables: the metadata file, then the manifest list of a snapshot, then its manifests.
//!
//! Columns are found in data files by their field IDs. Delete files become the deleted rows of each data file. What
//! this module does not understand is an error that names it, never skipped.

mod avro;
mod blocking;
mod current;
mod deletes;
mod deletion_vector;
mod equality;
mod key_columns;
mod manifests;
mod metadata;
mod metadata_store;
mod name_mapping;
mod partitions;
mod schema;
mod spec;

use std::collections::HashSet;

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use object_store::path::Path;

use crate::{
    error::LakeError,
    request::IcebergRequest,
    store::TableStore,
    table::{LakeTable, TableFile, TableLog, TableState},
};
use blocking::blocking;
use manifests::{FileContent, ManifestEntry, ManifestText};
use metadata::{METADATA_BYTES_MAX, TableMetadata};
use metadata_store::MetadataStore;
use partitions::IdentityPartitions;

/// The largest manifest list, enough for 10⁶ manifests.
const LIST_BYTES_MAX: u64 = 256 << 20;
/// The largest manifest. Writers aim at 8 MiB.
const MANIFEST_BYTES_MAX: u64 = 512 << 20;
/// The first bytes of an encrypted manifest list or manifest.
const ENCRYPTED_MAGIC: &[u8] = b"AGS1";
/// Manifests read at once.
const MANIFESTS_AT_ONCE: usize = 8;

/// Whether this build reads Iceberg tables.
pub const IS_BUILT: bool = true;

/// The folder of the table of a metadata file; `None` if a path does not name one.
pub fn root_of(path: &Path) -> Option<Path> {
    current::root_of(path)
}

/// Reads a snapshot of a table, unless it is among those `known`. Must run on a Tokio runtime.
pub async fn read(store: TableStore, request: IcebergRequest<'_>, known: &[TableState]) -> Result<TableLog, LakeError> {
    let IcebergRequest { metadata, snapshot } = request;
    let files = MetadataStore::new(&store);
    let current = match metadata {
        Some(metadata) => metadata.clone(),
        None => current::find(files, &store.folders.root).await?,
    };
    let name = files.display(&current);
    let bytes = files.get(&current, METADATA_BYTES_MAX).await?;
    let bytes =
        bytes.ok_or_else(|| LakeError::NotATable(format!("there is no Iceberg table: there is no \"{name}\"")))?;
    let table = parsed(name, bytes).await?;
    let chosen = table.snapshot(snapshot)?;
    let schema = table.schema(chosen, snapshot.is_some())?;
    let state = TableState { id: table.id(schema), version: chosen.snapshot_id.to_string() };
    if let Some(index) = known.iter().position(|known| *known == state) {
        return Ok(TableLog::Known(index));
    }
    let named_by = format!("snapshot {}", state.version);
    let entries = entries(files, &named_by, table.manifest_list(chosen)?).await?;
    let (data, deletes): (Vec<_>, Vec<_>) = entries.into_iter().partition(|entry| entry.content == FileContent::Data);
    let columns = schema.columns(table.names()?.as_ref())?;
    let partitions = IdentityPartitions::of(&table, schema, &columns, &data)?;
    let data = placed(files, data)?;
    let deletable = deletes::deletable(data.iter().map(|(path, entry)| (path, entry)));
    let is_equality = |entry: &ManifestEntry| entry.content == FileContent::EqualityDeletes;
    let (by_equality, by_position): (Vec<_>, Vec<_>) = deletes.into_iter().partition(is_equality);
    let mut deleted = deletes::read(files, &named_by, &by_position, &deletable).await?;
    deleted.push(equality::read(files, &named_by, &by_equality, &data, &table).await?);
    let mut deleted = deletes::merged(deleted).await?;
    let mut table_files = Vec::with_capacity(data.len());
    for (path, entry) in data {
        table_files.push(TableFile {
            path: files.file_path(&path),
            bytes: entry.bytes,
            rows: Some(entry.rows),
            partition_values: partitions.values(&entry)?,
            if_missing: partitions.if_missing(&entry),
            deleted: deleted.remove(&path).unwrap_or_default(),
        });
    }
    table_files.sort_by(|a, b| a.path.cmp(&b.path));
    let (version, partition_columns) = (state.version.clone(), partitions.into_names());
    Ok(TableLog::Version(LakeTable { version, columns, partition_columns, files: table_files }, state))
}

/// The parsed metadata file of this name.
async fn parsed(name: String, bytes: Bytes) -> Result<TableMetadata, LakeError> {
    let damaged = format!("\"{name}\" cannot be read");
    let table = blocking(move || Ok(TableMetadata::parse(&name, &bytes))).await;
    table.map_err(|reason| LakeError::Corrupt(format!("{damaged}: {reason}")))?
}

/// The files of a snapshot.
async fn entries(files: MetadataStore<'_>, named_by: &str, list: &str) -> Result<Vec<ManifestEntry>, LakeError> {
    let bytes = files.get_named(&files.path_of(list)?, named_by, LIST_BYTES_MAX).await?;
    check_plain(list, bytes.starts_with(ENCRYPTED_MAGIC))?;
    let corrupt = |url: &str, reason: String| LakeError::Corrupt(format!("manifest \"{url}\": {reason}"));
    let manifests = blocking(move || manifests::parse_list(&bytes)).await.map_err(|reason| corrupt(list, reason))?;
    let read = |manifest: ManifestText| async move {
        check_plain(&manifest.url, manifest.is_encrypted)?;
        let bytes = files.get_named(&files.path_of(&manifest.url)?, named_by, MANIFEST_BYTES_MAX).await?;
        check_plain(&manifest.url, bytes.starts_with(ENCRYPTED_MAGIC))?;
        let url = manifest.url.clone();
        let parsed = blocking(move || manifests::parse_manifest(&manifest, &bytes)).await;
        let entries = parsed.map_err(|reason| corrupt(&url, reason))?;
        entries.iter().try_for_each(|entry| check_plain(&entry.url, entry.is_encrypted))?;
        Ok(entries)
    };
    let read: Vec<_> = manifests.into_iter().map(read).collect();
    let read = futures::stream::iter(read).buffered(MANIFESTS_AT_ONCE);
    let entries: Vec<Vec<ManifestEntry>> = read.try_collect().await?;
    Ok(entries.into_iter().flatten().collect())
}

fn check_plain(url: &str, is_encrypted: bool) -> Result<(), LakeError> {
    let reason = || format!("\"{url}\" is encrypted, and the server has no keys: write the table without encryption");
    if is_encrypted { Err(LakeError::Unsupported(reason())) } else { Ok(()) }
}

/// The data files with their paths.
fn placed(files: MetadataStore<'_>, data: Vec<ManifestEntry>) -> Result<Vec<(Path, ManifestEntry)>, LakeError> {
    let mut known: HashSet<Path> = HashSet::with_capacity(data.len());
    let mut placed = Vec::with_capacity(data.len());
    for entry in data {
        if entry.format != "parquet" {
            return Err(LakeError::Unsupported(format!(
                "data file \"{}\" has the format {}; only Parquet is supported",
                entry.url, entry.format
            )));
        }
        let path = files.path_of(&entry.url)?;
        if !known.insert(path.clone()) {
            return Err(LakeError::Corrupt(format!("two manifest entries name the data file \"{}\"", entry.url)));
        }
        placed.push((path, entry));
    }
    Ok(placed)
}

#[cfg(test)]
mod tests;
