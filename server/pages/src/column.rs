//! A column chunk, read from its first row to its last.

use std::{iter, sync::Arc};

use arrow::{
    array::{ArrayRef, BooleanArray, BooleanBufferBuilder},
    buffer::{BooleanBuffer, NullBuffer},
    compute::filter,
    datatypes::{BinaryType, DataType, LargeBinaryType, LargeUtf8Type, Utf8Type},
};
use bytes::Bytes;

use crate::{
    booleans::Booleans,
    decode::Decode,
    description::{Column, Form, Physical},
    dictionary::{Dictionary, DictionaryValues},
    error::PageError,
    header::{self, Page, PageKind},
    keyed::Keyed,
    numbers::Numbers,
    page::{OpenPage, Pages},
    room::{Room, Unlimited},
    texts::Texts,
};

/// Rows per run of selected rows from which on the runs are read one by one: shorter runs cost more than reading all
/// rows.
const ROWS_A_RUN: usize = 32;

/// A column chunk, or consecutive pages of one, whose dictionary and open pages its readers share.
#[derive(Debug)]
pub struct ColumnChunk {
    column: Column,
    /// Rows of the row group before the first page.
    first_row: usize,
    pages: Pages,
    dictionary: Option<Dictionary>,
}

/// Reads a column chunk, some rows at a time.
#[derive(Debug)]
pub struct ColumnReader {
    chunk: Arc<ColumnChunk>,
    values: Box<dyn Decode>,
    page: Option<Arc<OpenPage>>,
    /// The index of the page after the open one.
    next: usize,
    /// Rows of the open page already read or skipped.
    row: usize,
    /// Rows before the first page that are left to skip: their pages are absent.
    absent: usize,
    /// Rows of the pages that are left to read or skip.
    rows_left: usize,
}

/// Which of the rows read are null.
#[derive(Debug, Default)]
struct Validity {
    rows: usize,
    /// The only piece so far, if it has nulls.
    piece: Option<BooleanBuffer>,
    /// Once there are several pieces, one of which has nulls.
    all: Option<BooleanBufferBuilder>,
}

impl ColumnChunk {
    /// Opens a chunk; `None` for one that the Parquet library must read, or reject. Decompresses nothing.
    pub fn open(chunk: &Bytes, column: Column) -> Option<Arc<Self>> {
        Self::open_pages(iter::once(chunk), 0, column)
    }

