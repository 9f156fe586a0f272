//! What pages say of themselves, looked at before the decoder asks for memory by it.
//!
//! A header names the size that a page has once it is decompressed. Blocks of delta-encoded lengths begin with how many
//! lengths follow, for which the decoder makes room at once: where that is more than there is, the process would abort.

use std::{
    io::{self, Read},
    iter,
    ops::Range,
};

use parquet::{
    basic::{Compression, Encoding, Type},
    column::page::Page,
    errors::ParquetError,
    file::metadata::ColumnChunkMetaData,
    schema::types::ColumnDescriptor,
};

use super::{
    chunks::{self, FetchedChunk},
    packed::{Deltas, bits},
};
use crate::thrift::{Broken, Compact};

/// The largest page that is decompressed.
const PAGE_BYTES_MAX: usize = 256 << 20;

// Fields of a page's header.
const UNCOMPRESSED: i64 = 2;
const COMPRESSED: i64 = 3;

/// Checks the pages of a column chunk that has been fetched.
pub(super) fn check(chunk: &ColumnChunkMetaData, fetched: &FetchedChunk, rows: i64) -> Result<(), ParquetError> {
    check_sizes(fetched.bytes())?;
    if chunk.compression() == Compression::LZ4 {
        check_frames(chunk, fetched, rows)?;
    }
    Ok(())
}

/// The bytes of the chunk as the footer tells of them; none where it tells nonsense.
pub(super) fn place(chunk: &ColumnChunkMetaData) -> Option<Range<u64>> {
    let start = u64::try_from(chunk.dictionary_page_offset().unwrap_or_else(|| chunk.data_page_offset())).ok()?;
    Some(start..start.checked_add(u64::try_from(chunk.compressed_size()).ok()?)?)
}

/// Where the bodies of a chunk's pages lie in its bytes, and the sizes that their headers promise once they are
/// decompressed. It ends before a header that cannot be read: that is the decoder's to refuse.
pub(super) fn headers(bytes: &[u8]) -> impl Iterator<Item = (Range<usize>, usize)> {
    let mut at = 0;
    iter::from_fn(move || {
        let rest = bytes.get(at..).filter(|rest| !rest.is_empty())?;
        let (uncompressed, compressed, head_bytes) = sizes(rest).ok()?;
        let start = at + head_bytes;
        let end = start.checked_add(usize::try_from(compressed).ok()?)?;
        // The size is told of a body that breaks off too.
        at = end;
        Some((start..end, usize::try_from(uncompressed).ok()?))
    })
}

/// Bytes that the decoder of a chunk holds of it decompressed, as its pages claim: its dictionary and a page, the two
/// largest.
pub(super) fn held(chunk: &ColumnChunkMetaData, fetched: &FetchedChunk) -> u64 {
    if chunk.compression() == Compression::UNCOMPRESSED {
        return 0;
    }
    let largest =
        |(first, second): (usize, usize), (_, next): (_, usize)| (first.max(next), second.max(first.min(next)));
    let (first, second) = headers(fetched.bytes()).fold((0, 0), largest);
    first as u64 + second as u64
}

fn check_sizes(bytes: &[u8]) -> Result<(), ParquetError> {
    match headers(bytes).find(|(_, uncompressed)| *uncompressed > PAGE_BYTES_MAX) {
        None => Ok(()),
        Some((_, uncompressed)) => Err(ParquetError::General(format!(
            "a page's header claims {uncompressed} bytes uncompressed, and no page of more than {PAGE_BYTES_MAX} is read"
        ))),
    }
}

/// The two sizes that a header tells, and its own.
fn sizes(bytes: &[u8]) -> Result<(i64, i64, usize), Broken> {
    let mut header = Compact::new(bytes);
    let (mut last, mut uncompressed, mut compressed) = (0, 0, 0);
    while let Some((field, kind)) = header.field(&mut last)? {
        // The decoder reads varints, whatever type the fields are said to have.
        match field {
            UNCOMPRESSED => uncompressed = header.signed()?,
            COMPRESSED => compressed = header.signed()?,
            _ => header.skip(kind)?,
        }
    }
    Ok((uncompressed, compressed, bytes.len() - header.rest().len()))
}

