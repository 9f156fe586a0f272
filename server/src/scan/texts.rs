//! Values that are more once they are decoded than in their pages: a dictionary holds a text once, delta encoding shares
//! beginnings, and a run of a list's values is a number. What they may come to is reserved for before they are written out.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicU64, Ordering},
};

use parquet::{
    basic::{Encoding, Type},
    column::page::{Page, PageMetadata, PageReader},
    errors::ParquetError,
    schema::types::ColumnDescPtr,
};

use super::pages;
use crate::budget::{Budget, BudgetError, Reservation};

/// What the texts of a row group's columns may come to without a word: streams reserve for those of a common length.
const EXPECTED_BYTES: u64 = 64 << 20;

/// A column whose texts cannot come to more is not looked at closely.
const SMALL_BYTES: u64 = 4 << 20;

/// Values of a column's lists that may come at a time without a word: those of some common pages.
const LISTED_MAX: u64 = 4 << 20;

/// What a value of a list takes beside its text.
const LISTED_BYTES: u64 = 16;

/// Why a column whose bytes are sound is not decoded.
#[derive(Debug)]
pub(super) enum Refusal {
    /// There is no memory for its values.
    Memory(BudgetError),
    /// Its Arrow type cannot hold a value.
    OutOfRange {
        /// The path of the column.
        column: String,
        /// The value, and what holds it.
        reason: String,
    },
}

/// Where the columns of a row group find memory, and what stood in the way.
#[derive(Debug)]
pub(super) struct Room {
    budget: Budget,
    /// Rows that are written out at a time.
    rows: u64,
    /// What is left of the bytes that nobody reserves for.
    expected: AtomicU64,
    refused: Mutex<Option<Refusal>>,
}

impl Room {
    pub(super) fn new(budget: Budget, rows: u64) -> Self {
        Self { budget, rows, expected: AtomicU64::new(EXPECTED_BYTES), refused: Mutex::default() }
    }

    pub(super) fn rows(&self) -> u64 {
        self.rows
    }

    /// Memory for so many bytes more.
    fn reserve(&self, bytes: u64) -> Result<Option<Reservation>, BudgetError> {
        let rest = |left: u64| Some(left.saturating_sub(bytes));
        let expected =
            self.expected.fetch_update(Ordering::Relaxed, Ordering::Relaxed, rest).unwrap_or_else(|left| left);
        let unexpected = bytes.saturating_sub(expected);
        if unexpected == 0 { Ok(None) } else { self.budget.reserve(unexpected).map(Some) }
    }

    /// Ends decoding: the error is for the decoder, which passes on its words only.
    pub(super) fn refuse(&self, refusal: Refusal) -> ParquetError {
        let error = match &refusal {
            Refusal::Memory(source) => ParquetError::General(source.to_string()),
            Refusal::OutOfRange { reason, .. } => ParquetError::General(reason.clone()),
        };
        *self.refused.lock().unwrap_or_else(PoisonError::into_inner) = Some(refusal);
        error
    }

    /// Why a column could not be written out, once.
    pub(super) fn refused(&self) -> Option<Refusal> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Pages of a column whose values may grow.
pub(super) struct GrowingPages {
    pages: Box<dyn PageReader>,
    column: ColumnDescPtr,
    /// Whether texts stay in their dictionary.
    is_keyed: bool,
    room: Arc<Room>,
    /// The lengths of the dictionary's texts, where some are so long that it matters which of them come.
    lengths: Vec<u32>,
    texts: Window,
    /// Bytes that the values at hand may take.
    granted: u64,
    memory: Vec<Reservation>,
}

/// The most that any texts come to which are written out at a time.
#[derive(Debug)]
struct Window {
    /// How many come at a time: any of them lie in two pieces of so many.
    count_max: u64,
    count: u64,
    bytes: u64,
    /// Of the piece before.
    before: u64,
    most: u64,
}

impl GrowingPages {
    /// The same pages; watched where it may be necessary.
    pub(super) fn over(
        pages: Box<dyn PageReader>,
        column: ColumnDescPtr,
        is_keyed: bool,
        room: &Arc<Room>,
    ) -> Box<dyn PageReader> {
        let are_texts = matches!(column.physical_type(), Type::BYTE_ARRAY | Type::FIXED_LEN_BYTE_ARRAY);
        let is_list = column.max_rep_level() > 0;
        if !are_texts && !is_list {
            return pages;
        }
        // A row may have all of a page's values.
        let texts = Window::new(if is_list { u64::MAX } else { room.rows });
        let (lengths, granted, memory) = (Vec::new(), 0, Vec::new());
        Box::new(Self { pages, column, is_keyed, room: Arc::clone(room), lengths, texts, granted, memory })
    }

