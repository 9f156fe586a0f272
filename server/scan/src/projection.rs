//! The columns to read, and estimates of the memory that reading them needs.

use std::{
    cmp::Reverse,
    ops::Range,
    sync::{Arc, Mutex, PoisonError},
};

use arrow::datatypes::{DataType, Schema, SchemaRef};
use forebay_catalog::{RowGroup, Snapshot};
use parquet::{
    arrow::arrow_reader::ArrowReaderMetadata, basic::Encoding, errors::ParquetError,
    file::metadata::ColumnChunkMetaData,
};

use super::{
    pages,
    view::{self, View},
};

/// The most rows per block: enough to amortize the cost per call, few enough that a block fits the L2 cache.
pub const BLOCK_ROWS_MAX: usize = 8192;

/// Target size of a block: rows with long strings or lists are decoded in smaller blocks.
const BLOCK_BYTES: u64 = 16 << 20;

/// Weight of a column in addition to its bytes when columns are divided among threads.
const COLUMN_WEIGHT: u64 = 1 << 10;

/// Views that a projection caches: one per file read at the same time.
const VIEWS_KEPT_MAX: usize = 32;

/// The columns of a snapshot to read, in the order of its schema.
#[derive(Clone, Debug)]
pub struct Projection {
    indices: Vec<usize>,
    schema: SchemaRef,
    /// Whether dictionaries are read with the keys of the snapshot's wide schema.
    is_wide: bool,
    /// Projection indices of the columns that may be read as dictionaries: see [`Projection::with_keys`].
    keyable: Vec<usize>,
    /// Bytes of a row that are computed from these columns before outputs are, such as those of decoded images.
    computed_row_bytes: u64,
    views: Arc<Mutex<Vec<Arc<View>>>>,
}

/// A subset of a projection's columns, decoded by one thread at a time.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Part {
    /// Their indices in the projection, ascending.
    pub columns: Vec<usize>,
    /// Their weight.
    bytes: u64,
}

// === impl Projection ===

impl Projection {
    /// The columns of these indices, which must be ascending, as plans read them.
    pub fn new(snapshot: &Snapshot, indices: Vec<usize>) -> Self {
        let stored = snapshot.wide_schema();
        let fields: Vec<_> = indices.iter().map(|index| Arc::clone(&stored.fields()[*index])).collect();
        let schema = Arc::new(Schema::new_with_metadata(fields, stored.metadata().clone()));
        Self { indices, schema, is_wide: true, keyable: Vec::new(), computed_row_bytes: 0, views: Arc::default() }
    }

    /// The columns of these indices, which must be ascending, as stored.
    pub fn stored(snapshot: &Snapshot, indices: Vec<usize>) -> Self {
        let stored = snapshot.schema();
        let fields: Vec<_> = indices.iter().map(|index| Arc::clone(&stored.fields()[*index])).collect();
        let schema = Arc::new(Schema::new_with_metadata(fields, stored.metadata().clone()));
        Self { indices, schema, is_wide: false, keyable: Vec::new(), computed_row_bytes: 0, views: Arc::default() }
    }

    /// The same projection, with columns of text, bytes and numbers that `may` be keyed read as dictionaries of int32
    /// keys in row groups that store only dictionary pages: ops then compute each distinct value once.
    #[must_use]
    pub fn with_keys(self, may: impl Fn(&str) -> bool) -> Self {
        let is_keyable = |kind: &DataType| {
            let is_text =
                matches!(kind, DataType::Utf8 | DataType::LargeUtf8 | DataType::Binary | DataType::LargeBinary);
            is_text || is_keyed_number(kind)
        };
        let fields = self.schema.fields().iter().enumerate();
        let keyable = fields.filter(|(_, field)| is_keyable(field.data_type()) && may(field.name()));
        Self { keyable: keyable.map(|(column, _)| column).collect(), ..self }
    }

    /// The same projection, with blocks of fewer rows if this many bytes are computed from a row before outputs are.
    #[must_use]
    pub fn with_computed_bytes(self, computed_row_bytes: u64) -> Self {
        Self { computed_row_bytes, ..self }
    }

