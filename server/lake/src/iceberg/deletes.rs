//! Delete files and deletion vectors: the deleted rows of each data file of a snapshot.

use std::collections::HashMap;

use arrow::{
    array::{Array, AsArray},
    compute::cast,
    datatypes::{DataType, Int64Type},
    record_batch::RecordBatch,
};
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use object_store::path::Path;
use parquet::arrow::{ProjectionMask, arrow_reader::ParquetRecordBatchReaderBuilder};

use super::{
    blocking::blocking,
    deletion_vector,
    manifests::{FileContent, ManifestEntry},
    metadata_store::MetadataStore,
};
use crate::error::LakeError;

/// The largest delete file.
const DELETE_FILE_BYTES_MAX: u64 = 1 << 30;
/// The largest deletion vector.
const VECTOR_BYTES_MAX: u64 = 1 << 30;
/// The most deleted rows of a snapshot: 8 bytes each.
const DELETED_ROWS_MAX: usize = 1 << 27;
/// Delete files read at once.
const READS_AT_ONCE: usize = 4;

const PATH_COLUMN: &str = "file_path";
const POSITION_COLUMN: &str = "pos";

/// A data file that rows may be deleted of.
#[derive(Clone, Debug)]
pub(super) struct DeletableFile {
    pub sequence: i64,
    pub rows: u64,
}

/// Data files by path.
pub(super) type DeletableFiles = HashMap<Path, DeletableFile>;

/// Deleted rows by the path of the data file.
pub(super) type DeletedRows = HashMap<Path, Vec<u64>>;

/// The deleted rows of a data file.
pub(super) type DeletedRowsOfFile = (Path, Vec<u64>);

/// Reads all deletes of a snapshot by position. `named_by` names the snapshot in errors.
pub(super) async fn read(
    store: MetadataStore<'_>,
    named_by: &str,
    deletes: &[ManifestEntry],
    files: &DeletableFiles,
) -> Result<Vec<DeletedRows>, LakeError> {
    // Collected: futures of a closure over references are not `Send` for every lifetime.
    let found: Vec<_> = deletes.iter().map(|delete| read_one(store, named_by, delete, files)).collect();
    let mut found = futures::stream::iter(found).buffered(READS_AT_ONCE);
    let (mut all, mut count) = (Vec::new(), 0_usize);
    while let Some(rows) = found.try_next().await? {
        count = checked_count(count, &rows)?;
        all.push(rows);
    }
    Ok(all)
}

/// The deleted rows of all delete files: rising, without repetition.
pub(super) async fn merged(all: Vec<DeletedRows>) -> Result<DeletedRows, LakeError> {
    all.iter().try_fold(0, checked_count)?;
    blocking(move || Ok(each_once(all))).await.map_err(LakeError::Corrupt)
}

/// The count with that of further rows, unless it exceeds the limit.
fn checked_count(count: usize, rows: &DeletedRows) -> Result<usize, LakeError> {
    let count = rows.values().fold(count, |count, rows| count.saturating_add(rows.len()));
    if count <= DELETED_ROWS_MAX {
        return Ok(count);
    }
    Err(LakeError::Unsupported(format!(
        "more than {DELETED_ROWS_MAX} rows are deleted by delete files: rewrite the data files of the table"
    )))
}

fn each_once(all: Vec<DeletedRows>) -> DeletedRows {
    let mut merged = DeletedRows::new();
    for (path, mut rows) in all.into_iter().flatten() {
        merged.entry(path).or_default().append(&mut rows);
    }
    for rows in merged.values_mut() {
        rows.sort_unstable();
        rows.dedup();
    }
    merged
}

async fn read_one(
    store: MetadataStore<'_>,
    named_by: &str,
    delete: &ManifestEntry,
    files: &DeletableFiles,
) -> Result<DeletedRows, LakeError> {
    match (delete.content, delete.format.as_str()) {
        (FileContent::PositionDeletes, "parquet") => position_deletes(store, named_by, delete, files).await,
        (FileContent::PositionDeletes, "puffin") => vector(store, named_by, delete, files).await,
        (_, format) => {
            Err(LakeError::Unsupported(format!("delete file \"{}\" has the unsupported format {format}", delete.url)))
        }
    }
}

