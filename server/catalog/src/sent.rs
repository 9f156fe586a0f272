//! A snapshot as a message: what another process needs to open the same state of the same files, without listing them.

use std::{io::Cursor, sync::Arc};

use arrow::{array::RecordBatch, datatypes::Schema, error::ArrowError};
use arrow_ipc::{reader::StreamReader, writer::StreamWriter};
use chrono::DateTime;
use forebay_runtime::cpu_pool::CpuPool;
use object_store::{ObjectMeta, path::Path};

use super::{
    error::CatalogError,
    leaves::Int96Unit,
    snapshot::{PinnedFiles, Snapshot, open_pinned},
    store::Store,
};

/// The message of a snapshot.
#[derive(Clone, PartialEq, prost::Message)]
pub struct SentSnapshot {
    /// The name of the dataset.
    #[prost(string, tag = "1")]
    dataset: String,
    /// The URL of the store.
    #[prost(string, tag = "2")]
    store: String,
    #[prost(string, tag = "3")]
    digest: String,
    #[prost(bool, tag = "4")]
    has_nanoseconds: bool,
    /// The schema, as an Arrow stream without batches.
    #[prost(bytes = "vec", tag = "5")]
    schema: Vec<u8>,
    /// The partition columns with a row for each file, as an Arrow stream.
    #[prost(bytes = "vec", tag = "6")]
    partitions: Vec<u8>,
    #[prost(message, repeated, tag = "7")]
    files: Vec<SentFile>,
}

/// A pinned file.
#[derive(Clone, PartialEq, prost::Message)]
struct SentFile {
    #[prost(string, tag = "1")]
    path: String,
    #[prost(uint64, tag = "2")]
    size: u64,
    #[prost(int64, tag = "3")]
    modified_ns: i64,
    #[prost(string, optional, tag = "4")]
    e_tag: Option<String>,
    #[prost(string, optional, tag = "5")]
    version: Option<String>,
}

// === impl SentSnapshot ===

impl SentSnapshot {
    /// The message of a snapshot.
    pub fn new(snapshot: &Snapshot) -> Result<Self, CatalogError> {
        let failed = |reason: String| CatalogError::Unsent { dataset: snapshot.dataset().to_owned(), reason };
        if let Some(table) = snapshot.table_title() {
            return Err(failed(format!("it is {table} of a lake table: copy the table to Parquet files")));
        }
        let of_arrow = |error: ArrowError| failed(error.to_string());
        let file = |object: &ObjectMeta| {
            let modified_ns = object.last_modified.timestamp_nanos_opt();
            let modified_ns = modified_ns
                .ok_or_else(|| failed(format!("the time of {} is not between 1677 and 2262", object.location)))?;
            let (path, e_tag) = (object.location.to_string(), object.e_tag.clone());
            Ok::<_, CatalogError>(SentFile {
                path,
                size: object.size,
                modified_ns,
                e_tag,
                version: object.version.clone(),
            })
        };
        Ok(Self {
            dataset: snapshot.dataset().to_owned(),
            store: snapshot.store().url().to_owned(),
            digest: snapshot.digest().to_owned(),
            has_nanoseconds: snapshot.int96_unit() == Int96Unit::Nanoseconds,
            schema: stream_of(&RecordBatch::new_empty(Arc::clone(snapshot.schema()))).map_err(of_arrow)?,
            partitions: partitions(snapshot).and_then(|values| stream_of(&values)).map_err(of_arrow)?,
            files: snapshot.files().iter().map(|opened| file(opened.object())).collect::<Result<_, _>>()?,
        })
    }

    /// The URL of the store of its files: [`Stores::at`](super::Stores::at) opens it.
    pub fn store(&self) -> &str {
        &self.store
    }

    /// Opens the files in their store, which must be in the state that the message names.
    pub async fn open(self, store: Result<Store, String>, cpu: &CpuPool) -> Result<Snapshot, CatalogError> {
        let dataset = self.dataset.clone();
        let pinned = store.and_then(|store| self.pinned(store));
        open_pinned(pinned.map_err(|reason| CatalogError::Unsent { dataset, reason })?, cpu).await
    }

    fn pinned(self, store: Store) -> Result<PinnedFiles, String> {
        let of_arrow = |error: ArrowError| error.to_string();
        let int96 = if self.has_nanoseconds { Int96Unit::Nanoseconds } else { Int96Unit::Microseconds };
        let object = |file: SentFile| {
            let SentFile { path, size, modified_ns, e_tag, version } = file;
            let location = Path::parse(&path).map_err(|error| error.to_string())?;
            let last_modified = DateTime::from_timestamp_nanos(modified_ns);
            Ok::<_, String>(ObjectMeta { location, last_modified, size, e_tag, version })
        };
        Ok(PinnedFiles {
            store,
            dataset: self.dataset,
            digest: self.digest,
            schema: batch_of(&self.schema).map_err(of_arrow)?.schema(),
            partitions: batch_of(&self.partitions).map_err(of_arrow)?,
            objects: self.files.into_iter().map(object).collect::<Result<_, _>>()?,
            int96,
        })
    }
}

/// The partition columns, with a row for each file.
fn partitions(snapshot: &Snapshot) -> Result<RecordBatch, ArrowError> {
    let schema = snapshot.schema();
    let found =
        |column: usize| Some((Arc::clone(&schema.fields()[column]), snapshot.partition_values(column)?.clone()));
    let (fields, values): (Vec<_>, Vec<_>) = (0..schema.fields().len()).filter_map(found).unzip();
    let options = arrow::array::RecordBatchOptions::new().with_row_count(Some(snapshot.files().len()));
    RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), values, &options)
}

fn stream_of(batch: &RecordBatch) -> Result<Vec<u8>, ArrowError> {
    let mut writer = StreamWriter::try_new(Vec::new(), batch.schema_ref())?;
    writer.write(batch)?;
    writer.into_inner()
}

fn batch_of(stream: &[u8]) -> Result<RecordBatch, ArrowError> {
    let mut reader = StreamReader::try_new(Cursor::new(stream), None)?;
    let missing = || ArrowError::IpcError("an Arrow stream without a batch".to_owned());
    reader.next().ok_or_else(missing)?
}
