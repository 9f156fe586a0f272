//! Column chunks that have been fetched, as the decoder reads them: page by page, none larger than its header says.
//!
//! The decoder's own readers of gzip and brotli write for as long as the compressed bytes go on, and look at the size that
//! the header promised afterwards: a page of a few kilobytes may take gigabytes. Pages of these are expanded here, to one
//! byte more than was promised at the most.

use std::{
    collections::HashMap,
    io::{self, Read},
    iter,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use arrow::datatypes::{DataType, SchemaRef};
use bytes::{Buf, Bytes, buf::Reader};
use parquet::{
    arrow::arrow_reader::RowGroups,
    basic::Compression,
    column::page::{Page, PageIterator, PageMetadata, PageReader},
    errors::ParquetError,
    file::{
        metadata::{ColumnChunkMetaData, ParquetMetaData, RowGroupMetaData},
        reader::{ChunkReader, Length},
        serialized_reader::SerializedPageReader,
    },
    schema::types::ColumnDescPtr,
};

use super::{
    int96, pages,
    texts::{GrowingPages, Room},
};
use crate::catalog::Int96Unit;

/// What brotli reads of its input at a time.
const BROTLI_INPUT_BYTES: usize = 16 << 10;

/// A column's place among the file's leaves, where its chunk lies in the file, and its bytes.
pub(super) type Fetched = (usize, Range<u64>, Bytes);

/// The chunks of some columns of one row group.
pub(super) struct FetchedColumns {
    metadata: Arc<ParquetMetaData>,
    row_group: usize,
    /// By the column's place among the file's leaves.
    chunks: HashMap<usize, FetchedChunk>,
    /// What columns become.
    schema: SchemaRef,
    int96: Int96Unit,
    room: Arc<Room>,
}

/// The bytes of one chunk, at their place in the file.
#[derive(Clone, Debug)]
pub(super) struct FetchedChunk {
    start: u64,
    bytes: Bytes,
}

impl FetchedColumns {
    /// Chunks of a file's row group and where their bytes were fetched from, each held against what its pages say.
    pub(super) fn new(
        metadata: Arc<ParquetMetaData>,
        row_group: usize,
        fetched: impl IntoIterator<Item = Fetched>,
        schema: SchemaRef,
        int96: Int96Unit,
        room: Arc<Room>,
    ) -> Result<Self, ParquetError> {
        let group = metadata.row_group(row_group);
        let mut chunks = HashMap::new();
        for (leaf, range, bytes) in fetched {
            let chunk = FetchedChunk { start: range.start, bytes };
            pages::check(group.column(leaf), &chunk, group.num_rows())?;
            chunks.insert(leaf, chunk);
        }
        Ok(Self { metadata, row_group, chunks, schema, int96, room })
    }

    /// Bytes that decoding them holds decompressed, as their pages claim.
    pub(super) fn held(&self) -> u64 {
        let group = self.metadata.row_group(self.row_group);
        self.chunks.iter().map(|(leaf, chunk)| pages::held(group.column(*leaf), chunk)).sum()
    }
}

impl RowGroups for FetchedColumns {
    fn num_rows(&self) -> usize {
        usize::try_from(self.metadata.row_group(self.row_group).num_rows()).unwrap_or(0)
    }

    fn column_chunks(&self, leaf: usize) -> Result<Box<dyn PageIterator>, ParquetError> {
        let missing = || ParquetError::General(format!("column {leaf} has not been fetched"));
        let fetched = self.chunks.get(&leaf).ok_or_else(missing)?;
        let group = self.metadata.row_group(self.row_group);
        let column = group.column(leaf).column_descr_ptr();
        let pages = fetched.pages(group.column(leaf), group.num_rows())?;
        let pages = int96::checked(pages, ColumnDescPtr::clone(&column), self.int96, &self.room);
        let root = self.metadata.file_metadata().schema_descr().get_column_root_idx(leaf);
        let is_keyed = matches!(self.schema.field(root).data_type(), DataType::Dictionary(..));
        let pages = GrowingPages::over(pages, column, is_keyed, &self.room);
        Ok(Box::new(OneChunk(Some(pages))))
    }

    fn row_groups(&self) -> Box<dyn Iterator<Item = &RowGroupMetaData> + '_> {
        Box::new(iter::once(self.metadata.row_group(self.row_group)))
    }

    fn metadata(&self) -> &ParquetMetaData {
        &self.metadata
    }
}

/// The pages of a column where there is one row group.
struct OneChunk(Option<Box<dyn PageReader>>);

impl Iterator for OneChunk {
    type Item = Result<Box<dyn PageReader>, ParquetError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.take().map(Ok)
    }
}

impl PageIterator for OneChunk {}

// === impl FetchedChunk ===

impl FetchedChunk {
    pub(super) fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Its pages, decompressed.
    pub(super) fn pages(&self, chunk: &ColumnChunkMetaData, rows: i64) -> Result<Box<dyn PageReader>, ParquetError> {
        let expand: Expand = match chunk.compression() {
            Compression::GZIP(_) => gunzip,
            Compression::BROTLI(_) => unbrotli,
            _ => {
                let rows = usize::try_from(rows).unwrap_or(0);
                return Ok(Box::new(SerializedPageReader::new(Arc::new(self.clone()), chunk, rows, None)?));
            }
        };
        Ok(Box::new(BoundedPages { stored: self.stored_pages(chunk, rows)?, expand }))
    }

