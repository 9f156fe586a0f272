//! Fetched column chunks, whole or only some of their pages, decompressed page by page.
//!
//! The Parquet library decompresses gzip and brotli pages completely before it checks the size declared in the header,
//! so a page of a few kilobytes may take gigabytes. This module decompresses these pages instead, and stops one byte
//! after the declared size.

use std::{
    collections::HashMap,
    io::{self, Read},
    ops::Range,
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
        page_index::offset_index::PageLocation,
        reader::{ChunkReader, Length},
        serialized_reader::SerializedPageReader,
    },
};

use super::{null_counts, page_index::PageRun, pages};

/// The input buffer of the brotli decoder.
const BROTLI_INPUT_BYTES: usize = 16 << 10;

/// The fetched bytes of one chunk.
#[derive(Clone, Debug)]
pub(super) struct FetchedChunk {
    /// The whole chunk, or each fetched page of it, with their offsets in the file, ascending.
    pieces: Vec<(u64, Bytes)>,
    /// The fetched data pages; `None` if all are.
    run: Option<PageRun>,
}

// === impl FetchedChunk ===

impl FetchedChunk {
    /// A chunk of fetched ranges: of the pages of a run after their dictionary, or of the whole chunk.
    pub(super) fn new(ranges: impl Iterator<Item = (Range<u64>, Bytes)>, run: Option<PageRun>) -> Self {
        Self { pieces: ranges.map(|(range, bytes)| (range.start, bytes)).collect(), run }
    }

    /// The same chunk without bytes after its last page, which some writers count.
    pub(super) fn without_rest(mut self, chunk: &ColumnChunkMetaData) -> Self {
        if let ([(_, bytes)], None) = (self.pieces.as_mut_slice(), &self.run)
            && let Some(end) = pages::end_of_values(bytes, u64::try_from(chunk.num_values()).unwrap_or(0))
        {
            bytes.truncate(end);
        }
        self
    }

    /// The description of the chunk with the size of its pages.
    fn described(&self, chunk: &ColumnChunkMetaData) -> Result<ColumnChunkMetaData, ParquetError> {
        match (self.pieces.as_slice(), &self.run) {
            ([(_, bytes)], None) => chunk.clone().into_builder().set_total_compressed_size(bytes.len() as i64).build(),
            _ => Ok(chunk.clone()),
        }
    }

    /// The same bytes with headers of pages that the library reads.
    fn readable(&self) -> Self {
        let pieces = self.pieces.iter().map(|(start, bytes)| (*start, null_counts::readable(bytes)));
        Self { pieces: pieces.collect(), run: self.run.clone() }
    }

    /// The bytes: all in one piece, or a piece for each page.
    pub(super) fn pieces(&self) -> impl Iterator<Item = &Bytes> {
        self.pieces.iter().map(|(_, bytes)| bytes)
    }

    /// The bytes, if they are all of a range of the file.
    pub(super) fn whole(&self, range: &Range<u64>) -> Option<&Bytes> {
        let [(start, bytes)] = self.pieces.as_slice() else { return None };
        (*start == range.start && bytes.len() as u64 == range.end - range.start).then_some(bytes)
    }

    /// The fetched data pages; `None` if all are.
    pub(super) fn run(&self) -> Option<&PageRun> {
        self.run.as_ref()
    }

    /// The range of each page body within its piece, and the uncompressed size declared in its header.
    pub(super) fn headers(&self) -> impl Iterator<Item = (Range<usize>, usize)> {
        self.pieces().flat_map(|bytes| pages::headers(bytes))
    }

    /// Whether the fetched pages are those of the file's offset index.
    pub(super) fn is_as_indexed(&self, chunk: &ColumnChunkMetaData) -> bool {
        let Some(run) = &self.run else { return true };
        let (dictionary, is_list) = (run.dictionary().is_some(), chunk.column_descr().max_rep_level() > 0);
        let mut pieces = self.pieces();
        let has_dictionary = !dictionary || pieces.next().is_some_and(|bytes| pages::is_dictionary(bytes));
        has_dictionary
            && run.pages().all(|(_, rows)| pieces.next().is_some_and(|page| pages::has_rows(page, rows, is_list)))
    }

    /// The offsets of pages for the library; `None` if it finds each page after the one before.
    fn locations(&self) -> Option<Vec<PageLocation>> {
        self.run.as_ref().map(PageRun::locations)
    }

    /// The decompressed pages.
    pub(super) fn pages(&self, chunk: &ColumnChunkMetaData, rows: i64) -> Result<Box<dyn PageReader>, ParquetError> {
        let decompress: Decompress = match chunk.compression() {
            Compression::GZIP(_) => gunzip,
            Compression::BROTLI(_) => unbrotli,
            _ => {
                let rows = usize::try_from(rows).unwrap_or(0);
                let (bytes, chunk) = (Arc::new(self.readable()), self.described(chunk)?);
                let pages = SerializedPageReader::new(bytes, &chunk, rows, self.locations())?;
                return Ok(null_counts::uncounted(Box::new(pages)));
            }
        };
        let pages = BoundedPages { stored: self.stored_pages(chunk, rows)?, decompress };
        Ok(null_counts::uncounted(Box::new(pages)))
    }

    /// The pages as stored.
    pub(super) fn stored_pages(&self, chunk: &ColumnChunkMetaData, rows: i64) -> Result<StoredPages, ParquetError> {
        let rows = usize::try_from(rows).unwrap_or(0);
        // The library reads a page that it has found by its location with its header.
        let is_located = self.run.is_some();
        let sizes = self.pieces.iter().flat_map(|(start, bytes)| {
            let read = move |body: Range<usize>| start + if is_located { 0 } else { body.start as u64 };
            pages::headers(bytes).map(move |(body, size)| (read(body), size))
        });
        let recording = Arc::new(RecordingChunk { chunk: self.readable(), last_read: AtomicU64::new(0) });
        let as_stored = self.described(chunk)?.into_builder().set_compression(Compression::UNCOMPRESSED).build()?;
        let pages = SerializedPageReader::new(Arc::clone(&recording), &as_stored, rows, self.locations())?;
        Ok(StoredPages { pages, recording, uncompressed_sizes: sizes.collect() })
    }

    /// The bytes from an offset in the file to the end of their piece.
    fn from(&self, start: u64) -> Result<Bytes, ParquetError> {
        let place = self.pieces.partition_point(|(piece, _)| *piece <= start);
        let piece = place.checked_sub(1).and_then(|place| self.pieces.get(place));
        let found = piece.and_then(|(piece, bytes)| {
            let from = usize::try_from(start - piece).ok().filter(|from| *from <= bytes.len())?;
            Some(bytes.slice(from..))
        });
        found.ok_or_else(|| ParquetError::EOF("a page is outside of its chunk".to_owned()))
    }
}

impl Length for FetchedChunk {
    fn len(&self) -> u64 {
        self.pieces.last().map_or(0, |(start, bytes)| start + bytes.len() as u64)
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

/// A chunk that records the offset of the page that was read last, which pages do not report.
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
    /// The uncompressed size declared in each page header, by the offset at which the page is read.
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