    /// The indices of the columns in the stored schema, ascending.
    pub(super) fn columns(&self) -> &[usize] {
        &self.indices
    }

    /// The schema of the columns; [`Projection::with_keys`] columns may be read as dictionaries of these types.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Compressed bytes of these columns in a row group.
    pub fn stored_bytes(&self, snapshot: &Snapshot, row_group: &RowGroup) -> u64 {
        self.sum_chunks(snapshot, row_group, ColumnChunkMetaData::compressed_size)
    }

    /// Mean uncompressed bytes per row in the files, rounded up, plus a length per column. Counts strings at full
    /// length, also those in dictionaries, where the writer recorded it.
    pub fn row_bytes(&self, snapshot: &Snapshot) -> u64 {
        const LENGTH_BYTES: u64 = 8;
        if self.indices.is_empty() {
            return 0;
        }
        let sum = |bytes: u64, group| bytes.saturating_add(self.sum_chunks(snapshot, group, value_bytes));
        let bytes = snapshot.row_groups().iter().fold(0, sum);
        bytes.div_ceil(snapshot.row_count().max(1)) + LENGTH_BYTES * self.indices.len() as u64
    }

    /// Rows per block of a row group, at least 1. Depends on the row group alone, so that block boundaries are the same
    /// for every start position.
    pub fn block_rows(&self, snapshot: &Snapshot, row_group: &RowGroup) -> u64 {
        let bytes = self.sum_chunks(snapshot, row_group, value_bytes);
        let rows = row_group.rows.end - row_group.rows.start;
        let row_bytes = bytes.checked_div(rows).unwrap_or(0).saturating_add(self.computed_row_bytes).max(1);
        (BLOCK_BYTES / row_bytes).clamp(1, BLOCK_ROWS_MAX as u64)
    }

    /// Estimated bytes of a decoded block of a row group.
    pub fn block_bytes(&self, snapshot: &Snapshot, row_group: &RowGroup) -> u64 {
        /// The largest decoded fixed-width value; dictionaries make stored values smaller.
        const VALUE_BYTES: u64 = 32;
        let bytes = self.sum_chunks(snapshot, row_group, value_bytes);
        let rows = (row_group.rows.end - row_group.rows.start).max(1);
        let block_rows = self.block_rows(snapshot, row_group).min(rows);
        let fixed = block_rows * VALUE_BYTES * self.indices.len().max(1) as u64;
        fixed.saturating_add((bytes / rows).saturating_mul(block_rows))
    }

    /// Bytes that the decoders of one reader of a row group hold: a dictionary and a page for each column.
    pub fn decoder_bytes(&self, snapshot: &Snapshot, row_group: &RowGroup) -> u64 {
        /// Common target size of dictionaries and pages.
        const PAGE_BYTES: i64 = 1 << 20;
        self.sum_chunks(snapshot, row_group, |chunk| {
            let uncompressed = chunk.uncompressed_size().max(0);
            // The dictionary precedes the data pages. Its compression ratio is not recorded: assumes that of the chunk.
            let dictionary = chunk.dictionary_page_offset().map_or(0, |start| {
                let stored = chunk.data_page_offset().saturating_sub(start).max(0);
                let ratio = uncompressed as f64 / chunk.compressed_size().max(1) as f64;
                ((stored as f64 * ratio.max(1.0)) as i64).max(PAGE_BYTES)
            });
            uncompressed.min(dictionary.saturating_add(PAGE_BYTES))
        })
    }

    /// Divides the columns that a file has into at most `count` parts of about equal weight. Only if it has none is a
    /// part empty.
    pub(super) fn parts(&self, snapshot: &Snapshot, row_group: &RowGroup, count: usize) -> Vec<Part> {
        let columns = snapshot.columns_of(row_group.file_index);
        let present: Vec<usize> =
            (0..self.indices.len()).filter(|column| columns.root(self.indices[*column]).is_some()).collect();
        let mut weights = vec![COLUMN_WEIGHT; self.indices.len()];
        self.each_chunk(snapshot, row_group, |column, _, chunk| {
            weights[column] += u64::try_from(chunk.uncompressed_size()).unwrap_or(0);
        });
        split(&weights, present, count)
    }

