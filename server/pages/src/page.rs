//! Open pages: decompressed, with their levels read. Readers of a chunk share the pages that they have open.

use std::{
    ops::Range,
    sync::{Arc, Mutex, PoisonError, Weak},
};

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

/// The pages of a chunk, without its dictionary.
#[derive(Debug)]
pub(crate) struct Pages {
    headers: Vec<Page>,
    codec: Codec,
    is_optional: bool,
    /// Pages that a reader has open, by index.
    open: Mutex<Vec<Weak<OpenPage>>>,
}

/// A page that readers have open.
#[derive(Debug)]
pub(crate) struct OpenPage {
    body: PageBytes,
    pub encoding: Encoding,
    /// The offset of its values in its body.
    pub values_at: usize,
    /// Its values without nulls.
    pub count: usize,
    pub rows: usize,
    /// Which rows are valid; `None` if all are.
    pub valid: Option<BooleanBuffer>,
}

/// The decompressed bytes of a page.
#[derive(Debug)]
pub(crate) enum PageBytes {
    /// As stored.
    Stored(Bytes),
    /// The first bytes of a buffer.
    Decompressed(PageBuffer, usize),
}

impl OpenPage {
    /// Its bytes: the values after the levels in pages of version 1, the values alone in those of version 2.
    pub(crate) fn body(&self) -> &[u8] {
        self.body.bytes()
    }
}

impl PageBytes {
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::Stored(bytes) => bytes,
            Self::Decompressed(buffer, size) => buffer.bytes(*size),
        }
    }
}

impl Pages {
    pub(crate) fn new(headers: Vec<Page>, codec: Codec, is_optional: bool) -> Self {
        let open = Mutex::new(headers.iter().map(|_| Weak::new()).collect());
        Self { headers, codec, is_optional, open }
    }

    /// The headers of the pages, without the dictionary's.
    pub(crate) fn headers(&self) -> &[Page] {
        &self.headers
    }

    pub(crate) fn codec(&self) -> Codec {
        self.codec
    }

    /// The largest uncompressed size; 0 if pages are read where they are.
    pub(crate) fn largest(&self) -> usize {
        if self.codec == Codec::Uncompressed {
            return 0;
        }
        self.headers.iter().map(|page| page.uncompressed).max().unwrap_or(0)
    }

    /// Bytes of the largest decoded page whose stored size does not bound them: the bits of its levels, and the words of
    /// differences.
    pub(crate) fn decoded_beyond(&self) -> usize {
        const WORD_BYTES: usize = 8;
        let bytes = |page: &Page| {
            let levels = if self.is_optional { page.values.div_ceil(8) } else { 0 };
            let words = if page.encoding == Encoding::DeltaBinaryPacked { page.values * WORD_BYTES } else { 0 };
            levels.saturating_add(words)
        };
        self.headers.iter().map(bytes).max().unwrap_or(0)
    }

    /// Bytes of the parsed headers.
    pub(crate) fn header_bytes(&self) -> usize {
        self.headers.len() * (size_of::<Page>() + size_of::<Weak<OpenPage>>())
    }

    /// The rows of a page; `None` after the last.
    pub(crate) fn rows(&self, page: usize) -> Option<usize> {
        self.headers.get(page).map(|header| header.values)
    }

    /// Opens a page, unless another reader has it open.
    pub(crate) fn open(&self, index: usize) -> Result<Arc<OpenPage>, PageError> {
        // Readers of the same page wait for the first, which decompresses it.
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let ended = || PageError::new("its pages have fewer rows than its footer declares");
        let (header, known) = self.headers.get(index).zip(open.get_mut(index)).ok_or_else(ended)?;
        if let Some(page) = known.upgrade() {
            return Ok(page);
        }
        let page = Arc::new(self.read(header)?);
        *known = Arc::downgrade(&page);
        Ok(page)
    }

    /// The bytes of a dictionary page.
    pub(crate) fn dictionary(&self, page: &Page) -> Result<PageBytes, PageError> {
        check(page)?;
        self.body(page.body.clone(), page.uncompressed, true)
    }

    fn read(&self, page: &Page) -> Result<OpenPage, PageError> {
        check(page)?;
        let (mut values_at, mut valid) = (0, None);
        let body = if let PageKind::DataV2 { levels, is_compressed, .. } = page.kind {
            if self.is_optional {
                valid = levels::read(&page.body[..levels], page.values)?;
            }
            self.body(page.body.slice(levels..), page.uncompressed - levels, is_compressed)?
        } else {
            let body = self.body(page.body.clone(), page.uncompressed, true)?;
            if self.is_optional {
                let levels = level_bytes(body.bytes())?;
                values_at = levels.end;
                valid = levels::read(&body.bytes()[levels], page.values)?;
            }
            body
        };
        let count = valid.as_ref().map_or(page.values, BooleanBuffer::count_set_bits);
        Ok(OpenPage { body, encoding: page.encoding, values_at, count, rows: page.values, valid })
    }

    fn body(&self, stored: Bytes, size: usize, is_compressed: bool) -> Result<PageBytes, PageError> {
        if self.codec == Codec::Uncompressed || !is_compressed {
            return Ok(PageBytes::Stored(stored));
        }
        let mut buffer = PageBuffer::default();
        decompress(self.codec, &stored, buffer.sized(size))?;
        Ok(PageBytes::Decompressed(buffer, size))
    }
}

/// Verifies the checksum of a page.
pub(crate) fn check(page: &Page) -> Result<(), PageError> {
    let Some(expected) = page.checksum else { return Ok(()) };
    if crc32fast::hash(&page.body) == expected {
        return Ok(());
    }
    Err(PageError::new("the checksum of a page does not match its bytes"))
}

/// The levels at the start of a page of version 1, after their length.
fn level_bytes(body: &[u8]) -> Result<Range<usize>, PageError> {
    let length = body.first_chunk::<4>().map(|length| u32::from_le_bytes(*length) as usize);
    let end = length.and_then(|length| length.checked_add(4)).filter(|end| *end <= body.len());
    end.map(|end| 4..end).ok_or_else(|| PageError::new("the levels of a page are longer than the page"))
}
