//! CSV files → batches. Columns are matched by name; the type of each is inferred or set.

use std::sync::Arc;

use arrow::{
    array::{ArrayRef, RecordBatch, StringBuilder},
    datatypes::{DataType, Field, Schema, SchemaRef},
};

use crate::{
    batches::{BATCH_BYTES, BATCH_ROWS, Batches, FileReader, batches},
    csv_records::CsvRecords,
    error::{ConvertError, Place},
    input::ReadBytes,
    options::Options,
    sources::SourceFile,
    text,
    text_kind::TextKinds,
};

/// CSV files with a common schema.
pub(crate) struct CsvFiles {
    options: Arc<Options>,
    schema: SchemaRef,
}

/// The rows of a file.
struct CsvBatches {
    options: Arc<Options>,
    schema: SchemaRef,
    records: CsvRecords,
    /// The field of each column; `None` for columns of other files.
    fields: Vec<Option<usize>>,
}

// === impl CsvFiles ===

impl CsvFiles {
    /// Reads the names of every file's columns, and the first rows.
    pub(crate) fn open(files: &[SourceFile], options: &Arc<Options>) -> Result<Self, ConvertError> {
        let mut columns: Vec<(String, TextKinds)> = Vec::new();
        let mut rows_left = options.infer_rows;
        for file in files {
            let mut records = CsvRecords::open(file, options, &ReadBytes::default())?;
            let mut places = Vec::with_capacity(records.names().len());
            for name in records.names() {
                let place = columns.iter().position(|(other, _)| other == name).unwrap_or_else(|| {
                    columns.push((name.clone(), TextKinds::default()));
                    columns.len() - 1
                });
                places.push(place);
            }
            while rows_left > 0 && records.advance()? {
                rows_left -= 1;
                for (field, place) in places.iter().enumerate() {
                    let text = records.field(field)?;
                    if !is_null(text, options) {
                        columns[*place].1.add(text);
                    }
                }
            }
        }
        options.check_types(columns.iter().map(|(name, _)| name.as_str()))?;
        let fields = columns.into_iter().map(|(name, kinds)| {
            let kind = options.type_of(&name).cloned().unwrap_or_else(|| kinds.data_type());
            Field::new(name, kind, true)
        });
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        Ok(Self { options: Arc::clone(options), schema })
    }
}

impl FileReader for CsvFiles {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn read(&self, file: &SourceFile, read: &ReadBytes) -> Result<Batches, ConvertError> {
        let records = CsvRecords::open(file, &self.options, read)?;
        let names = records.names();
        let fields = self.schema.fields().iter().map(|field| names.iter().position(|name| name == field.name()));
        let mut rows = CsvBatches {
            options: Arc::clone(&self.options),
            schema: Arc::clone(&self.schema),
            fields: fields.collect(),
            records,
        };
        Ok(batches(move || rows.batch()))
    }
}

fn is_null(text: &str, options: &Options) -> bool {
    options.nulls.iter().any(|null| null == text)
}

// === impl CsvBatches ===

impl CsvBatches {
    fn batch(&mut self) -> Result<Option<RecordBatch>, ConvertError> {
        let mut texts: Vec<StringBuilder> = self.fields.iter().map(|_| StringBuilder::new()).collect();
        let (mut lines, mut bytes) = (Vec::new(), 0);
        while lines.len() < BATCH_ROWS && bytes < BATCH_BYTES {
            if !self.records.advance()? {
                break;
            }
            lines.push(self.records.line());
            for (texts, field) in texts.iter_mut().zip(&self.fields) {
                let text = field.map(|field| self.records.field(field)).transpose()?;
                let text = text.filter(|text| !is_null(text, &self.options));
                bytes += text.map_or(0, str::len);
                texts.append_option(text);
            }
        }
        if lines.is_empty() {
            return Ok(None);
        }
        let columns = texts.into_iter().zip(self.schema.fields());
        let columns = columns.map(|(texts, field)| self.column(texts, field, &lines));
        let columns = columns.collect::<Result<Vec<_>, _>>()?;
        RecordBatch::try_new(Arc::clone(&self.schema), columns).map(Some).map_err(ConvertError::Batch)
    }

    fn column(&self, mut texts: StringBuilder, field: &Field, lines: &[u64]) -> Result<ArrayRef, ConvertError> {
        text::convert(&texts.finish(), field.data_type()).map_err(|bad| {
            let name = field.name();
            let advice = match self.options.type_of(name) {
                Some(_) => String::new(),
                None => advice(name, field.data_type(), self.options.infer_rows),
            };
            ConvertError::Value {
                path: self.records.path().to_owned(),
                place: Place::Line(lines.get(bad.row).copied().unwrap_or_default()),
                column: Some(name.clone()),
                reason: format!("{}{advice}", bad.reason),
            }
        })
    }
}

fn advice(name: &str, kind: &DataType, rows: usize) -> String {
    format!(
        "; {kind} is the type of the first {rows} rows: set another with --type {name}=string, or raise --infer-rows"
    )
}
