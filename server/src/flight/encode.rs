//! A batch and its header → Flight messages: dictionaries that changed, then the batch in one message, never split.

use arrow::{
    array::RecordBatch,
    datatypes::Schema,
    error::ArrowError,
    ipc::writer::{DictionaryTracker, EncodedData, IpcDataGenerator, IpcWriteContext, IpcWriteOptions},
};
use arrow_flight::FlightData;
use bytes::Bytes;
use forebay_proto::{Encoding, v1};
use xxhash_rust::xxh3::xxh3_64;

use super::blank;

/// Encodes the batches of one stream, which share a schema and dictionaries.
pub(super) struct Encoder {
    options: IpcWriteOptions,
    generator: IpcDataGenerator,
    dictionaries: DictionaryTracker,
    context: IpcWriteContext,
    headers: Encoding,
}

impl Encoder {
    /// An encoder that writes headers in this encoding.
    pub(super) fn new(headers: Encoding) -> Self {
        Self {
            options: IpcWriteOptions::default(),
            generator: IpcDataGenerator::default(),
            dictionaries: DictionaryTracker::new(false),
            context: IpcWriteContext::default(),
            headers,
        }
    }

    /// The first message of a stream.
    pub(super) fn schema(&mut self, schema: &Schema) -> FlightData {
        let encoded =
            self.generator.schema_to_bytes_with_dictionary_tracker(schema, &mut self.dictionaries, &self.options);
        message(encoded)
    }

    /// The messages of a batch; the last one carries the header, with the checksum of its body.
    pub(super) fn batch(
        &mut self,
        batch: &RecordBatch,
        mut header: v1::BatchHeader,
    ) -> Result<Vec<FlightData>, ArrowError> {
        let (mut messages, mut data) = self.messages(batch)?;
        header.checksum = xxh3_64(&data.data_body);
        data.app_metadata = forebay_proto::encode(&header, self.headers).into();
        messages.push(data);
        Ok(messages)
    }

    /// The messages of a batch that answers another; the last one carries the other's metadata.
    pub(super) fn exchanged(&mut self, batch: &RecordBatch, metadata: Bytes) -> Result<Vec<FlightData>, ArrowError> {
        let (mut messages, mut data) = self.messages(batch)?;
        data.app_metadata = metadata;
        messages.push(data);
        Ok(messages)
    }

    /// Dictionaries that changed, and the batch.
    fn messages(&mut self, batch: &RecordBatch) -> Result<(Vec<FlightData>, FlightData), ArrowError> {
        let batch = blank::under_nulls(batch)?;
        let (dictionaries, batch) =
            self.generator.encode(&batch, &mut self.dictionaries, &self.options, &mut self.context)?;
        Ok((dictionaries.into_iter().map(message).collect(), message(batch)))
    }
}

fn message(encoded: EncodedData) -> FlightData {
    FlightData {
        data_header: encoded.ipc_message.into(),
        data_body: encoded.arrow_data.into(),
        ..FlightData::default()
    }
}