/// Holds pages that are frames of LZ4, as few old writers made them, against the sizes that their headers promise: the
/// decoder would read a frame to its end before it does. They are decompressed for it, once more than they are read.
fn check_frames(chunk: &ColumnChunkMetaData, fetched: &FetchedChunk, rows: i64) -> Result<(), ParquetError> {
    let mut pages = fetched.stored_pages(chunk, rows)?;
    while let Some((page, size)) = pages.next()? {
        let body = chunks::compressed_from(&page).and_then(|from| page.buffer().get(from..));
        let Some(body) = body else { continue };
        let mut frame = lz4_flex::frame::FrameDecoder::new(body).take(size as u64 + 1);
        // What is no frame, or breaks off, is the decoder's to read or to refuse.
        if io::copy(&mut frame, &mut io::sink()).is_ok_and(|found| found > size as u64) {
            let reason = format!("a page decompresses to more than the {size} bytes that its header claims");
            return Err(ParquetError::General(reason));
        }
    }
    Ok(())
}

pub(super) fn is_delta(encoding: Encoding) -> bool {
    matches!(encoding, Encoding::DELTA_LENGTH_BYTE_ARRAY | Encoding::DELTA_BYTE_ARRAY)
}

/// The lengths of a dictionary's values; what breaks off is the decoder's to refuse.
pub(super) fn lengths(column: &ColumnDescriptor, values: &[u8], count: u32) -> Vec<u32> {
    let (count, mut rest) = (count as usize, values);
    if column.physical_type() != Type::BYTE_ARRAY {
        let length = u32::try_from(column.type_length()).unwrap_or(0);
        return vec![length; values.len().checked_div(length as usize).unwrap_or(0).min(count)];
    }
    let next = || {
        let (length, behind) = rest.split_first_chunk::<4>()?;
        let length = u32::from_le_bytes(*length);
        rest = behind.get(length as usize..)?;
        Some(length)
    };
    iter::from_fn(next).take(count).collect()
}

/// Calls with the indices of a page of a dictionary's, and how often each comes in a row. What breaks off is the decoder's
/// to refuse.
pub(super) fn each_index(column: &ColumnDescriptor, page: &Page, mut call: impl FnMut(u64, u64)) {
    let Some((width, rest)) = values_of(column, page).and_then(|bytes| bytes.split_first()) else { return };
    let width = u32::from(*width).min(u32::BITS);
    let (mut rest, mut due) = (Compact::new(rest), u64::from(page.num_values()));
    while due > 0 {
        let Ok(head) = rest.number() else { return };
        let (count, packed) = (head >> 1, rest.rest());
        // A run of one index, or groups of eight.
        if head & 1 == 0 {
            let count = count.min(due);
            call(bits(packed, 0, width), count);
            due -= count;
        } else {
            let count = count.saturating_mul(8).min(due).min(packed.len() as u64 * 8 / u64::from(width.max(1)));
            (0..count).for_each(|place| call(bits(packed, place * u64::from(width), width), 1));
            due -= count;
        }
        let bytes = if head & 1 == 0 { u64::from(width.div_ceil(8)) } else { count.saturating_mul(u64::from(width)) };
        if rest.advance(bytes).is_err() || bytes == 0 && count == 0 {
            return;
        }
    }
}

