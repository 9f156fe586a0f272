//! What the footer of a file says, in one form for all formats.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema};
use parquet::{arrow::arrow_reader::ArrowReaderMetadata, schema::types::SchemaDescPtr};

use super::arrow_layout::ArrowLayout;

/// The parsed footer of a file and the schemas to read it with.
#[derive(Clone, Debug)]
pub(super) struct Footer {
    /// Every column as stored.
    pub stored: ArrowReaderMetadata,
    /// As stored, but with int32 dictionary keys: a batch merges dictionaries of several row groups and files, which
    /// need one key type.
    pub wide: ArrowReaderMetadata,
    /// The schema as the decoder reads it.
    pub decoded: SchemaDescPtr,
    /// Whether the parts of intervals are signed. Parquet specifies unsigned parts, but Arrow's own writer, recognized
    /// by its embedded schema, writes signed ones.
    pub has_signed_intervals: bool,
    /// A digest of the footer bytes.
    pub digest: String,
    /// The places of the buffers of an Arrow IPC file: the metadata describes it as if it were Parquet.
    pub arrow: Option<Arc<ArrowLayout>>,
}

/// A schema as plans read it: with int32 dictionary keys.
pub(super) fn wide(schema: &Schema) -> Schema {
    let fields: Vec<Arc<Field>> = schema.fields().iter().map(wide_keys).collect();
    Schema::new_with_metadata(fields, schema.metadata().clone())
}

fn wide_keys(field: &Arc<Field>) -> Arc<Field> {
    match field.data_type() {
        DataType::Dictionary(keys, values) if **keys != DataType::Int32 => {
            let wide = DataType::Dictionary(Box::new(DataType::Int32), values.clone());
            Arc::new(field.as_ref().clone().with_data_type(wide))
        }
        _ => Arc::clone(field),
    }
}
