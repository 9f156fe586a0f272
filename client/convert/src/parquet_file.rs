//! Parquet files of any shape → batches.

use std::{
    fs::File,
    path::Path,
    slice::Iter,
    sync::{Arc, atomic::Ordering},
};

use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef, TimeUnit};
use parquet::{
    arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder},
    basic::{ConvertedType, Type as Physical},
    schema::types::ColumnDescPtr,
};

use crate::{
    batches::{BATCH_ROWS, Batches, FileReader},
    error::ConvertError,
    input::ReadBytes,
    same_schema::{SameSchema, align},
    sources::SourceFile,
};

/// Parquet files with a common schema.
pub(crate) struct ParquetFiles {
    schema: SchemaRef,
}

// === impl ParquetFiles ===

impl ParquetFiles {
    /// Reads the footer of every file.
    pub(crate) fn open(files: &[SourceFile]) -> Result<Self, ConvertError> {
        let mut same = SameSchema::default();
        for file in files {
            let (_, metadata) = open(&file.path)?;
            same.add(&file.path, metadata.schema())?;
        }
        Ok(Self { schema: same.finish() })
    }
}

impl FileReader for ParquetFiles {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn read(&self, source: &SourceFile, read: &ReadBytes) -> Result<Batches, ConvertError> {
        let (file, metadata) = open(&source.path)?;
        let builder = ParquetRecordBatchReaderBuilder::new_with_metadata(file, metadata).with_batch_size(BATCH_ROWS);
        let rows = builder.metadata().file_metadata().num_rows().max(1) as u64;
        let reader = builder.build().map_err(|error| invalid(&source.path, &error))?;
        let (path, schema, read) = (source.path.clone(), self.schema(), Arc::clone(read));
        let bytes_per_row = source.bytes as f64 / rows as f64;
        Ok(Box::new(reader.map(move |batch| {
            let batch = batch.and_then(|batch| align(&batch, &schema)).map_err(|error| invalid(&path, &error))?;
            read.fetch_add((bytes_per_row * batch.num_rows() as f64) as u64, Ordering::Relaxed);
            Ok(batch)
        })))
    }
}

/// Opens a file. INT96 is read in microseconds, which hold every date from year 1 to 9999.
fn open(path: &Path) -> Result<(File, ArrowReaderMetadata), ConvertError> {
    let file = File::open(path).map_err(|source| ConvertError::Read { path: path.to_owned(), source })?;
    let proposed =
        ArrowReaderMetadata::load(&file, ArrowReaderOptions::new()).map_err(|error| invalid(path, &error))?;
    let stored = proposed.parquet_schema();
    if let Some(column) = stored.columns().iter().find(|column| column.converted_type() == ConvertedType::INTERVAL) {
        let reason =
            format!("column \"{}\" is an INTERVAL, which cannot be converted: drop it", column.path().string());
        return Err(ConvertError::File { path: path.to_owned(), reason });
    }
    if stored.columns().iter().all(|column| column.physical_type() != Physical::INT96) {
        return Ok((file, proposed));
    }
    let mut leaves = stored.columns().iter();
    let fields: Vec<FieldRef> =
        proposed.schema().fields().iter().map(|field| in_microseconds(field, &mut leaves)).collect();
    let schema = Arc::new(Schema::new_with_metadata(fields, proposed.schema().metadata().clone()));
    let options = ArrowReaderOptions::new().with_schema(schema);
    let metadata = ArrowReaderMetadata::try_new(Arc::clone(proposed.metadata()), options);
    Ok((file, metadata.map_err(|error| invalid(path, &error))?))
}

fn in_microseconds(field: &FieldRef, leaves: &mut Iter<'_, ColumnDescPtr>) -> FieldRef {
    let kind = match field.data_type() {
        DataType::Struct(fields) => {
            DataType::Struct(fields.iter().map(|field| in_microseconds(field, leaves)).collect())
        }
        DataType::List(item) => DataType::List(in_microseconds(item, leaves)),
        DataType::LargeList(item) => DataType::LargeList(in_microseconds(item, leaves)),
        DataType::FixedSizeList(item, size) => DataType::FixedSizeList(in_microseconds(item, leaves), *size),
        DataType::Map(entries, is_sorted) => DataType::Map(in_microseconds(entries, leaves), *is_sorted),
        _ => match leaves.next() {
            Some(leaf) if leaf.physical_type() == Physical::INT96 => DataType::Timestamp(TimeUnit::Microsecond, None),
            _ => return Arc::clone(field),
        },
    };
    Arc::new(Field::clone(field).with_data_type(kind))
}

fn invalid(path: &Path, error: &dyn std::fmt::Display) -> ConvertError {
    ConvertError::File { path: path.to_owned(), reason: format!("it is not a readable Parquet file: {error}") }
}
