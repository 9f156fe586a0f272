//! Bounds page decompression by the sizes declared in page headers, before the decoder allocates memory.

use std::io::{self, Read};

use parquet::{basic::Compression, errors::ParquetError, file::metadata::ColumnChunkMetaData};

use super::{
    chunks::{self, FetchedChunk},
    pages::headers,
};

/// The largest uncompressed page that is read.
const PAGE_BYTES_MAX: usize = 256 << 20;

/// Checks the sizes of the pages of a fetched column chunk.
pub(super) fn check(chunk: &ColumnChunkMetaData, fetched: &FetchedChunk, rows: i64) -> Result<(), ParquetError> {
    fetched.pieces().try_for_each(|bytes| check_sizes(bytes))?;
    if chunk.compression() == Compression::LZ4 {
        check_frames(chunk, fetched, rows)?;
    }
    Ok(())
}

/// Decompressed bytes that the decoder of a chunk holds at once: its dictionary and one page, bounded by the two
/// largest declared sizes.
pub(super) fn held_bytes(chunk: &ColumnChunkMetaData, fetched: &FetchedChunk) -> u64 {
    if chunk.compression() == Compression::UNCOMPRESSED {
        return 0;
    }
    let largest =
        |(first, second): (usize, usize), (_, next): (_, usize)| (first.max(next), second.max(first.min(next)));
    let (first, second) = fetched.headers().fold((0, 0), largest);
    first as u64 + second as u64
}

fn check_sizes(bytes: &[u8]) -> Result<(), ParquetError> {
    match headers(bytes).find(|(_, uncompressed)| *uncompressed > PAGE_BYTES_MAX) {
        None => Ok(()),
        Some((_, uncompressed)) => Err(ParquetError::General(format!(
            "a page header declares {uncompressed} uncompressed bytes, the limit is {PAGE_BYTES_MAX}"
        ))),
    }
}

/// Checks pages in the LZ4 frame format, written by a few old writers, by decompressing them an extra time: the library
/// decompresses a whole frame before it checks the declared size.
fn check_frames(chunk: &ColumnChunkMetaData, fetched: &FetchedChunk, rows: i64) -> Result<(), ParquetError> {
    let mut pages = fetched.stored_pages(chunk, rows)?;
    while let Some((page, size)) = pages.next()? {
        let body = chunks::compressed_from(&page).and_then(|from| page.buffer().get(from..));
        let Some(body) = body else { continue };
        let mut frame = lz4_flex::frame::FrameDecoder::new(body).take(size as u64 + 1);
        // Pages in another format and truncated frames are left to the library.
        if io::copy(&mut frame, &mut io::sink()).is_ok_and(|found| found > size as u64) {
            let reason = format!("a page decompresses to more than the {size} bytes declared in its header");
            return Err(ParquetError::General(reason));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A page header with these sizes, in Thrift's compact protocol.
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
    fn rejects_too_large_a_page_at_any_position() {
        let most = PAGE_BYTES_MAX as u64;
        let good = [header(most, 3), vec![7; 3]].concat();
        let bad = [good.clone(), good.clone(), header(most + 1, 0)].concat();
        check_sizes(&[good.clone(), good].concat()).unwrap();
        assert!(check_sizes(&bad).unwrap_err().to_string().contains("268435457"));
        // Any declared width of the size.
        for kind in [0x14, 0x16] {
            let mut wide = header(most + 1, 0);
            wide[2] = kind;
            assert!(check_sizes(&wide).unwrap_err().to_string().contains("268435457"));
        }
        // Unreadable headers are left to the decoder.
        check_sizes(&[0xff; 100]).unwrap();
        check_sizes(&header(5, 60)).unwrap();
    }
}
