//! Files of JSON lines → batches. Every line is checked against the schema before arrays are built.

use std::{
    io::{BufRead, BufReader, Read},
    path::PathBuf,
    sync::Arc,
};

use arrow::{
    array::{AsArray, RecordBatch},
    datatypes::{DataType, Field, Fields, Schema, SchemaRef},
    error::ArrowError,
    json::{ReaderBuilder, reader::Decoder},
};

use crate::{
    batches::{BATCH_BYTES, BATCH_ROWS, Batches, FileReader, batches},
    error::{ConvertError, Place},
    input::{RECORD_BYTES_MAX, ReadBytes, TextReader, open_text},
    json_type::{self, JsonType, Mismatch},
    json_value::{JsonObject, JsonValue},
    options::Options,
    sources::SourceFile,
    text,
};

/// Files of JSON lines with a common schema.
pub(crate) struct JsonFiles {
    options: Arc<Options>,
    schema: SchemaRef,
}

/// The lines of a file that are not empty.
struct JsonLines {
    path: PathBuf,
    reader: BufReader<TextReader>,
    line: Vec<u8>,
    number: u64,
}

/// The rows of a file.
struct JsonBatches {
    options: Arc<Options>,
    schema: SchemaRef,
    /// Columns with an inferred type: others are read as texts and then converted.
    checked: Fields,
    decoder: Decoder,
    lines: JsonLines,
}

// === impl JsonFiles ===

impl JsonFiles {
    /// Infers the schema from the first lines.
    pub(crate) fn open(files: &[SourceFile], options: &Arc<Options>) -> Result<Self, ConvertError> {
        let mut columns: Vec<(String, JsonType)> = Vec::new();
        let mut rows_left = options.infer_rows;
        for file in files {
            if rows_left == 0 {
                break;
            }
            let mut lines = JsonLines::open(file, &ReadBytes::default())?;
            while rows_left > 0
                && let Some(object) = lines.next_object()?
            {
                rows_left -= 1;
                for (name, value) in &object {
                    let place = columns.iter().position(|(other, _)| other == name).unwrap_or_else(|| {
                        columns.push((name.clone(), JsonType::default()));
                        columns.len() - 1
                    });
                    // A set type decides.
                    if options.type_of(name).is_none() {
                        columns[place].1.add(value, name).map_err(|mismatch| {
                            let advice = if name == &mismatch.path {
                                format!(": set --type {name}=string")
                            } else {
                                String::new()
                            };
                            lines.mismatch(Mismatch { reason: mismatch.reason + &advice, ..mismatch })
                        })?;
                    }
                }
            }
        }
        if columns.is_empty() {
            let reason = "it has no line with a field".to_owned();
            return Err(ConvertError::File {
                path: files.first().map(|file| file.path.clone()).unwrap_or_default(),
                reason,
            });
        }
        options.check_types(columns.iter().map(|(name, _)| name.as_str()))?;
        let fields = columns.iter().map(|(name, kind)| {
            Field::new(name, options.type_of(name).cloned().unwrap_or_else(|| kind.data_type()), true)
        });
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        Ok(Self { options: Arc::clone(options), schema })
    }
}

impl FileReader for JsonFiles {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn read(&self, file: &SourceFile, read: &ReadBytes) -> Result<Batches, ConvertError> {
        let is_set = |field: &Field| self.options.type_of(field.name()).is_some();
        let as_read = self.schema.fields().iter().map(|field| {
            let kind = if is_set(field) { DataType::Utf8 } else { field.data_type().clone() };
            Field::new(field.name(), kind, true)
        });
        let as_read = Arc::new(Schema::new(as_read.collect::<Vec<_>>()));
        let decoder = ReaderBuilder::new(Arc::clone(&as_read))
            .with_batch_size(BATCH_ROWS)
            .with_coerce_primitive(true)
            .with_strict_mode(true)
            .build_decoder()
            .map_err(ConvertError::Batch)?;
        let mut rows = JsonBatches {
            options: Arc::clone(&self.options),
            schema: Arc::clone(&self.schema),
            checked: as_read.fields().clone(),
            decoder,
            lines: JsonLines::open(file, read)?,
        };
        Ok(batches(move || rows.batch()))
    }
}

// === impl JsonLines ===

impl JsonLines {
    fn open(file: &SourceFile, read: &ReadBytes) -> Result<Self, ConvertError> {
        let reader = BufReader::with_capacity(256 << 10, open_text(file, read)?);
        Ok(Self { path: file.path.clone(), reader, line: Vec::new(), number: 0 })
    }

