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
    basic::{Compression, Encoding},
    column::page::Page,
    errors::ParquetError,
    file::metadata::ColumnChunkMetaData,
};

use super::chunks::{self, FetchedChunk};
use crate::thrift::{Broken, Compact, I32};

/// The largest page that is decompressed.
const PAGE_BYTES_MAX: usize = 256 << 20;

/// What a frame of LZ4 begins with.
const LZ4_FRAME: [u8; 4] = [0x04, 0x22, 0x4d, 0x18];

// Fields of a page's header.
const UNCOMPRESSED: i64 = 2;
const COMPRESSED: i64 = 3;

/// Checks the pages of a column chunk that has been fetched.
pub(super) fn check(chunk: &ColumnChunkMetaData, fetched: &FetchedChunk, rows: i64) -> Result<(), ParquetError> {
    check_sizes(fetched.bytes())?;
    if chunk.compression() == Compression::LZ4 {
        check_frames(chunk, fetched, rows)?;
    }
    if chunk.encodings().any(is_delta) {
        check_deltas(chunk, fetched, rows)?;
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
        match (field, kind) {
            (UNCOMPRESSED, I32) => uncompressed = header.signed()?,
            (COMPRESSED, I32) => compressed = header.signed()?,
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
        let Some(body) = body.filter(|body| body.starts_with(&LZ4_FRAME)) else { continue };
        let mut frame = lz4_flex::frame::FrameDecoder::new(body).take(size as u64 + 1);
        // What breaks off early is the decoder's to refuse.
        if io::copy(&mut frame, &mut io::sink()).is_ok_and(|found| found > size as u64) {
            let reason = format!("a page decompresses to more than the {size} bytes that its header claims");
            return Err(ParquetError::General(reason));
        }
    }
    Ok(())
}

fn is_delta(encoding: Encoding) -> bool {
    matches!(encoding, Encoding::DELTA_LENGTH_BYTE_ARRAY | Encoding::DELTA_BYTE_ARRAY)
}

/// Holds the counts of blocks of lengths against the values of their pages. Pages are decompressed for it, once more than
/// they are read: few files have such.
fn check_deltas(chunk: &ColumnChunkMetaData, fetched: &FetchedChunk, rows: i64) -> Result<(), ParquetError> {
    let mut pages = fetched.pages(chunk, rows)?;
    while let Some(page) = pages.get_next_page()? {
        check_page(chunk, &page)?;
    }
    Ok(())
}

fn check_page(chunk: &ColumnChunkMetaData, page: &Page) -> Result<(), ParquetError> {
    if !is_delta(page.encoding()) {
        return Ok(());
    }
    let values = u64::from(page.num_values());
    let broken = |_| ParquetError::General("a block of lengths breaks off".to_owned());
    let mut blocks = Compact::new(values_of(chunk, page).ok_or_else(|| broken(Broken))?);
    // Prefixes, where there are any, come before the lengths of what follows them.
    let count = if page.encoding() == Encoding::DELTA_BYTE_ARRAY { 2 } else { 1 };
    for _ in 0..count {
        let found = skip_block(&mut blocks, values).map_err(broken)?;
        if found > values {
            return Err(ParquetError::General(format!("a block claims {found} lengths for {values} values")));
        }
    }
    Ok(())
}

/// A page's bytes behind its levels.
fn values_of<'a>(chunk: &ColumnChunkMetaData, page: &'a Page) -> Option<&'a [u8]> {
    match page {
        Page::DictionaryPage { .. } => None,
        Page::DataPageV2 { buf, def_levels_byte_len, rep_levels_byte_len, .. } => {
            buf.get((*def_levels_byte_len as usize).checked_add(*rep_levels_byte_len as usize)?..)
        }
        Page::DataPage { buf, num_values, def_level_encoding, rep_level_encoding, .. } => {
            let column = chunk.column_descr();
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

/// Reads a delta-encoded block to its end and returns how many numbers it claims; where these are more than `most`, it is
/// not read to its end.
fn skip_block(bytes: &mut Compact<'_>, most: u64) -> Result<u64, Broken> {
    let (block, parts, count) = (bytes.number()?, bytes.number()?, bytes.number()?);
    bytes.signed()?;
    if count > most {
        return Ok(count);
    }
    let part = block.checked_div(parts).ok_or(Broken)?;
    // The first number stands in the head.
    let mut due = count.saturating_sub(1);
    while due > 0 {
        bytes.signed()?;
        let parts = usize::try_from(parts).map_err(|_| Broken)?;
        let widths = bytes.rest().get(..parts).ok_or(Broken)?;
        bytes.advance(parts as u64)?;
        for width in widths {
            if due == 0 {
                break;
            }
            bytes.advance(part.checked_mul(u64::from(*width)).ok_or(Broken)?.div_ceil(8))?;
            due = due.saturating_sub(part.max(1));
        }
        if widths.is_empty() {
            return Err(Broken);
        }
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A block of 8 numbers in 2 parts of 4: the head, then for each block a least difference, widths, and the parts.
    fn block(count: u8, rest: &[u8]) -> Vec<u8> {
        [&[8, 2, count, 0], rest].concat()
    }

    fn skipped(bytes: &[u8], most: u64) -> Option<(u64, usize)> {
        let mut left = Compact::new(bytes);
        let count = skip_block(&mut left, most).ok()?;
        Some((count, left.rest().len()))
    }

    #[test]
    fn a_block_is_left_behind_to_the_byte() {
        // One number stands in the head alone.
        assert_eq!(skipped(&block(1, b"rest"), 9), Some((1, 4)));
        // Four differences of 8 bits in the first part; the second part has none, and no bytes.
        assert_eq!(skipped(&block(5, &[0, 8, 8, 1, 2, 3, 4, 9, 9]), 9), Some((5, 2)));
        // Widths of 0 take no bytes.
        assert_eq!(skipped(&block(9, &[0, 0, 0, 7]), 9), Some((9, 1)));
    }

    #[test]
    fn a_block_that_claims_too_much_or_breaks_off_is_found_out() {
        assert_eq!(skipped(&block(100, &[]), 99), Some((100, 0)));
        assert_eq!(skipped(&block(5, &[0, 8, 8, 1, 2]), 9), None);
        assert_eq!(skipped(&block(5, &[]), 9), None);
        // No parts; parts without end.
        assert_eq!(skipped(&[8, 0, 5, 0, 0], 9), None);
        assert_eq!(skipped(&[0xff, 0xff, 0xff, 0xff, 0x0f, 1, 9, 0, 0, 255], 9), None);
    }

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
        // What cannot be read is the decoder's to refuse.
        check_sizes(&[0xff; 100]).unwrap();
        check_sizes(&header(5, 60)).unwrap();
    }
}
