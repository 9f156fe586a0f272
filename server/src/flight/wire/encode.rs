//! A batch and its header → Flight messages: changed dictionaries, then the batch in one message, never split.
//!
//! The body of a message is the batch's own buffers, not a copy. `body` sends them uncopied.

use arrow::{
    array::RecordBatch,
    buffer::Buffer,
    datatypes::Schema,
    error::ArrowError,
    ipc::{
        root_as_message,
        writer::{DictionaryTracker, IpcDataGenerator, IpcWriteOptions, StreamEncoder},
    },
};
use arrow_flight::FlightData;
use bytes::Bytes;
use forebay_proto::{Encoding, v1};
use xxhash_rust::xxh3::Xxh3;

use super::zero_nulls;

/// Bytes before a message's metadata in an Arrow IPC stream: the continuation marker and the length, 4 bytes each.
const PREFIX_BYTES: usize = 8;

/// Encodes the batches of one stream. They share a schema and dictionaries.
pub struct Encoder {
    stream: StreamEncoder,
    /// Whether the first message of `stream`, the schema, must still be skipped.
    is_new: bool,
    headers: Encoding,
}

/// A Flight message whose body is in several buffers.
#[derive(Clone, Debug, Default)]
pub struct Message {
    /// The Arrow IPC metadata (a flatbuffer).
    pub(crate) header: Buffer,
    /// The application metadata.
    pub(crate) metadata: Bytes,
    /// The buffers of the body, in order, with their padding.
    pub(crate) body: Vec<Buffer>,
}

// === impl Encoder ===

impl Encoder {
    /// An encoder of batches of a schema, with headers in an encoding.
    pub fn new(schema: &Schema, headers: Encoding) -> Result<Self, ArrowError> {
        Ok(Self { stream: StreamEncoder::try_new(schema)?, is_new: true, headers })
    }

    /// The first message of a stream.
    pub fn schema(schema: &Schema) -> Message {
        let (mut dictionaries, options) = (DictionaryTracker::new(false), IpcWriteOptions::default());
        let encoded =
            IpcDataGenerator::default().schema_to_bytes_with_dictionary_tracker(schema, &mut dictionaries, &options);
        Message { header: encoded.ipc_message.into(), ..Message::default() }
    }

    /// The messages of a batch. The last one has the header, with the checksum of its body.
    pub fn batch(&mut self, batch: &RecordBatch, mut header: v1::BatchHeader) -> Result<Vec<Message>, ArrowError> {
        let mut messages = self.messages(batch)?;
        if let Some(message) = messages.last_mut() {
            header.checksum = message.checksum();
            message.metadata = forebay_proto::encode(&header, self.headers).into();
        }
        Ok(messages)
    }

    /// The messages of an exchange's output. The last one has the metadata of the client's batch.
    pub(crate) fn exchanged(&mut self, batch: &RecordBatch, metadata: Bytes) -> Result<Vec<Message>, ArrowError> {
        let mut messages = self.messages(batch)?;
        if let Some(message) = messages.last_mut() {
            message.metadata = metadata;
        }
        Ok(messages)
    }

    /// Changed dictionaries, and the batch.
    fn messages(&mut self, batch: &RecordBatch) -> Result<Vec<Message>, ArrowError> {
        let mut messages = split(self.stream.encode(&zero_nulls::under_nulls(batch)?)?)?;
        if std::mem::take(&mut self.is_new) {
            messages.remove(0);
        }
        Ok(messages)
    }
}

/// Splits a part of an Arrow IPC stream into its messages.
fn split(buffers: Vec<Buffer>) -> Result<Vec<Message>, ArrowError> {
    let incomplete = || ArrowError::IpcError("the encoder's buffers are not complete messages".to_owned());
    let mut buffers = buffers.into_iter().filter(|buffer| !buffer.is_empty());
    let mut messages = Vec::with_capacity(1);
    while let Some(prefix) = buffers.next() {
        let length = prefix.get(PREFIX_BYTES / 2..PREFIX_BYTES).and_then(|bytes| bytes.try_into().ok());
        let length = u32::from_le_bytes(length.ok_or_else(incomplete)?) as usize;
        let header = buffers.next().ok_or_else(incomplete)?;
        let mut header_bytes = header.len();
        while header_bytes < length {
            header_bytes += buffers.next().ok_or_else(incomplete)?.len();
        }
        let body_bytes = root_as_message(&header).map_err(|_| incomplete())?.bodyLength() as usize;
        let (mut body, mut found) = (Vec::new(), 0);
        while found < body_bytes {
            let buffer = buffers.next().ok_or_else(incomplete)?;
            found += buffer.len();
            body.push(buffer);
        }
        if header_bytes != length || found != body_bytes {
            return Err(incomplete());
        }
        messages.push(Message { header, metadata: Bytes::new(), body });
    }
    Ok(messages)
}

