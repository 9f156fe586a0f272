//! A batch as a whole Arrow IPC stream: schema, dictionaries, batch, end.

use arrow::{array::RecordBatch, datatypes::Schema, error::ArrowError, ipc::writer::StreamWriter};

use super::zero_nulls;

/// The stream of a batch.
pub(crate) fn ipc_stream(schema: &Schema, batch: &RecordBatch) -> Result<Vec<u8>, ArrowError> {
    let mut writer = StreamWriter::try_new(Vec::with_capacity(batch.get_array_memory_size()), schema)?;
    writer.write(&zero_nulls::under_nulls(batch)?)?;
    writer.into_inner()
}
