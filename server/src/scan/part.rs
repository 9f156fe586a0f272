//! Decodes the columns of one part of a row group: most by `forebay_pages`, the others by the Parquet library.

use std::{iter, mem, sync::Arc};

use arrow::{
    array::{Array, ArrayRef, BooleanArray},
    buffer::BooleanBuffer,
    compute::filter,
    datatypes::SchemaRef,
};
use forebay_pages::{ColumnReader, PageError, Room};
use parquet::{
    arrow::arrow_reader::{ParquetRecordBatchReader, RowGroups, RowSelector},
    errors::ParquetError,
};

use super::{
    arrow_part,
    columns::{Fetched, FetchedColumns},
    convert::convert,
    decode_memory::DecodeMemory,
    decoder::described,
    fetch::SharedBytes,
    projection::Part,
    text_room::TextRoom,
    view::View,
};
use crate::{budget::Reservation, catalog::ArrowLayout};

/// Why columns of one row group do not belong together.
pub(super) const UNEQUAL_ROWS: &str = "its columns have different numbers of rows";

/// The columns of a part after the rows already read.
pub(super) struct PartReader {
    /// Columns of the projection, each with its reader.
    own: Vec<(usize, ColumnReader)>,
    /// Rows to pass over before the first chunk.
    skip: usize,
    /// The columns that the Parquet library reads; of a part without columns, their number of rows.
    library: Option<ParquetRecordBatchReader>,
    library_columns: Vec<usize>,
    rows_left: usize,
    chunk_rows: usize,
    /// Columns of an Arrow IPC file, with the rows that are left.
    whole: Vec<(usize, ArrayRef)>,
    /// The memory of their decompressed buffers.
    _decompressed: Vec<Reservation>,
    /// Columns of the next rows that were read before the others, by index in the projection.
    ahead: Vec<(usize, ArrayRef)>,
}

/// Rows of a part's columns.
pub(super) struct PartChunk {
    pub rows: usize,
    /// By index in the projection.
    pub arrays: Vec<(usize, ArrayRef)>,
}

/// Why a part is not decoded: the columns, by index in the projection, and the reason.
pub(super) type PartError = (Vec<usize>, String);

/// A part's reader, and the page bytes that it may hold decompressed.
type Opened = (PartReader, u64);

impl PartReader {
    /// Opens the decoders of a part's columns after the first `skip` rows.
    pub(super) fn open(
        view: &View,
        row_group: usize,
        (part, roots): (&Part, &[usize]),
        fetched: Vec<Fetched>,
        skip: u64,
        (memory, shared): (&Arc<DecodeMemory>, &SharedBytes),
    ) -> Result<Opened, ParquetError> {
        let skip = usize::try_from(skip).unwrap_or(usize::MAX);
        let chunk_rows = usize::try_from(memory.rows()).unwrap_or(usize::MAX);
        if let Some(layout) = &view.arrow {
            let opened = Self::of_arrow(view, (layout, row_group), (part, roots), &fetched, skip, memory);
            return opened.map(|reader| (reader, 0));
        }
        let (mut own, mut own_bytes, mut rest) = (Vec::new(), 0, Vec::new());
        for (leaf, range, bytes) in fetched {
            let metadata = view.metadata.metadata();
            let root = metadata.file_metadata().schema_descr().get_column_root_idx(leaf);
            let data_type = view.metadata.schema().field(root).data_type();
            let column = described(metadata, (row_group, leaf), data_type, view.keys(root)).ok();
            let opened = column.and_then(|column| {
                let place = roots.iter().position(|known| *known == root)?;
                Some((part.columns[place], shared.chunk(leaf, &bytes, column)?))
            });
            match opened {
                Some((column, chunk)) => {
                    own_bytes += chunk.held_bytes() as u64;
                    let room: Arc<dyn Room> = Arc::new(TextRoom::new(memory));
                    own.push((column, chunk.reader_within(&room)));
                }
                None => rest.push((leaf, range, bytes)),
            }
        }
        let of_library = |column: &usize| own.iter().all(|(own, _)| own != column);
        let mut of_library: Vec<(usize, usize)> = iter::zip(roots.iter().copied(), part.columns.iter().copied())
            .filter(|(_, column)| of_library(column))
            .collect();
        // The library returns columns in the order of the file.
        of_library.sort_unstable();
        let (library_roots, library_columns): (Vec<usize>, Vec<usize>) = of_library.into_iter().unzip();
        let all_rows = view.metadata.metadata().row_group(row_group).num_rows();
        let rows_left = usize::try_from(all_rows).unwrap_or(0).saturating_sub(skip);
        let mut opened = Self {
            own,
            skip,
            library: None,
            library_columns,
            rows_left,
            chunk_rows,
            whole: Vec::new(),
            _decompressed: Vec::new(),
            ahead: Vec::new(),
        };
        if opened.own.is_empty() || !opened.library_columns.is_empty() {
            let (reader, bytes) = library(view, row_group, &library_roots, rest, skip, memory)?;
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
        for (column, reader) in self.own.iter_mut().filter(|(column, _)| is_read(*column)) {
            self.ahead.push((*column, checked(*column, rows, reader.read(rows))?));
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
        let due = self.own.iter_mut().filter(|(column, _)| !is_among(&arrays, *column));
        let Some(selected) = selected else {
            let read = due.map(|(column, reader)| Ok((*column, checked(*column, rows, reader.read(rows))?)));
            let read = read.collect::<Result<Vec<_>, PartError>>()?;
            arrays.extend(read);
            return Ok(PartChunk { rows, arrays });
        };
        let (mask, kept) = (BooleanArray::new(selected.clone(), None), selected.count_set_bits());
        let read = due.map(|(column, reader)| Ok((*column, checked(*column, kept, reader.read_selected(selected))?)));
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

fn is_among(arrays: &[(usize, ArrayRef)], column: usize) -> bool {
    arrays.iter().any(|(known, _)| *known == column)
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
    skip: usize,
    memory: &Arc<DecodeMemory>,
) -> Result<(ParquetRecordBatchReader, u64), ParquetError> {
    let (metadata, schema) = (Arc::clone(view.metadata.metadata()), SchemaRef::clone(view.metadata.schema()));
    let columns = FetchedColumns::new(metadata, row_group, fetched, schema, view.int96, Arc::clone(memory))?;
    let rest = columns.num_rows().saturating_sub(skip);
    let selection = (skip > 0).then(|| vec![RowSelector::skip(skip), RowSelector::select(rest)].into());
    let levels = view.levels(roots)?;
    let chunk_rows = usize::try_from(memory.rows()).unwrap_or(usize::MAX);
    let reader = ParquetRecordBatchReader::try_new_with_row_groups(&levels, &columns, chunk_rows, selection)?;
    Ok((reader, columns.page_bytes()))
}
