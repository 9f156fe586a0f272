//! The offset index of a column chunk: where its pages are, and their first rows. An index that does not fit the chunk
//! is not used.

use std::{ops::Range, sync::Arc};

use forebay_pages::thrift::{CompactReader, I32, I64, InvalidThrift, LIST, STRUCT};
use parquet::file::page_index::offset_index::PageLocation;

/// Pages of a chunk whose index is used, at most.
const PAGES_MAX: u64 = 1 << 16;

// Fields of an offset index, and of a page in it.
const LOCATIONS: i64 = 1;
const OFFSET: i64 = 1;
const SIZE: i64 = 2;
const FIRST_ROW: i64 = 3;

/// The data pages of a column chunk, which follow each other up to its end.
#[derive(Debug, PartialEq)]
pub(super) struct ChunkPages {
    /// Its bytes in the file.
    chunk: Range<u64>,
    rows: u64,
    pages: Vec<PageStart>,
}

/// Where a page begins.
#[derive(Clone, Copy, Debug, PartialEq)]
struct PageStart {
    /// In the file.
    offset: u64,
    /// In the row group.
    row: u64,
}

/// Consecutive data pages of a chunk, read without the others.
#[derive(Clone, Debug)]
pub(super) struct PageRun {
    index: Arc<ChunkPages>,
    pages: Range<usize>,
}

// === impl ChunkPages ===

impl ChunkPages {
    /// Parses the index of a chunk with these bytes in the file and this number of rows; `None` if it is unreadable, or
    /// if its pages are not the whole chunk after the dictionary, in order, with all rows.
    pub(super) fn parse(index: &[u8], chunk: Range<u64>, rows: u64) -> Option<Self> {
        let locations = locations(index).ok().flatten()?;
        let mut pages = Vec::with_capacity(locations.len());
        let (mut at, mut next_row) = (locations.first()?.0, 0);
        for (offset, size, row) in locations {
            let is_next = offset == at && size > 0 && (row == 0 && pages.is_empty() || row >= next_row && next_row > 0);
            if !is_next {
                return None;
            }
            pages.push(PageStart { offset, row });
            (at, next_row) = (offset.checked_add(size)?, row.checked_add(1)?);
        }
        let is_chunk = pages.first()?.offset >= chunk.start && at == chunk.end && next_row <= rows;
        is_chunk.then_some(Self { chunk, rows, pages })
    }

    /// Pages of a byte and a row each.
    #[cfg(test)]
    pub(super) fn of_one_byte_pages(count: usize) -> Self {
        let pages = (0..count as u64).map(|at| PageStart { offset: at, row: at }).collect();
        Self { chunk: 0..count as u64, rows: count as u64, pages }
    }

    /// The number of pages.
    pub(super) fn page_count(&self) -> usize {
        self.pages.len()
    }

    /// The pages with these rows.
    pub(super) fn run(self: &Arc<Self>, rows: &Range<u64>) -> PageRun {
        let start = self.pages.partition_point(|page| page.row <= rows.start).saturating_sub(1);
        let end = self.pages.partition_point(|page| page.row < rows.end).max(start);
        PageRun { index: Arc::clone(self), pages: start..end }
    }

    /// The bytes before the first data page: the dictionary, or nothing.
    fn dictionary(&self) -> Range<u64> {
        self.chunk.start..self.page(0).start
    }

    /// The bytes of a page.
    fn page(&self, page: usize) -> Range<u64> {
        let start = |page: usize| self.pages.get(page).map_or(self.chunk.end, |page| page.offset);
        start(page)..start(page + 1)
    }

    fn row_count(&self, page: usize) -> u64 {
        self.first_row(page + 1) - self.first_row(page)
    }

    /// The first row of a page; after the last page, the number of rows.
    fn first_row(&self, page: usize) -> u64 {
        self.pages.get(page).map_or(self.rows, |page| page.row)
    }
}

/// The offset, size and first row of a page.
type StoredLocation = (u64, u64, u64);

/// The location of each page; `None` without the list of them.
fn locations(index: &[u8]) -> Result<Option<Vec<StoredLocation>>, InvalidThrift> {
    let (mut reader, mut last, mut found) = (CompactReader::new(index), 0, None);
    while let Some((field, kind)) = reader.field(&mut last)? {
        if field != LOCATIONS {
            reader.skip(kind)?;
            continue;
        }
        let (count, of) = if kind == LIST { reader.list()? } else { return Err(InvalidThrift) };
        if of != STRUCT || count > PAGES_MAX || found.is_some() {
            return Err(InvalidThrift);
        }
        found = Some((0..count).map(|_| location(&mut reader)).collect::<Result<Vec<_>, _>>()?);
    }
    Ok(found)
}

fn location(reader: &mut CompactReader) -> Result<StoredLocation, InvalidThrift> {
    let (mut fields, mut last) = ([None; 4], 0);
    while let Some((field, kind)) = reader.field(&mut last)? {
        match (field, kind) {
            (OFFSET | FIRST_ROW, I64) | (SIZE, I32) => {
                fields[field as usize] = Some(u64::try_from(reader.signed()?).map_err(|_| InvalidThrift)?);
            }
            (OFFSET..=FIRST_ROW, _) => return Err(InvalidThrift),
            _ => reader.skip(kind)?,
        }
    }
    let field = |id: i64| fields[id as usize].ok_or(InvalidThrift);
    Ok((field(OFFSET)?, field(SIZE)?, field(FIRST_ROW)?))
}