    /// Its pages as they are stored.
    pub(super) fn stored_pages(&self, chunk: &ColumnChunkMetaData, rows: i64) -> Result<StoredPages, ParquetError> {
        let rows = usize::try_from(rows).unwrap_or(0);
        let bodies = pages::headers(&self.bytes).map(|(body, expanded)| (self.start + body.start as u64, expanded));
        let noted = Arc::new(Noted { chunk: self.clone(), last_read: AtomicU64::new(0) });
        let as_stored = chunk.clone().into_builder().set_compression(Compression::UNCOMPRESSED).build()?;
        let pages = SerializedPageReader::new(Arc::clone(&noted), &as_stored, rows, None)?;
        Ok(StoredPages { pages, noted, expanded: bodies.collect() })
    }

    fn from(&self, start: u64) -> Result<Bytes, ParquetError> {
        let start = start.checked_sub(self.start).and_then(|start| usize::try_from(start).ok());
        let found = start.filter(|start| *start <= self.bytes.len()).map(|start| self.bytes.slice(start..));
        found.ok_or_else(|| ParquetError::EOF("a page lies outside of its chunk".to_owned()))
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
            return Err(ParquetError::EOF("a page reaches behind its chunk".to_owned()));
        }
        Ok(found.slice(..length))
    }
}

/// A chunk that notes which page's body was read last: pages do not say where they lay.
struct Noted {
    chunk: FetchedChunk,
    last_read: AtomicU64,
}

impl Length for Noted {
    fn len(&self) -> u64 {
        self.chunk.len()
    }
}

impl ChunkReader for Noted {
    type T = Reader<Bytes>;

    fn get_read(&self, start: u64) -> Result<Self::T, ParquetError> {
        self.chunk.get_read(start)
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        self.last_read.store(start, Ordering::Relaxed);
        self.chunk.get_bytes(start, length)
    }
}

/// Pages whose values are as they are stored.
pub(super) struct StoredPages {
    pages: SerializedPageReader<Noted>,
    noted: Arc<Noted>,
    /// The size that each page's header promises, by where its body begins.
    expanded: HashMap<u64, usize>,
}

impl StoredPages {
    /// The next page and the size that it is to have once it is decompressed.
    pub(super) fn next(&mut self) -> Result<Option<(Page, usize)>, ParquetError> {
        let Some(page) = self.pages.get_next_page()? else { return Ok(None) };
        match self.expanded.get(&self.noted.last_read.load(Ordering::Relaxed)) {
            Some(expanded) => Ok(Some((page, *expanded))),
            None => Err(ParquetError::General("a page without a header that can be read".to_owned())),
        }
    }
}

/// Where the compressed bytes of a stored page begin, behind its levels; none where nothing is compressed.
pub(super) fn compressed_from(page: &Page) -> Option<usize> {
    match page {
        Page::DataPageV2 { is_compressed: false, .. } => None,
        Page::DataPageV2 { def_levels_byte_len, rep_levels_byte_len, .. } => {
            Some(*def_levels_byte_len as usize + *rep_levels_byte_len as usize)
        }
        Page::DataPage { .. } | Page::DictionaryPage { .. } => Some(0),
    }
}

// === Pages that are expanded here ===

/// Appends what these bytes decompress to, and stops at so many.
type Expand = fn(&[u8], u64, &mut Vec<u8>) -> io::Result<usize>;

fn gunzip(stored: &[u8], most: u64, into: &mut Vec<u8>) -> io::Result<usize> {
    flate2::read::MultiGzDecoder::new(stored).take(most).read_to_end(into)
}

fn unbrotli(stored: &[u8], most: u64, into: &mut Vec<u8>) -> io::Result<usize> {
    brotli::Decompressor::new(stored, BROTLI_INPUT_BYTES).take(most).read_to_end(into)
}

struct BoundedPages {
    stored: StoredPages,
    expand: Expand,
}

impl BoundedPages {
    fn expanded(&self, stored: &Bytes, from: usize, size: usize) -> Result<Bytes, ParquetError> {
        let (Some((levels, values)), Some(due)) = (stored.split_at_checked(from), size.checked_sub(from)) else {
            return Err(ParquetError::General("a page's levels are longer than the page".to_owned()));
        };
        let mut expanded = Vec::with_capacity(size);
        expanded.extend_from_slice(levels);
        // Where all values are null there are no bytes to decompress.
        if due > 0 {
            (self.expand)(values, due as u64 + 1, &mut expanded)?;
        }
        if expanded.len() == size {
            return Ok(expanded.into());
        }
        let than = if expanded.len() > size { "more" } else { "less" };
        Err(ParquetError::General(format!(
            "a page decompresses to {than} than the {size} bytes that its header claims"
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
            let expanded = self.expanded(page.buffer(), from, size)?;
            match &mut page {
                Page::DataPage { buf, .. } | Page::DataPageV2 { buf, .. } | Page::DictionaryPage { buf, .. } => {
                    *buf = expanded;
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
