//! Sizes and lengths stored in pages, read before the decoder allocates memory for them.
//!
//! A page header declares the uncompressed size. A block of delta-encoded lengths starts with their count, for which
//! the decoder allocates at once: a count beyond the available memory would abort the process.

use std::{iter, ops::Range};

use forebay_pages::{
    Deltas, PageHeader, bits,
    thrift::{CompactReader, InvalidThrift},
};
use parquet::{
    basic::{Encoding, Type},
    column::page::Page,
    errors::ParquetError,
    file::metadata::ColumnChunkMetaData,
    schema::types::ColumnDescriptor,
};

/// The range of a chunk in the file as declared in the footer; `None` if it is not a valid range.
pub(super) fn file_range(chunk: &ColumnChunkMetaData) -> Option<Range<u64>> {
    let start = u64::try_from(chunk.dictionary_page_offset().unwrap_or_else(|| chunk.data_page_offset())).ok()?;
    Some(start..start.checked_add(u64::try_from(chunk.compressed_size()).ok()?)?)
}

/// The range of each page body within a chunk, and the uncompressed size declared in its header. Ends at the first
/// unreadable header, which the decoder rejects.
pub(super) fn headers(bytes: &[u8]) -> impl Iterator<Item = (Range<usize>, usize)> {
    read_headers(bytes).map_while(|(body, header)| Some((body, usize::try_from(header.uncompressed).ok()?)))
}

/// The range of each page body within a chunk, and its header, up to the first unreadable one.
pub(super) fn read_headers(bytes: &[u8]) -> impl Iterator<Item = (Range<usize>, PageHeader)> {
    let mut at = 0;
    iter::from_fn(move || {
        let rest = bytes.get(at..).filter(|rest| !rest.is_empty())?;
        let header = PageHeader::read(rest).ok()?;
        let start = at + header.bytes;
        // The size of a truncated body is reported too.
        at = start.checked_add(usize::try_from(header.compressed).ok()?)?;
        Some((start..at, header))
    })
}

/// Whether the bytes are one dictionary page.
pub(super) fn is_dictionary(page: &[u8]) -> bool {
    whole_page(page).is_some_and(|found| found.kind == PageHeader::DICTIONARY_PAGE)
}

/// Whether the bytes are one data page with this number of rows. A page of lists in version 1 may have any number of
/// rows up to that of its values: its header does not say.
pub(super) fn has_rows(page: &[u8], rows: u64, is_list: bool) -> bool {
    let has = |found: i64| u64::try_from(found).is_ok_and(|found| found == rows);
    whole_page(page).is_some_and(|found| match found.kind {
        PageHeader::DATA_V1_PAGE if is_list => u64::try_from(found.values).is_ok_and(|values| values >= rows),
        PageHeader::DATA_V1_PAGE => has(found.values),
        PageHeader::DATA_V2_PAGE => has(found.rows) && (is_list || has(found.values)),
        _ => false,
    })
}

/// Where the pages of a chunk end, if they have this number of values and bytes that are not a page follow.
pub(super) fn end_of_values(chunk: &[u8], values: u64) -> Option<usize> {
    let (mut at, mut seen) = (0, 0_u64);
    while at < chunk.len() {
        let Some((page, bytes)) = page_at(&chunk[at..]) else { return (seen == values).then_some(at) };
        if page.kind != PageHeader::DICTIONARY_PAGE {
            seen = seen.saturating_add(u64::try_from(page.values).unwrap_or(u64::MAX));
        }
        at += bytes;
    }
    None
}

/// The header of the page at the start of the bytes, and the length of the page; `None` if there is no whole page.
fn page_at(bytes: &[u8]) -> Option<(PageHeader, usize)> {
    let header = PageHeader::read(bytes).ok().filter(|header| header.is_described && header.uncompressed >= 0)?;
    let end = header.bytes.checked_add(usize::try_from(header.compressed).ok()?).filter(|end| *end <= bytes.len())?;
    Some((header, end))
}

