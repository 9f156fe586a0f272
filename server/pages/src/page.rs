//! The pages of a chunk, one of which is open: decompressed, with its levels read.

use std::{mem, ops::Range};

use arrow::buffer::BooleanBuffer;
use bytes::Bytes;

use crate::{
    decompress::decompress,
    description::Codec,
    error::PageError,
    header::{Encoding, Page, PageKind},
    levels,
    spare::PageBuffer,
};

/// The data pages of a chunk.
#[derive(Debug)]
pub(crate) struct Pages {
    chunk: Bytes,
    headers: Vec<Page>,
    /// The page after the open one.
    next: usize,
    codec: Codec,
    is_optional: bool,
    buffer: PageBuffer,
    body: Body,
    rows_left: usize,
    /// Rows of the open page already taken.
    row: usize,
    valid: Option<BooleanBuffer>,
}

/// Where the bytes of the open page are.
#[derive(Clone, Debug)]
enum Body {
    /// In the chunk.
    Stored(Range<usize>),
    /// At the start of the buffer.
    Decompressed(usize),
}

impl Pages {
    pub(crate) fn new(chunk: Bytes, headers: Vec<Page>, codec: Codec, is_optional: bool) -> Self {
        let (buffer, body) = (PageBuffer::default(), Body::Stored(0..0));
        Self { chunk, headers, next: 0, codec, is_optional, buffer, body, rows_left: 0, row: 0, valid: None }
    }

    /// The largest uncompressed size; 0 if pages are read where they are.
    pub(crate) fn largest(&self) -> usize {
        if self.codec == Codec::Uncompressed {
            return 0;
        }
        self.headers.iter().map(|page| page.uncompressed).max().unwrap_or(0)
    }

    /// Rows of the open page that were not taken.
    pub(crate) fn rows_left(&self) -> usize {
        self.rows_left
    }

    /// The values of the open page, after its levels in pages of version 2.
    pub(crate) fn body(&self) -> &[u8] {
        match &self.body {
            Body::Stored(range) => &self.chunk[range.clone()],
            Body::Decompressed(size) => self.buffer.bytes(*size),
        }
    }

    /// The next rows of the open page: which are valid, or `None` if all are.
    pub(crate) fn take(&mut self, rows: usize) -> Option<BooleanBuffer> {
        let start = self.row;
        self.row += rows;
        self.rows_left -= rows;
        self.valid.as_ref().map(|valid| valid.slice(start, rows))
    }

    /// Passes over closed pages that have at most this many rows, if no row of the open page is left.
    pub(crate) fn skip_whole(&mut self, rows: usize) -> usize {
        let mut skipped = 0;
        while self.rows_left == 0
            && let Some(page) = self.headers.get(self.next)
            && page.values <= rows - skipped
        {
            skipped += page.values;
            self.next += 1;
            if page.values == 0 && skipped == rows {
                break;
            }
        }
        skipped
    }

    /// Opens the next page: its encoding, the offset of its values in the body, and their number without nulls.
    pub(crate) fn open_next(&mut self) -> Result<(Encoding, usize, usize), PageError> {
        let ended = || PageError::new("its pages have fewer rows than its footer declares");
        let page = self.headers.get(self.next).cloned().ok_or_else(ended)?;
        self.next += 1;
        self.check(&page)?;
        let stored = page.body.clone();
        let mut at = 0;
        self.valid = None;
        match page.kind {
            PageKind::DataV2 { levels, is_compressed, .. } => {
                let values = stored.start + levels..stored.end;
                self.place(values, page.uncompressed - levels, is_compressed)?;
                if self.is_optional {
                    self.valid = levels::read(&self.chunk[stored.start..stored.start + levels], page.values)?;
                }
            }
            PageKind::DataV1 { .. } | PageKind::Dictionary => {
                self.place(stored, page.uncompressed, true)?;
                if self.is_optional {
                    let levels = level_bytes(self.body())?;
                    self.valid = levels::read(&self.body()[levels.clone()], page.values)?;
                    at = levels.end;
                }
            }
        }
        let count = self.valid.as_ref().map_or(page.values, BooleanBuffer::count_set_bits);
        if let PageKind::DataV2 { nulls, .. } = page.kind
            && count + nulls != page.values
        {
            return Err(PageError::new("the header of a page declares another number of nulls than the page has"));
        }
        (self.rows_left, self.row) = (page.values, 0);
        Ok((page.encoding, at, count))
    }

    /// The bytes of a dictionary page. Closes the open page.
    pub(crate) fn dictionary(&mut self, page: &Page) -> Result<&[u8], PageError> {
        self.check(page)?;
        self.rows_left = 0;
        self.place(page.body.clone(), page.uncompressed, true)?;
        Ok(self.body())
    }

    fn check(&self, page: &Page) -> Result<(), PageError> {
        let Some(expected) = page.checksum else { return Ok(()) };
        if crc32fast::hash(&self.chunk[page.body.clone()]) == expected {
            return Ok(());
        }
        Err(PageError::new("the checksum of a page does not match its bytes"))
    }

    fn place(&mut self, stored: Range<usize>, size: usize, is_compressed: bool) -> Result<(), PageError> {
        if self.codec == Codec::Uncompressed || !is_compressed {
            self.body = Body::Stored(stored);
            return Ok(());
        }
        // The body of a page that fails to decompress must not be read.
        let _ = mem::replace(&mut self.body, Body::Stored(0..0));
        decompress(self.codec, &self.chunk[stored], self.buffer.sized(size))?;
        self.body = Body::Decompressed(size);
        Ok(())
    }
}

/// The levels at the start of a page of version 1, after their length.
fn level_bytes(body: &[u8]) -> Result<Range<usize>, PageError> {
    let length = body.first_chunk::<4>().map(|length| u32::from_le_bytes(*length) as usize);
    let end = length.and_then(|length| length.checked_add(4)).filter(|end| *end <= body.len());
    end.map(|end| 4..end).ok_or_else(|| PageError::new("the levels of a page are longer than the page"))
}
