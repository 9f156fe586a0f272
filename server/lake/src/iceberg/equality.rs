//! Equality deletes: rows whose values in some columns equal those of a row of a delete file.
//!
//! A delete applies to data files of lower sequence numbers in its partition, or in all if its spec is unpartitioned. Null
//! equals null. The columns of these data files are read, and nothing else of them.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use arrow::{
    array::ArrayRef,
    datatypes::DataType,
    row::{RowConverter, SortField},
};
use futures::{StreamExt, TryStreamExt};
use object_store::path::Path;

use super::{
    deletes::{DeletedRows, DeletedRowsOfFile},
    key_columns::{KeyColumn, KeyFile},
    manifests::ManifestEntry,
    metadata::TableMetadata,
    metadata_store::MetadataStore,
    name_mapping::NameMapping,
    spec::{PartitionFieldText, PartitionValue},
};
use crate::error::LakeError;

/// The most rows of all equality delete files of a snapshot, which are held in memory.
const DELETES_MAX: u64 = 1 << 25;
/// The most bytes of their values.
const DELETES_BYTES_MAX: u64 = if cfg!(test) { 1 << 20 } else { 1 << 30 };
/// The bytes that a row takes besides its values.
const ROW_BYTES: u64 = 64;
/// Files read at once.
const READS_AT_ONCE: usize = 4;

/// The deletes of the same columns in the same partition.
struct EqualityDeletes {
    columns: Arc<[KeyColumn]>,
    scope: Scope,
    converter: RowConverter,
    /// The greatest sequence number of each deleted row, by its values.
    rows: HashMap<Box<[u8]>, i64>,
    /// The greatest of all.
    sequence: i64,
}

/// The data files that a delete file is about.
#[derive(Clone, Debug)]
enum Scope {
    All,
    Partition(i32, Vec<PartitionValue>),
}

/// Reads the equality deletes of a snapshot, and finds the rows of data files that they delete. `named_by` names the
/// snapshot in errors.
pub(super) async fn read(
    store: MetadataStore<'_>,
    named_by: &str,
    deletes: &[ManifestEntry],
    data: &[(Path, ManifestEntry)],
    table: &TableMetadata,
) -> Result<DeletedRows, LakeError> {
    let found = read_deletes(store, named_by, deletes, data, table).await?;
    let found = Arc::new(found);
    let mut reads = Vec::new();
    for (path, entry) in data {
        let applying: Vec<usize> = (0..found.len()).filter(|index| found[*index].applies(entry)).collect();
        if !applying.is_empty() {
            reads.push(of_file(store, named_by, path, entry, Arc::clone(&found), applying, table));
        }
    }
    futures::stream::iter(reads).buffered(READS_AT_ONCE).try_collect().await
}

/// Reads the delete files that apply to any data file.
async fn read_deletes(
    store: MetadataStore<'_>,
    named_by: &str,
    deletes: &[ManifestEntry],
    data: &[(Path, ManifestEntry)],
    table: &TableMetadata,
) -> Result<Vec<EqualityDeletes>, LakeError> {
    let names = table.names()?;
    let (mut found, mut reads, mut rows) = (Vec::<EqualityDeletes>::new(), Vec::new(), 0_u64);
    let bytes = Arc::new(AtomicU64::new(0));
    for delete in deletes {
        let scope = Scope::of(delete, table)?;
        if !data.iter().any(|(_, entry)| entry.sequence < delete.sequence && scope.has(entry)) {
            continue;
        }
        rows = rows.saturating_add(delete.rows);
        if rows > DELETES_MAX {
            return Err(too_many(named_by, &format!("{DELETES_MAX} rows")));
        }
        let columns = columns(delete, table, names.as_ref())?;
        let known = found.iter_mut().position(|known| known.is_of(&columns, &scope));
        let index = known.unwrap_or(found.len());
        if known.is_none() {
            found.push(EqualityDeletes::new(columns, scope)?);
        }
        reads.push((index, delete));
    }
    let reads: Vec<_> = reads
        .into_iter()
        .map(|(index, delete)| {
            let (columns, bytes) = (Arc::clone(&found[index].columns), Arc::clone(&bytes));
            async move {
                let rows = values(store, named_by, delete, columns, bytes).await?;
                Ok::<_, LakeError>((index, delete.sequence, rows))
            }
        })
        .collect();
    let mut reads = futures::stream::iter(reads).buffered(READS_AT_ONCE);
    while let Some((index, sequence, rows)) = reads.try_next().await? {
        found[index].add(sequence, rows);
    }
    drop(reads);
    Ok(found)
}

