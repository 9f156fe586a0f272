//! Flight messages of an untrusted client → record batches.
//!
//! Arrow's reader validates values (offsets, UTF-8, dictionary keys) but panics on an invalid layout. So the layout is
//! validated here first: every count, length and offset must fit the bytes received.

mod error;
mod layout;
mod schema;

use std::{collections::HashMap, sync::Arc};

use arrow::{
    array::{ArrayRef, RecordBatch},
    buffer::Buffer,
    compute::concat,
    datatypes::{DataType, Field, Schema, SchemaRef},
};
use arrow_flight::FlightData;
use arrow_ipc::{MessageHeader, reader::RecordBatchDecoder, root_as_message};

pub(crate) use error::MessageError;
pub(crate) use schema::read as read_schema;

use error::caught;

/// Decodes some columns of the batches of one exchange.
#[derive(Debug)]
pub(crate) struct Decoder {
    schema: SchemaRef,
    /// Indices of the decoded columns, ascending.
    columns: Vec<usize>,
    /// Dictionaries that those columns use: id → type of the values.
    used: HashMap<i64, DataType>,
    dictionaries: HashMap<i64, ArrayRef>,
}

/// The kind of a message, before it is decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MessageKind {
    /// Only metadata.
    Empty,
    /// The values of a dictionary; a delta appends to the existing values.
    Dictionary { id: i64, bytes: u64, is_delta: bool },
    /// Rows.
    Batch { rows: u64, bytes: u64 },
}

impl Decoder {
    /// A decoder of columns of a schema.
    pub(crate) fn new(schema: SchemaRef, columns: Vec<usize>) -> Self {
        let mut used = HashMap::new();
        for column in &columns {
            dictionaries_of(schema.field(*column), &mut used);
        }
        Self { schema, columns, used, dictionaries: HashMap::new() }
    }

    /// Validates the layout of a message, whose body may have at most `bytes_max` bytes when decompressed, and returns
    /// its kind.
    pub(crate) fn check(&self, data: &FlightData, bytes_max: u64) -> Result<MessageKind, MessageError> {
        if data.data_header.is_empty() {
            return Ok(MessageKind::Empty);
        }
        let message = message(&data.data_header)?;
        let body = &data.data_body;
        match message.header_type() {
            MessageHeader::NONE => Ok(MessageKind::Empty),
            MessageHeader::RecordBatch => {
                let batch = message.header_as_record_batch().ok_or_else(missing_kind)?;
                let types = self.schema.fields().iter().map(|field| field.data_type());
                let bytes = layout::check(&batch, types, message.version(), body, bytes_max)?;
                Ok(MessageKind::Batch { rows: batch.length().unsigned_abs(), bytes })
            }
            MessageHeader::DictionaryBatch => {
                let dictionary = message.header_as_dictionary_batch().ok_or_else(missing_kind)?;
                let (id, is_delta) = (dictionary.id(), dictionary.isDelta());
                let Some(values) = self.used.get(&id) else { return Ok(MessageKind::Empty) };
                let batch = dictionary.data().ok_or_else(missing_kind)?;
                let bytes = layout::check(&batch, [values].into_iter(), message.version(), body, bytes_max)?;
                Ok(MessageKind::Dictionary { id, bytes, is_delta })
            }
            MessageHeader::Schema => {
                Err(MessageError::Malformed("second schema: open another exchange for other columns".to_owned()))
            }
            other => Err(MessageError::Malformed(format!(
                "unexpected message: {}",
                other.variant_name().unwrap_or("unknown kind")
            ))),
        }
    }

    /// Decodes the columns of a batch whose layout was checked, and validates their values.
    pub(crate) fn batch(&self, data: &FlightData) -> Result<RecordBatch, MessageError> {
        let message = message(&data.data_header)?;
        let batch = message.header_as_record_batch().ok_or_else(missing_kind)?;
        let body = aligned(data);
        caught(|| {
            let schema = SchemaRef::clone(&self.schema);
            RecordBatchDecoder::try_new(&body, batch, schema, &self.dictionaries, &message.version())?
                .with_projection(Some(&self.columns))
                .read_record_batch()
        })
    }

    /// Decodes a dictionary whose layout was checked. It replaces the existing values, or a delta appends to them.
    pub(crate) fn dictionary(&mut self, data: &FlightData) -> Result<(), MessageError> {
        let message = message(&data.data_header)?;
        let dictionary = message.header_as_dictionary_batch().ok_or_else(missing_kind)?;
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
            let before = before.ok_or_else(|| MessageError::Malformed("delta of a missing dictionary".to_owned()))?;
            values = caught(|| concat(&[before.as_ref(), values.as_ref()]))?;
        }
        self.dictionaries.insert(dictionary.id(), values);
        Ok(())
    }
}

/// Adds the dictionaries of a field and its children.
fn dictionaries_of(field: &Field, used: &mut HashMap<i64, DataType>) {
    match field.data_type() {
        DataType::Dictionary(_, values) =>
        {
            #[expect(deprecated, reason = "the only access to the id that the reader sets")]
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
        MessageError::Malformed(format!("malformed Arrow message: {}", text.lines().next().unwrap_or_default()))
    })
}

fn missing_kind() -> MessageError {
    MessageError::Malformed("malformed Arrow message: the header of its kind is missing".to_owned())
}

/// The body, copied if it is not at the alignment of Arrow's arrays.
fn aligned(data: &FlightData) -> Buffer {
    const ALIGNMENT: usize = 64;
    if data.data_body.as_ptr().addr().is_multiple_of(ALIGNMENT) {
        Buffer::from(data.data_body.clone())
    } else {
        Buffer::from(data.data_body.as_ref())
    }
}

#[cfg(test)]
mod tests;
