//! Decodes the columns of one part of a row group: most by `forebay_pages`, the others by the Parquet library.

use std::{iter, mem, ops::Range, sync::Arc};

use arrow::{
    array::{Array, ArrayRef, BooleanArray, BooleanBufferBuilder},
    buffer::BooleanBuffer,
    compute::filter,
    datatypes::SchemaRef,
};
use forebay_pages::{ColumnReader, PageError, Room};
use parquet::{
    arrow::arrow_reader::{ParquetRecordBatchReader, RowSelector},
    errors::ParquetError,
};

use super::{
    arrow_part,
    columns::{Fetched, FetchedColumns},
    convert::convert,
    decode_memory::DecodeMemory,
    decoder::described,
    projection::Part,
    shared::SharedBytes,
    text_room::TextRoom,
    view::View,
};
use crate::{
    budget::Reservation,
    catalog::{ArrowLayout, DeletedRows},
};

/// Why columns of one row group do not belong together.
pub(super) const UNEQUAL_ROWS: &str = "its columns have different numbers of rows";

/// The columns of a part after the rows already read.
pub(super) struct PartReader {
    /// Columns of the projection, each with its reader.
    own: Vec<(usize, ColumnReader)>,
    /// Rows to pass over before the first chunk.
    skip: usize,
    /// The columns that the Parquet library reads; for a part without columns, their number of rows.
    library: Option<ParquetRecordBatchReader>,
    library_columns: Vec<usize>,
    rows_left: usize,
    chunk_rows: usize,
    /// Columns of an Arrow IPC file, with the rows that are left.
    whole: Vec<(usize, ArrayRef)>,
    /// The memory of their decompressed buffers.
    _decompressed: Vec<Reservation>,
    /// The deleted rows, which are decoded and dropped; `None` if there are none.
    deleted: Option<Deleted>,
    /// Columns of the next rows that were read before the others, by index in the projection.
    ahead: Vec<(usize, ArrayRef)>,
}

/// Rows of a part's columns.
pub(super) struct PartChunk {
    pub rows: usize,
    /// By index in the projection.
    pub arrays: Vec<(usize, ArrayRef)>,
}

/// The deleted rows of the row group, and the place of the next row.
struct Deleted {
    rows: Arc<DeletedRows>,
    /// The next row among the kept ones.
    next: u64,
    /// The next row that the readers decode, among the stored ones.
    stored: u64,
}