async fn position_deletes(
    store: MetadataStore<'_>,
    named_by: &str,
    delete: &ManifestEntry,
    files: &DeletableFiles,
) -> Result<DeletedRows, LakeError> {
    let path = store.path_of(&delete.url)?;
    let bytes = store.get_named(&path, named_by, DELETE_FILE_BYTES_MAX).await?;
    let corrupt = |reason: String| LakeError::Corrupt(format!("delete file \"{}\": {reason}", delete.url));
    let by_url = blocking(move || positions(bytes)).await.map_err(corrupt)?;
    let mut rows_of = DeletedRows::new();
    for (url, rows) in by_url {
        let path = store.name_of(&url)?;
        // Files that were since removed, and later files of the same name, keep their rows.
        let Some(file) = files.get(&path).filter(|file| file.sequence <= delete.sequence) else { continue };
        if let Some(row) = rows.iter().find(|row| **row >= file.rows) {
            return Err(corrupt(format!("it deletes row {row} of \"{url}\", which has {} rows", file.rows)));
        }
        rows_of.entry(path).or_default().extend(rows);
    }
    Ok(rows_of)
}

/// The rows in a delete file, by the URL of the data file.
fn positions(bytes: Bytes) -> Result<HashMap<String, Vec<u64>>, String> {
    let builder = ParquetRecordBatchReaderBuilder::try_new(bytes).map_err(|source| source.to_string())?;
    let columns = ProjectionMask::columns(builder.parquet_schema(), [PATH_COLUMN, POSITION_COLUMN]);
    let reader = builder.with_projection(columns).build().map_err(|source| source.to_string())?;
    let mut found: HashMap<String, Vec<u64>> = HashMap::new();
    let mut count = 0;
    for batch in reader {
        let batch = batch.map_err(|source| source.to_string())?;
        count += batch.num_rows();
        if count > DELETED_ROWS_MAX {
            return Err(format!("it has more than {DELETED_ROWS_MAX} rows"));
        }
        add_positions(&batch, &mut found)?;
    }
    Ok(found)
}

fn add_positions(batch: &RecordBatch, found: &mut HashMap<String, Vec<u64>>) -> Result<(), String> {
    let column = |name: &str, data_type: &DataType| {
        let column = batch.column_by_name(name).ok_or_else(|| format!("it has no column \"{name}\""))?;
        let column = cast(column, data_type).map_err(|source| source.to_string())?;
        if column.null_count() > 0 { Err(format!("column \"{name}\" has nulls")) } else { Ok(column) }
    };
    let (urls, rows) = (column(PATH_COLUMN, &DataType::Utf8)?, column(POSITION_COLUMN, &DataType::Int64)?);
    let (urls, rows) = (urls.as_string::<i32>(), rows.as_primitive::<Int64Type>());
    let mut start = 0;
    while start < batch.num_rows() {
        // Delete files are sorted by path.
        let url = urls.value(start);
        let end = (start..batch.num_rows()).find(|row| urls.value(*row) != url).unwrap_or(batch.num_rows());
        let of_file = found.entry(url.to_owned()).or_default();
        for row in &rows.values()[start..end] {
            of_file.push(u64::try_from(*row).map_err(|_| format!("it deletes row {row} of \"{url}\""))?);
        }
        start = end;
    }
    Ok(())
}

async fn vector(
    store: MetadataStore<'_>,
    named_by: &str,
    delete: &ManifestEntry,
    files: &DeletableFiles,
) -> Result<DeletedRows, LakeError> {
    let corrupt = |reason: String| LakeError::Corrupt(format!("deletion vector in \"{}\": {reason}", delete.url));
    let data_file = delete.data_file.as_deref().ok_or_else(|| corrupt("it names no data file".to_owned()))?;
    let (start, length) = delete.blob.ok_or_else(|| corrupt("its place in the file is not known".to_owned()))?;
    let data_path = store.name_of(data_file)?;
    let Some(file) = files.get(&data_path).filter(|file| file.sequence <= delete.sequence) else {
        return Ok(DeletedRows::new());
    };
    let end = start.checked_add(length).filter(|end| *end <= delete.bytes && length <= VECTOR_BYTES_MAX);
    let end = end.ok_or_else(|| corrupt(format!("{length} bytes at {start} are not in the file")))?;
    let blob = store.get_range(&store.path_of(&delete.url)?, named_by, start..end).await?;
    let rows_max = file.rows;
    let rows = blocking(move || deletion_vector::rows(&blob, rows_max)).await.map_err(corrupt)?;
    Ok(HashMap::from([(data_path, rows)]))
}