// === impl Message ===

impl Message {
    /// Bytes of the metadata, the application metadata and the body.
    pub(crate) fn byte_count(&self) -> usize {
        self.header.len() + self.metadata.len() + self.body_bytes()
    }

    /// Bytes of the body.
    pub(crate) fn body_bytes(&self) -> usize {
        self.body.iter().map(Buffer::len).sum()
    }

    /// XXH3-64 of the body.
    fn checksum(&self) -> u64 {
        let mut hash = Xxh3::new();
        self.body.iter().for_each(|buffer| hash.update(buffer));
        hash.digest()
    }
}

/// The buffer as `Bytes`, which share its memory.
pub(crate) fn shared(buffer: Buffer) -> Bytes {
    struct Owner(Buffer);
    impl AsRef<[u8]> for Owner {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }
    Bytes::from_owner(Owner(buffer))
}

/// Copies the body into one buffer.
impl From<Message> for FlightData {
    fn from(message: Message) -> Self {
        let mut body = Vec::with_capacity(message.body_bytes());
        message.body.iter().for_each(|buffer| body.extend_from_slice(buffer));
        Self {
            data_header: shared(message.header),
            app_metadata: message.metadata,
            data_body: body.into(),
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::{
        array::{ArrayRef, DictionaryArray, Float32Array, Int32Array, ListArray, StringArray, types::Int32Type},
        ipc::writer::IpcWriteContext,
    };

    use super::*;

    fn batch() -> RecordBatch {
        let lists = ListArray::from_iter_primitive::<Int32Type, _, _>([Some(vec![Some(1), None]), None, Some(vec![])]);
        let columns: [(&str, ArrayRef); 5] = [
            ("x", Arc::new(Float32Array::from(vec![Some(1.5), None, Some(-0.0)]))),
            ("whole", Arc::new(Int32Array::from(vec![7, 8, 9]))),
            ("text", Arc::new(StringArray::from(vec![Some("a"), None, Some("ccc")]))),
            ("key", Arc::new(DictionaryArray::<Int32Type>::from_iter([Some("a"), None, Some("b")]))),
            ("lists", Arc::new(lists)),
        ];
        RecordBatch::try_from_iter_with_nullable(columns.map(|(name, column)| (name, column, true))).unwrap()
    }

    /// The messages of arrow's own encoder.
    fn expected(batches: &[RecordBatch]) -> Vec<FlightData> {
        let (generator, options) = (IpcDataGenerator::default(), IpcWriteOptions::default());
        let (mut dictionaries, mut context) = (DictionaryTracker::new(false), IpcWriteContext::default());
        let _ = generator.schema_to_bytes_with_dictionary_tracker(&batches[0].schema(), &mut dictionaries, &options);
        let messages = batches.iter().flat_map(|batch| {
            let batch = zero_nulls::under_nulls(batch).unwrap();
            let (mut all, last) = generator.encode(&batch, &mut dictionaries, &options, &mut context).unwrap();
            all.push(last);
            all
        });
        let message = |encoded: arrow::ipc::writer::EncodedData| FlightData {
            data_header: encoded.ipc_message.into(),
            data_body: encoded.arrow_data.into(),
            ..FlightData::default()
        };
        messages.map(message).collect()
    }

    #[test]
    fn encodes_the_messages_of_arrow_flight() {
        let whole = batch();
        let batches = [whole.clone(), whole.slice(1, 2), whole.slice(0, 0), whole.slice(2, 1)];
        let mut encoder = Encoder::new(&whole.schema(), Encoding::Json).unwrap();
        let messages = batches.iter().flat_map(|batch| encoder.exchanged(batch, Bytes::new()).unwrap());
        let messages: Vec<FlightData> = messages.map(FlightData::from).collect();
        assert_eq!(messages, expected(&batches));
    }

    #[test]
    fn sends_columns_uncopied() {
        let whole = batch();
        let mut encoder = Encoder::new(&whole.schema(), Encoding::Json).unwrap();
        let messages = encoder.batch(&whole, v1::BatchHeader::default()).unwrap();
        let values = whole["whole"].to_data().buffers()[0].clone();
        let sent = &messages.last().unwrap().body;
        assert!(sent.iter().any(|buffer| buffer.as_ptr() == values.as_ptr()));
    }

    #[test]
    fn rejects_buffers_that_are_not_a_stream() {
        for odd in [vec![Buffer::from(&[1, 2, 3])], vec![Buffer::from(&[255; 8])], vec![Buffer::from(&[0; 8]); 3]] {
            assert!(split(odd).is_err());
        }
    }
}
