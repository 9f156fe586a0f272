//! Sizes and lengths stored in pages, read before the decoder allocates memory for them.
//!
//! A page header declares the uncompressed size. A block of delta-encoded lengths starts with their count, for which
//! the decoder allocates at once: a count beyond the available memory would abort the process.

use std::{iter, ops::Range};

use forebay_pages::thrift::{CompactReader, InvalidThrift};
use parquet::{
    basic::{Encoding, Type},
    column::page::Page,
    errors::ParquetError,
    file::metadata::ColumnChunkMetaData,
    schema::types::ColumnDescriptor,
};

use super::packed::{Deltas, bits};

// Fields of a page header.
const UNCOMPRESSED: i64 = 2;
const COMPRESSED: i64 = 3;

/// The range of a chunk in the file as declared in the footer; `None` if it is not a valid range.
pub(super) fn file_range(chunk: &ColumnChunkMetaData) -> Option<Range<u64>> {
    let start = u64::try_from(chunk.dictionary_page_offset().unwrap_or_else(|| chunk.data_page_offset())).ok()?;
    Some(start..start.checked_add(u64::try_from(chunk.compressed_size()).ok()?)?)
}

/// The range of each page body within a chunk, and the uncompressed size declared in its header. Ends at the first
/// unreadable header, which the decoder rejects.
pub(super) fn headers(bytes: &[u8]) -> impl Iterator<Item = (Range<usize>, usize)> {
    let mut at = 0;
    iter::from_fn(move || {
        let rest = bytes.get(at..).filter(|rest| !rest.is_empty())?;
        let (uncompressed, compressed, head_bytes) = sizes(rest).ok()?;
        let start = at + head_bytes;
        let end = start.checked_add(usize::try_from(compressed).ok()?)?;
        // The size of a truncated body is reported too.
        at = end;
        Some((start..end, usize::try_from(uncompressed).ok()?))
    })
}

/// The uncompressed and compressed sizes in a page header, and the length of the header.
fn sizes(bytes: &[u8]) -> Result<(i64, i64, usize), InvalidThrift> {
    let mut header = CompactReader::new(bytes);
    let (mut last, mut uncompressed, mut compressed) = (0, 0, 0);
    while let Some((field, kind)) = header.field(&mut last)? {
        // Like the decoder, reads a varint for any declared type of the fields.
        match field {
            UNCOMPRESSED => uncompressed = header.signed()?,
            COMPRESSED => compressed = header.signed()?,
            _ => header.skip(kind)?,
        }
    }
    Ok((uncompressed, compressed, bytes.len() - header.rest().len()))
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
pub(super) fn for_each_index(column: &ColumnDescriptor, page: &Page, mut call: impl FnMut(u64, u64)) {
    let Some((width, rest)) = values_of(column, page).and_then(|bytes| bytes.split_first()) else { return };
    let width = u32::from(*width).min(u32::BITS);
    let (mut rest, mut remaining) = (CompactReader::new(rest), u64::from(page.num_values()));
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
        let block = Deltas::new(CompactReader::new(bytes)).map_err(truncated)?;
        if block.remaining > values {
            let reason = format!("a block declares {} lengths for {values} values", block.remaining);
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
    while let (Some(prefix), Some(suffix)) = (prefixes.next().map_err(truncated)?, suffixes.next().map_err(truncated)?)
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
