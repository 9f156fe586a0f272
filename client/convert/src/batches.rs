//! What every format gives: files of one schema as batches.

use arrow::{array::RecordBatch, datatypes::SchemaRef};

use crate::{error::ConvertError, input::ReadBytes, sources::SourceFile};

/// Rows of a batch of a text format, or of Parquet.
pub(crate) const BATCH_ROWS: usize = 8192;

/// Bytes of text at which a batch is complete earlier.
pub(crate) const BATCH_BYTES: usize = 8 << 20;

/// The rows of a file, in order.
pub(crate) type Batches = Box<dyn Iterator<Item = Result<RecordBatch, ConvertError>> + Send>;

/// Reads files of one format to batches of one schema.
pub(crate) trait FileReader: Sync {
    /// The schema of all batches.
    fn schema(&self) -> SchemaRef;

    /// Opens a file.
    fn read(&self, file: &SourceFile, read: &ReadBytes) -> Result<Batches, ConvertError>;
}