    fn watch(&mut self, page: &Page) -> Result<(), ParquetError> {
        let (column, texts, is_list) = (&self.column, &mut self.texts, self.column.max_rep_level() > 0);
        if let Page::DictionaryPage { buf, num_values, .. } = page {
            let at_a_time = if is_list { LISTED_MAX } else { self.room.rows };
            let lengths = pages::lengths(column, buf, *num_values);
            let longest = lengths.iter().copied().max().unwrap_or(0);
            let may_matter = u64::from(longest).saturating_mul(at_a_time) > SMALL_BYTES;
            self.lengths = if may_matter { lengths } else { Vec::new() };
            return Ok(());
        }
        if is_list {
            texts.turn();
        }
        let is_of_dictionary = matches!(page.encoding(), Encoding::RLE_DICTIONARY | Encoding::PLAIN_DICTIONARY);
        if pages::is_delta(page.encoding()) {
            pages::each_shared(column, page, |length| texts.add(length, 1))?;
        } else if is_of_dictionary && !self.lengths.is_empty() {
            let length = |index| usize::try_from(index).ok().and_then(|index| self.lengths.get(index)).copied();
            pages::each_index(column, page, |index, count| texts.add(length(index).unwrap_or(0).into(), count));
        }
        // Texts that were keys are written out too, where pages of another kind follow.
        self.is_keyed &= is_of_dictionary;
        let listed = if is_list { LISTED_BYTES * u64::from(page.num_values()).saturating_sub(LISTED_MAX) } else { 0 };
        let bytes = if self.is_keyed { 0 } else { texts.most };
        self.grow(bytes.saturating_add(listed))
    }

    fn grow(&mut self, bytes: u64) -> Result<(), ParquetError> {
        let more = bytes.saturating_sub(self.granted);
        if more == 0 {
            return Ok(());
        }
        match self.room.reserve(more) {
            Ok(reservation) => {
                self.memory.extend(reservation);
                self.granted = bytes;
                Ok(())
            }
            Err(source) => Err(self.room.refuse(Refusal::Memory(source))),
        }
    }
}

impl Window {
    fn new(count_max: u64) -> Self {
        Self { count_max: count_max.max(1), count: 0, bytes: 0, before: 0, most: 0 }
    }

    /// So many texts of a length follow.
    fn add(&mut self, length: u64, mut count: u64) {
        while count > 0 {
            if self.count == self.count_max {
                self.turn();
            }
            let taken = count.min(self.count_max - self.count);
            self.bytes = self.bytes.saturating_add(length.saturating_mul(taken));
            self.count += taken;
            count -= taken;
            self.most = self.most.max(self.before.saturating_add(self.bytes));
        }
    }

    /// What follows is another piece.
    fn turn(&mut self) {
        (self.before, self.bytes, self.count) = (self.bytes, 0, 0);
    }
}

impl Iterator for GrowingPages {
    type Item = Result<Page, ParquetError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.get_next_page().transpose()
    }
}

impl PageReader for GrowingPages {
    fn get_next_page(&mut self) -> Result<Option<Page>, ParquetError> {
        let page = self.pages.get_next_page()?;
        page.iter().try_for_each(|page| self.watch(page))?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_that_comes_at_a_time_is_at_least_that_of_any_neighbours() {
        let most = |lengths: &[(u64, u64)], count_max| {
            let mut window = Window::new(count_max);
            for (length, count) in lengths {
                window.add(*length, *count);
            }
            window.most
        };
        // Pieces of two: 1 1, 9 9, 1 1. Three neighbours come to 19 at the most.
        assert_eq!(most(&[(1, 2), (9, 2), (1, 2)], 2), 20);
        assert_eq!(most(&[(1_000, 1), (1, 99)], 10), 1_019);
        assert_eq!(most(&[(7, 1_000_000_000)], 10), 140);
        assert_eq!(most(&[(u64::MAX, 3)], 0), u64::MAX);
        assert_eq!(most(&[], 10), 0);
    }
}