    /// The next line as an object.
    fn next_object(&mut self) -> Result<Option<JsonObject>, ConvertError> {
        if !self.advance()? {
            return Ok(None);
        }
        match serde_json::from_slice(&self.line) {
            Ok(JsonValue::Object(object)) => Ok(Some(object)),
            Ok(value) => {
                let is_array = matches!(value, JsonValue::List(_));
                Err(self.error(if is_array { ARRAY } else { "it is not an object" }.to_owned()))
            }
            // A document over several lines begins with these.
            Err(_) if self.number == 1 && self.line.trim_ascii() == b"[" => Err(self.error(ARRAY.to_owned())),
            Err(_) if self.number == 1 && self.line.trim_ascii() == b"{" => Err(self.error(
                "the object continues on another line: write each on one line, for example with jq -c .".to_owned(),
            )),
            Err(error) if error.is_data() => Err(self.error(error.to_string())),
            Err(error) => Err(self.error(format!("it is not JSON, at byte {}: {error}", error.column()))),
        }
    }

    fn advance(&mut self) -> Result<bool, ConvertError> {
        loop {
            self.line.clear();
            let limited = self.reader.by_ref().take(RECORD_BYTES_MAX).read_until(b'\n', &mut self.line);
            limited.map_err(|source| ConvertError::Read { path: self.path.clone(), source })?;
            if self.line.is_empty() {
                return Ok(false);
            }
            self.number += 1;
            if self.line.len() as u64 == RECORD_BYTES_MAX {
                return Err(self.error(format!("the line has more than {} MiB", RECORD_BYTES_MAX >> 20)));
            }
            if self.number == 1 && self.line.starts_with(b"\xef\xbb\xbf") {
                self.line.drain(..3);
            }
            if !self.line.trim_ascii().is_empty() {
                return Ok(true);
            }
        }
    }

    fn mismatch(&self, mismatch: Mismatch) -> ConvertError {
        let Mismatch { path, reason } = mismatch;
        ConvertError::Value { path: self.path.clone(), place: Place::Line(self.number), column: Some(path), reason }
    }

    fn error(&self, reason: String) -> ConvertError {
        ConvertError::Value { path: self.path.clone(), place: Place::Line(self.number), column: None, reason }
    }
}

const ARRAY: &str = "it begins an array: JSON lines has one object on each line, for example by jq -c '.[]'";

// === impl JsonBatches ===

impl JsonBatches {
    fn batch(&mut self) -> Result<Option<RecordBatch>, ConvertError> {
        let (mut numbers, mut bytes) = (Vec::new(), 0);
        while numbers.len() < BATCH_ROWS && bytes < BATCH_BYTES {
            let Some(object) = self.lines.next_object()? else {
                break;
            };
            self.check(&object).map_err(|mismatch| self.lines.mismatch(mismatch))?;
            self.decoder.decode(&self.lines.line).map_err(|error| self.undecoded(&error))?;
            numbers.push(self.lines.number);
            bytes += self.lines.line.len();
        }
        if numbers.is_empty() {
            return Ok(None);
        }
        let batch = self.decoder.flush().map_err(|error| self.undecoded(&error))?;
        let Some(batch) = batch.filter(|batch| batch.num_rows() == numbers.len()) else {
            return Err(ConvertError::Reader("the decoder lost a line".to_owned()));
        };
        let columns = batch.columns().iter().zip(self.schema.fields()).map(|(column, field)| {
            if self.options.type_of(field.name()).is_none() {
                return Ok(Arc::clone(column));
            }
            text::convert(column.as_string(), field.data_type()).map_err(|bad| ConvertError::Value {
                path: self.lines.path.clone(),
                place: Place::Line(numbers.get(bad.row).copied().unwrap_or_default()),
                column: Some(field.name().clone()),
                reason: bad.reason,
            })
        });
        let columns = columns.collect::<Result<Vec<_>, _>>()?;
        RecordBatch::try_new(Arc::clone(&self.schema), columns).map(Some).map_err(ConvertError::Batch)
    }

    /// Checks the columns whose type is inferred; those with a set type must be texts, numbers or booleans.
    fn check(&self, object: &JsonObject) -> Result<(), Mismatch> {
        for (name, value) in object {
            let Some((_, field)) = self.checked.find(name) else {
                let reason = format!("the first {} lines do not have it: raise --infer-rows", self.options.infer_rows);
                return Err(Mismatch { path: name.clone(), reason });
            };
            if self.options.type_of(name).is_none() {
                json_type::check(value, field.data_type(), name)?;
            } else if matches!(value, JsonValue::List(_) | JsonValue::Object(_)) {
                let reason = "the type of --type holds no lists and objects".to_owned();
                return Err(Mismatch { path: name.clone(), reason });
            }
        }
        Ok(())
    }

    fn undecoded(&self, error: &ArrowError) -> ConvertError {
        self.lines.error(error.to_string())
    }
}
