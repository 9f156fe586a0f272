//! Reads the footer of a file in one or two requests and parses it on the CPU pool. `arrow_footer` parses
//! those of Arrow files.

use std::{ops::Range, sync::Arc};

use arrow::datatypes::Schema;
use bytes::Bytes;
use forebay_runtime::{cpu_pool::CpuPool, state::short_digest};
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
    arrow_footer, chunks, content, encryption,
    error::CatalogError,
    file_error::FileError,
    file_footer::{Footer, wide},
    footer_types, foreign,
    leaves::{self, Int96Unit},
    nesting,
    old_chunks::{self, UncountedHeaders},
    schema_elements,
    store::Store,
    trust,
};

/// Size of the first read from the end of a file: larger than most footers.
const FIRST_READ_BYTES: u64 = 64 << 10;

/// The largest footer that is read: about 10^5 row groups of 100 columns.
const FOOTER_BYTES_MAX: u64 = 1 << 30;

/// The length of the footer, and the magic bytes after it.
const END_BYTES: u64 = 8;

/// Reads the footer of a file and derives its Arrow schemas. The digest of a local file covers content, too.
pub(super) async fn read(
    store: &Store,
    dataset: &str,
    file: &str,
    object: &ObjectMeta,
    int96: Int96Unit,
    cpu: &CpuPool,
) -> Result<Footer, CatalogError> {
    let (mut footer, end) = read_end(store, dataset, file, object, int96, cpu).await?;
    if store.is_local() {
        let digest = content::digest(store, object, &footer.digest, end).await;
        footer.digest = digest.map_err(|error| CatalogError::of_opening(dataset, file, error))?;
    }
    Ok(footer)
}

/// Reads the footer, and the bytes that were read first from the end of the file.
async fn read_end(
    store: &Store,
    dataset: &str,
    file: &str,
    object: &ObjectMeta,
    int96: Int96Unit,
    cpu: &CpuPool,
) -> Result<(Footer, Bytes), CatalogError> {
    let of_file = |error: FileError| match (foreign::advice(file), &error) {
        (Some(reason), FileError::Corrupt(_)) => CatalogError::Empty { dataset: dataset.to_owned(), reason },
        _ => error.of_file(dataset, file),
    };
    let corrupt = |reason: String| of_file(reason.into());
    let failed = |error| CatalogError::of_opening(dataset, file, error);
    if object.size < 12 {
        return Err(corrupt(format!("it has {} bytes, the smallest Parquet file has 12", object.size)));
    }
    let mut decoder = ParquetMetaDataPushDecoder::try_new(object.size)
        .map_err(|source| corrupt(source.to_string()))?
        .with_page_index_policy(PageIndexPolicy::Skip);
    let tail = object.size.saturating_sub(FIRST_READ_BYTES)..object.size;
    let (mut wanted, mut first) = (Vec::from([tail]), Bytes::new());
    loop {
        let is_invalid = |range: &Range<u64>| {
            range.end > object.size || range.end.checked_sub(range.start).is_none_or(|bytes| bytes > FOOTER_BYTES_MAX)
        };
        if let Some(range) = wanted.iter().find(|range| is_invalid(range)) {
            return Err(corrupt(format!("its footer declares bytes {range:?} of a file of {} bytes", object.size)));
        }
        let pieces = store.read(object, &wanted).await.map_err(failed)?;
        if let [end] = pieces.as_slice() {
            if first.is_empty() {
                first = end.clone();
            }
            if arrow_footer::is_arrow(end) {
                let opened = arrow_footer::read(store, (dataset, file), object, end, cpu).await?;
                return Ok((opened, first));
            }
            check_end(file, end, object.size).map_err(of_file)?;
        }
        // A footer longer than the first read is read again as a whole, not in pieces.
        if let ([range], [piece]) = (wanted.as_slice(), pieces.as_slice())
            && let Some(whole) = whole_footer(piece, object.size)
            && whole.start < range.start
        {
            wanted = vec![whole];
            continue;
        }
        // A corrupt footer may make the decoder panic: the pool turns a panic into an error.
        let size = object.size;
        let step = cpu.run(move || decode(decoder, wanted, pieces, size)).await;
        let (outcome, footer);
        (decoder, outcome, footer) = step.map_err(|panic| corrupt(panic.of_damage()))?.map_err(of_file)?;
        match outcome {
            DecodeResult::NeedsData(ranges) => wanted = ranges,
            DecodeResult::Data(metadata) => {
                let mut headers = UncountedHeaders::of(&metadata, size);
                if !headers.ranges.is_empty() {
                    headers.bytes = store.read(object, &headers.ranges).await.map_err(failed)?;
                }
                let opened = cpu.run(move || open(metadata, &footer, &headers, size, int96)).await;
                let opened = opened.map_err(|panic| corrupt(panic.of_damage()))?.map_err(corrupt)?;
                return Ok((opened, first));
            }
            DecodeResult::Finished => return Err(corrupt("its footer ends early".to_owned())),
        }
    }
}

