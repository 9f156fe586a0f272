//! Opened files: read bytes are counted for progress, gzip and zstd are decompressed, and one record is bounded.

use std::{
    fs::File,
    io::{self, BufReader, Read},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use flate2::read::MultiGzDecoder;

use crate::{error::ConvertError, sources::SourceFile};

/// Bytes of one record of text. A quote that is never closed makes the rest of a file one record.
pub(crate) const RECORD_BYTES_MAX: u64 = 64 << 20;

/// Bytes that were read from all files.
pub(crate) type ReadBytes = Arc<AtomicU64>;

/// A reader of text.
pub(crate) type TextReader = Box<dyn Read + Send>;

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
    let opened = || -> io::Result<TextReader> {
        let mut first = Vec::new();
        let file = File::open(&source.path)?;
        (&file).take(4).read_to_end(&mut first)?;
        let counted = CountedFile { file: File::open(&source.path)?, read: Arc::clone(read) };
        Ok(match first.as_slice() {
            [0x1f, 0x8b, ..] => Box::new(MultiGzDecoder::new(BufReader::new(counted))),
            [0x28, 0xb5, 0x2f, 0xfd] => Box::new(zstd::stream::read::Decoder::new(counted)?),
            _ => Box::new(counted),
        })
    };
    opened().map_err(|error| ConvertError::Read { path: source.path.clone(), source: error })
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
