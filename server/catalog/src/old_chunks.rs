//! Corrects what old writers recorded of column chunks, by the rules of other readers.
//!
//! - A dictionary at offset 0, where no page is: there is none (parquet-java before 1.10 of some vendors).
//! - parquet-mr before 1.2.9 left the header of the dictionary page out of the size of a chunk (PARQUET-816).

use std::ops::Range;

use bytes::Bytes;
use forebay_pages::thrift::CompactReader;
use parquet::{
    basic::Encoding,
    errors::ParquetError,
    file::metadata::{ColumnChunkMetaData, ParquetMetaData, RowGroupMetaData},
};

/// The first version of parquet-mr that recorded whole sizes.
const FIXED: [u32; 3] = [1, 2, 9];

/// The largest header of a dictionary page.
const HEADER_BYTES_MAX: u64 = 100;

/// A chunk by its row group and its column.
type StoredChunk = (usize, usize);

/// The headers of dictionary pages that are not in the sizes of their chunks.
#[derive(Debug, Default)]
pub(super) struct UncountedHeaders {
    /// Ascending.
    places: Vec<StoredChunk>,
    /// The range of the file that has the header, for each place.
    pub ranges: Vec<Range<u64>>,
    /// The bytes of these ranges, once they are read.
    pub bytes: Vec<Bytes>,
}

/// The same metadata with what its writer left out, and without dictionaries at offsets where none can be.
pub(super) fn corrected(
    metadata: ParquetMetaData,
    headers: &UncountedHeaders,
) -> Result<ParquetMetaData, ParquetError> {
    let metadata = with_real_dictionaries(metadata)?;
    if headers.places.is_empty() { Ok(metadata) } else { headers.counted(metadata) }
}

fn with_real_dictionaries(metadata: ParquetMetaData) -> Result<ParquetMetaData, ParquetError> {
    let is_unreal = |chunk: &ColumnChunkMetaData| chunk.dictionary_page_offset().is_some_and(|offset| offset <= 0);
    if !metadata.row_groups().iter().flat_map(RowGroupMetaData::columns).any(is_unreal) {
        return Ok(metadata);
    }
    changed(metadata, |_, chunk| {
        if !is_unreal(&chunk) {
            return Ok(chunk);
        }
        chunk.into_builder().set_dictionary_page_offset(None).build()
    })
}

// === impl UncountedHeaders ===

impl UncountedHeaders {
    /// Those of a file; none if its writer counts them.
    pub(super) fn of(metadata: &ParquetMetaData, file_bytes: u64) -> Self {
        let mut found = Self::default();
        if !metadata.file_metadata().created_by().is_some_and(leaves_out_headers) {
            return found;
        }
        for (row_group, group) in metadata.row_groups().iter().enumerate() {
            for (column, chunk) in group.columns().iter().enumerate() {
                let is_dictionary = chunk.encodings().any(|encoding| encoding == Encoding::PLAIN_DICTIONARY);
                let start = chunk.dictionary_page_offset().unwrap_or_else(|| chunk.data_page_offset());
                if let Some(start) = u64::try_from(start).ok().filter(|start| is_dictionary && *start < file_bytes) {
                    found.places.push((row_group, column));
                    found.ranges.push(start..file_bytes.min(start + HEADER_BYTES_MAX));
                }
            }
        }
        found
    }

    /// The same metadata with whole sizes of chunks.
    fn counted(&self, metadata: ParquetMetaData) -> Result<ParquetMetaData, ParquetError> {
        changed(metadata, |place, chunk| {
            let bytes = self.places.binary_search(&place).ok().and_then(|index| self.bytes.get(index));
            let Some(bytes) = bytes.and_then(|bytes| header_bytes(bytes)) else { return Ok(chunk) };
            let (compressed, uncompressed) = (chunk.compressed_size(), chunk.uncompressed_size());
            let chunk = chunk.into_builder().set_total_compressed_size(compressed.saturating_add(bytes));
            chunk.set_total_uncompressed_size(uncompressed.saturating_add(bytes)).build()
        })
    }
}

fn changed(
    metadata: ParquetMetaData,
    change: impl Fn(StoredChunk, ColumnChunkMetaData) -> Result<ColumnChunkMetaData, ParquetError>,
) -> Result<ParquetMetaData, ParquetError> {
    let groups = metadata.row_groups().to_vec().into_iter().enumerate().map(|(index, group)| {
        let columns = group.columns().iter().cloned().enumerate();
        let columns = columns.map(|(column, chunk)| change((index, column), chunk)).collect::<Result<Vec<_>, _>>()?;
        group.into_builder().set_column_metadata(columns).build()
    });
    let groups = groups.collect::<Result<Vec<_>, ParquetError>>()?;
    Ok(metadata.into_builder().set_row_groups(groups).build())
}

/// Bytes of the header of a dictionary page; `None` if the page is another one.
fn header_bytes(page: &[u8]) -> Option<i64> {
    const KIND: i64 = 1;
    const DICTIONARY: i64 = 2;
    let (mut header, mut last, mut is_dictionary) = (CompactReader::new(page), 0, false);
    while let Some((field, kind)) = header.field(&mut last).ok()? {
        if field == KIND {
            is_dictionary = header.signed().ok()? == DICTIONARY;
        } else {
            header.skip(kind).ok()?;
        }
    }
    is_dictionary.then(|| (page.len() - header.rest().len()) as i64)
}

/// Whether a writer is parquet-mr before the version that recorded whole sizes.
fn leaves_out_headers(created_by: &str) -> bool {
    let Some(version) = created_by.strip_prefix("parquet-mr version ") else { return false };
    let numbers = version.split(|letter: char| !letter.is_ascii_digit()).map_while(|number| number.parse().ok());
    let numbers: Vec<u32> = numbers.take(FIXED.len()).collect();
    numbers.len() == FIXED.len() && numbers.as_slice() < FIXED.as_slice()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_old_versions_of_parquet_mr_left_headers_out() {
        for (created_by, want) in [
            ("parquet-mr version 1.2.5-cdh4.5.0 (build )", true),
            ("parquet-mr version 1.2.8 (build x)", true),
            ("parquet-mr version 1.2.9", false),
            ("parquet-mr version 1.10.0 (build x)", false),
            ("parquet-mr", false),
            ("impala version 1.2.5", false),
        ] {
            assert_eq!(leaves_out_headers(created_by), want, "{created_by}");
        }
    }

    #[test]
    fn headers_of_dictionary_pages_have_a_length() {
        assert_eq!(header_bytes(&[0x15, 4, 0x15, 22, 0x15, 22, 0x4c, 0x15, 2, 0x15, 4, 0, 0, 7, 7]), Some(13));
        assert_eq!(header_bytes(&[0x15, 0, 0x15, 22, 0x15, 22, 0, 7]), None);
        assert_eq!(header_bytes(&[0x15, 4, 0x15]), None);
    }
}
