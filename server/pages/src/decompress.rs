//! Decompression into buffers of exactly the declared size.

use std::{
    cell::RefCell,
    io::{self, Read},
};

use zstd::bulk::Decompressor;

use crate::{description::Codec, error::PageError};

/// The input buffer of the brotli decoder.
const BROTLI_INPUT_BYTES: usize = 16 << 10;

thread_local! {
    /// Making a context costs a fifth of decompressing a page.
    static ZSTD: RefCell<Option<Decompressor<'static>>> = const { RefCell::new(None) };
}

/// Decompresses bytes that fill the target exactly.
pub(crate) fn decompress(codec: Codec, stored: &[u8], target: &mut [u8]) -> Result<(), PageError> {
    let size = target.len();
    if size == 0 {
        // A page of nulls has no bytes to decompress.
        return Ok(());
    }
    let found = match codec {
        Codec::Uncompressed => {
            let found = stored.len();
            if found == size {
                target.copy_from_slice(stored);
            }
            found
        }
        Codec::Snappy => snappy(stored, target)?,
        Codec::Zstd => zstandard(stored, target)?,
        Codec::Lz4Raw => lz4_flex::block::decompress_into(stored, target)
            .map_err(|error| PageError::new(format!("a page is not valid LZ4: {error}")))?,
        Codec::Gzip => fill(flate2::read::MultiGzDecoder::new(stored), target)?,
        Codec::Brotli => fill(brotli::Decompressor::new(stored, BROTLI_INPUT_BYTES), target)?,
    };
    if found == size {
        return Ok(());
    }
    let than = if found > size { "more" } else { "less" };
    Err(PageError::new(format!("a page decompresses to {than} than the {size} bytes declared in its header")))
}

fn snappy(stored: &[u8], target: &mut [u8]) -> Result<usize, PageError> {
    let invalid = |error| PageError::new(format!("a page is not valid Snappy: {error}"));
    let declared = snap::raw::decompress_len(stored).map_err(invalid)?;
    if declared != target.len() {
        return Ok(declared);
    }
    snap::raw::Decoder::new().decompress(stored, target).map_err(invalid)
}

fn zstandard(stored: &[u8], target: &mut [u8]) -> Result<usize, PageError> {
    let invalid = |error: io::Error| PageError::new(format!("a page is not valid Zstandard: {error}"));
    ZSTD.with_borrow_mut(|context| {
        let context = match context {
            Some(context) => context,
            None => context.insert(Decompressor::new().map_err(invalid)?),
        };
        context.decompress_to_buffer(stored, target).map_err(invalid)
    })
}

/// Fills the target, and reads one byte more than fits.
fn fill(mut decoder: impl Read, target: &mut [u8]) -> Result<usize, PageError> {
    let invalid = |error: io::Error| PageError::new(format!("a page is not valid: {error}"));
    let mut found = 0;
    while found < target.len() {
        match decoder.read(&mut target[found..]) {
            Ok(0) => return Ok(found),
            Ok(count) => found += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(invalid(error)),
        }
    }
    Ok(found + decoder.read(&mut [0]).map_err(invalid)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_must_have_the_declared_size() {
        let bytes = b"one page of a column, one page of a column".repeat(20);
        let stored = zstd::bulk::compress(&bytes, 1).unwrap();
        let snapped = snap::raw::Encoder::new().compress_vec(&bytes).unwrap();
        for (codec, stored) in [(Codec::Zstd, stored), (Codec::Snappy, snapped), (Codec::Uncompressed, bytes.clone())] {
            let mut target = vec![0; bytes.len()];
            decompress(codec, &stored, &mut target).unwrap();
            assert_eq!(target, bytes);
            for size in [bytes.len() - 1, bytes.len() + 1] {
                assert!(decompress(codec, &stored, &mut vec![0; size]).is_err(), "{codec:?}, {size} bytes");
            }
            assert!(decompress(codec, &stored[..stored.len() / 2], &mut target).is_err(), "{codec:?}");
        }
    }
}