/// Calls with the length of each text that a page of delta-encoded lengths makes of beginnings that it shares: with none
/// where it shares none. Counts of lengths are held against the page's values, for the decoder makes room for them at once.
pub(super) fn each_shared(
    column: &ColumnDescriptor,
    page: &Page,
    mut call: impl FnMut(u64),
) -> Result<(), ParquetError> {
    let broken = |_| ParquetError::General("a block of lengths breaks off".to_owned());
    let bytes = values_of(column, page).ok_or_else(|| broken(Broken))?;
    let values = u64::from(page.num_values());
    let block = |bytes| {
        let block = Deltas::new(Compact::new(bytes)).map_err(broken)?;
        if block.due > values {
            let reason = format!("a block claims {} lengths for {values} values", block.due);
            return Err(ParquetError::General(reason));
        }
        Ok(block)
    };
    let first = block(bytes)?;
    if page.encoding() != Encoding::DELTA_BYTE_ARRAY {
        return first.skip().map(drop).map_err(broken);
    }
    let mut prefixes = block(bytes)?;
    let mut suffixes = block(first.skip().map_err(broken)?)?;
    // The longest beginning and the longest rest that there can be.
    let (mut before, mut left) = (0, bytes.len() as u64);
    while let (Some(prefix), Some(suffix)) = (prefixes.next().map_err(broken)?, suffixes.next().map_err(broken)?) {
        let within = |length, most| u64::try_from(length).ok().filter(|length| *length <= most);
        let (Some(prefix), Some(suffix)) = (within(prefix, before), within(suffix, left)) else {
            let reason =
                "a text is said to share more with the one before than that has, or to have more than the page";
            return Err(ParquetError::General(reason.to_owned()));
        };
        (before, left) = (prefix + suffix, left - suffix);
        call(before);
    }
    Ok(())
}

/// A page's bytes behind its levels.
pub(super) fn values_of<'a>(column: &ColumnDescriptor, page: &'a Page) -> Option<&'a [u8]> {
    match page {
        Page::DictionaryPage { .. } => None,
        Page::DataPageV2 { buf, def_levels_byte_len, rep_levels_byte_len, .. } => {
            buf.get((*def_levels_byte_len as usize).checked_add(*rep_levels_byte_len as usize)?..)
        }
        Page::DataPage { buf, num_values, def_level_encoding, rep_level_encoding, .. } => {
            let levels = [(column.max_rep_level(), rep_level_encoding), (column.max_def_level(), def_level_encoding)];
            levels.into_iter().filter(|(most, _)| *most > 0).try_fold(&buf[..], |rest, (most, encoding)| {
                if *encoding == Encoding::RLE {
                    let (length, rest) = rest.split_first_chunk::<4>()?;
                    rest.get(u32::from_le_bytes(*length) as usize..)
                } else {
                    let bits = u64::from(i16::BITS - most.leading_zeros());
                    rest.get(usize::try_from((u64::from(*num_values) * bits).div_ceil(8)).ok()?..)
                }
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A page's header with these sizes, in Thrift's compact protocol.
    fn header(uncompressed: u64, compressed: u8) -> Vec<u8> {
        let mut bytes = vec![0x15, 0x00, 0x15];
        let mut zigzag = uncompressed << 1;
        while zigzag > 0x7f {
            bytes.push(zigzag as u8 | 0x80);
            zigzag >>= 7;
        }
        bytes.extend([zigzag as u8, 0x15, compressed << 1, 0x00]);
        bytes
    }

    #[test]
    fn a_page_that_claims_too_much_is_found_wherever_it_stands() {
        let most = PAGE_BYTES_MAX as u64;
        let good = [header(most, 3), vec![7; 3]].concat();
        let bad = [good.clone(), good.clone(), header(most + 1, 0)].concat();
        check_sizes(&[good.clone(), good].concat()).unwrap();
        assert!(check_sizes(&bad).unwrap_err().to_string().contains("268435457"));
        // Whatever width the size is said to have.
        for kind in [0x14, 0x16] {
            let mut wide = header(most + 1, 0);
            wide[2] = kind;
            assert!(check_sizes(&wide).unwrap_err().to_string().contains("268435457"));
        }
        // What cannot be read is the decoder's to refuse.
        check_sizes(&[0xff; 100]).unwrap();
        check_sizes(&header(5, 60)).unwrap();
    }
}