    /// Opens consecutive pages of a chunk, the first of which begins at row `first_row`, after their dictionary if there
    /// is one. Each piece has one page or several.
    pub fn open_pages<'a>(
        pieces: impl Iterator<Item = &'a Bytes>,
        first_row: usize,
        column: Column,
    ) -> Option<Arc<Self>> {
        let mut headers = Vec::new();
        for piece in pieces {
            headers.extend(header::pages(piece)?);
        }
        let dictionary = headers.first().filter(|page| page.kind == PageKind::Dictionary).cloned();
        if dictionary.is_some() {
            headers.remove(0);
        }
        let is_read = |page: &Page| column.is_read(page, dictionary.is_some());
        let rows = headers.iter().try_fold(0_usize, |rows, page| rows.checked_add(page.values))?;
        let is_whole = rows == column.rows && headers.iter().all(is_read);
        if !is_whole || !dictionary.iter().all(|page| column.is_sized(page)) || !column.has_reader(dictionary.is_some())
        {
            return None;
        }
        let pages = Pages::new(headers, column.codec, column.is_optional);
        Some(Arc::new(Self::with_pages(column, first_row, pages, dictionary)))
    }

    /// A chunk of checked pages.
    pub(crate) fn with_pages(column: Column, first_row: usize, pages: Pages, dictionary: Option<Page>) -> Self {
        Self { column, first_row, pages, dictionary: dictionary.map(Dictionary::new) }
    }

    /// The description that it was opened with.
    pub fn column(&self) -> &Column {
        &self.column
    }

    /// A reader from the row group's first row, with memory without a limit.
    pub fn reader(self: &Arc<Self>) -> ColumnReader {
        self.reader_within(&(Arc::new(Unlimited) as Arc<dyn Room>))
    }

    /// A reader from the row group's first row, whose texts take memory from the room. Rows before the first page must be
    /// skipped.
    pub fn reader_within(self: &Arc<Self>, room: &Arc<dyn Room>) -> ColumnReader {
        let values: Box<dyn Decode> = match (self.column.form, self.column.physical) {
            (_, Physical::Boolean) => Box::new(Booleans::default()),
            (Form::Keys, _) => Box::new(Keyed::default()),
            (_, Physical::ByteArray) => texts(&self.column.data_type, room),
            (_, Physical::Int32 | Physical::Float) => Box::new(Numbers::<u32>::default()),
            (_, Physical::Int64 | Physical::Double) => Box::new(Numbers::<u64>::default()),
        };
        let (absent, rows_left) = (self.first_row, self.column.rows);
        ColumnReader { chunk: Arc::clone(self), values, page: None, next: 0, row: 0, absent, rows_left }
    }

    /// Bytes that a reader holds at once: a decompressed page, the decoded page, the dictionary, and the headers of all
    /// pages.
    pub fn held_bytes(&self) -> usize {
        let dictionary = self.dictionary.as_ref().map_or(0, |dictionary| dictionary.size().saturating_mul(2));
        let pages = self.pages.largest().saturating_mul(2).saturating_add(self.pages.decoded_beyond());
        pages.saturating_add(dictionary).saturating_add(self.pages.header_bytes())
    }

    /// Rows of the row group before its first page.
    pub(crate) fn first_row(&self) -> usize {
        self.first_row
    }

    pub(crate) fn pages(&self) -> &Pages {
        &self.pages
    }

    /// The header of the dictionary page.
    pub(crate) fn dictionary_page(&self) -> Option<&Page> {
        self.dictionary.as_ref().map(Dictionary::page)
    }

    fn dictionary(&self) -> Result<DictionaryValues, PageError> {
        match &self.dictionary {
            Some(dictionary) => dictionary.values(&self.pages, &self.column),
            None => Ok(DictionaryValues::None),
        }
    }
}

/// Decodes texts of a type that the column's description allows.
fn texts(data_type: &DataType, room: &Arc<dyn Room>) -> Box<dyn Decode> {
    let room = Arc::clone(room);
    match data_type {
        DataType::Utf8 => Box::new(Texts::<Utf8Type>::new(room)),
        DataType::LargeUtf8 => Box::new(Texts::<LargeUtf8Type>::new(room)),
        DataType::LargeBinary => Box::new(Texts::<LargeBinaryType>::new(room)),
        _ => Box::new(Texts::<BinaryType>::new(room)),
    }
}

impl ColumnReader {
    /// Passes over rows. Pages of which no row is read are not decompressed.
    pub fn skip(&mut self, rows: usize) -> Result<(), PageError> {
        let absent = rows.min(self.absent);
        self.absent -= absent;
        let rows = (rows - absent).min(self.rows_left);
        self.pass_over(rows)?;
        self.close_at_end(rows);
        Ok(())
    }

    /// Reads the next rows, or as many as there are.
    pub fn read(&mut self, rows: usize) -> Result<ArrayRef, PageError> {
        self.check_present()?;
        let rows = rows.min(self.rows_left);
        self.values.begin(rows);
        let mut validity = Validity::default();
        self.append(rows, &mut validity)?;
        self.close_at_end(rows);
        self.values.finish(validity.finish(), &self.chunk.column.data_type)
    }