/// The header of a page that ends with the bytes; `None` if it does not.
fn whole_page(page: &[u8]) -> Option<PageHeader> {
    let header = PageHeader::read(page).ok()?;
    let bytes = header.bytes.checked_add(usize::try_from(header.compressed).ok()?)?;
    (bytes == page.len()).then_some(header)
}

pub(super) fn is_delta(encoding: Encoding) -> bool {
    matches!(encoding, Encoding::DELTA_LENGTH_BYTE_ARRAY | Encoding::DELTA_BYTE_ARRAY)
}

/// The lengths of the values of a dictionary, up to the first truncated one, which the decoder rejects.
pub(super) fn lengths(column: &ColumnDescriptor, values: &[u8], count: u32) -> Vec<u32> {
    let (count, mut rest) = (count as usize, values);
    if column.physical_type() != Type::BYTE_ARRAY {
        let length = u32::try_from(column.type_length()).unwrap_or(0);
        return vec![length; values.len().checked_div(length as usize).unwrap_or(0).min(count)];
    }
    let next = || {
        let (length, values) = rest.split_first_chunk::<4>()?;
        let length = u32::from_le_bytes(*length);
        rest = values.get(length as usize..)?;
        Some(length)
    };
    iter::from_fn(next).take(count).collect()
}

/// Calls `call` with each run of dictionary indices in a page: the index and its count. Ends at the first truncated
/// run, which the decoder rejects.
pub(super) fn for_each_index(column: &ColumnDescriptor, page: &Page, call: impl FnMut(u64, u64)) {
    let Some((width, rest)) = values_of(column, page).and_then(|bytes| bytes.split_first()) else { return };
    for_each_run(u32::from(*width), rest, u64::from(page.num_values()), call);
}

/// Calls `call` with each run of `values` numbers of `width` bits: the number and its count. Ends at the first truncated
/// run.
pub(super) fn for_each_run(width: u32, runs: &[u8], values: u64, mut call: impl FnMut(u64, u64)) {
    let width = width.min(u32::BITS);
    let (mut rest, mut remaining) = (CompactReader::new(runs), values);
    while remaining > 0 {
        let Ok(head) = rest.number() else { return };
        let (count, packed) = (head >> 1, rest.rest());
        // A run of one index, or bit-packed groups of eight.
        if head & 1 == 0 {
            let count = count.min(remaining);
            call(bits(packed, 0, width), count);
            remaining -= count;
        } else {
            let count = count.saturating_mul(8).min(remaining).min(packed.len() as u64 * 8 / u64::from(width.max(1)));
            (0..count).for_each(|index| call(bits(packed, index * u64::from(width), width), 1));
            remaining -= count;
        }
        let bytes = if head & 1 == 0 { u64::from(width.div_ceil(8)) } else { count.saturating_mul(u64::from(width)) };
        if rest.advance(bytes).is_err() || bytes == 0 && count == 0 {
            return;
        }
    }
}

/// Calls `call` with the length of each string of a `DELTA_BYTE_ARRAY` page, with its shared prefix; never for
/// `DELTA_LENGTH_BYTE_ARRAY`. Fails if a block declares more lengths than the page has values, as the decoder allocates
/// memory for them at once.
pub(super) fn for_each_delta_length(
    column: &ColumnDescriptor,
    page: &Page,
    mut call: impl FnMut(u64),
) -> Result<(), ParquetError> {
    let truncated = |_| ParquetError::General("a block of lengths is truncated".to_owned());
    let bytes = values_of(column, page).ok_or_else(|| truncated(InvalidThrift))?;
    let values = u64::from(page.num_values());
    let block = |bytes| {
        let block = Deltas::new(bytes).map_err(truncated)?;
        if block.remaining() > values {
            let reason = format!("a block declares {} lengths for {values} values", block.remaining());
            return Err(ParquetError::General(reason));
        }
        Ok(block)
    };
    let first = block(bytes)?;
    if page.encoding() != Encoding::DELTA_BYTE_ARRAY {
        return first.skip().map(drop).map_err(truncated);
    }
    let mut prefixes = block(bytes)?;
    let mut suffixes = block(first.skip().map_err(truncated)?)?;
    // Upper bounds of the next prefix and suffix.
    let (mut before, mut left) = (0, bytes.len() as u64);
    while let (Some(prefix), Some(suffix)) =
        (prefixes.next_value().map_err(truncated)?, suffixes.next_value().map_err(truncated)?)
    {
        let within = |length, max| u64::try_from(length).ok().filter(|length| *length <= max);
        let (Some(prefix), Some(suffix)) = (within(prefix, before), within(suffix, left)) else {
            let reason = "the length of a string's prefix exceeds the previous string, or that of its suffix the page";
            return Err(ParquetError::General(reason.to_owned()));
        };
        (before, left) = (prefix + suffix, left - suffix);
        call(before);
    }
    Ok(())
}

