//! `TFRecord` files of `tf.train.Example` → batches. Columns are the features, sorted by name.

mod columns;
mod example;
mod framing;
mod wire;

use std::{collections::HashMap, sync::Arc};

use arrow::{
    array::RecordBatch,
    datatypes::{Schema, SchemaRef},
};

use crate::{
    batches::{BATCH_BYTES, BATCH_ROWS, Batches, FileReader, batches},
    error::ConvertError,
    input::ReadBytes,
    options::Options,
    sources::SourceFile,
    tfrecord::{
        columns::{ColumnRows, FeatureColumn, SeenFeatures},
        example::Values,
        framing::TfRecords,
    },
};

/// `TFRecord` files with a common schema.
pub(crate) struct TfRecordFiles {
    schema: SchemaRef,
    layout: Arc<FeatureLayout>,
}

/// The columns of the features.
struct FeatureLayout {
    columns: Vec<FeatureColumn>,
    /// The column of each feature.
    places: HashMap<String, usize>,
    infer_rows: usize,
}

/// The rows of a file.
struct TfRecordBatches {
    schema: SchemaRef,
    layout: Arc<FeatureLayout>,
    records: TfRecords,
}

// === impl TfRecordFiles ===

impl TfRecordFiles {
    /// Infers the types of the features from the first records.
    pub(crate) fn open(files: &[SourceFile], options: &Arc<Options>) -> Result<Self, ConvertError> {
        let mut seen = SeenFeatures::default();
        let mut rows_left = options.infer_rows;
        for file in files {
            if rows_left == 0 {
                break;
            }
            let mut records = TfRecords::open(file, &ReadBytes::default())?;
            while rows_left > 0 && records.advance()? {
                rows_left -= 1;
                let features = example::parse(records.record()).map_err(|reason| records.error(None, reason))?;
                seen.add(&features).map_err(|(name, reason)| records.error(Some(&name), reason))?;
            }
        }
        let columns = seen.finish(options)?;
        if columns.is_empty() {
            let path = files.first().map(|file| file.path.clone()).unwrap_or_default();
            return Err(ConvertError::File { path, reason: "it has no record with a feature".to_owned() });
        }
        let schema = Arc::new(Schema::new(columns.iter().map(FeatureColumn::field).collect::<Vec<_>>()));
        let places = columns.iter().enumerate().map(|(place, column)| (column.name.clone(), place)).collect();
        let layout = Arc::new(FeatureLayout { columns, places, infer_rows: options.infer_rows });
        Ok(Self { schema, layout })
    }
}

impl FileReader for TfRecordFiles {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn read(&self, file: &SourceFile, read: &ReadBytes) -> Result<Batches, ConvertError> {
        let mut rows = TfRecordBatches {
            schema: Arc::clone(&self.schema),
            layout: Arc::clone(&self.layout),
            records: TfRecords::open(file, read)?,
        };
        Ok(batches(move || rows.batch()))
    }
}

// === impl FeatureLayout ===

impl FeatureLayout {
    /// Appends a record to all columns; an error is the name of a feature if one is at fault, and the reason.
    fn append(&self, record: &[u8], rows: &mut [ColumnRows]) -> Result<(), (Option<String>, String)> {
        let features = example::parse(record).map_err(|reason| (None, reason))?;
        let mut row: Vec<Option<Option<Values<'_>>>> = vec![None; self.columns.len()];
        for (name, values) in features {
            let at_fault = |reason: String| (Some(name.to_owned()), reason);
            let Some(place) = self.places.get(name) else {
                let reason = format!("the first {} records do not have it: raise --infer-rows", self.infer_rows);
                return Err(at_fault(reason));
            };
            if row[*place].replace(values).is_some() {
                return Err(at_fault("the record has this feature twice".to_owned()));
            }
        }
        for ((column, values), rows) in self.columns.iter().zip(row).zip(rows) {
            let appended = column.append(rows, values.flatten().as_ref(), self.infer_rows);
            appended.map_err(|reason| (Some(column.name.clone()), reason))?;
        }
        Ok(())
    }
}

// === impl TfRecordBatches ===

impl TfRecordBatches {
    fn batch(&mut self) -> Result<Option<RecordBatch>, ConvertError> {
        let mut rows: Vec<ColumnRows> = self.layout.columns.iter().map(FeatureColumn::rows).collect();
        let first = self.records.number() + 1;
        let (mut count, mut bytes) = (0, 0);
        while count < BATCH_ROWS && bytes < BATCH_BYTES {
            if !self.records.advance()? {
                break;
            }
            let appended = self.layout.append(self.records.record(), &mut rows);
            appended.map_err(|(name, reason)| self.records.error(name.as_deref(), reason))?;
            count += 1;
            bytes += self.records.record().len();
        }
        if count == 0 {
            return Ok(None);
        }
        let columns = self.layout.columns.iter().zip(rows).map(|(column, rows)| {
            column
                .finish(rows)
                .map_err(|(row, reason)| self.records.error_of(first + row as u64, Some(&column.name), reason))
        });
        let columns = columns.collect::<Result<Vec<_>, _>>()?;
        RecordBatch::try_new(Arc::clone(&self.schema), columns).map(Some).map_err(ConvertError::Batch)
    }
}