/// What rows may be deleted of.
pub(super) fn deletable<'a>(files: impl Iterator<Item = (&'a Path, &'a ManifestEntry)>) -> DeletableFiles {
    files.map(|(path, entry)| (path.clone(), DeletableFile { sequence: entry.sequence, rows: entry.rows })).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::{
        array::{ArrayRef, Int64Array, StringArray},
        datatypes::{Field, Schema},
    };
    use object_store::{ObjectStoreExt, memory::InMemory};
    use parquet::arrow::ArrowWriter;

    use super::*;
    use crate::{folders::TableFolders, store::TableStore};

    fn delete_file(rows: &[(&str, i64)]) -> Bytes {
        let urls: ArrayRef = Arc::new(rows.iter().map(|(url, _)| Some(*url)).collect::<StringArray>());
        let places: ArrayRef = Arc::new(rows.iter().map(|(_, row)| *row).collect::<Int64Array>());
        let fields = [(PATH_COLUMN, DataType::Utf8), (POSITION_COLUMN, DataType::Int64)];
        let schema = Schema::new(fields.map(|(name, kind)| Field::new(name, kind, false)).to_vec());
        let batch = RecordBatch::try_new(Arc::new(schema), vec![urls, places]).unwrap();
        let mut bytes = Vec::new();
        let mut writer = ArrowWriter::try_new(&mut bytes, batch.schema(), None).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
        bytes.into()
    }

    fn entry(url: &str, content: FileContent, sequence: i64) -> ManifestEntry {
        ManifestEntry {
            url: url.to_owned(),
            content,
            format: "parquet".to_owned(),
            bytes: 1,
            rows: 10,
            sequence,
            spec_id: 0,
            partition: Vec::new(),
            data_file: None,
            blob: None,
            equality_ids: Vec::new(),
            is_encrypted: false,
        }
    }

    async fn deleted(deletes: &[ManifestEntry], contents: &[(&str, Bytes)]) -> Result<DeletedRows, LakeError> {
        let client = Arc::new(InMemory::new());
        for (path, bytes) in contents {
            client.put(&Path::from(*path), bytes.clone().into()).await.unwrap();
        }
        let data = [("t/a", 3), ("t/b", 5)]
            .map(|(path, sequence)| (Path::from(path), entry(&format!("s3://b/{path}"), FileContent::Data, sequence)));
        let files = deletable(data.iter().map(|(path, entry)| (path, entry)));
        let folders = TableFolders::of(Path::from("t"));
        let table = TableStore { client, url: "s3://b/".to_owned(), folders, record: |_, _, _| () };
        merged(read(MetadataStore::new(&table), "snapshot 7", deletes, &files).await?).await
    }

    #[tokio::test]
    async fn deletes_apply_to_earlier_files_of_their_path() {
        let deletes = [
            entry("s3://b/t/d1", FileContent::PositionDeletes, 4),
            entry("s3://b/t/d2", FileContent::PositionDeletes, 5),
        ];
        let contents = [
            ("t/d1", delete_file(&[("s3://b/t/a", 9), ("s3://b/t/a", 0), ("s3://b/t/b", 1), ("s3://b/gone", 99)])),
            ("t/d2", delete_file(&[("s3a://b/t/a", 0), ("s3a://b/t/a", 5), ("s3://b/t/b", 2)])),
        ];
        let found = deleted(&deletes, &contents).await.unwrap();
        assert_eq!(found, HashMap::from([(Path::from("t/a"), vec![0, 5, 9]), (Path::from("t/b"), vec![2])]));
    }

    #[tokio::test]
    async fn what_is_not_understood_is_refused() {
        let error = |delete: ManifestEntry, bytes: Bytes| async move {
            deleted(&[delete], &[("t/d", bytes)]).await.unwrap_err().to_string()
        };
        let position = || entry("s3://b/t/d", FileContent::PositionDeletes, 9);
        let beyond = error(position(), delete_file(&[("s3://b/t/a", 10)])).await;
        assert!(beyond.contains("row 10 of \"s3://b/t/a\", which has 10 rows"), "{beyond}");
        assert!(error(position(), delete_file(&[("s3://b/t/a", -1)])).await.contains("row -1"));
        assert!(error(position(), Bytes::from_static(b"PAR1")).await.contains("delete file \"s3://b/t/d\""));
        let orc = ManifestEntry { format: "orc".to_owned(), ..position() };
        assert!(error(orc, Bytes::new()).await.contains("unsupported format orc"));
        let missing = entry("s3://b/t/none", FileContent::PositionDeletes, 9);
        let missing = error(missing, Bytes::new()).await;
        assert!(missing.contains("there is no \"s3://b/t/none\", which snapshot 7 of"), "{missing}");
    }
}
