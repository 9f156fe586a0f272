//! Flight messages of a client → record batches, whatever the client sends.
//!
//! Arrow's reader checks values (offsets, UTF-8, dictionary keys) and takes the layout on trust, with a panic where the
//! trust is misplaced. So the layout is checked here first: every count, length and place against the bytes that are
//! there.

mod layout;
mod schema;

use std::{
    collections::HashMap,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use arrow::{
    array::{ArrayRef, RecordBatch},
    buffer::Buffer,
    compute::concat,
    datatypes::{DataType, Field, Schema, SchemaRef},
    error::ArrowError,
};
use arrow_flight::FlightData;
use arrow_ipc::{MessageHeader, reader::RecordBatchDecoder, root_as_message};

use crate::cpu_pool::CpuError;

pub(crate) use schema::read as read_schema;

/// Why a message is not decoded.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MessageError {
    /// Its bytes are no schema, dictionary or batch.
    #[error("{0}")]
    Malformed(String),
    /// There is too much of it.
    #[error("it has more than the {0} bytes of --batch-bytes-max: send smaller batches")]
    TooLarge(u64),
}

/// Decodes the batches of one client, of which it reads some columns.
#[derive(Debug)]
pub(crate) struct Decoder {
    schema: SchemaRef,
    /// The columns that are decoded, as indices that rise.
    columns: Vec<usize>,
    /// Ids of the dictionaries that those columns use, with what their values are.
    used: HashMap<i64, DataType>,
    dictionaries: HashMap<i64, ArrayRef>,
}

/// What a message is, before it is decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MessageKind {
    /// Nothing but metadata.
    Empty,
    /// The values of a dictionary; whether they follow those that are there.
    Dictionary { id: i64, bytes: u64, is_delta: bool },
    /// Rows.
    Batch { rows: u64, bytes: u64 },
}

impl Decoder {
    /// A decoder of these columns of a schema.
    pub(crate) fn new(schema: SchemaRef, columns: Vec<usize>) -> Self {
        let mut used = HashMap::new();
        for column in &columns {
            dictionaries_of(schema.field(*column), &mut used);
        }
        Self { schema, columns, used, dictionaries: HashMap::new() }
    }

    /// What a message is, and the bytes that its body has once decompressed, at most `bytes_max`; its layout is sound
    /// then.
    pub(crate) fn check(&self, data: &FlightData, bytes_max: u64) -> Result<MessageKind, MessageError> {
        if data.data_header.is_empty() {
            return Ok(MessageKind::Empty);
        }
        let message = message(&data.data_header)?;
        let body = &data.data_body;
        match message.header_type() {
            MessageHeader::NONE => Ok(MessageKind::Empty),
            MessageHeader::RecordBatch => {
                let batch = message.header_as_record_batch().ok_or_else(headless)?;
                let types = self.schema.fields().iter().map(|field| field.data_type());
                let bytes = layout::check(&batch, types, message.version(), body, bytes_max)?;
                Ok(MessageKind::Batch { rows: batch.length().unsigned_abs(), bytes })
            }
            MessageHeader::DictionaryBatch => {
                let dictionary = message.header_as_dictionary_batch().ok_or_else(headless)?;
                let (id, is_delta) = (dictionary.id(), dictionary.isDelta());
                let Some(values) = self.used.get(&id) else { return Ok(MessageKind::Empty) };
                let batch = dictionary.data().ok_or_else(headless)?;
                let bytes = layout::check(&batch, [values].into_iter(), message.version(), body, bytes_max)?;
                Ok(MessageKind::Dictionary { id, bytes, is_delta })
            }
            MessageHeader::Schema => Err(MessageError::Malformed(
                "a second schema: an exchange has one, open another for other columns".to_owned(),
            )),
            other => Err(MessageError::Malformed(format!(
                "{} has no place in an exchange",
                other.variant_name().unwrap_or("this")
            ))),
        }
    }

    /// The columns of a batch that was looked at; their values are checked on the way.
    pub(crate) fn batch(&self, data: &FlightData) -> Result<RecordBatch, MessageError> {
        let message = message(&data.data_header)?;
        let batch = message.header_as_record_batch().ok_or_else(headless)?;
        let body = aligned(data);
        caught(|| {
            let schema = SchemaRef::clone(&self.schema);
            RecordBatchDecoder::try_new(&body, batch, schema, &self.dictionaries, &message.version())?
                .with_projection(Some(&self.columns))
                .read_record_batch()
        })
    }

    /// Takes in a dictionary that was looked at: in place of the one before, or behind its values.
    pub(crate) fn dictionary(&mut self, data: &FlightData) -> Result<(), MessageError> {
        let message = message(&data.data_header)?;
        let dictionary = message.header_as_dictionary_batch().ok_or_else(headless)?;
        let (Some(values), Some(batch)) = (self.used.get(&dictionary.id()), dictionary.data()) else { return Ok(()) };
        let field = Field::new("dictionary", values.clone(), true);
        let body = aligned(data);
        let decoded = caught(|| {
            let schema = Arc::new(Schema::new(vec![field]));
            RecordBatchDecoder::try_new(&body, batch, schema, &self.dictionaries, &message.version())?
                .read_record_batch()
        })?;
        let mut values = Arc::clone(decoded.column(0));
        if dictionary.isDelta() {
            let before = self.dictionaries.get(&dictionary.id());
            let before = before
                .ok_or_else(|| MessageError::Malformed("a delta of a dictionary that did not come".to_owned()))?;
            values = caught(|| concat(&[before.as_ref(), values.as_ref()]))?;
        }
        self.dictionaries.insert(dictionary.id(), values);
        Ok(())
    }
}

/// The dictionaries that a field and those inside of it use.
fn dictionaries_of(field: &Field, used: &mut HashMap<i64, DataType>) {
    match field.data_type() {
        DataType::Dictionary(_, values) =>
        {
            #[expect(deprecated, reason = "there is no other way to the id that a reader has given")]
            if let Some(id) = field.dict_id() {
                used.insert(id, values.as_ref().clone());
            }
        }
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::FixedSizeList(item, _)
        | DataType::Map(item, _) => dictionaries_of(item, used),
        DataType::Struct(fields) => fields.iter().for_each(|field| dictionaries_of(field, used)),
        _ => {}
    }
}

fn message(header: &[u8]) -> Result<arrow_ipc::Message<'_>, MessageError> {
    root_as_message(header).map_err(|source| {
        let text = source.to_string();
        MessageError::Malformed(format!("its header is no Arrow message: {}", text.lines().next().unwrap_or_default()))
    })
}

fn headless() -> MessageError {
    MessageError::Malformed("its header names a kind that it does not hold".to_owned())
}

/// The body at an address that is a multiple of 64, as Arrow's arrays want it.
fn aligned(data: &FlightData) -> Buffer {
    const ALIGNMENT: usize = 64;
    if data.data_body.as_ptr().addr().is_multiple_of(ALIGNMENT) {
        Buffer::from(data.data_body.clone())
    } else {
        Buffer::from(data.data_body.as_ref())
    }
}

/// Runs Arrow's reader, for which bytes that it did not expect may be a reason to panic.
fn caught<T>(read: impl FnOnce() -> Result<T, ArrowError>) -> Result<T, MessageError> {
    match catch_unwind(AssertUnwindSafe(read)) {
        Ok(read) => read.map_err(|source| MessageError::Malformed(source.to_string())),
        Err(panic) => Err(MessageError::Malformed(CpuError::of_panic(&*panic).of_damage())),
    }
}

#[cfg(test)]
mod tests;