    /// The file's root column indices of a part.
    pub(super) fn roots(&self, snapshot: &Snapshot, row_group: &RowGroup, part: &Part) -> Vec<usize> {
        let columns = snapshot.columns_of(row_group.file_index);
        part.columns.iter().filter_map(|column| columns.root(self.indices[*column])).collect()
    }

    /// The leaf columns of a part and the ranges of their chunks as declared in the footer; an invalid range is empty.
    pub(super) fn leaves(&self, snapshot: &Snapshot, row_group: &RowGroup, part: &Part) -> Vec<(usize, Range<u64>)> {
        let mut leaves = Vec::new();
        self.each_chunk(snapshot, row_group, |column, leaf, chunk| {
            if part.columns.binary_search(&column).is_ok() {
                leaves.push((leaf, pages::file_range(chunk).unwrap_or(0..0)));
            }
        });
        leaves
    }

    /// The view to read a row group with.
    pub(super) fn view(&self, snapshot: &Snapshot, row_group: &RowGroup) -> Result<Arc<View>, ParquetError> {
        let keyed = self.keyed(snapshot, row_group);
        let mut views = self.views.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = views.iter().find(|view| view.is_of(row_group.file_index, &keyed)) {
            return Ok(Arc::clone(known));
        }
        // Files share one schema, so that work prepared for a schema is reused.
        let shared = views.iter().find(|view| view.has_keys(&keyed)).map(|view| SchemaRef::clone(&view.schema));
        let schema = shared.unwrap_or_else(|| view::with_dictionaries(&self.schema, &keyed));
        let footer = self.footer(snapshot, row_group);
        let view = Arc::new(View::new(snapshot, row_group.file_index, footer, (&self.indices, schema), keyed)?);
        views.insert(0, Arc::clone(&view));
        views.truncate(VIEWS_KEPT_MAX);
        Ok(view)
    }

    /// The footer of a row group's file, with its schema as this projection reads it, before columns are keyed or
    /// converted.
    fn footer<'a>(&self, snapshot: &'a Snapshot, row_group: &RowGroup) -> &'a ArrowReaderMetadata {
        let file = snapshot.file_of(row_group);
        if self.is_wide { file.wide_metadata() } else { file.metadata() }
    }

    /// The keyable columns for which a row group has only dictionary-encoded pages.
    pub(super) fn keyed(&self, snapshot: &Snapshot, row_group: &RowGroup) -> Vec<usize> {
        // A text of the folder's name is a dictionary of one value.
        let is_constant = |column: &usize| {
            let (index, wanted) = (self.indices[*column], self.schema.field(*column).data_type());
            snapshot.is_partition(index) && !is_keyed_number(wanted)
        };
        let mut keyed: Vec<usize> = self.keyable.iter().copied().filter(is_constant).collect();
        if !self.keyable.is_empty() {
            let (columns, stored) =
                (snapshot.columns_of(row_group.file_index), self.footer(snapshot, row_group).schema());
            self.each_chunk(snapshot, row_group, |column, _, chunk| {
                let wanted = self.schema.field(column).data_type();
                // A number of another type is converted after it is decoded, which would repeat for every dictionary.
                let is_number_of_file = || {
                    let root = columns.root(self.indices[column]);
                    repeats(chunk) && root.is_some_and(|root| stored.field(root).data_type() == wanted)
                };
                if self.keyable.binary_search(&column).is_ok()
                    && is_all_dictionary(chunk)
                    && (!is_keyed_number(wanted) || is_number_of_file())
                {
                    keyed.push(column);
                }
            });
        }
        keyed.sort_unstable();
        keyed
    }

    fn sum_chunks(&self, snapshot: &Snapshot, row_group: &RowGroup, size: fn(&ColumnChunkMetaData) -> i64) -> u64 {
        let mut sum = 0_u64;
        self.each_chunk(snapshot, row_group, |_, _, chunk| {
            sum = sum.saturating_add(u64::try_from(size(chunk)).unwrap_or(0));
        });
        sum
    }

    /// Calls `call` with every column chunk to read: its column's index in the projection, its leaf index and its
    /// metadata.
    pub(super) fn each_chunk(
        &self,
        snapshot: &Snapshot,
        row_group: &RowGroup,
        mut call: impl FnMut(usize, usize, &ColumnChunkMetaData),
    ) {
        let metadata = snapshot.file_of(row_group).metadata().metadata();
        let leaves = metadata.file_metadata().schema_descr();
        let group = metadata.row_group(row_group.index_in_file);
        let columns = snapshot.columns_of(row_group.file_index);
        for (leaf, chunk) in group.columns().iter().enumerate() {
            let column = columns.column(leaves.get_column_root_idx(leaf));
            if let Some(Ok(column)) = column.map(|column| self.indices.binary_search(&column)) {
                call(column, leaf, chunk);
            }
        }
    }
}

