//! A column chunk whose pages are all decompressed, for a cache: its readers decompress nothing.

use std::sync::Arc;

use bytes::Bytes;

use crate::{
    column::ColumnChunk,
    decompress::decompress,
    description::{Codec, Column},
    error::PageError,
    header::{Page, PageKind},
    page::{self, Pages},
};

impl ColumnChunk {
    /// Bytes that the chunk takes with all pages decompressed, as their headers declare.
    pub fn unpacked_bytes(&self) -> usize {
        let headers = self.headers();
        let bodies = headers.clone().map(|page| page.uncompressed).fold(0, usize::saturating_add);
        // The dictionary is kept as stored and decoded.
        let dictionary = self.dictionary_page().map_or(0, |page| page.uncompressed);
        let parsed = (headers.count() + 1) * size_of::<Page>() * 2 + size_of::<Self>();
        bodies.saturating_add(dictionary).saturating_add(parsed)
    }

    /// The chunk with all pages decompressed and verified. Its readers return the same values.
    pub fn unpacked(&self) -> Result<Arc<Self>, PageError> {
        let size = self.headers().map(|page| page.uncompressed).fold(0, usize::saturating_add);
        let mut bytes = vec![0; size];
        let mut rest = bytes.as_mut_slice();
        for page in self.headers() {
            let (body, after) = rest.split_at_mut(page.uncompressed);
            unpack(page, self.pages().codec(), body)?;
            rest = after;
        }
        let mut bytes = Bytes::from(bytes);
        let mut stored = |page: &Page| as_stored(page, bytes.split_to(page.uncompressed));
        let dictionary = self.dictionary_page().map(&mut stored);
        let headers = self.pages().headers().iter().map(&mut stored).collect();
        let column = Column { codec: Codec::Uncompressed, ..self.column().clone() };
        let pages = Pages::new(headers, column.codec, column.is_optional);
        Ok(Arc::new(Self::with_pages(column, self.first_row(), pages, dictionary)))
    }

    /// The headers of all pages, the dictionary's first.
    fn headers(&self) -> impl Iterator<Item = &Page> + Clone {
        self.dictionary_page().into_iter().chain(self.pages().headers())
    }
}

/// Decompresses and verifies a page.
fn unpack(page: &Page, codec: Codec, target: &mut [u8]) -> Result<(), PageError> {
    page::check(page)?;
    let (levels, is_compressed) = match page.kind {
        PageKind::DataV2 { levels, is_compressed, .. } => (levels, is_compressed),
        PageKind::Dictionary | PageKind::DataV1 { .. } => (0, true),
    };
    let codec = if is_compressed { codec } else { Codec::Uncompressed };
    let short = || PageError::new("the levels of a page are longer than the page");
    let (stored_levels, stored) = page.body.split_at_checked(levels).ok_or_else(short)?;
    let (target_levels, target) = target.split_at_mut_checked(levels).ok_or_else(short)?;
    target_levels.copy_from_slice(stored_levels);
    decompress(codec, stored, target)
}

/// The header of a page that is stored as it is.
fn as_stored(page: &Page, body: Bytes) -> Page {
    let kind = match page.kind {
        PageKind::DataV2 { levels, .. } => PageKind::DataV2 { levels, is_compressed: false },
        kind => kind,
    };
    Page { kind, body, checksum: None, ..page.clone() }
}