/// The columns by which a file deletes.
fn columns(
    delete: &ManifestEntry,
    table: &TableMetadata,
    names: Option<&NameMapping>,
) -> Result<Vec<KeyColumn>, LakeError> {
    let unsupported = |reason: String| LakeError::Unsupported(format!("delete file \"{}\" {reason}", delete.url));
    if delete.format != "parquet" {
        return Err(unsupported(format!("has the unsupported format {}", delete.format)));
    }
    if delete.equality_ids.is_empty() {
        return Err(LakeError::Corrupt(format!("delete file \"{}\" names no columns to delete by", delete.url)));
    }
    let column = |id: &i32| {
        let field = table.field(*id);
        let field = field.ok_or_else(|| unsupported(format!("deletes by the field {id}, which is not a column")))?;
        let column = field.column(names)?;
        let (name, data_type) = (column.field.name().clone(), column.field.data_type().clone());
        if data_type.is_nested() || data_type.is_floating() {
            return Err(unsupported(format!("deletes by column \"{name}\" of type {data_type}")));
        }
        Ok(KeyColumn { name, key: column.stored.key, data_type })
    };
    delete.equality_ids.iter().map(column).collect()
}

/// The rows of a delete file, as [`RowConverter`] writes them. `bytes` counts those of all files.
async fn values(
    store: MetadataStore<'_>,
    named_by: &str,
    delete: &ManifestEntry,
    columns: Arc<[KeyColumn]>,
    bytes: Arc<AtomicU64>,
) -> Result<Vec<Box<[u8]>>, LakeError> {
    let path = store.path_of(&delete.url)?;
    let converter = converter(&columns)?;
    let file = KeyFile::open(store, &path, named_by, delete.bytes, columns).await?;
    if let Some(missing) = file.missing().next() {
        let reason = format!("delete file \"{}\" has no column \"{}\"", delete.url, missing.name);
        return Err(LakeError::Corrupt(reason));
    }
    check_rows(&file, delete)?;
    let of_all = Arc::clone(&bytes);
    let add = move |values: &mut Vec<Box<[u8]>>, _: u64, arrays: &[ArrayRef]| {
        let rows = converter.convert_columns(arrays).map_err(|source| source.to_string())?;
        let added = rows.iter().map(|row| row.as_ref().len() as u64 + ROW_BYTES).sum();
        // Too many are counted, not kept.
        if of_all.fetch_add(added, Ordering::Relaxed).saturating_add(added) <= DELETES_BYTES_MAX {
            values.extend(rows.iter().map(|row| Box::from(row.as_ref())));
        }
        Ok(())
    };
    let values = file.each(Vec::new(), Arc::new(add)).await?;
    if bytes.load(Ordering::Relaxed) > DELETES_BYTES_MAX {
        return Err(too_many(named_by, &format!("{DELETES_BYTES_MAX} bytes")));
    }
    Ok(values)
}

fn too_many(named_by: &str, limit: &str) -> LakeError {
    LakeError::Unsupported(format!(
        "{named_by} has more than {limit} in equality delete files: compact the table (in Spark: CALL \
         system.rewrite_data_files)"
    ))
}

fn converter(columns: &[KeyColumn]) -> Result<RowConverter, LakeError> {
    let fields = columns.iter().map(|column| SortField::new(column.data_type.clone())).collect();
    RowConverter::new(fields).map_err(|source| LakeError::Unsupported(source.to_string()))
}