/// Bytes of a chunk's decoded values, if the writer recorded them: a dictionary stores a repeated string once.
fn value_bytes(chunk: &ColumnChunkMetaData) -> i64 {
    chunk.uncompressed_size().max(chunk.unencoded_byte_array_data_bytes().unwrap_or(0))
}

/// Whether every data page of a chunk is dictionary-encoded. Without the writer's encoding statistics the answer is no,
/// as most writers fall back to plain pages when a dictionary grows.
fn is_all_dictionary(chunk: &ColumnChunkMetaData) -> bool {
    chunk.dictionary_page_offset().is_some()
        && chunk
            .page_encoding_stats_mask()
            .is_some_and(|pages| pages.is_only(Encoding::RLE_DICTIONARY) || pages.is_only(Encoding::PLAIN_DICTIONARY))
}

/// Numbers that are stored as they are in memory, so that a dictionary of them is read without a conversion.
fn is_keyed_number(data_type: &DataType) -> bool {
    use DataType as T;
    matches!(
        data_type,
        T::Int32 | T::Int64 | T::UInt32 | T::UInt64 | T::Float32 | T::Float64 | T::Date32 | T::Timestamp(..)
    )
}

/// Whether the values of a chunk repeat often: mapping a dictionary that is nearly as long as the column does not pay.
fn repeats(chunk: &ColumnChunkMetaData) -> bool {
    // A value has at least four bytes: the dictionary has at most a quarter as many values as the column.
    let stored =
        chunk.dictionary_page_offset().map_or(i64::MAX, |start| chunk.data_page_offset().saturating_sub(start));
    stored <= chunk.num_values()
}

/// Divides columns into at most `count` parts: the heaviest first, each into the lightest part so far.
fn split(weights: &[u64], mut columns: Vec<usize>, count: usize) -> Vec<Part> {
    let mut parts: Vec<Part> = (0..count.clamp(1, columns.len().max(1))).map(|_| Part::default()).collect();
    columns.sort_by_key(|column| (Reverse(weights[*column]), *column));
    for column in columns {
        if let Some(lightest) = parts.iter_mut().min_by_key(|part| part.bytes) {
            lightest.bytes = lightest.bytes.saturating_add(weights[column]);
            lightest.columns.push(column);
        }
    }
    for part in &mut parts {
        part.columns.sort_unstable();
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn divides_columns_into_parts_of_about_equal_weight() {
        let columns = |weights: &[u64], count| {
            let parts = split(weights, (0..weights.len()).collect(), count);
            parts.into_iter().map(|part| part.columns).collect::<Vec<_>>()
        };
        assert_eq!(columns(&[5, 1, 1, 3], 2), [vec![0], vec![1, 2, 3]]);
        assert_eq!(columns(&[u64::MAX, u64::MAX, 1], 2), [vec![0, 2], vec![1]]);
        assert_eq!(columns(&[2, 2, 2], 8), [vec![0], vec![1], vec![2]]);
        assert_eq!(columns(&[2, 2, 2], 1), [vec![0, 1, 2]]);
        assert_eq!(columns(&[], 3), [Vec::<usize>::new()]);
    }
}
