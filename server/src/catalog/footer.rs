//! Reads the footer of a file in one or two requests and parses it on the CPU pool: of a Parquet file, or by
//! `arrow_footer`.

use std::{ops::Range, sync::Arc};

use arrow::datatypes::Schema;
use bytes::Bytes;
use object_store::ObjectMeta;
use parquet::{
    DecodeResult,
    arrow::{
        ARROW_SCHEMA_META_KEY,
        arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions},
    },
    errors::ParquetError,
    file::metadata::{
        PageIndexPolicy, ParquetMetaData, ParquetMetaDataOptions, ParquetMetaDataPushDecoder, ParquetMetaDataReader,
        ParquetStatisticsPolicy,
    },
};

use super::{
    arrow_footer, chunks,
    error::CatalogError,
    file_footer::{Footer, wide},
    foreign,
    leaves::{self, Int96Unit},
    lists, nesting,
    store::Store,
    trust,
};
use crate::{cpu_pool::CpuPool, state::short_digest};

/// Size of the first read from the end of a file: larger than most footers.
const FIRST_READ_BYTES: u64 = 64 << 10;

/// The largest footer that is read: about 10^5 row groups of 100 columns.
const FOOTER_BYTES_MAX: u64 = 1 << 30;

/// Reads the footer of a file and derives its Arrow schemas.
pub(super) async fn read(
    store: &Store,
    dataset: &str,
    file: &str,
    object: &ObjectMeta,
    int96: Int96Unit,
    cpu: &CpuPool,
) -> Result<Footer, CatalogError> {
    let corrupt = |reason: String| match foreign::advice(file) {
        Some(reason) => CatalogError::Empty { dataset: dataset.to_owned(), reason },
        None => CatalogError::Corrupt { dataset: dataset.to_owned(), file: file.to_owned(), reason },
    };
    if object.size < 12 {
        return Err(corrupt(format!("it has {} bytes, the smallest Parquet file has 12", object.size)));
    }
    let mut decoder = ParquetMetaDataPushDecoder::try_new(object.size)
        .map_err(|source| corrupt(source.to_string()))?
        .with_page_index_policy(PageIndexPolicy::Skip);
    let tail = object.size.saturating_sub(FIRST_READ_BYTES)..object.size;
    let mut wanted = Vec::from([tail]);
    loop {
        let is_invalid = |range: &Range<u64>| {
            range.end > object.size || range.end.checked_sub(range.start).is_none_or(|bytes| bytes > FOOTER_BYTES_MAX)
        };
        if let Some(range) = wanted.iter().find(|range| is_invalid(range)) {
            return Err(corrupt(format!("its footer declares bytes {range:?} of a file of {} bytes", object.size)));
        }
        let mut pieces = Vec::with_capacity(wanted.len());
        for range in &wanted {
            let piece = store.get(object, range.clone()).await.map_err(|error| {
                if error.is_change() {
                    let reason = format!("file \"{file}\" was replaced or deleted while its footer was read");
                    CatalogError::Changed { dataset: dataset.to_owned(), reason }
                } else {
                    CatalogError::of_store(dataset, error)
                }
            })?;
            pieces.push(piece);
        }
        if let [end] = pieces.as_slice()
            && arrow_footer::is_arrow(end)
        {
            return arrow_footer::read(store, (dataset, file), object, end, cpu).await;
        }
        // A footer longer than the first read is read again as a whole, not in pieces.
        if let ([range], [piece]) = (wanted.as_slice(), pieces.as_slice())
            && let Some(whole) = whole_footer(piece, object.size)
            && whole.start < range.start
        {
            wanted = vec![whole];
            continue;
        }
        if let [end] = pieces.as_slice()
            && arrow_footer::is_named(file)
            && !end.ends_with(b"PAR1")
        {
            let reason = "it does not end as an Arrow IPC file: streams and old Feather files are converted with \
                          `forebay convert`";
            return Err(corrupt(reason.to_owned()));
        }
        // A corrupt footer may make the decoder panic: the pool turns a panic into an error.
        let size = object.size;
        let step = cpu.run(move || decode(decoder, wanted, pieces, size)).await;
        let (outcome, digest);
        (decoder, outcome, digest) = step.map_err(|panic| corrupt(panic.of_damage()))?.map_err(corrupt)?;
        match outcome {
            DecodeResult::NeedsData(ranges) => wanted = ranges,
            DecodeResult::Data(metadata) => {
                let opened = cpu.run(move || open(&Arc::new(metadata), size, int96, digest)).await;
                return opened.map_err(|panic| corrupt(panic.of_damage()))?.map_err(corrupt);
            }
            DecodeResult::Finished => return Err(corrupt("its footer ends early".to_owned())),
        }
    }
}