/// The rows of a data file that some deletes, by their indices, delete.
async fn of_file(
    store: MetadataStore<'_>,
    named_by: &str,
    path: &Path,
    entry: &ManifestEntry,
    deletes: Arc<Vec<EqualityDeletes>>,
    applying: Vec<usize>,
    table: &TableMetadata,
) -> Result<DeletedRowsOfFile, LakeError> {
    // The columns of all of them, one after another.
    let columns: Vec<KeyColumn> = applying.iter().flat_map(|index| deletes[*index].columns.iter().cloned()).collect();
    let file = KeyFile::open(store, path, named_by, entry.bytes, columns.into()).await?;
    check_rows(&file, entry)?;
    let partition = table.spec(entry.spec_id)?;
    let is_partition = |column: &&KeyColumn| partition.iter().any(|field| field.identity() == column.key.id());
    if let Some(column) = file.missing().find(is_partition) {
        return Err(LakeError::Unsupported(format!(
            "\"{}\" is partitioned by column \"{}\", which it lacks and by which rows are deleted: compact the table",
            entry.url, column.name
        )));
    }
    let sequence = entry.sequence;
    let find = move |deleted: &mut Vec<u64>, first: u64, arrays: &[ArrayRef]| {
        let mut rest = arrays;
        for index in &applying {
            let deletes = &deletes[*index];
            let (own, others) = rest.split_at(deletes.columns.len());
            rest = others;
            let rows = deletes.converter.convert_columns(own).map_err(|source| source.to_string())?;
            let is_deleted = |row: &[u8]| deletes.rows.get(row).is_some_and(|deleted| sequence < *deleted);
            deleted.extend((first..).zip(&rows).filter(|(_, row)| is_deleted(row.as_ref())).map(|(row, _)| row));
        }
        Ok(())
    };
    Ok((path.clone(), file.each(Vec::new(), Arc::new(find)).await?))
}

fn check_rows(file: &KeyFile<'_>, entry: &ManifestEntry) -> Result<(), LakeError> {
    if file.rows() == entry.rows {
        return Ok(());
    }
    Err(LakeError::Corrupt(format!("\"{}\" has {} rows, but its manifest says {}", entry.url, file.rows(), entry.rows)))
}

// === impl EqualityDeletes ===

impl EqualityDeletes {
    fn new(columns: Vec<KeyColumn>, scope: Scope) -> Result<Self, LakeError> {
        let converter = converter(&columns)?;
        Ok(Self { columns: columns.into(), scope, converter, rows: HashMap::new(), sequence: 0 })
    }

    /// Adds the rows of a file of a sequence number.
    fn add(&mut self, sequence: i64, rows: Vec<Box<[u8]>>) {
        self.sequence = self.sequence.max(sequence);
        for row in rows {
            let known = self.rows.entry(row).or_insert(sequence);
            *known = sequence.max(*known);
        }
    }

    /// Whether these are of the same columns and scope.
    fn is_of(&self, columns: &[KeyColumn], scope: &Scope) -> bool {
        let types = |columns: &[KeyColumn]| -> Vec<(Option<i32>, DataType)> {
            columns.iter().map(|column| (column.key.id(), column.data_type.clone())).collect()
        };
        types(&self.columns) == types(columns) && self.scope.is_same(scope)
    }

    /// Whether any of its rows may be in a data file.
    fn applies(&self, entry: &ManifestEntry) -> bool {
        entry.sequence < self.sequence && self.scope.has(entry)
    }
}

// === impl Scope ===

impl Scope {
    fn of(delete: &ManifestEntry, table: &TableMetadata) -> Result<Self, LakeError> {
        if table.spec(delete.spec_id)?.iter().all(PartitionFieldText::is_void) {
            return Ok(Self::All);
        }
        if delete.partition.contains(&PartitionValue::Other) {
            return Err(LakeError::Unsupported(format!(
                "delete file \"{}\" is in a partition of binary values: compact the table",
                delete.url
            )));
        }
        Ok(Self::Partition(delete.spec_id, delete.partition.clone()))
    }

