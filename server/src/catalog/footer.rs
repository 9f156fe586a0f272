//! One Parquet file's footer: read in one or two requests, parsed on the CPU pool.

use std::{ops::Range, sync::Arc};

use arrow::datatypes::{DataType, Field, Schema};
use object_store::ObjectMeta;
use parquet::{
    DecodeResult,
    arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions},
    errors::ParquetError,
    file::metadata::{PageIndexPolicy, ParquetMetaData, ParquetMetaDataPushDecoder},
};

use super::{CatalogError, store::Store};
use crate::runtime::CpuPool;

/// Read from a file's end in the first request: the footers of most files are smaller.
const FIRST_READ_BYTES: u64 = 64 << 10;

/// The largest footer that is read: some 10^5 row groups of 100 columns.
const FOOTER_BYTES_MAX: u64 = 1 << 30;

/// Reads a file's footer and its Arrow schemas.
pub(super) async fn read(
    store: &Store,
    dataset: &str,
    file: &str,
    object: &ObjectMeta,
    cpu: &CpuPool,
) -> Result<Footer, CatalogError> {
    let corrupt = |reason: String| CatalogError::Corrupt { dataset: dataset.to_owned(), file: file.to_owned(), reason };
    if object.size < 12 {
        return Err(corrupt(format!("it has {} bytes, the smallest Parquet file has 12", object.size)));
    }
    let mut decoder = ParquetMetaDataPushDecoder::try_new(object.size)
        .map_err(|source| corrupt(source.to_string()))?
        .with_page_index_policy(PageIndexPolicy::Skip);
    let first = object.size.saturating_sub(FIRST_READ_BYTES)..object.size;
    let mut wanted = Vec::from([first]);
    loop {
        let is_wrong = |range: &Range<u64>| {
            range.end > object.size || range.end.checked_sub(range.start).is_none_or(|bytes| bytes > FOOTER_BYTES_MAX)
        };
        if let Some(range) = wanted.iter().find(|range| is_wrong(range)) {
            return Err(corrupt(format!("its footer claims the bytes {range:?} of {}", object.size)));
        }
        let mut pieces = Vec::with_capacity(wanted.len());
        for range in &wanted {
            let piece = store.get(object, range.clone()).await.map_err(|error| {
                if !error.is_change() {
                    return CatalogError::of_store(dataset, error);
                }
                let reason = format!("file \"{file}\" was replaced or deleted while its footer was read");
                CatalogError::Changed { dataset: dataset.to_owned(), reason }
            })?;
            pieces.push(piece);
        }
        // A corrupt footer may make the decoder panic: the pool turns that into an error.
        let step = cpu
            .run(move || {
                let mut decoder = decoder;
                let outcome = decoder.push_ranges(wanted, pieces).and_then(|()| decoder.try_decode());
                (decoder, outcome)
            })
            .await
            .map_err(|panic| corrupt(panic.of_damage()))?;
        decoder = step.0;
        match step.1.map_err(|source| corrupt(source.to_string()))? {
            DecodeResult::NeedsData(ranges) => wanted = ranges,
            DecodeResult::Data(metadata) => {
                let opened = cpu.run(move || open(Arc::new(metadata))).await;
                return opened
                    .map_err(|panic| corrupt(panic.of_damage()))?
                    .map_err(|source| corrupt(source.to_string()));
            }
            DecodeResult::Finished => return Err(corrupt("its footer ends early".to_owned())),
        }
    }
}

/// The two ways a file is read.
#[derive(Clone, Debug)]
pub(super) struct Footer {
    /// Every column as stored.
    pub stored: ArrowReaderMetadata,
    /// As stored, but dictionary keys are int32 whatever their width was, as dictionaries of several row groups and
    /// files must fit one key type when they meet in a batch.
    pub wide: ArrowReaderMetadata,
}

fn open(metadata: Arc<ParquetMetaData>) -> Result<Footer, ParquetError> {
    let stored = ArrowReaderMetadata::try_new(Arc::clone(&metadata), ArrowReaderOptions::new())?;
    let schema = stored.schema();
    let fields: Vec<Arc<Field>> = schema.fields().iter().map(wide_keys).collect();
    if fields.iter().zip(schema.fields()).all(|(wide, field)| wide == field) {
        return Ok(Footer { wide: stored.clone(), stored });
    }
    let wide = Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()));
    let wide = ArrowReaderMetadata::try_new(metadata, ArrowReaderOptions::new().with_schema(wide))?;
    Ok(Footer { stored, wide })
}

fn wide_keys(field: &Arc<Field>) -> Arc<Field> {
    match field.data_type() {
        DataType::Dictionary(keys, values) if **keys != DataType::Int32 => {
            let wide = DataType::Dictionary(Box::new(DataType::Int32), values.clone());
            Arc::new(field.as_ref().clone().with_data_type(wide))
        }
        _ => Arc::clone(field),
    }
}