/// The bytes of a page after its levels.
pub(super) fn values_of<'a>(column: &ColumnDescriptor, page: &'a Page) -> Option<&'a [u8]> {
    match page {
        Page::DictionaryPage { .. } => None,
        Page::DataPageV2 { buf, def_levels_byte_len, rep_levels_byte_len, .. } => {
            buf.get((*def_levels_byte_len as usize).checked_add(*rep_levels_byte_len as usize)?..)
        }
        Page::DataPage { buf, num_values, def_level_encoding, rep_level_encoding, .. } => {
            let levels = [(column.max_rep_level(), rep_level_encoding), (column.max_def_level(), def_level_encoding)];
            levels.into_iter().filter(|(max, _)| *max > 0).try_fold(&buf[..], |rest, (max, encoding)| {
                if *encoding == Encoding::RLE {
                    let (length, rest) = rest.split_first_chunk::<4>()?;
                    rest.get(u32::from_le_bytes(*length) as usize..)
                } else {
                    let bits = u64::from(i16::BITS - max.leading_zeros());
                    rest.get(usize::try_from((u64::from(*num_values) * bits).div_ceil(8)).ok()?..)
                }
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A page with a body of three bytes: its kind, the id of its description, and that description's first fields.
    fn page(kind: u8, description: u8, fields: &[u8]) -> Vec<u8> {
        let head = [0x15, kind << 1, 0x15, 6, 0x15, 6, (description - 3) << 4 | 0x0c];
        [&head[..], fields, &[0, 0], &[7; 3]].concat()
    }

    #[test]
    fn bytes_after_the_last_page_are_found() {
        let (first, dictionary) = (page(0, 5, &[0x15, 10]), page(2, 7, &[0x15, 10]));
        let chunk = [&dictionary[..], &first, &first].concat();
        let padded = [&chunk[..], &[0x26, 2, 0x1c, 0, 0, 9]].concat();
        assert_eq!(end_of_values(&chunk, 10), None);
        assert_eq!(end_of_values(&padded, 10), Some(chunk.len()));
        // Fewer values than pages have, and more.
        assert_eq!(end_of_values(&chunk, 5), None);
        assert_eq!(end_of_values(&padded, 11), None);
    }

    #[test]
    fn pages_have_the_rows_of_their_headers() {
        // Five values; of version 2, without nulls, in four rows.
        let (first, second) = (page(0, 5, &[0x15, 10]), page(3, 8, &[0x15, 10, 0x15, 0, 0x15, 8]));
        let cases = [
            (&first, 5, false, true),
            (&first, 4, false, false),
            (&first, 4, true, true),
            (&first, 6, true, false),
            (&second, 4, true, true),
            (&second, 5, true, false),
            (&second, 4, false, false),
        ];
        for (page, rows, is_list, expected) in cases {
            assert_eq!(has_rows(page, rows, is_list), expected, "{rows} rows, list {is_list}");
        }
        let dictionary = page(2, 7, &[0x15, 10]);
        assert!(is_dictionary(&dictionary) && !is_dictionary(&first) && !has_rows(&dictionary, 5, false));
        // A page that ends before or after the bytes.
        assert!(!has_rows(&first[..first.len() - 1], 5, false));
        assert!(!has_rows(&[first.clone(), vec![0]].concat(), 5, false));
        assert!(!has_rows(&[], 0, false) && !has_rows(&[0xff; 20], 5, true));
    }
}