    /// Reads the selected ones of the next rows, one bit each. Fewer bits are used if there are fewer rows.
    pub fn read_selected(&mut self, selected: &BooleanBuffer) -> Result<ArrayRef, PageError> {
        self.check_present()?;
        let rows = selected.len().min(self.rows_left);
        let selected = selected.slice(0, rows);
        let runs: Vec<(usize, usize)> = selected.set_slices().collect();
        if runs.len() > rows / ROWS_A_RUN {
            let all = self.read(rows)?;
            let mask = BooleanArray::new(selected, None);
            return filter(&all, &mask).map_err(|error| PageError::new(error.to_string()));
        }
        self.values.begin(runs.iter().map(|(start, end)| end - start).sum());
        let (mut validity, mut at) = (Validity::default(), 0);
        for (start, end) in runs {
            self.pass_over(start - at)?;
            self.append(end - start, &mut validity)?;
            at = end;
        }
        self.pass_over(rows - at)?;
        self.close_at_end(rows);
        self.values.finish(validity.finish(), &self.chunk.column.data_type)
    }

    fn check_present(&self) -> Result<(), PageError> {
        if self.absent == 0 { Ok(()) } else { Err(PageError::new("its first rows are in pages that were not read")) }
    }

    fn pass_over(&mut self, rows: usize) -> Result<(), PageError> {
        let mut left = rows;
        while left > 0 {
            let Some(page) = self.page.clone().filter(|page| self.row < page.rows) else {
                match self.chunk.pages.rows(self.next) {
                    Some(rows) if rows <= left => {
                        left -= rows;
                        self.next += 1;
                    }
                    _ => self.open_page()?,
                }
                continue;
            };
            let rows = left.min(page.rows - self.row);
            let count = page.valid.as_ref().map_or(rows, |valid| valid.slice(self.row, rows).count_set_bits());
            self.values.skip(page.body(), count)?;
            self.row += rows;
            left -= rows;
        }
        Ok(())
    }

    fn append(&mut self, rows: usize, validity: &mut Validity) -> Result<(), PageError> {
        let mut left = rows;
        while left > 0 {
            let Some(page) = self.page.clone().filter(|page| self.row < page.rows) else {
                self.open_page()?;
                continue;
            };
            let rows = left.min(page.rows - self.row);
            let valid = page.valid.as_ref().map(|valid| valid.slice(self.row, rows)).filter(BooleanBuffer::has_false);
            self.values.append(page.body(), rows, valid.as_ref())?;
            validity.append(rows, valid);
            self.row += rows;
            left -= rows;
        }
        Ok(())
    }

    /// Counts rows as read; closes the last page after the last row.
    fn close_at_end(&mut self, rows: usize) {
        self.rows_left -= rows;
        if self.rows_left == 0 {
            self.page = None;
        }
    }

    fn open_page(&mut self) -> Result<(), PageError> {
        // Closed first: its buffer may be used for the next one.
        self.page = None;
        if self.values.needs_dictionary() {
            self.values.set_dictionary(self.chunk.dictionary()?);
        }
        let page = self.chunk.pages.open(self.next)?;
        (self.next, self.row) = (self.next + 1, 0);
        self.values.start(page.body(), page.values_at, page.encoding, page.count)?;
        self.page = Some(page);
        Ok(())
    }
}

impl Validity {
    fn append(&mut self, rows: usize, valid: Option<BooleanBuffer>) {
        if self.rows == 0 {
            self.piece = valid;
        } else if valid.is_some() || self.piece.is_some() || self.all.is_some() {
            let all = self.all.get_or_insert_with(|| {
                let mut all = BooleanBufferBuilder::new(self.rows + rows);
                match &self.piece {
                    Some(piece) => all.append_buffer(piece),
                    None => all.append_n(self.rows, true),
                }
                all
            });
            match valid {
                Some(valid) => all.append_buffer(&valid),
                None => all.append_n(rows, true),
            }
        }
        self.rows += rows;
    }

    fn finish(self) -> Option<NullBuffer> {
        let valid = self.all.map(|mut all| all.finish()).or(self.piece)?;
        Some(NullBuffer::new(valid)).filter(|nulls| nulls.null_count() > 0)
    }
}
