//! Decodes the columns of one part of a row group, each with the reader of its format.

use std::{iter, mem, ops::Range, sync::Arc};

use arrow::buffer::BooleanBuffer;
use forebay_catalog::DeletedRows;
use forebay_pages::Room;
use parquet::{arrow::arrow_reader::RowSelector, errors::ParquetError};

use super::{
    arrow_columns::ArrowColumns,
    column_readers::{ColumnsReader, PartError, ReadColumn, RowsToRead, UNEQUAL_ROWS},
    columns::Fetched,
    decode_memory::DecodeMemory,
    decoder::described,
    library_columns::LibraryColumns,
    page_columns::PageColumns,
    projection::Part,
    shared::SharedBytes,
    text_room::TextRoom,
    view::View,
};

/// The columns of a part after the rows already read.
pub(super) struct PartReader {
    readers: Vec<Box<dyn ColumnsReader>>,
    rows_left: usize,
    block_rows: usize,
    /// The deleted rows, which are decoded and dropped; `None` if there are none.
    deleted: Option<Deleted>,
    /// Columns of the next rows that were read before the others.
    ahead: Vec<ReadColumn>,
}

/// Rows of a part's columns.
pub(super) struct PartBlock {
    pub rows: usize,
    pub arrays: Vec<ReadColumn>,
}

/// The deleted rows of the row group, and the place of the next row.
struct Deleted {
    rows: Arc<DeletedRows>,
    /// The next row among the kept ones.
    next: u64,
    /// The next row that the readers decode, among the stored ones.
    stored: u64,
}

/// A part's reader, and the page bytes that it may hold decompressed.
type Opened = (PartReader, u64);

impl PartReader {
    /// Opens the decoders of a part's columns for these rows, counted without deleted ones. For a row group with
    /// deleted rows they are all up to the last.
    pub(super) fn open(
        view: &View,
        (row_group, deleted): (usize, Option<&Arc<DeletedRows>>),
        (part, roots): (&Part, &[usize]),
        fetched: Vec<Fetched>,
        rows: &Range<u64>,
        (memory, shared): (&Arc<DecodeMemory>, &SharedBytes),
    ) -> Result<Opened, ParquetError> {
        let skip = rows.start;
        let deleted = deleted.map(|rows| Deleted::after(rows, skip));
        let kept_left = deleted.as_ref().map(|deleted| deleted.rows.kept().saturating_sub(skip));
        let skip = deleted.as_ref().map_or(skip, |deleted| deleted.stored);
        let skip = usize::try_from(skip).unwrap_or(usize::MAX);
        let block_rows = usize::try_from(memory.rows()).unwrap_or(usize::MAX);
        if let Some(layout) = &view.arrow {
            let columns = (part.columns.as_slice(), roots);
            let opened = ArrowColumns::open(view, (layout, row_group), columns, &fetched, skip, memory);
            let (columns, rows_left) = opened.map_err(ParquetError::General)?;
            let readers: Vec<Box<dyn ColumnsReader>> = vec![Box::new(columns)];
            return Ok((Self { readers, rows_left, block_rows, deleted: None, ahead: Vec::new() }, 0));
        }
        let (mut own, mut own_bytes, mut rest) = (Vec::new(), 0, Vec::new());
        for (leaf, fetched) in fetched {
            let metadata = view.metadata.metadata();
            let stored = metadata.row_group(row_group).column(leaf);
            let root = metadata.file_metadata().schema_descr().get_column_root_idx(leaf);
            let data_type = view.metadata.schema().field(root).data_type();
            let column = described(metadata, (row_group, leaf), data_type, view.keys(root)).ok();
            let opened = column.and_then(|column| {
                let place = roots.iter().position(|known| *known == root)?;
                Some((part.columns[place], shared.chunk(leaf, (&fetched, stored), column)?))
            });
            match opened {
                Some((column, chunk)) => {
                    own_bytes += chunk.held_bytes() as u64;
                    let room: Arc<dyn Room> = Arc::new(TextRoom::new(memory));
                    own.push((column, chunk.reader_within(&room)));
                }
                None => rest.push((leaf, fetched.without_rest(stored))),
            }
        }
        let of_library = |column: &usize| own.iter().all(|(own, _)| own != column);
        let mut of_library: Vec<(usize, usize)> = iter::zip(roots.iter().copied(), part.columns.iter().copied())
            .filter(|(_, column)| of_library(column))
            .collect();
        // The library returns columns in the order of the file.
        of_library.sort_unstable();
        let (library_roots, library_columns): (Vec<usize>, Vec<usize>) = of_library.into_iter().unzip();
        let all_rows = usize::try_from(view.metadata.metadata().row_group(row_group).num_rows()).unwrap_or(0);
        let end = usize::try_from(rows.end).unwrap_or(usize::MAX).min(all_rows);
        let rows_left = end.saturating_sub(skip);
        let rows_left = kept_left.map_or(rows_left, |kept| usize::try_from(kept).unwrap_or(usize::MAX));
        let selectors = match &deleted {
            Some(deleted) => deleted.selection(),
            None if rows_left < all_rows => {
                let mut selectors = vec![RowSelector::skip(skip), RowSelector::select(rows_left)];
                selectors.retain(|selector| selector.row_count > 0);
                selectors
            }
            None => Vec::new(),
        };
        let mut readers: Vec<Box<dyn ColumnsReader>> = Vec::new();
        if own.is_empty() || !library_columns.is_empty() {
            let columns = (library_columns, library_roots.as_slice());
            let (library, bytes) = LibraryColumns::open(view, row_group, columns, rest, selectors, memory)?;
            readers.push(Box::new(library));
            own_bytes += bytes;
        }
        if !own.is_empty() {
            readers.push(Box::new(PageColumns::new(own, skip)));
        }
        Ok((Self { readers, rows_left, block_rows, deleted, ahead: Vec::new() }, own_bytes))
    }

