//! Opened files: read bytes are counted for progress, gzip and zstd are decompressed, and one record is bounded.

use std::{
    fs::File,
    io::{self, BufReader, Read},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use flate2::read::{MultiGzDecoder, ZlibDecoder};

use crate::{
    error::ConvertError,
    sources::{SourceFile, first_bytes},
};

/// Bytes of one record of text. A quote that is never closed makes the rest of a file one record.
pub(crate) const RECORD_BYTES_MAX: u64 = 64 << 20;

/// Bytes that were read from all files.
pub(crate) type ReadBytes = Arc<AtomicU64>;

/// A reader of text.
pub(crate) type TextReader = Box<dyn Read + Send>;

/// How the bytes of a file are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Packing {
    /// Not at all.
    Plain,
    /// As gzip; several members are joined.
    Gzip,
    /// As zlib.
    #[cfg_attr(not(feature = "tfrecord"), expect(dead_code, reason = "only TensorFlow compresses files so"))]
    Zlib,
    /// As zstd.
    Zstd,
}

/// A file whose bytes are counted.
struct CountedFile {
    file: File,
    read: ReadBytes,
}

/// Fails after [`RECORD_BYTES_MAX`] bytes without [`BoundedRecords::next_record`].
pub(crate) struct BoundedRecords {
    reader: TextReader,
    left: u64,
}

/// Opens a file of text, compressed or not.
pub(crate) fn open_text(source: &SourceFile, read: &ReadBytes) -> Result<TextReader, ConvertError> {
    let packing = match first_bytes(&source.path, 4)?.as_slice() {
        [0x1f, 0x8b, ..] => Packing::Gzip,
        [0x28, 0xb5, 0x2f, 0xfd] => Packing::Zstd,
        _ => Packing::Plain,
    };
    open_packed(&source.path, packing, read)
}

/// Opens a file that is compressed in a known way.
pub(crate) fn open_packed(path: &Path, packing: Packing, read: &ReadBytes) -> Result<TextReader, ConvertError> {
    let opened = || -> io::Result<TextReader> {
        let counted = CountedFile { file: File::open(path)?, read: Arc::clone(read) };
        Ok(match packing {
            Packing::Plain => Box::new(counted),
            Packing::Gzip => Box::new(MultiGzDecoder::new(BufReader::new(counted))),
            Packing::Zlib => Box::new(ZlibDecoder::new(counted)),
            Packing::Zstd => Box::new(zstd::stream::read::Decoder::new(counted)?),
        })
    };
    opened().map_err(|source| ConvertError::Read { path: path.to_owned(), source })
}

// === impl CountedFile ===

impl Read for CountedFile {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read(buffer)?;
        self.read.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}

// === impl BoundedRecords ===

impl BoundedRecords {
    pub(crate) fn new(reader: TextReader) -> Self {
        Self { reader, left: RECORD_BYTES_MAX }
    }

    /// Begins another record.
    pub(crate) fn next_record(&mut self) {
        self.left = RECORD_BYTES_MAX;
    }
}

impl Read for BoundedRecords {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.left == 0 {
            let reason = format!("the record has more than {} MiB: is a quote not closed?", RECORD_BYTES_MAX >> 20);
            return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
        }
        let count = self.reader.read(buffer)?;
        self.left = self.left.saturating_sub(count as u64);
        Ok(count)
    }
}
