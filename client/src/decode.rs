//! Decoding of Flight messages into record batches over the received memory.
//!
//! arrow-flight's decoder copies every body that is not 64-byte aligned, which is most of them: glibc places large
//! blocks 16 bytes past a page boundary. No Arrow type needs more than 16-byte alignment, so this decoder keeps the
//! bodies, and arrow-ipc copies only buffers that are misaligned for their type.

use std::{collections::HashMap, sync::Arc};

use arrow::{
    array::{ArrayRef, RecordBatch},
    buffer::Buffer,
    datatypes::{Schema, SchemaRef},
    error::ArrowError,
    ipc::{
        MessageHeader,
        reader::{RecordBatchDecoder, read_dictionary},
        root_as_message,
    },
};
use arrow_flight::{FlightData, error::FlightError};

/// Decoder with the schema and dictionaries of the preceding messages.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    schema: Option<SchemaRef>,
    dictionaries: HashMap<i64, ArrayRef>,
}

impl Decoder {
    /// Returns the schema once a message has carried it.
    pub(crate) fn schema(&self) -> Option<&SchemaRef> {
        self.schema.as_ref()
    }

    /// Decodes a message and returns its batch. Schemas, dictionaries and empty messages have none.
    pub(crate) fn decode(&mut self, data: &FlightData) -> Result<Option<RecordBatch>, FlightError> {
        let message = root_as_message(&data.data_header)
            .map_err(|error| FlightError::DecodeError(format!("the header is not an Arrow message: {error}")))?;
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
                let batch = message.header_as_dictionary_batch().ok_or_else(|| mismatch("a dictionary"))?;
                read_dictionary(&body(), batch, schema, &mut self.dictionaries, &message.version())?;
                Ok(None)
            }
            MessageHeader::RecordBatch => {
                let schema = Arc::clone(Self::named(self.schema.as_ref())?);
                let batch = message.header_as_record_batch().ok_or_else(|| mismatch("a batch"))?;
                let (body, version) = (body(), message.version());
                let decoder = RecordBatchDecoder::try_new(&body, batch, schema, &self.dictionaries, &version)?;
                Ok(Some(decoder.read_record_batch()?))
            }
            other => Err(FlightError::protocol(format!("unexpected message: {}", other.variant_name().unwrap_or("?")))),
        }
    }

    fn named(schema: Option<&SchemaRef>) -> Result<&SchemaRef, FlightError> {
        schema.ok_or_else(|| FlightError::protocol("batch before the schema"))
    }
}

fn mismatch(what: &str) -> FlightError {
    FlightError::from(ArrowError::IpcError(format!("the message has the type of {what} but is not one")))
}

#[cfg(test)]
mod tests {
    use arrow::{
        array::{AsArray, DictionaryArray, Float32Array, StringArray},
        datatypes::{Float32Type, Int32Type},
    };
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

    /// Returns the same bytes at an address `beyond` bytes past a multiple of 64.
    fn moved(bytes: &Bytes, beyond: usize) -> Bytes {
        let mut buffer = BytesMut::zeroed(bytes.len() + 128);
        let offset = (64 - buffer.as_ptr() as usize % 64) % 64 + beyond;
        buffer[offset..offset + bytes.len()].copy_from_slice(bytes);
        buffer.freeze().slice(offset..offset + bytes.len())
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
    fn shares_the_messages_memory_if_its_alignment_suffices() {
        for (beyond, is_shared) in [(0, true), (16, true), (4, true), (1, false), (3, false)] {
            let (body, batch) = decode(beyond);
            assert_eq!(batch, rows());
            let numbers = batch.column(0).as_primitive::<Float32Type>().values().inner().as_ptr();
            assert_eq!(body.as_ptr_range().contains(&numbers), is_shared, "{beyond} bytes past 64");
        }
    }

    #[test]
    fn rejects_batches_without_a_schema_and_malformed_messages() {
        let mut decoder = Decoder::default();
        let batch = messages().pop().unwrap();
        assert!(decoder.decode(&batch).unwrap_err().to_string().contains("before the schema"));
        let nonsense = FlightData { data_header: Bytes::from_static(b"what?"), ..batch };
        assert!(decoder.decode(&nonsense).unwrap_err().to_string().contains("not an Arrow message"));
    }
}
