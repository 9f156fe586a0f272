//! A page reader that passes every page to a check before the decoder sees it.

use parquet::{
    column::page::{Page, PageMetadata, PageReader},
    errors::ParquetError,
};

/// Inspects the pages of one column, in order.
pub(super) trait PageCheck: Send {
    /// Fails if the page must not be decoded.
    fn check(&mut self, page: &Page) -> Result<(), ParquetError>;
}

/// The pages of another reader, each checked first.
pub(super) struct CheckedPages<C> {
    pages: Box<dyn PageReader>,
    check: C,
}

impl<C: PageCheck + 'static> CheckedPages<C> {
    pub(super) fn boxed(pages: Box<dyn PageReader>, check: C) -> Box<dyn PageReader> {
        Box::new(Self { pages, check })
    }
}

impl<C: PageCheck> Iterator for CheckedPages<C> {
    type Item = Result<Page, ParquetError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.get_next_page().transpose()
    }
}

impl<C: PageCheck> PageReader for CheckedPages<C> {
    fn get_next_page(&mut self) -> Result<Option<Page>, ParquetError> {
        let page = self.pages.get_next_page()?;
        page.iter().try_for_each(|page| self.check.check(page))?;
        Ok(page)
    }

    fn peek_next_page(&mut self) -> Result<Option<PageMetadata>, ParquetError> {
        self.pages.peek_next_page()
    }

    fn skip_next_page(&mut self) -> Result<(), ParquetError> {
        self.pages.skip_next_page()
    }

    fn at_record_boundary(&mut self) -> Result<bool, ParquetError> {
        self.pages.at_record_boundary()
    }
}
