//! What pages say of themselves, looked at before the decoder asks for memory by it.
//!
//! A header names the size that a page has once it is decompressed. Blocks of delta-encoded lengths begin with how many
//! lengths follow, for which the decoder makes room at once: where that is more than there is, the process would abort.

use std::{ops::Range, sync::Arc};

use bytes::{Buf, Bytes, buf::Reader};
use parquet::{
    basic::Encoding,
    column::page::{Page, PageReader},
    errors::ParquetError,
    file::{
        metadata::ColumnChunkMetaData,
        reader::{ChunkReader, Length},
        serialized_reader::SerializedPageReader,
    },
};

use crate::thrift::{Broken, Compact, I32};

/// The largest page that is decompressed.
const PAGE_BYTES_MAX: i64 = 256 << 20;

// Fields of a page's header.
const UNCOMPRESSED: i64 = 2;
const COMPRESSED: i64 = 3;

/// Checks the pages of a column chunk that has been fetched.
pub(super) fn check(chunk: &ColumnChunkMetaData, start: u64, bytes: &Bytes, rows: u64) -> Result<(), String> {
    check_sizes(bytes)?;
    if chunk.encodings().any(is_delta) {
        check_deltas(chunk, start, bytes, rows)?;
    }
    Ok(())
}

/// The bytes of the chunk as the footer tells of them; none where it tells nonsense.
pub(super) fn place(chunk: &ColumnChunkMetaData) -> Option<Range<u64>> {
    let start = u64::try_from(chunk.dictionary_page_offset().unwrap_or_else(|| chunk.data_page_offset())).ok()?;
    Some(start..start.checked_add(u64::try_from(chunk.compressed_size()).ok()?)?)
}

/// Walks the headers. One that cannot be read is the decoder's to refuse.
fn check_sizes(bytes: &Bytes) -> Result<(), String> {
    let mut rest: &[u8] = bytes;
    while !rest.is_empty() {
        let Ok((uncompressed, compressed, head_bytes)) = sizes(rest) else { return Ok(()) };
        if uncompressed > PAGE_BYTES_MAX {
            return Err(format!(
                "a page's header claims {uncompressed} bytes uncompressed, and no page of more than {PAGE_BYTES_MAX} is read"
            ));
        }
        let next = usize::try_from(compressed).ok().and_then(|bytes| head_bytes.checked_add(bytes));
        let Some(next) = next.and_then(|next| rest.get(next..)) else { return Ok(()) };
        rest = next;
    }
    Ok(())
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

fn is_delta(encoding: Encoding) -> bool {
    matches!(encoding, Encoding::DELTA_LENGTH_BYTE_ARRAY | Encoding::DELTA_BYTE_ARRAY)
}

/// Holds the counts of blocks of lengths against the values of their pages. Pages are decompressed for it, once more than
/// they are read: few files have such.
fn check_deltas(chunk: &ColumnChunkMetaData, start: u64, bytes: &Bytes, rows: u64) -> Result<(), String> {
    let fetched = Arc::new(Fetched { start, bytes: bytes.clone() });
    let rows = usize::try_from(rows).unwrap_or(usize::MAX);
    let read = || {
        let mut pages = SerializedPageReader::new(Arc::clone(&fetched), chunk, rows, None)?;
        while let Some(page) = pages.get_next_page()? {
            check_page(chunk, &page)?;
        }
        Ok::<_, ParquetError>(())
    };
    read().map_err(|source| source.to_string())
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

/// The bytes of one chunk, at their place in the file.
#[derive(Debug)]
struct Fetched {
    start: u64,
    bytes: Bytes,
}

impl Length for Fetched {
    fn len(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }
}

impl Fetched {
    fn from(&self, start: u64) -> Result<Bytes, ParquetError> {
        let start = start.checked_sub(self.start).and_then(|start| usize::try_from(start).ok());
        let found = start.filter(|start| *start <= self.bytes.len()).map(|start| self.bytes.slice(start..));
        found.ok_or_else(|| ParquetError::EOF("a page lies outside of its chunk".to_owned()))
    }
}

impl ChunkReader for Fetched {
    type T = Reader<Bytes>;

    fn get_read(&self, start: u64) -> Result<Self::T, ParquetError> {
        self.from(start).map(Buf::reader)
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        let found = self.from(start)?;
        if length > found.len() {
            return Err(ParquetError::EOF("a page reaches behind its chunk".to_owned()));
        }
        Ok(found.slice(..length))
    }
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
        assert_eq!(check_sizes(&[good.clone(), good].concat().into()), Ok(()));
        assert!(check_sizes(&bad.into()).unwrap_err().contains("268435457"));
        // What cannot be read is the decoder's to refuse.
        assert_eq!(check_sizes(&vec![0xff; 100].into()), Ok(()));
        assert_eq!(check_sizes(&header(5, 60).into()), Ok(()));
    }
}
