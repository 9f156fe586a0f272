//! The rows of a query → Parquet files in the folder of a run.

use std::sync::Arc;

use arrow::{array::RecordBatch, datatypes::SchemaRef};
use datafusion::{
    error::DataFusionError,
    execution::{
        SendableRecordBatchStream,
        memory_pool::{MemoryConsumer, MemoryPool},
    },
};
use futures::{Stream, StreamExt, TryStreamExt, stream};
use tokio::task;

use crate::{
    destination::Staging,
    output_schema,
    parquet_file::{EncodedRowGroup, Encoder, ParquetFile, WriteError, WrittenFile},
    progress::Progress,
    row_groups::{RowGroupPacker, RowGroupRows},
};

/// Row groups that are encoded at once.
const ENCODERS_MAX: usize = 4;

/// The part of the memory that a row group may hold.
const MEMORY_PARTS: usize = 8;

/// The shape of the files.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// Rows of a row group.
    pub row_group_rows: usize,
    /// Bytes at which a file is complete.
    pub file_bytes: u64,
    /// Bytes of memory of the whole run.
    pub memory_bytes: usize,
    /// Threads of the whole run.
    pub threads: usize,
}

/// Why the rows were not written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RunError {
    /// The query failed.
    #[error(transparent)]
    Query(#[from] DataFusionError),
    /// The files could not be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// The encoder ended with a panic.
    #[error("the encoder failed: {0}")]
    Encoder(#[from] task::JoinError),
}

/// Writes every row of a query. Without a row, writes one file with the schema.
pub(crate) async fn write(
    rows: SendableRecordBatchStream,
    schema: &SchemaRef,
    staging: &Staging,
    shape: Shape,
    pool: &Arc<dyn MemoryPool>,
    progress: &Progress,
) -> Result<Vec<WrittenFile>, RunError> {
    let memory = MemoryConsumer::new("row groups of the result").register(pool);
    let packer = RowGroupPacker::new(shape.row_group_rows, shape.memory_bytes / MEMORY_PARTS, memory);
    let encoder = Arc::new(Encoder::new(schema).map_err(WriteError::from)?);
    let encoders = shape.threads.clamp(1, ENCODERS_MAX);
    let groups = row_groups(rows, Arc::clone(schema), packer).map_ok(|group| encode(Arc::clone(&encoder), group));
    let mut encoded = groups.try_buffered(encoders).boxed();
    let mut complete = Vec::new();
    let create = |index: usize| {
        let name = format!("part-{index:05}.parquet");
        ParquetFile::create(&staging.store, &staging.folder, name, schema).map_err(WriteError::from)
    };
    let mut file = create(0)?;
    while let Some(group) = encoded.try_next().await? {
        if file.bytes() >= shape.file_bytes {
            complete.push(file.finish().await?);
            file = create(complete.len())?;
        }
        let (rows, before) = (group.rows(), file.bytes());
        file.append(group).await?;
        progress.add(rows, file.bytes() - before);
    }
    complete.push(file.finish().await?);
    Ok(complete)
}

async fn encode(encoder: Arc<Encoder>, group: RowGroupRows) -> Result<EncodedRowGroup, RunError> {
    let encoded = task::spawn_blocking(move || encoder.encode(&group)).await?;
    Ok(encoded.map_err(WriteError::from)?)
}

/// The row groups of a stream of batches.
fn row_groups(
    rows: SendableRecordBatchStream,
    schema: SchemaRef,
    packer: RowGroupPacker,
) -> impl Stream<Item = Result<RowGroupRows, RunError>> {
    let convert = move |batch: RecordBatch| std::future::ready(output_schema::convert(&batch, &schema));
    let batches = rows.and_then(convert).map_ok(Some).chain(stream::once(std::future::ready(Ok(None))));
    let complete = batches.scan(packer, |packer, batch| {
        let groups = batch.map(|batch| match batch {
            Some(batch) => packer.push(&batch),
            None => packer.finish().into_iter().collect(),
        });
        std::future::ready(Some(groups.map_err(RunError::from)))
    });
    complete.map_ok(|groups| stream::iter(groups.into_iter().map(Ok))).try_flatten()
}