// === impl PageRun ===

impl PageRun {
    /// The bytes of the dictionary, if there is one.
    pub(super) fn dictionary(&self) -> Option<Range<u64>> {
        Some(self.index.dictionary()).filter(|range| !range.is_empty())
    }

    /// The bytes and the rows of each page.
    pub(super) fn pages(&self) -> impl Iterator<Item = (Range<u64>, u64)> {
        self.pages.clone().map(move |page| (self.index.page(page), self.index.row_count(page)))
    }

    /// The rows of each page of the chunk.
    pub(super) fn rows_of_all(&self) -> impl Iterator<Item = u64> {
        (0..self.index.page_count()).map(move |page| self.index.row_count(page))
    }

    /// Rows of the row group before the first page.
    pub(super) fn first_row(&self) -> u64 {
        self.index.first_row(self.pages.start)
    }

    /// Rows of the pages.
    pub(super) fn row_count(&self) -> u64 {
        self.index.first_row(self.pages.end) - self.first_row()
    }

    /// All pages of the chunk, for the Parquet library, which passes over the others.
    pub(super) fn locations(&self) -> Vec<PageLocation> {
        let location = |page: usize| {
            let bytes = self.index.page(page);
            PageLocation {
                offset: bytes.start.cast_signed(),
                compressed_page_size: i32::try_from(bytes.end - bytes.start).unwrap_or(i32::MAX),
                first_row_index: self.index.first_row(page).cast_signed(),
            }
        };
        (0..self.index.page_count()).map(location).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn varint(mut value: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        while value > 0x7f {
            bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        bytes.push(value as u8);
        bytes
    }

    /// The offset index of these pages, in Thrift's compact protocol.
    fn index(pages: &[(i64, i64, i64)]) -> Vec<u8> {
        let zigzag = |value: i64| varint(((value << 1) ^ (value >> 63)).cast_unsigned());
        let mut bytes = [vec![0x19, 0xfc], varint(pages.len() as u64)].concat();
        for (offset, size, row) in pages {
            bytes.extend(
                [vec![0x16], zigzag(*offset), vec![0x15], zigzag(*size), vec![0x16], zigzag(*row), vec![0]].concat(),
            );
        }
        bytes.push(0);
        bytes
    }

    fn parsed(pages: &[(i64, i64, i64)]) -> Option<Arc<ChunkPages>> {
        ChunkPages::parse(&index(pages), 100..160, 30).map(Arc::new)
    }

    #[test]
    fn a_run_has_the_pages_with_its_rows() {
        // The dictionary has 10 bytes.
        let pages = parsed(&[(110, 20, 0), (130, 20, 8), (150, 10, 20)]).unwrap();
        let run = |rows: Range<u64>| {
            let run = pages.run(&rows);
            (run.pages().collect::<Vec<_>>(), run.first_row(), run.row_count())
        };
        assert_eq!(run(0..8), (vec![(110..130, 8)], 0, 8));
        assert_eq!(run(7..9), (vec![(110..130, 8), (130..150, 12)], 0, 20));
        assert_eq!(run(8..20), (vec![(130..150, 12)], 8, 12));
        assert_eq!(run(29..30), (vec![(150..160, 10)], 20, 10));
        assert_eq!(run(0..30).1, 0);
        assert_eq!(run(0..30).2, 30);
        assert_eq!(pages.run(&(9..10)).dictionary(), Some(100..110));
        let locations = pages.run(&(9..10)).locations();
        let offsets: Vec<_> = locations.iter().map(|page| (page.offset, page.first_row_index)).collect();
        assert_eq!(offsets, [(110, 0), (130, 8), (150, 20)]);
        assert_eq!(locations[2].compressed_page_size, 10);
        assert_eq!(parsed(&[(100, 60, 0)]).unwrap().run(&(0..1)).dictionary(), None);
    }

    #[test]
    fn an_index_that_does_not_fit_its_chunk_is_not_used() {
        type Case = (&'static str, &'static [(i64, i64, i64)]);
        let cases: [Case; 11] = [
            ("no pages", &[]),
            ("before the chunk", &[(90, 70, 0)]),
            ("ends before the chunk", &[(110, 49, 0)]),
            ("ends after the chunk", &[(110, 51, 0)]),
            ("overlapping", &[(110, 30, 0), (130, 30, 8)]),
            ("a gap", &[(110, 10, 0), (130, 30, 8)]),
            ("an empty page", &[(110, 0, 0), (110, 50, 8)]),
            ("first rows that do not rise", &[(110, 20, 0), (130, 30, 0)]),
            ("a first row beyond the row group", &[(110, 20, 0), (130, 30, 30)]),
            ("rows before the first page", &[(110, 50, 1)]),
            ("a negative size", &[(110, -50, 0)]),
        ];
        for (case, pages) in cases {
            assert_eq!(parsed(pages), None, "{case}");
        }
        assert!(ChunkPages::parse(&index(&[(i64::MAX, i64::MAX, 0)]), 0..1, 1).is_none());
        let good = index(&[(110, 20, 0), (130, 30, 8)]);
        assert!(ChunkPages::parse(&good, 100..160, 30).is_some());
        for length in 0..good.len() {
            assert!(ChunkPages::parse(&good[..length], 100..160, 30).is_none(), "{length} bytes");
        }
        // A count of pages without the pages.
        assert!(ChunkPages::parse(&[0x19, 0xfc, 0xff, 0xff, 0xff, 0x7f], 100..160, 30).is_none());
    }
}
