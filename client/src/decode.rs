//! Flight messages → record batches over the very memory that they arrived in.
//!
//! arrow-flight's own decoder copies every body whose address is no multiple of 64. Allocators seldom give one: glibc
//! puts large blocks 16 bytes behind a page's start. No Arrow type needs more than 16, so bodies are taken as they lie,
//! and arrow-ipc copies just those buffers that are not aligned for their type.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::buffer::Buffer;
use arrow::datatypes::{Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow::ipc::reader::{RecordBatchDecoder, read_dictionary};
use arrow::ipc::{MessageHeader, root_as_message};
use arrow_flight::FlightData;
use arrow_flight::error::FlightError;

/// What the messages so far say of those to come.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    schema: Option<SchemaRef>,
    dictionaries: HashMap<i64, ArrayRef>,
}

impl Decoder {
    /// The columns, once a message has named them.
    pub(crate) fn schema(&self) -> Option<&SchemaRef> {
        self.schema.as_ref()
    }

    /// Takes a message; returns its rows where it has some to give. Schemas, dictionaries and empty messages have none.
    pub(crate) fn decode(&mut self, data: &FlightData) -> Result<Option<RecordBatch>, FlightError> {
        let message = root_as_message(&data.data_header)
            .map_err(|error| FlightError::DecodeError(format!("the header is no Arrow message: {error}")))?;
        let body = || Buffer::from(data.data_body.clone());
        match message.header_type() {
            MessageHeader::NONE => Ok(None),
            MessageHeader::Schema => {
                self.schema = Some(Arc::new(Schema::try_from(data)?));
                self.dictionaries.clear();
                Ok(None)
            }
            MessageHeader::DictionaryBatch => {
                let schema = Self::named(self.schema.as_ref())?;
                let batch = message.header_as_dictionary_batch().ok_or_else(|| nothing("a dictionary"))?;
                read_dictionary(&body(), batch, schema, &mut self.dictionaries, &message.version())?;
                Ok(None)
            }
            MessageHeader::RecordBatch => {
                let schema = Arc::clone(Self::named(self.schema.as_ref())?);
                let batch = message.header_as_record_batch().ok_or_else(|| nothing("a batch"))?;
                let (body, version) = (body(), message.version());
                let decoder = RecordBatchDecoder::try_new(&body, batch, schema, &self.dictionaries, &version)?;
                Ok(Some(decoder.read_record_batch()?))
            }
            other => Err(FlightError::protocol(format!("unexpected message: {}", other.variant_name().unwrap_or("?")))),
        }
    }

    fn named(schema: Option<&SchemaRef>) -> Result<&SchemaRef, FlightError> {
        schema.ok_or_else(|| FlightError::protocol("rows came before the schema"))
    }
}

fn nothing(what: &str) -> FlightError {
    FlightError::from(ArrowError::IpcError(format!("the message says that it is {what}, and is none")))
}

#[cfg(test)]
mod tests {
    use arrow::array::{AsArray, DictionaryArray, Float32Array, StringArray};
    use arrow::datatypes::{Float32Type, Int32Type};
    use arrow_flight::encode::{DictionaryHandling, FlightDataEncoderBuilder};
    use bytes::{Bytes, BytesMut};
    use futures::{FutureExt, TryStreamExt, stream};

    use super::*;

    fn rows() -> RecordBatch {
        let numbers: ArrayRef = Arc::new(Float32Array::from_iter_values((0..100_u8).map(f32::from)));
        let texts: ArrayRef = Arc::new(StringArray::from_iter_values((0..100).map(|row| format!("row {row}"))));
        let carriers: DictionaryArray<Int32Type> = (0..100).map(|row| ["AA", "B6"][row % 2]).collect();
        RecordBatch::try_from_iter([("a", numbers), ("b", texts), ("c", Arc::new(carriers) as ArrayRef)]).unwrap()
    }

    fn messages() -> Vec<FlightData> {
        let encoder = FlightDataEncoderBuilder::new().with_dictionary_handling(DictionaryHandling::Resend);
        encoder.build(stream::iter([Ok(rows())])).try_collect().now_or_never().unwrap().unwrap()
    }

    /// The same bytes at an address that is so much beyond a multiple of 64.
    fn moved(bytes: &Bytes, beyond: usize) -> Bytes {
        let mut room = BytesMut::zeroed(bytes.len() + 128);
        let offset = (64 - room.as_ptr() as usize % 64) % 64 + beyond;
        room[offset..offset + bytes.len()].copy_from_slice(bytes);
        room.freeze().slice(offset..offset + bytes.len())
    }

    fn decode(beyond: usize) -> (Bytes, RecordBatch) {
        let mut decoder = Decoder::default();
        for message in messages() {
            let message = FlightData { data_body: moved(&message.data_body, beyond), ..message };
            if let Some(batch) = decoder.decode(&message).unwrap() {
                assert_eq!(decoder.schema(), Some(&batch.schema()));
                return (message.data_body, batch);
            }
        }
        panic!("no batch among the messages");
    }

    #[test]
    fn batches_lie_over_the_message_where_its_alignment_suffices_for_their_types() {
        for (beyond, is_shared) in [(0, true), (16, true), (4, true), (1, false), (3, false)] {
            let (body, batch) = decode(beyond);
            assert_eq!(batch, rows());
            let numbers = batch.column(0).as_primitive::<Float32Type>().values().inner().as_ptr();
            assert_eq!(body.as_ptr_range().contains(&numbers), is_shared, "{beyond} bytes beyond 64");
        }
    }

    #[test]
    fn rows_without_a_schema_and_bytes_without_a_message_are_refused() {
        let mut decoder = Decoder::default();
        let batch = messages().pop().unwrap();
        assert!(decoder.decode(&batch).unwrap_err().to_string().contains("before the schema"));
        let nonsense = FlightData { data_header: Bytes::from_static(b"what?"), ..batch };
        assert!(decoder.decode(&nonsense).unwrap_err().to_string().contains("no Arrow message"));
    }
}