/// Refuses the last bytes of a file that the decoder should not see: it panics on some of them.
fn check_end(file: &str, end: &[u8], file_bytes: u64) -> Result<(), FileError> {
    if encryption::is_encrypted(end) {
        return Err(FileError::Unserved(encryption::REASON.to_owned()));
    }
    match footer_bytes(end) {
        Some(bytes) if bytes > file_bytes => {
            Err(format!("its footer declares {} bytes of a file of {file_bytes} bytes", bytes - END_BYTES).into())
        }
        None if arrow_footer::is_named(file) => Err("it does not end as an Arrow IPC file: streams and old Feather \
                                                      files are converted with `forebay convert`"
            .into()),
        _ => Ok(()),
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
    let decoded = decode(decoder, vec![range], vec![end.into()], file_bytes);
    let (_, outcome, footer) = decoded.map_err(|error| error.to_string())?;
    match outcome {
        DecodeResult::Data(metadata) => with_schemas(metadata, &footer, &UncountedHeaders::default(), int96),
        _ => Err("its footer is incomplete or too large".to_owned()),
    }
}

/// The decoder, its result, and the footer as stored, once all of it is read.
type DecodeStep = (ParquetMetaDataPushDecoder, DecodeResult<ParquetMetaData>, Bytes);

fn decode(
    mut decoder: ParquetMetaDataPushDecoder,
    wanted: Vec<Range<u64>>,
    pieces: Vec<Bytes>,
    file_bytes: u64,
) -> Result<DecodeStep, FileError> {
    let footer = if let [piece] = pieces.as_slice() { footer_within(piece, file_bytes) } else { None };
    if let Some(footer) = &footer {
        nesting::check(footer).map_err(|error| error.to_string())?;
        if encryption::has_encrypted_columns(footer) {
            return Err(FileError::Unserved(encryption::REASON.to_owned()));
        }
    }
    let outcome = decoder.push_ranges(wanted, pieces).and_then(|()| decoder.try_decode());
    let footer = footer.unwrap_or_default();
    let outcome = match outcome {
        Ok(DecodeResult::Data(metadata)) => trust::keep_trusted(metadata).map(DecodeResult::Data),
        Err(error) => rewritten(&footer).next().ok_or(error).map(DecodeResult::Data),
        other => other,
    };
    Ok((decoder, outcome.map_err(|source| source.to_string())?, footer))
}

/// The metadata of a footer that the library rejects in the form of its writer: in other forms of the same meaning, and
/// without the statistics of column chunks, one of which may be invalid.
fn rewritten(footer: &[u8]) -> impl Iterator<Item = ParquetMetaData> {
    let typed = footer_types::rewritten(footer);
    let elements = schema_elements::rewritten(typed.as_deref().unwrap_or(footer));
    let last = elements.as_ref().or(typed.as_ref()).map_or_else(|| footer.to_vec(), Clone::clone);
    let forms = typed.into_iter().chain(elements).map(|form| ParquetMetaDataReader::decode_metadata(&form));
    let forms = forms.chain(std::iter::once_with(|| without_statistics(last)));
    forms.filter_map(|form| form.and_then(trust::keep_trusted).ok())
}

/// Bytes of the footer, including its length and the trailing magic bytes; `None` if the end is not that of a Parquet
/// file.
fn footer_bytes(end: &[u8]) -> Option<u64> {
    let (rest, magic) = end.split_last_chunk::<4>()?;
    let (_, length) = rest.split_last_chunk::<4>()?;
    (magic == b"PAR1").then(|| u64::from(u32::from_le_bytes(*length)) + END_BYTES)
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
    let bytes = footer_bytes(end).filter(|bytes| *bytes <= file_bytes)?;
    Some(file_bytes - bytes..file_bytes)
}

/// The footer without its length and magic bytes, if `end` contains all of it.
fn footer_within(end: &Bytes, file_bytes: u64) -> Option<Bytes> {
    let whole = whole_footer(end, file_bytes)?;
    let start = end.len().checked_sub((whole.end - whole.start) as usize)?;
    Some(end.slice(start..end.len() - END_BYTES as usize))
}

fn open(
    metadata: ParquetMetaData,
    footer: &[u8],
    headers: &UncountedHeaders,
    file_bytes: u64,
    int96: Int96Unit,
) -> Result<Footer, String> {
    let opened = with_schemas(metadata, footer, headers, int96)?;
    chunks::check(opened.stored.metadata(), file_bytes)?;
    Ok(opened)
}

fn with_schemas(
    metadata: ParquetMetaData,
    footer: &[u8],
    headers: &UncountedHeaders,
    int96: Int96Unit,
) -> Result<Footer, String> {
    let digest = short_digest(&[footer]);
    let of = |metadata: ParquetMetaData| {
        old_chunks::corrected(metadata, headers).and_then(|metadata| schemas(&Arc::new(metadata), int96, &digest))
    };
    // The library decodes some schemas of which it makes no Arrow schema.
    let opened = of(metadata).or_else(|error| rewritten(footer).find_map(|form| of(form).ok()).ok_or(error));
    opened.map_err(|source| source.to_string())
}

fn schemas(metadata: &Arc<ParquetMetaData>, int96: Int96Unit, digest: &str) -> Result<Footer, ParquetError> {
    let stored = stored(metadata, int96)?;
    let decoded = leaves::decoded(&metadata.file_metadata().schema_descr_ptr())?;
    let pairs = metadata.file_metadata().key_value_metadata();
    let has_signed_intervals = pairs.is_some_and(|pairs| pairs.iter().any(|pair| pair.key == ARROW_SCHEMA_META_KEY));
    let wide = read_as(metadata, &stored, wide(stored.schema()).into())?;
    Ok(Footer { stored, wide, decoded, has_signed_intervals, digest: digest.to_owned(), arrow: None })
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
