//! What every format gives: files of one schema as batches.

use std::iter;

use arrow::{array::RecordBatch, datatypes::SchemaRef};

use crate::{error::ConvertError, input::ReadBytes, sources::SourceFile};

/// Rows of a batch of a text format, or of Parquet.
pub(crate) const BATCH_ROWS: usize = 8192;

/// Bytes of text at which a batch is complete earlier.
pub(crate) const BATCH_BYTES: usize = 8 << 20;

/// The rows of a file, in order.
pub(crate) type Batches = Box<dyn Iterator<Item = Result<RecordBatch, ConvertError>> + Send>;

/// The batches that calls return, up to the first call that returns none or fails.
pub(crate) fn batches(mut next: impl FnMut() -> Result<Option<RecordBatch>, ConvertError> + Send + 'static) -> Batches {
    let mut is_done = false;
    Box::new(iter::from_fn(move || {
        if is_done {
            return None;
        }
        let batch = next();
        is_done = !matches!(batch, Ok(Some(_)));
        batch.transpose()
    }))
}

/// Reads files of one format to batches of one schema.
pub(crate) trait FileReader: Sync {
    /// The schema of all batches.
    fn schema(&self) -> SchemaRef;

    /// Opens a file.
    fn read(&self, file: &SourceFile, read: &ReadBytes) -> Result<Batches, ConvertError>;
}
