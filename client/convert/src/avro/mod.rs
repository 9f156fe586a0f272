//! Avro files → batches of whole blocks.

mod container;
mod schema;

use std::{io::Read, iter, sync::Arc};

use arrow::{
    array::RecordBatch,
    datatypes::{DataType, FieldRef, Schema, SchemaRef},
    error::ArrowError,
};
use arrow_avro::{codec::Tz, reader::ReaderBuilder};
use serde_json::Value;

use crate::{
    avro::{
        container::{AvroBlocks, MAGIC, SCHEMA_KEY, SYNC_BYTES},
        schema::{Extent, simplified},
    },
    batches::{BATCH_BYTES, BATCH_ROWS, Batches, FileReader, batches},
    error::ConvertError,
    input::ReadBytes,
    same_schema::{SameSchema, align},
    sources::SourceFile,
};

/// The most that values of fixed size of a batch may take, which nulls take without having bytes in the file.
const FIXED_BYTES_MAX: u64 = 2 << 30;

/// Avro files with a common schema.
pub(crate) struct AvroFiles {
    schema: SchemaRef,
}

/// The rows of a file.
struct AvroBatches {
    blocks: AvroBlocks,
    decoder: RecordsDecoder,
    schema: SchemaRef,
    /// Records so far.
    records: u64,
}

/// Decodes records, by a header for a file without compression.
struct RecordsDecoder {
    header: Vec<u8>,
    extent: Extent,
}

// === impl AvroFiles ===

impl AvroFiles {
    /// Reads the schema of every file.
    pub(crate) fn open(files: &[SourceFile]) -> Result<Self, ConvertError> {
        let mut same = SameSchema::default();
        for file in files {
            let (blocks, decoder) = open(file, &ReadBytes::default())?;
            let schema = decoder.schema().map_err(|reason| blocks.error(&reason))?;
            same.add(&file.path, &schema)?;
        }
        Ok(Self { schema: same.finish() })
    }
}

impl FileReader for AvroFiles {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn read(&self, file: &SourceFile, read: &ReadBytes) -> Result<Batches, ConvertError> {
        let (blocks, decoder) = open(file, read)?;
        let mut rows = AvroBatches { blocks, decoder, schema: self.schema(), records: 0 };
        Ok(batches(move || rows.batch()))
    }
}

fn open(file: &SourceFile, read: &ReadBytes) -> Result<(AvroBlocks, RecordsDecoder), ConvertError> {
    let blocks = AvroBlocks::open(file, read)?;
    let decoder = RecordsDecoder::new(blocks.schema()).map_err(|reason| blocks.error(&reason))?;
    Ok((blocks, decoder))
}

// === impl AvroBatches ===

impl AvroBatches {
    fn batch(&mut self) -> Result<Option<RecordBatch>, ConvertError> {
        let mut data = Vec::new();
        let mut records = 0;
        while records < BATCH_ROWS as u64 && data.len() < BATCH_BYTES {
            match self.blocks.advance(&mut data)? {
                Some(more) => records += more,
                None => break,
            }
        }
        if records == 0 {
            return if data.is_empty() {
                Ok(None)
            } else {
                Err(self.blocks.error("a block has bytes without records"))
            };
        }
        let (first, last) = (self.records + 1, self.records + records);
        self.records = last;
        let decoded = self.decoder.decode(&data, records);
        let aligned = decoded.and_then(|batch| align(&batch, &self.schema).map_err(|error| error.to_string()));
        aligned.map(Some).map_err(|reason| self.blocks.error(&format!("records {first} to {last}: {reason}")))
    }
}

// === impl RecordsDecoder ===

impl RecordsDecoder {
    /// A decoder for a schema in JSON.
    fn new(schema: &str) -> Result<Self, String> {
        let parsed: Value = serde_json::from_str(schema).map_err(|error| format!("its schema is not JSON: {error}"))?;
        let (schema, extent) = simplified(&parsed)?;
        let schema = schema.to_string();
        let mut header = MAGIC.to_vec();
        header.extend(long(1));
        for text in [SCHEMA_KEY, &schema] {
            header.extend(long(text.len() as i64));
            header.extend(text.as_bytes());
        }
        header.extend(long(0));
        header.extend([0; SYNC_BYTES]);
        Ok(Self { header, extent })
    }

    fn schema(&self) -> Result<Schema, String> {
        let reader = ReaderBuilder::new().with_tz(Tz::Utc).build(self.header.as_slice());
        let schema = reader.map_err(|error| reason_of(&error))?.schema();
        let nullable = |field: &FieldRef| {
            let is_null = *field.data_type() == DataType::Null;
            field.as_ref().clone().with_nullable(is_null || field.is_nullable())
        };
        Ok(Schema::new(schema.fields().iter().map(nullable).collect::<Vec<_>>()))
    }

    /// Decodes the records that the data of blocks has.
    fn decode(&self, data: &[u8], records: u64) -> Result<RecordBatch, String> {
        let bytes = data.len() as u64;
        if self.extent.fixed_bytes(records, bytes) > FIXED_BYTES_MAX {
            return Err(
                "values of type fixed take too much memory: write the file again with smaller blocks".to_owned()
            );
        }
        // The reader fills a batch of this size. It would never end if a block declared fewer records than it has, so that
        // the block declares more, of which none may follow the batch.
        let head: Vec<u8> = long(i64::MAX).chain(long(data.len() as i64)).collect();
        let file = self.header.as_slice().chain(head.as_slice()).chain(data).chain([0; SYNC_BYTES].as_slice());
        let builder = ReaderBuilder::new().with_tz(Tz::Utc).with_batch_size(records as usize);
        let mut reader = builder.build(file).map_err(|error| reason_of(&error))?;
        let batch = reader.next().ok_or("they are missing")?.map_err(|error| reason_of(&error))?;
        if batch.num_rows() as u64 != records || reader.next().is_some() {
            return Err("their blocks have other records than they declare".to_owned());
        }
        Ok(batch)
    }
}

/// An integer as it is stored: the sign in the lowest bit, in groups of seven bits, the lowest first.
fn long(value: i64) -> impl Iterator<Item = u8> {
    let mut rest = Some(((value << 1) ^ (value >> 63)) as u64);
    iter::from_fn(move || {
        let bits = rest?;
        let following = bits >> 7;
        rest = (following > 0).then_some(following);
        Some((bits & 0x7f) as u8 | if following > 0 { 0x80 } else { 0 })
    })
}

/// What a library says, without the name of its error and the types that it prints in no certain order.
fn reason_of(error: &ArrowError) -> String {
    let reason = match error {
        ArrowError::AvroError(reason)
        | ArrowError::ParseError(reason)
        | ArrowError::SchemaError(reason)
        | ArrowError::InvalidArgumentError(reason)
        | ArrowError::NotYetImplemented(reason) => reason.clone(),
        other => other.to_string(),
    };
    reason.split_once('{').map_or(reason.as_str(), |(start, _)| start.trim_end()).to_owned()
}