    /// Decodes the next rows; `None` at the end. After an error it must not be called again.
    pub(super) fn next_block(&mut self) -> Result<Option<PartBlock>, PartError> {
        let Some(rows) = self.read_ahead(|_| true)? else { return Ok(None) };
        self.rest(rows, None).map(Some)
    }

    /// Decodes some columns of the next rows, before [`Self::rest`] decodes the others. Returns the number of rows;
    /// `None` at the end.
    pub(super) fn read_ahead(&mut self, is_read: impl Fn(usize) -> bool) -> Result<Option<usize>, PartError> {
        let mut count = self.rows_left.min(self.block_rows);
        // A reader without columns counts the rows.
        let reads = |reader: &&mut Box<dyn ColumnsReader>| {
            reader.columns().is_empty() || reader.columns().iter().any(|column| is_read(*column))
        };
        for reader in self.readers.iter_mut().filter(reads) {
            match reader.begin(count)? {
                Some(rows) => count = rows,
                None => return Ok(None),
            }
        }
        let kept = self.deleted.as_ref().map(|deleted| deleted.kept(count));
        let rows = RowsToRead { count, kept, selected: None };
        for reader in self.readers.iter_mut().filter(reads) {
            reader.read(&rows, &is_read, &mut self.ahead)?;
        }
        Ok((count > 0).then_some(count))
    }

    /// The columns read ahead.
    pub(super) fn ahead(&self) -> &[ReadColumn] {
        &self.ahead
    }

    /// Decodes the other columns of the next rows, all or the selected ones.
    pub(super) fn rest(&mut self, count: usize, selected: Option<&BooleanBuffer>) -> Result<PartBlock, PartError> {
        self.rows_left = self.rows_left.saturating_sub(count);
        let kept = self.deleted.as_mut().map(|deleted| deleted.pass(count));
        let rows = RowsToRead { count, kept, selected };
        let ahead = mem::take(&mut self.ahead);
        let known: Vec<usize> = ahead.iter().map(|(column, _)| *column).collect();
        let is_due = |column: usize| !known.contains(&column);
        let mut arrays = ahead.into_iter().map(|read| rows.of(read)).collect::<Result<Vec<_>, _>>()?;
        for reader in &mut self.readers {
            if reader.columns().iter().any(|column| is_due(*column)) {
                if reader.begin(count)? != Some(count) {
                    return Err((reader.columns().to_vec(), UNEQUAL_ROWS.to_owned()));
                }
                reader.read(&rows, &is_due, &mut arrays)?;
            }
            reader.pass(count);
        }
        Ok(PartBlock { rows: rows.read_count(), arrays })
    }
}

// === impl Deleted ===

impl Deleted {
    /// The rows after the first `skip` kept ones.
    fn after(rows: &Arc<DeletedRows>, skip: u64) -> Self {
        Self { rows: Arc::clone(rows), next: skip, stored: rows.stored_rows(0..skip).end }
    }

    /// Which of the next stored rows are kept, up to the last of the next `count` kept ones.
    fn kept(&self, count: usize) -> BooleanBuffer {
        let end = self.rows.stored_rows(self.next..self.next.saturating_add(count as u64)).end;
        self.rows.kept_of(self.stored..end.max(self.stored))
    }

    /// [`Self::kept`], after which the rows are passed.
    fn pass(&mut self, count: usize) -> BooleanBuffer {
        let kept = self.kept(count);
        self.next = self.next.saturating_add(count as u64);
        self.stored += kept.len() as u64;
        kept
    }

    /// The kept rows from the next one on, for the Parquet library.
    fn selection(&self) -> Vec<RowSelector> {
        let count = |rows: u64| usize::try_from(rows).unwrap_or(usize::MAX);
        let (mut selectors, mut at) = (Vec::new(), 0);
        for run in self.rows.kept_runs(self.stored) {
            selectors
                .extend([RowSelector::skip(count(run.start - at)), RowSelector::select(count(run.end - run.start))]);
            at = run.end;
        }
        if selectors.is_empty() {
            selectors.push(RowSelector::skip(count(self.rows.stored())));
        }
        selectors.retain(|selector| selector.row_count > 0);
        selectors
    }
}
