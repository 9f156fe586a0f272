//! Fetched column chunks, decompressed page by page.
//!
//! The Parquet library decompresses gzip and brotli pages completely before it checks the size declared in the header,
//! so a page of a few kilobytes may take gigabytes. This module decompresses these pages instead, and stops one byte
//! after the declared size.

use std::{
    collections::HashMap,
    io::{self, Read},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use bytes::{Buf, Bytes, buf::Reader};
use parquet::{
    basic::Compression,
    column::page::{Page, PageMetadata, PageReader},
    errors::ParquetError,
    file::{
        metadata::ColumnChunkMetaData,
        reader::{ChunkReader, Length},
        serialized_reader::SerializedPageReader,
    },
};

use super::pages;

/// The input buffer of the brotli decoder.
const BROTLI_INPUT_BYTES: usize = 16 << 10;

/// The bytes of one chunk and their offset in the file.
#[derive(Clone, Debug)]
pub(super) struct FetchedChunk {
    pub(super) start: u64,
    pub(super) bytes: Bytes,
}

// === impl FetchedChunk ===

impl FetchedChunk {
    pub(super) fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// The decompressed pages.
    pub(super) fn pages(&self, chunk: &ColumnChunkMetaData, rows: i64) -> Result<Box<dyn PageReader>, ParquetError> {
        let decompress: Decompress = match chunk.compression() {
            Compression::GZIP(_) => gunzip,
            Compression::BROTLI(_) => unbrotli,
            _ => {
                let rows = usize::try_from(rows).unwrap_or(0);
                return Ok(Box::new(SerializedPageReader::new(Arc::new(self.clone()), chunk, rows, None)?));
            }
        };
        Ok(Box::new(BoundedPages { stored: self.stored_pages(chunk, rows)?, decompress }))
    }

    /// The pages as stored.
    pub(super) fn stored_pages(&self, chunk: &ColumnChunkMetaData, rows: i64) -> Result<StoredPages, ParquetError> {
        let rows = usize::try_from(rows).unwrap_or(0);
        let bodies = pages::headers(&self.bytes).map(|(body, size)| (self.start + body.start as u64, size));
        let recording = Arc::new(RecordingChunk { chunk: self.clone(), last_read: AtomicU64::new(0) });
        let as_stored = chunk.clone().into_builder().set_compression(Compression::UNCOMPRESSED).build()?;
        let pages = SerializedPageReader::new(Arc::clone(&recording), &as_stored, rows, None)?;
        Ok(StoredPages { pages, recording, uncompressed_sizes: bodies.collect() })
    }

    fn from(&self, start: u64) -> Result<Bytes, ParquetError> {
        let start = start.checked_sub(self.start).and_then(|start| usize::try_from(start).ok());
        let found = start.filter(|start| *start <= self.bytes.len()).map(|start| self.bytes.slice(start..));
        found.ok_or_else(|| ParquetError::EOF("a page is outside of its chunk".to_owned()))
    }
}

impl Length for FetchedChunk {
    fn len(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }
}

impl ChunkReader for FetchedChunk {
    type T = Reader<Bytes>;

    fn get_read(&self, start: u64) -> Result<Self::T, ParquetError> {
        self.from(start).map(Buf::reader)
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        let found = self.from(start)?;
        if length > found.len() {
            return Err(ParquetError::EOF("a page extends past the end of its chunk".to_owned()));
        }
        Ok(found.slice(..length))
    }
}

/// A chunk that records the offset of the page body that was read last, which pages do not report.
struct RecordingChunk {
    chunk: FetchedChunk,
    last_read: AtomicU64,
}

impl Length for RecordingChunk {
    fn len(&self) -> u64 {
        self.chunk.len()
    }
}

impl ChunkReader for RecordingChunk {
    type T = Reader<Bytes>;

    fn get_read(&self, start: u64) -> Result<Self::T, ParquetError> {
        self.chunk.get_read(start)
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        self.last_read.store(start, Ordering::Relaxed);
        self.chunk.get_bytes(start, length)
    }
}

/// Pages as stored, not decompressed.
pub(super) struct StoredPages {
    pages: SerializedPageReader<RecordingChunk>,
    recording: Arc<RecordingChunk>,
    /// The uncompressed size declared in each page header, by the offset of the page body.
    uncompressed_sizes: HashMap<u64, usize>,
}

impl StoredPages {
    /// The next page and its declared uncompressed size.
    pub(super) fn next(&mut self) -> Result<Option<(Page, usize)>, ParquetError> {
        let Some(page) = self.pages.get_next_page()? else { return Ok(None) };
        match self.uncompressed_sizes.get(&self.recording.last_read.load(Ordering::Relaxed)) {
            Some(size) => Ok(Some((page, *size))),
            None => Err(ParquetError::General("the header of a page is not readable".to_owned())),
        }
    }
}

/// The offset of the compressed bytes of a stored page, after its levels; `None` if nothing is compressed.
pub(super) fn compressed_from(page: &Page) -> Option<usize> {
    match page {
        Page::DataPageV2 { is_compressed: false, .. } => None,
        Page::DataPageV2 { def_levels_byte_len, rep_levels_byte_len, .. } => {
            Some(*def_levels_byte_len as usize + *rep_levels_byte_len as usize)
        }
        Page::DataPage { .. } | Page::DictionaryPage { .. } => Some(0),
    }
}

// === Bounded decompression ===

/// Appends the decompressed bytes, at most the given number.
type Decompress = fn(&[u8], u64, &mut Vec<u8>) -> io::Result<usize>;

fn gunzip(stored: &[u8], bytes_max: u64, into: &mut Vec<u8>) -> io::Result<usize> {
    flate2::read::MultiGzDecoder::new(stored).take(bytes_max).read_to_end(into)
}

fn unbrotli(stored: &[u8], bytes_max: u64, into: &mut Vec<u8>) -> io::Result<usize> {
    brotli::Decompressor::new(stored, BROTLI_INPUT_BYTES).take(bytes_max).read_to_end(into)
}

struct BoundedPages {
    stored: StoredPages,
    decompress: Decompress,
}

impl BoundedPages {
    fn decompressed(&self, stored: &Bytes, from: usize, size: usize) -> Result<Bytes, ParquetError> {
        let (Some((levels, values)), Some(values_size)) = (stored.split_at_checked(from), size.checked_sub(from))
        else {
            return Err(ParquetError::General("the levels of a page are longer than the page".to_owned()));
        };
        let mut bytes = Vec::with_capacity(size);
        bytes.extend_from_slice(levels);
        // A page of nulls has no bytes to decompress.
        if values_size > 0 {
            (self.decompress)(values, values_size as u64 + 1, &mut bytes)?;
        }
        if bytes.len() == size {
            return Ok(bytes.into());
        }
        let than = if bytes.len() > size { "more" } else { "less" };
        Err(ParquetError::General(format!(
            "a page decompresses to {than} than the {size} bytes declared in its header"
        )))
    }
}

impl Iterator for BoundedPages {
    type Item = Result<Page, ParquetError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.get_next_page().transpose()
    }
}

impl PageReader for BoundedPages {
    fn get_next_page(&mut self) -> Result<Option<Page>, ParquetError> {
        let Some((mut page, size)) = self.stored.next()? else { return Ok(None) };
        if let Some(from) = compressed_from(&page) {
            let decompressed = self.decompressed(page.buffer(), from, size)?;
            match &mut page {
                Page::DataPage { buf, .. } | Page::DataPageV2 { buf, .. } | Page::DictionaryPage { buf, .. } => {
                    *buf = decompressed;
                }
            }
        }
        Ok(Some(page))
    }

    fn peek_next_page(&mut self) -> Result<Option<PageMetadata>, ParquetError> {
        self.stored.pages.peek_next_page()
    }

    fn skip_next_page(&mut self) -> Result<(), ParquetError> {
        self.stored.pages.skip_next_page()
    }

    fn at_record_boundary(&mut self) -> Result<bool, ParquetError> {
        self.stored.pages.at_record_boundary()
    }
}
