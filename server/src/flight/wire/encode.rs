//! A batch and its header → Flight messages: dictionaries that changed, then the batch in one message, never split.
//!
//! A message's body is the batch's own buffers, not a copy of them. `wire` sends them as they are.

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

/// What precedes a message's metadata in a stream of Arrow IPC: a mark and the metadata's length, 4 bytes each.
const MARK_BYTES: usize = 8;

/// Encodes the batches of one stream, which share a schema and dictionaries.
pub struct Encoder {
    stream: StreamEncoder,
    /// Whether the stream's own schema message is still to come.
    is_new: bool,
    headers: Encoding,
}

/// A Flight message whose body lies in pieces.
#[derive(Clone, Debug, Default)]
pub struct Message {
    /// The Arrow IPC metadata (a flatbuffer).
    pub(crate) header: Buffer,
    /// The application's metadata.
    pub(crate) metadata: Bytes,
    /// The body's pieces in order, padding among them.
    pub(crate) body: Vec<Buffer>,
}

// === impl Encoder ===

impl Encoder {
    /// An encoder for batches of this schema that writes headers in this encoding.
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

    /// The messages of a batch; the last one carries the header, with the checksum of its body.
    pub fn batch(&mut self, batch: &RecordBatch, mut header: v1::BatchHeader) -> Result<Vec<Message>, ArrowError> {
        let mut messages = self.messages(batch)?;
        if let Some(message) = messages.last_mut() {
            header.checksum = message.checksum();
            message.metadata = forebay_proto::encode(&header, self.headers).into();
        }
        Ok(messages)
    }

    /// The messages of a batch that answers another; the last one carries the other's metadata.
    pub(crate) fn exchanged(&mut self, batch: &RecordBatch, metadata: Bytes) -> Result<Vec<Message>, ArrowError> {
        let mut messages = self.messages(batch)?;
        if let Some(message) = messages.last_mut() {
            message.metadata = metadata;
        }
        Ok(messages)
    }

    /// Dictionaries that changed, and the batch.
    fn messages(&mut self, batch: &RecordBatch) -> Result<Vec<Message>, ArrowError> {
        let mut messages = split(self.stream.encode(&zero_nulls::under_nulls(batch)?)?)?;
        if std::mem::take(&mut self.is_new) {
            messages.remove(0);
        }
        Ok(messages)
    }
}

/// The messages of a stretch of an Arrow IPC stream.
fn split(pieces: Vec<Buffer>) -> Result<Vec<Message>, ArrowError> {
    let broken = || ArrowError::IpcError("the encoder's pieces do not add up to messages".to_owned());
    let mut pieces = pieces.into_iter().filter(|piece| !piece.is_empty());
    let mut messages = Vec::with_capacity(1);
    while let Some(mark) = pieces.next() {
        let length = mark.get(MARK_BYTES / 2..MARK_BYTES).and_then(|bytes| bytes.try_into().ok());
        let length = u32::from_le_bytes(length.ok_or_else(broken)?) as usize;
        let header = pieces.next().ok_or_else(broken)?;
        let mut passed = header.len();
        while passed < length {
            passed += pieces.next().ok_or_else(broken)?.len();
        }
        let body_bytes = root_as_message(&header).map_err(|_| broken())?.bodyLength() as usize;
        let (mut body, mut found) = (Vec::new(), 0);
        while found < body_bytes {
            let piece = pieces.next().ok_or_else(broken)?;
            found += piece.len();
            body.push(piece);
        }
        if passed != length || found != body_bytes {
            return Err(broken());
        }
        messages.push(Message { header, metadata: Bytes::new(), body });
    }
    Ok(messages)
}

// === impl Message ===

impl Message {
    /// Bytes of its three parts.
    pub(crate) fn byte_count(&self) -> usize {
        self.header.len() + self.metadata.len() + self.body_bytes()
    }

    /// Bytes of its body.
    pub(crate) fn body_bytes(&self) -> usize {
        self.body.iter().map(Buffer::len).sum()
    }

    /// XXH3-64 of its body.
    fn checksum(&self) -> u64 {
        let mut hash = Xxh3::new();
        self.body.iter().for_each(|piece| hash.update(piece));
        hash.digest()
    }
}

/// A buffer's bytes for the network's crates: the same memory.
pub(crate) fn shared(buffer: Buffer) -> Bytes {
    struct Owner(Buffer);
    impl AsRef<[u8]> for Owner {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }
    Bytes::from_owner(Owner(buffer))
}

/// The message in one piece each, which copies its body.
impl From<Message> for FlightData {
    fn from(message: Message) -> Self {
        let mut body = Vec::with_capacity(message.body_bytes());
        message.body.iter().for_each(|piece| body.extend_from_slice(piece));
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

    /// What arrow's own generator of Flight messages makes of the batches.
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
    fn messages_in_pieces_are_those_of_arrow_flight() {
        let whole = batch();
        let batches = [whole.clone(), whole.slice(1, 2), whole.slice(0, 0), whole.slice(2, 1)];
        let mut encoder = Encoder::new(&whole.schema(), Encoding::Json).unwrap();
        let messages = batches.iter().flat_map(|batch| encoder.exchanged(batch, Bytes::new()).unwrap());
        let messages: Vec<FlightData> = messages.map(FlightData::from).collect();
        assert_eq!(messages, expected(&batches));
    }

    #[test]
    fn columns_travel_as_they_lie() {
        let whole = batch();
        let mut encoder = Encoder::new(&whole.schema(), Encoding::Json).unwrap();
        let messages = encoder.batch(&whole, v1::BatchHeader::default()).unwrap();
        let values = whole["whole"].to_data().buffers()[0].clone();
        let sent = &messages.last().unwrap().body;
        assert!(sent.iter().any(|piece| piece.as_ptr() == values.as_ptr()));
    }

    #[test]
    fn pieces_that_are_no_stream_are_an_error() {
        for odd in [vec![Buffer::from(&[1, 2, 3])], vec![Buffer::from(&[255; 8])], vec![Buffer::from(&[0; 8]); 3]] {
            assert!(split(odd).is_err());
        }
    }
}