/// Why a part is not decoded: the columns, by index in the projection, and the reason.
pub(super) type PartError = (Vec<usize>, String);

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
        let chunk_rows = usize::try_from(memory.rows()).unwrap_or(usize::MAX);
        if let Some(layout) = &view.arrow {
            let opened = Self::of_arrow(view, (layout, row_group), (part, roots), &fetched, skip, memory);
            return opened.map(|reader| (reader, 0));
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
        let selection = match &deleted {
            Some(deleted) => deleted.selection(),
            None if rows_left < all_rows => {
                let mut selectors = vec![RowSelector::skip(skip), RowSelector::select(rows_left)];
                selectors.retain(|selector| selector.row_count > 0);
                selectors
            }
            None => Vec::new(),
        };
        let mut opened = Self {
            own,
            skip,
            library: None,
            library_columns,
            rows_left,
            chunk_rows,
            whole: Vec::new(),
            _decompressed: Vec::new(),
            deleted,
            ahead: Vec::new(),
        };
        if opened.own.is_empty() || !opened.library_columns.is_empty() {
            let (reader, bytes) = library(view, row_group, &library_roots, rest, selection, memory)?;
            opened.library = Some(reader);
            own_bytes += bytes;
        }
        Ok((opened, own_bytes))
    }

    /// Opens the columns of a record batch.
    fn of_arrow(
        view: &View,
        (layout, batch): (&ArrowLayout, usize),
        (part, roots): (&Part, &[usize]),
        fetched: &[Fetched],
        skip: usize,
        memory: &Arc<DecodeMemory>,
    ) -> Result<Self, ParquetError> {
        let rows = layout.batches[batch].rows;
        let skipped = skip.min(rows);
        let (mut whole, mut reserved) = (Vec::with_capacity(roots.len()), Vec::new());
        for (root, column) in iter::zip(roots, &part.columns) {
            let decoded = arrow_part::decode(layout, batch, *root, fetched, memory, &mut reserved);
            let wanted = view.metadata.schema().field(*root).data_type();
            let array = decoded.and_then(|array| convert(&array, wanted).map_err(|error| error.to_string()));
            let array = array.map_err(ParquetError::General)?;
            whole.push((*column, array.slice(skipped, rows - skipped)));
        }
        Ok(Self {
            own: Vec::new(),
            skip: 0,
            library: None,
            library_columns: Vec::new(),
            rows_left: rows - skipped,
            chunk_rows: usize::try_from(memory.rows()).unwrap_or(usize::MAX),
            whole,
            _decompressed: reserved,
            deleted: None,
            ahead: Vec::new(),
        })
    }

    /// Decodes the next rows; `None` at the end. After an error it must not be called again.
    pub(super) fn next_chunk(&mut self) -> Result<Option<PartChunk>, PartError> {
        let Some(rows) = self.read_ahead(|_| true)? else { return Ok(None) };
        self.rest(rows, None).map(Some)
    }

    /// Decodes some columns of the next rows, before [`Self::rest`] decodes the others. Returns the number of rows;
    /// `None` at the end.
    pub(super) fn read_ahead(&mut self, is_read: impl Fn(usize) -> bool) -> Result<Option<usize>, PartError> {
        self.skip_first()?;
        let mut rows = self.rows_left.min(self.chunk_rows);
        let is_of_library =
            self.library_columns.is_empty() || self.library_columns.iter().any(|column| is_read(*column));
        if self.library.is_some() && is_of_library {
            match self.read_library()? {
                Some(read) => rows = read,
                None => return Ok(None),
            }
        }
        for (column, array) in self.whole.iter().filter(|(column, _)| is_read(*column)) {
            self.ahead.push((*column, array.slice(0, rows.min(array.len()))));
        }
        let kept = self.deleted.as_ref().map(|deleted| deleted.kept(rows));
        for (column, reader) in self.own.iter_mut().filter(|(column, _)| is_read(*column)) {
            self.ahead.push((*column, checked(*column, rows, read(reader, rows, kept.as_ref()))?));
        }
        Ok((rows > 0).then_some(rows))
    }

    /// The columns read ahead.
    pub(super) fn ahead(&self) -> &[(usize, ArrayRef)] {
        &self.ahead
    }

    /// Decodes the other columns of the next rows, all or the selected ones.
    pub(super) fn rest(&mut self, rows: usize, selected: Option<&BooleanBuffer>) -> Result<PartChunk, PartError> {
        self.skip_first()?;
        let is_library_due = self.library_columns.iter().any(|column| !is_among(&self.ahead, *column));
        if is_library_due && self.read_library()? != Some(rows) {
            return Err((self.library_columns.clone(), UNEQUAL_ROWS.to_owned()));
        }
        self.rows_left = self.rows_left.saturating_sub(rows);
        let mut arrays = mem::take(&mut self.ahead);
        for (column, array) in &mut self.whole {
            let taken = rows.min(array.len());
            if !is_among(&arrays, *column) {
                arrays.push((*column, array.slice(0, taken)));
            }
            *array = array.slice(taken, array.len() - taken);
        }
        let stored = self.deleted.as_mut().map(|deleted| deleted.pass(rows));
        let due = self.own.iter_mut().filter(|(column, _)| !is_among(&arrays, *column));
        let Some(selected) = selected else {
            let read =
                due.map(|(column, reader)| Ok((*column, checked(*column, rows, read(reader, rows, stored.as_ref()))?)));
            let read = read.collect::<Result<Vec<_>, PartError>>()?;
            arrays.extend(read);
            return Ok(PartChunk { rows, arrays });
        };
        let (mask, kept) = (BooleanArray::new(selected.clone(), None), selected.count_set_bits());
        let stored = stored.map_or_else(|| selected.clone(), |stored| spread(selected, &stored));
        let read = due.map(|(column, reader)| Ok((*column, checked(*column, kept, reader.read_selected(&stored))?)));
        let read = read.collect::<Result<Vec<_>, PartError>>()?;
        for (column, array) in &mut arrays {
            *array = filter(array, &mask).map_err(|error| (vec![*column], error.to_string()))?;
        }
        arrays.extend(read);
        Ok(PartChunk { rows: kept, arrays })
    }

    fn skip_first(&mut self) -> Result<(), PartError> {
        let skip = mem::take(&mut self.skip);
        if skip > 0 {
            for (column, reader) in &mut self.own {
                reader.skip(skip).map_err(|error| (vec![*column], error.to_string()))?;
            }
        }
        Ok(())
    }

    /// Decodes the next rows of the library's columns. Returns their number; `None` at the end.
    fn read_library(&mut self) -> Result<Option<usize>, PartError> {
        let Some(library) = &mut self.library else { return Ok(None) };
        let damaged =
            |source: arrow::error::ArrowError| (self.library_columns.clone(), ParquetError::from(source).to_string());
        let Some(chunk) = library.next().transpose().map_err(damaged)? else { return Ok(None) };
        self.ahead.extend(self.library_columns.iter().copied().zip(chunk.columns().iter().cloned()));
        Ok(Some(chunk.num_rows()))
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

/// The stored rows of a selection of the kept ones.
fn spread(selected: &BooleanBuffer, kept: &BooleanBuffer) -> BooleanBuffer {
    let mut bits = BooleanBufferBuilder::new(kept.len());
    bits.append_n(kept.len(), false);
    for (stored, is_selected) in kept.set_indices().zip(selected) {
        bits.set_bit(stored, is_selected);
    }
    bits.finish()
}

fn is_among(arrays: &[(usize, ArrayRef)], column: usize) -> bool {
    arrays.iter().any(|(known, _)| *known == column)
}

/// The next rows, or the kept ones of the next stored rows.
fn read(reader: &mut ColumnReader, rows: usize, kept: Option<&BooleanBuffer>) -> Result<ArrayRef, PageError> {
    match kept {
        Some(kept) => reader.read_selected(kept),
        None => reader.read(rows),
    }
}

/// An array of `rows` rows.
fn checked(column: usize, rows: usize, read: Result<ArrayRef, PageError>) -> Result<ArrayRef, PartError> {
    let array = read.map_err(|error| (vec![column], error.to_string()))?;
    if array.len() == rows { Ok(array) } else { Err((vec![column], UNEQUAL_ROWS.to_owned())) }
}

/// A decoder of these roots by the Parquet library, and the page bytes that it may hold decompressed.
fn library(
    view: &View,
    row_group: usize,
    roots: &[usize],
    fetched: Vec<Fetched>,
    selection: Vec<RowSelector>,
    memory: &Arc<DecodeMemory>,
) -> Result<(ParquetRecordBatchReader, u64), ParquetError> {
    let (metadata, schema) = (Arc::clone(view.metadata.metadata()), SchemaRef::clone(view.metadata.schema()));
    let columns = FetchedColumns::new(metadata, row_group, fetched, schema, view.int96, Arc::clone(memory))?;
    let selection = (!selection.is_empty()).then(|| selection.into());
    let levels = view.levels(roots)?;
    let chunk_rows = usize::try_from(memory.rows()).unwrap_or(usize::MAX);
    let reader = ParquetRecordBatchReader::try_new_with_row_groups(&levels, &columns, chunk_rows, selection)?;
    Ok((reader, columns.page_bytes()))
}
