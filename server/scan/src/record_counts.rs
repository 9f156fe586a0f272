//! Checks that pages of lists have the rows of the file's offset index, as page headers do not say how many they have.
//! The decoder would return other rows.

use std::collections::VecDeque;

use parquet::{
    basic::Encoding,
    column::page::{Page, PageMetadata, PageReader},
    errors::ParquetError,
    schema::types::ColumnDescPtr,
};

use super::{page_index::PageRun, pages};

/// The pages of a column of lists, each checked first.
struct CountedPages {
    pages: Box<dyn PageReader>,
    column: ColumnDescPtr,
    /// The rows of the data pages that are left.
    rows: VecDeque<u64>,
}

/// Adds the check to pages of lists of which only a run is read; returns other pages unchanged.
pub(super) fn checked(
    pages: Box<dyn PageReader>,
    column: &ColumnDescPtr,
    run: Option<&PageRun>,
) -> Box<dyn PageReader> {
    match run.filter(|_| column.max_rep_level() > 0) {
        Some(run) => {
            Box::new(CountedPages { pages, column: ColumnDescPtr::clone(column), rows: run.rows_of_all().collect() })
        }
        None => pages,
    }
}

impl CountedPages {
    fn check(&mut self, page: &Page) -> Result<(), ParquetError> {
        if matches!(page, Page::DictionaryPage { .. }) {
            return Ok(());
        }
        let (expected, found) = (self.rows.pop_front(), records(&self.column, page));
        if expected == found && found.is_some() {
            return Ok(());
        }
        let count = |rows: Option<u64>| rows.map_or("no".to_owned(), |rows| rows.to_string());
        Err(ParquetError::General(format!(
            "its offset index declares {} rows for a page that begins {} rows",
            count(expected),
            count(found)
        )))
    }
}

/// The number of rows of a data page; `None` if it does not begin with a row, or its levels are not readable.
fn records(column: &ColumnDescPtr, page: &Page) -> Option<u64> {
    let levels = match page {
        Page::DataPage { buf, rep_level_encoding: Encoding::RLE, .. } => {
            let (length, rest) = buf.split_first_chunk::<4>()?;
            rest.get(..u32::from_le_bytes(*length) as usize)?
        }
        Page::DataPageV2 { buf, rep_levels_byte_len, .. } => buf.get(..*rep_levels_byte_len as usize)?,
        Page::DataPage { .. } | Page::DictionaryPage { .. } => return None,
    };
    let (mut first, mut rows, mut seen) = (None, 0, 0);
    let width = i16::BITS - column.max_rep_level().leading_zeros();
    pages::for_each_run(width, levels, page.num_values().into(), |level, count| {
        first.get_or_insert(level);
        seen += count;
        rows += if level == 0 { count } else { 0 };
    });
    (first == Some(0) && seen == u64::from(page.num_values())).then_some(rows)
}

impl Iterator for CountedPages {
    type Item = Result<Page, ParquetError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.get_next_page().transpose()
    }
}

impl PageReader for CountedPages {
    fn get_next_page(&mut self) -> Result<Option<Page>, ParquetError> {
        let page = self.pages.get_next_page()?;
        page.iter().try_for_each(|page| self.check(page))?;
        Ok(page)
    }

    fn peek_next_page(&mut self) -> Result<Option<PageMetadata>, ParquetError> {
        self.pages.peek_next_page()
    }

    fn skip_next_page(&mut self) -> Result<(), ParquetError> {
        if self.pages.peek_next_page()?.is_some_and(|page| !page.is_dict) {
            self.rows.pop_front();
        }
        self.pages.skip_next_page()
    }

    fn at_record_boundary(&mut self) -> Result<bool, ParquetError> {
        self.pages.at_record_boundary()
    }
}
