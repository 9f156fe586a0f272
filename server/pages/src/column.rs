//! A column chunk, read from its first row to its last.

use arrow::{
    array::{ArrayRef, BooleanBufferBuilder},
    buffer::{BooleanBuffer, NullBuffer},
};
use bytes::Bytes;

use crate::{
    booleans::Booleans,
    decode::Decode,
    description::{Column, Form, Physical},
    dictionary::Dictionary,
    error::PageError,
    header::{self, Page, PageKind},
    keyed::Keyed,
    numbers::Numbers,
    page::Pages,
};

/// Reads a column chunk, some rows at a time.
#[derive(Debug)]
pub struct ColumnReader {
    pages: Pages,
    values: Box<dyn Decode>,
    /// Rows that were neither read nor skipped.
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

impl ColumnReader {
    /// Opens a chunk; `None` for one that the Parquet library must read, or reject. Decompresses nothing.
    pub fn open(chunk: Bytes, column: &Column) -> Option<Self> {
        let mut headers = header::pages(&chunk)?;
        let dictionary = headers.first().filter(|page| page.kind == PageKind::Dictionary).cloned();
        if dictionary.is_some() {
            headers.remove(0);
        }
        let is_read = |page: &Page| column.is_read(page, dictionary.is_some());
        let rows = headers.iter().try_fold(0_usize, |rows, page| rows.checked_add(page.values))?;
        if rows != column.rows || !headers.iter().all(is_read) || !dictionary.iter().all(|page| column.is_sized(page)) {
            return None;
        }
        let of_dictionary = dictionary.map(Dictionary::new);
        let (data_type, is_keyed) = (column.data_type.clone(), column.form == Form::Keys);
        let values: Box<dyn Decode> = match column.physical {
            _ if is_keyed => Box::new(Keyed::new(of_dictionary?, column.physical, data_type)?),
            Physical::Int32 | Physical::Float => Box::new(Numbers::<u32>::new(of_dictionary, data_type)),
            Physical::Int64 | Physical::Double => Box::new(Numbers::<u64>::new(of_dictionary, data_type)),
            Physical::Boolean => Box::new(Booleans::default()),
            Physical::ByteArray => return None,
        };
        let pages = Pages::new(chunk, headers, column.codec, column.is_optional);
        Some(Self { pages, values, rows_left: rows })
    }

    /// Decompressed bytes that the reader holds at once: a page, and its dictionary or the decoded page.
    pub fn held_bytes(&self) -> usize {
        self.pages.largest().saturating_mul(2).saturating_add(self.values.held_bytes())
    }

    /// Passes over rows. Pages of which no row is read are not decompressed.
    pub fn skip(&mut self, rows: usize) -> Result<(), PageError> {
        let mut left = rows.min(self.rows_left);
        self.rows_left -= left;
        while left > 0 {
            left -= self.pages.skip_whole(left);
            let rows = left.min(self.pages.rows_left());
            if rows > 0 {
                let count = self.pages.take(rows).map_or(rows, |valid| valid.count_set_bits());
                self.values.skip(self.pages.body(), count)?;
                left -= rows;
            } else if left > 0 {
                self.open_page()?;
            }
        }
        Ok(())
    }

    /// Reads the next rows, or as many as there are.
    pub fn read(&mut self, rows: usize) -> Result<ArrayRef, PageError> {
        let mut left = rows.min(self.rows_left);
        self.rows_left -= left;
        self.values.begin(left);
        let mut validity = Validity::default();
        while left > 0 {
            let rows = left.min(self.pages.rows_left());
            if rows == 0 {
                self.open_page()?;
                continue;
            }
            let valid = self.pages.take(rows).filter(BooleanBuffer::has_false);
            self.values.append(self.pages.body(), rows, valid.as_ref())?;
            validity.append(rows, valid);
            left -= rows;
        }
        self.values.finish(validity.finish())
    }

    fn open_page(&mut self) -> Result<(), PageError> {
        self.values.load_dictionary(&mut self.pages)?;
        let (encoding, values_at, count) = self.pages.open_next()?;
        self.values.start(self.pages.body(), values_at, encoding, count)
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
