//! `WebDataset`: tar archives whose entries are the values of samples → batches. Columns are the key and the
//! extensions.

mod samples;
mod tar;
mod tar_header;

use std::sync::Arc;

use arrow::{
    array::{ArrayRef, RecordBatch, StringArray},
    datatypes::{DataType, Field, Schema, SchemaRef},
};

use crate::{
    batches::{BATCH_BYTES, BATCH_ROWS, Batches, FileReader, batches},
    error::ConvertError,
    input::ReadBytes,
    json_type::{JsonType, Mismatch},
    options::Options,
    raw_column::RawKind,
    sources::SourceFile,
    webdataset::samples::{FIELDS_MAX, KEY, Sample, Samples},
};

/// Archives with a common schema.
pub(crate) struct TarFiles {
    options: Arc<Options>,
    columns: Arc<[TarColumn]>,
    schema: SchemaRef,
}

/// The values of an extension.
#[derive(Clone, Debug)]
struct TarColumn {
    name: String,
    kind: RawKind,
}

/// The rows of an archive.
struct TarBatches {
    options: Arc<Options>,
    columns: Arc<[TarColumn]>,
    schema: SchemaRef,
    samples: Samples,
}

// === impl TarFiles ===

impl TarFiles {
    /// Finds the extensions of the first samples, and the types of their documents.
    pub(crate) fn open(files: &[SourceFile], options: &Arc<Options>) -> Result<Self, ConvertError> {
        let mut columns: Vec<TarColumn> = Vec::new();
        let mut rows_left = options.infer_rows;
        for file in files {
            if rows_left == 0 {
                break;
            }
            let mut samples = Samples::open(file, &ReadBytes::default())?;
            while rows_left > 0
                && let Some(sample) = samples.next_sample()?
            {
                rows_left -= 1;
                for (name, value) in &sample.fields {
                    let place = columns.iter().position(|column| column.name == *name).unwrap_or_else(|| {
                        columns.push(TarColumn { name: name.clone(), kind: kind_of(name, options) });
                        columns.len() - 1
                    });
                    if columns.len() > FIELDS_MAX {
                        let reason = format!("the samples have more than {FIELDS_MAX} extensions");
                        return Err(samples.bad_sample(&sample.key, name, reason));
                    }
                    columns[place].kind.add(value, name).map_err(|Mismatch { path, reason }| {
                        let advice = format!(": set --type {name}=string to keep the documents as text");
                        samples.bad_sample(&sample.key, &path, reason + &advice)
                    })?;
                }
            }
        }
        if columns.is_empty() {
            let path = files.first().map(|file| file.path.clone()).unwrap_or_default();
            let reason = "it has no samples: names of entries are such as 000001.jpg and 000001.cls".to_owned();
            return Err(ConvertError::File { path, reason });
        }
        options.check_types(columns.iter().map(|column| column.name.as_str()))?;
        let fields = columns.iter().map(|column| Field::new(&column.name, column.kind.data_type(), true));
        let fields: Vec<Field> = [Field::new(KEY, DataType::Utf8, false)].into_iter().chain(fields).collect();
        Ok(Self { options: Arc::clone(options), columns: columns.into(), schema: Arc::new(Schema::new(fields)) })
    }
}

impl FileReader for TarFiles {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn read(&self, file: &SourceFile, read: &ReadBytes) -> Result<Batches, ConvertError> {
        let mut rows = TarBatches {
            options: Arc::clone(&self.options),
            columns: Arc::clone(&self.columns),
            schema: Arc::clone(&self.schema),
            samples: Samples::open(file, read)?,
        };
        Ok(batches(move || rows.batch()))
    }
}

/// The kind of a column: set, or by the last part of its extension.
fn kind_of(extension: &str, options: &Options) -> RawKind {
    if let Some(kind) = options.type_of(extension) {
        return RawKind::Typed(kind.clone());
    }
    match extension.rsplit('.').next().unwrap_or_default() {
        "cls" | "cls2" | "class" | "count" | "index" | "inx" | "id" => RawKind::Typed(DataType::Int64),
        "txt" | "text" | "transcript" => RawKind::Typed(DataType::Utf8),
        "json" => RawKind::Json(JsonType::default()),
        _ => RawKind::Typed(DataType::Binary),
    }
}

// === impl TarBatches ===

impl TarBatches {
    fn batch(&mut self) -> Result<Option<RecordBatch>, ConvertError> {
        let (mut rows, mut bytes) = (Vec::new(), 0);
        while rows.len() < BATCH_ROWS && bytes < BATCH_BYTES {
            let Some(sample) = self.samples.next_sample()? else {
                break;
            };
            self.check(&sample)?;
            bytes += sample.bytes;
            rows.push(sample);
        }
        if rows.is_empty() {
            return Ok(None);
        }
        let keys: ArrayRef = Arc::new(StringArray::from_iter_values(rows.iter().map(|sample| &sample.key)));
        let columns = self.columns.iter().map(|column| self.column(column, &rows));
        let columns = [Ok(keys)].into_iter().chain(columns).collect::<Result<Vec<_>, _>>()?;
        RecordBatch::try_new(Arc::clone(&self.schema), columns).map(Some).map_err(ConvertError::Batch)
    }

    fn check(&self, sample: &Sample) -> Result<(), ConvertError> {
        let is_known = |name: &String| self.columns.iter().any(|column| column.name == *name);
        match sample.fields.iter().find(|(name, _)| !is_known(name)) {
            None => Ok(()),
            Some((name, _)) => {
                let reason =
                    format!("the first {} samples do not have it: raise --infer-rows", self.options.infer_rows);
                Err(self.samples.bad_sample(&sample.key, name, reason))
            }
        }
    }

    fn column(&self, column: &TarColumn, rows: &[Sample]) -> Result<ArrayRef, ConvertError> {
        let TarColumn { name, kind } = column;
        let value = |sample: &'_ Sample| sample.fields.iter().position(|(other, _)| other == name);
        let values: Vec<Option<&[u8]>> =
            rows.iter().map(|sample| value(sample).map(|place| sample.fields[place].1.as_slice())).collect();
        kind.convert(&values, name).map_err(|bad| {
            let advice = match (self.options.type_of(name), kind) {
                (Some(_), _) => String::new(),
                (None, RawKind::Typed(kind)) => {
                    format!("; {kind} is the type of .{name}: set another with --type {name}=binary")
                }
                (None, RawKind::Json(_)) => {
                    let rows = self.options.infer_rows;
                    format!("; set --type {name}=string, or raise --infer-rows from {rows} samples")
                }
            };
            let key = rows.get(bad.row).map_or("", |sample| sample.key.as_str());
            self.samples.bad_sample(key, name, bad.reason + &advice)
        })
    }
}