    /// Whether a data file is in it.
    fn has(&self, entry: &ManifestEntry) -> bool {
        match self {
            Self::All => true,
            Self::Partition(spec, values) => {
                *spec == entry.spec_id && PartitionValue::are_same(values, &entry.partition)
            }
        }
    }

    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::All, Self::All) => true,
            (Self::Partition(spec, values), Self::Partition(other_spec, others)) => {
                spec == other_spec && PartitionValue::are_same(values, others)
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use arrow::{
        array::{Int64Array, RecordBatch},
        datatypes::{Field, Schema},
    };
    use object_store::{ObjectStoreExt, memory::InMemory};
    use parquet::arrow::{ArrowWriter, PARQUET_FIELD_ID_META_KEY};

    use super::*;
    use crate::{folders::TableFolders, iceberg::manifests::FileContent, store::TableStore};

    const DAMAGES: usize = 400;

    fn file(values: &[Option<i64>]) -> Vec<u8> {
        let id = [(PARQUET_FIELD_ID_META_KEY.to_owned(), "1".to_owned())];
        let field = Field::new("id", DataType::Int64, true).with_metadata(id.into());
        let column: ArrayRef = Arc::new(values.iter().copied().collect::<Int64Array>());
        let batch = RecordBatch::try_new(Arc::new(Schema::new(vec![field])), vec![column]).unwrap();
        let mut bytes = Vec::new();
        let mut writer = ArrowWriter::try_new(&mut bytes, batch.schema(), None).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
        bytes
    }

    fn entry(name: &str, content: FileContent, sequence: i64, bytes: &[u8], rows: u64) -> ManifestEntry {
        ManifestEntry {
            url: format!("s3://b/t/{name}"),
            content,
            format: "parquet".to_owned(),
            bytes: bytes.len() as u64,
            rows,
            sequence,
            spec_id: 0,
            partition: Vec::new(),
            data_file: None,
            blob: None,
            equality_ids: vec![1],
            is_encrypted: false,
        }
    }

    async fn deleted(data: &[u8], delete: &[u8], sequences: (i64, i64)) -> Result<Vec<u64>, LakeError> {
        deleted_by(data, (delete, 2), sequences).await
    }

    async fn deleted_by(
        data: &[u8],
        (delete, rows): (&[u8], u64),
        sequences: (i64, i64),
    ) -> Result<Vec<u64>, LakeError> {
        let client = Arc::new(InMemory::new());
        client.put(&Path::from("t/a"), data.to_vec().into()).await.unwrap();
        client.put(&Path::from("t/d"), delete.to_vec().into()).await.unwrap();
        let folders = TableFolders::of(Path::from("t"));
        let store = TableStore { client, url: "s3://b/".to_owned(), folders, record: |_, _, _| () };
        let text = r#"{"format-version": 2, "current-schema-id": 0, "partition-specs": [{"spec-id": 0, "fields": []}],
            "schemas": [{"schema-id": 0, "fields": [{"id": 1, "name": "id", "required": false, "type": "long"}]}]}"#;
        let table = TableMetadata::parse("m", text.as_bytes()).unwrap();
        let data = [(Path::from("t/a"), entry("a", FileContent::Data, sequences.0, data, 5))];
        let delete = entry("d", FileContent::EqualityDeletes, sequences.1, delete, rows);
        let found = read(MetadataStore::new(&store), "snapshot 7", &[delete], &data, &table).await?;
        Ok(found.into_values().flatten().collect())
    }

    #[tokio::test]
    async fn deletes_are_about_earlier_files_and_null_equals_null() {
        let (data, delete) = (file(&[Some(1), None, Some(2), Some(1), Some(3)]), file(&[Some(1), None]));
        assert_eq!(deleted(&data, &delete, (3, 4)).await.unwrap(), [0, 1, 3]);
        for sequences in [(4, 4), (5, 4)] {
            assert!(deleted(&data, &delete, sequences).await.unwrap().is_empty());
        }
    }

    #[tokio::test]
    async fn the_bytes_of_deletes_are_bounded() {
        let data = file(&[Some(1), None, Some(2), Some(1), Some(3)]);
        for (rows, is_read) in [(1000, true), (50_000, false)] {
            let values: Vec<Option<i64>> = (0..rows).map(Some).collect();
            let found = deleted_by(&data, (&file(&values), rows as u64), (1, 2)).await;
            match found {
                Ok(deleted) => assert!(is_read && deleted == [0, 2, 3, 4]),
                Err(LakeError::Unsupported(reason)) => {
                    assert!(!is_read && reason.contains("bytes in equality"), "{reason}");
                }
                Err(other) => panic!("{other}"),
            }
        }
    }

    #[tokio::test]
    async fn damage_is_an_error_or_harmless() {
        let files = [file(&[Some(1), None, Some(2), Some(1), Some(3)]), file(&[Some(1), None])];
        let mut state = 1_u64;
        let mut next = |below: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % below
        };
        let mut errors = 0;
        for number in 0..DAMAGES {
            let mut damaged = files.clone();
            let bytes = &mut damaged[number % 2];
            if number % 5 == 0 {
                bytes.truncate(next(bytes.len()));
            } else {
                let place = next(bytes.len());
                bytes[place] ^= 1 << next(8);
            }
            match deleted(&damaged[0], &damaged[1], (1, 2)).await {
                Ok(rows) => assert!(rows.iter().all(|row| *row < 5)),
                Err(LakeError::Corrupt(_) | LakeError::Unsupported(_)) => errors += 1,
                Err(other) => panic!("{other}"),
            }
        }
        assert!(errors > DAMAGES / 4, "{errors}");
    }
}