/// The footer at the end of a file, of which `end` has at least all of the footer.
pub(super) fn of_bytes(end: Vec<u8>, file_bytes: u64, int96: Int96Unit) -> Result<Footer, String> {
    // The decoder panics on some files that are too short or not Parquet.
    if file_bytes < 12 || whole_footer(&end, file_bytes).is_none() {
        return Err("it is not a Parquet file".to_owned());
    }
    let decoder = ParquetMetaDataPushDecoder::try_new(file_bytes).map_err(|source| source.to_string())?;
    let range = file_bytes.saturating_sub(end.len() as u64)..file_bytes;
    let decoder = decoder.with_page_index_policy(PageIndexPolicy::Skip);
    let (_, outcome, digest) = decode(decoder, vec![range], vec![end.into()], file_bytes)?;
    match outcome {
        DecodeResult::Data(metadata) => {
            schemas(&Arc::new(metadata), int96, digest).map_err(|source| source.to_string())
        }
        _ => Err("its footer is incomplete or too large".to_owned()),
    }
}

/// The decoder, its result, and a digest of the footer.
type DecodeStep = (ParquetMetaDataPushDecoder, DecodeResult<ParquetMetaData>, String);

fn decode(
    mut decoder: ParquetMetaDataPushDecoder,
    wanted: Vec<Range<u64>>,
    pieces: Vec<Bytes>,
    file_bytes: u64,
) -> Result<DecodeStep, String> {
    let footer = if let [piece] = pieces.as_slice() { footer_within(piece, file_bytes) } else { None };
    if let Some(footer) = &footer {
        nesting::check(footer).map_err(|error| error.to_string())?;
    }
    let mut outcome = decoder.push_ranges(wanted, pieces).and_then(|()| decoder.try_decode());
    if let (Err(source), Some(footer)) = (&mut outcome, &footer) {
        match decode_anyway(footer) {
            Ok(metadata) => outcome = Ok(DecodeResult::Data(metadata)),
            Err(Some(other)) => *source = other,
            Err(None) => {}
        }
    }
    let outcome = match outcome {
        Ok(DecodeResult::Data(metadata)) => trust::keep_trusted(metadata).map(DecodeResult::Data),
        other => other,
    };
    let outcome = outcome.map_err(|source| source.to_string())?;
    let digest = short_digest(&[footer.as_deref().unwrap_or_default()]);
    Ok((decoder, outcome, digest))
}

/// Decodes a footer that the library rejects: with the list types that Parquet specifies, or without the statistics of
/// column chunks, one of which may be invalid. The error is that of the footer with other list types.
fn decode_anyway(footer: &Bytes) -> Result<ParquetMetaData, Option<ParquetError>> {
    let (mut footer, mut rejected) = (footer.to_vec(), None);
    if let Some(changed) = lists::with_element_types(&footer) {
        match ParquetMetaDataReader::decode_metadata(&changed) {
            Ok(metadata) => return Ok(metadata),
            Err(source) => (footer, rejected) = (changed, Some(source)),
        }
    }
    without_statistics(footer).map_err(|_| rejected)
}

