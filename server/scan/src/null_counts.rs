//! Keeps the Parquet library from the numbers of nulls in the headers of pages of version 2, which some writers get
//! wrong. Definition levels say which values are null.
//!
//! Writers without statistics declare -1 or 0: the library rejects one, and reads too few values with another.

use std::ops::Range;

use bytes::Bytes;
use parquet::{
    column::page::{Page, PageMetadata, PageReader},
    errors::ParquetError,
};

use super::pages;

/// Pages without their numbers of nulls: the library then reads as many values as levels declare, as in version 1.
struct UncountedPages(Box<dyn PageReader>);

/// The same pages without their numbers of nulls.
pub(super) fn uncounted(pages: Box<dyn PageReader>) -> Box<dyn PageReader> {
    Box::new(UncountedPages(pages))
}

/// Pages whose headers declare no negative numbers of nulls, which the library rejects. Copies the bytes only if one
/// does.
pub(super) fn readable(chunk: &Bytes) -> Bytes {
    let negative = negative_counts(chunk);
    if negative.is_empty() {
        return chunk.clone();
    }
    let mut bytes = chunk.to_vec();
    for place in negative {
        // Zero, as a number of as many bytes.
        let (last, others) = (place.end - 1, place.start..place.end - 1);
        bytes[others].fill(0x80);
        bytes[last] = 0;
    }
    bytes.into()
}

/// Where headers of pages declare a negative number of nulls.
fn negative_counts(chunk: &[u8]) -> Vec<Range<usize>> {
    let found = pages::read_headers(chunk).filter_map(|(body, header)| {
        let (start, place) = (body.start - header.bytes, header.negative_nulls?);
        Some(start + place.start..start + place.end)
    });
    found.collect()
}

// === impl UncountedPages ===

impl Iterator for UncountedPages {
    type Item = Result<Page, ParquetError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.get_next_page().transpose()
    }
}

impl PageReader for UncountedPages {
    fn get_next_page(&mut self) -> Result<Option<Page>, ParquetError> {
        let mut page = self.0.get_next_page()?;
        if let Some(Page::DataPageV2 { num_nulls, .. }) = &mut page {
            *num_nulls = 0;
        }
        Ok(page)
    }

    fn peek_next_page(&mut self) -> Result<Option<PageMetadata>, ParquetError> {
        self.0.peek_next_page()
    }

    fn skip_next_page(&mut self) -> Result<(), ParquetError> {
        self.0.skip_next_page()
    }

    fn at_record_boundary(&mut self) -> Result<bool, ParquetError> {
        self.0.at_record_boundary()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A page of version 2 with a body of three bytes and this number of nulls, as a varint.
    fn page(nulls: &[u8]) -> Vec<u8> {
        let head = [0x15, 6, 0x15, 6, 0x15, 6, 0x5c, 0x15, 10, 0x15];
        [&head[..], nulls, &[0x15, 10, 0, 0], &[1; 3]].concat()
    }

    #[test]
    fn negative_counts_become_zero() {
        let chunk: Bytes = [page(&[2]), page(&[1]), page(&[0xff, 0x01]), page(&[0])].concat().into();
        let want: Bytes = [page(&[2]), page(&[0]), page(&[0x80, 0x00]), page(&[0])].concat().into();
        assert_eq!(readable(&chunk), want);
        assert_eq!(readable(&want).as_ptr(), want.as_ptr());
        let truncated = chunk.slice(..chunk.len() - page(&[0]).len() - 7);
        // The last header has no end.
        let want = [page(&[2]), page(&[0]), page(&[0xff, 0x01])].concat();
        assert_eq!(readable(&truncated), want[..truncated.len()]);
    }
}