fn without_statistics(mut footer: Vec<u8>) -> Result<ParquetMetaData, ParquetError> {
    let length = u32::try_from(footer.len())?;
    footer.extend(length.to_le_bytes());
    footer.extend(b"PAR1");
    let bytes = footer.len() as u64;
    let options = ParquetMetaDataOptions::new().with_column_stats_policy(ParquetStatisticsPolicy::SkipAll);
    let decoder = ParquetMetaDataPushDecoder::try_new(bytes)?.with_page_index_policy(PageIndexPolicy::Skip);
    let mut decoder = decoder.with_metadata_options(Some(Arc::new(options)));
    decoder.push_range(0..bytes, footer.into())?;
    match decoder.try_decode()? {
        DecodeResult::Data(metadata) => Ok(metadata),
        _ => Err(ParquetError::EOF("the footer is incomplete".to_owned())),
    }
}

/// The range of the footer, including its length and the trailing magic bytes, from the end of the file. `None` if the
/// end is invalid, which the decoder reports.
fn whole_footer(end: &[u8], file_bytes: u64) -> Option<Range<u64>> {
    let (rest, magic) = end.split_last_chunk::<4>()?;
    let (_, length) = rest.split_last_chunk::<4>()?;
    let length = u64::from(u32::from_le_bytes(*length)) + 8;
    (magic == b"PAR1" && length <= file_bytes).then(|| file_bytes - length..file_bytes)
}

/// The footer without its length and magic bytes, if `end` contains all of it.
fn footer_within(end: &Bytes, file_bytes: u64) -> Option<Bytes> {
    let whole = whole_footer(end, file_bytes)?;
    let start = end.len().checked_sub((whole.end - whole.start) as usize)?;
    Some(end.slice(start..end.len() - 8))
}

fn open(metadata: &Arc<ParquetMetaData>, file_bytes: u64, int96: Int96Unit, digest: String) -> Result<Footer, String> {
    chunks::check(metadata, file_bytes)?;
    schemas(metadata, int96, digest).map_err(|source| source.to_string())
}

fn schemas(metadata: &Arc<ParquetMetaData>, int96: Int96Unit, digest: String) -> Result<Footer, ParquetError> {
    let stored = stored(metadata, int96)?;
    let decoded = leaves::decoded(&metadata.file_metadata().schema_descr_ptr())?;
    let pairs = metadata.file_metadata().key_value_metadata();
    let has_signed_intervals = pairs.is_some_and(|pairs| pairs.iter().any(|pair| pair.key == ARROW_SCHEMA_META_KEY));
    let wide = read_as(metadata, &stored, wide(stored.schema()).into())?;
    Ok(Footer { stored, wide, decoded, has_signed_intervals, digest, arrow: None })
}

/// The library's schema of a footer, with types that would lose information replaced.
fn stored(metadata: &Arc<ParquetMetaData>, int96: Int96Unit) -> Result<ArrowReaderMetadata, ParquetError> {
    let proposed = ArrowReaderMetadata::try_new(Arc::clone(metadata), ArrowReaderOptions::new())?;
    let schema = |names_extensions| {
        leaves::schema(proposed.schema(), metadata.file_metadata().schema_descr(), int96, names_extensions)
    };
    // The library rejects metadata on items of legacy lists.
    read_as(metadata, &proposed, schema(true)).or_else(|_| read_as(metadata, &proposed, schema(false)))
}

/// The same footer with another schema.
fn read_as(
    metadata: &Arc<ParquetMetaData>,
    known: &ArrowReaderMetadata,
    schema: Arc<Schema>,
) -> Result<ArrowReaderMetadata, ParquetError> {
    if *known.schema() == schema {
        return Ok(known.clone());
    }
    ArrowReaderMetadata::try_new(Arc::clone(metadata), ArrowReaderOptions::new().with_schema(schema))
}
