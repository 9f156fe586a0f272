//! Which columns are read, and what reading them takes.

use std::{
    cmp::Reverse,
    ops::Range,
    sync::{Arc, Mutex, PoisonError},
};

use arrow::datatypes::{DataType, FieldRef, Schema, SchemaRef};
use parquet::{
    arrow::{
        FieldLevels, ProjectionMask,
        arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions},
        parquet_to_arrow_field_levels,
    },
    basic::Encoding,
    errors::ParquetError,
    file::metadata::ColumnChunkMetaData,
    schema::types::SchemaDescPtr,
};

use super::{intervals::Intervals, pages};
use crate::catalog::{Int96Unit, RowGroup, Snapshot};

/// The most rows decoded at a time: so many that the work per call vanishes, so few that a chunk stays in the L2 cache.
pub const CHUNK_ROWS_MAX: usize = 8192;

/// Bytes that a chunk should not exceed: rows with long texts or lists come fewer at a time.
const CHUNK_BYTES: u64 = 16 << 20;

/// What a column weighs beside its bytes where columns are shared out among threads.
const COLUMN_WEIGHT: u64 = 1 << 10;

/// Views that a projection keeps at hand: those of as many files as are read at a time.
const VIEWS_KEPT_MAX: usize = 32;

/// Sets of columns that a view keeps the levels of: the parts of a row group or two.
const LEVELS_KEPT_MAX: usize = 16;

/// Columns of a snapshot that are read, in stored order.
#[derive(Clone, Debug)]
pub struct Projection {
    indices: Vec<usize>,
    schema: SchemaRef,
    /// Whether dictionaries are read with the keys of the snapshot's wide schema.
    is_wide: bool,
    /// Places of the columns that may come as dictionaries where they are stored so: see [`Projection::with_keys`].
    keyable: Vec<usize>,
    views: Arc<Mutex<Vec<Arc<View>>>>,
}

/// How a row group's columns are read: a file's footer under a schema.
#[derive(Debug)]
pub(super) struct View {
    file_index: usize,
    keyed: Vec<usize>,
    pub metadata: ArrowReaderMetadata,
    /// The file's columns as the decoder reads them.
    decoded: SchemaDescPtr,
    /// How the bytes of intervals are read.
    pub intervals: Intervals,
    /// The unit that INT96 is read in.
    pub int96: Int96Unit,
    /// The schema of the projection's columns.
    pub schema: SchemaRef,
    /// How columns of these roots are put together from the file's leaves.
    levels: Mutex<Vec<(Vec<usize>, Arc<FieldLevels>)>>,
}

/// Some of a projection's columns, to be decoded by one thread while others decode the rest.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Part {
    /// Where they stand in the projection. They rise.
    pub places: Vec<usize>,
    /// What they weigh.
    bytes: u64,
}

// === impl Projection ===

impl Projection {
    /// The columns of these indices, which must rise, as plans read them.
    pub fn new(snapshot: &Snapshot, indices: Vec<usize>) -> Self {
        let stored = snapshot.wide_schema();
        let fields: Vec<_> = indices.iter().map(|index| Arc::clone(&stored.fields()[*index])).collect();
        let schema = Arc::new(Schema::new_with_metadata(fields, stored.metadata().clone()));
        Self { indices, schema, is_wide: true, keyable: Vec::new(), views: Arc::default() }
    }

    /// Every column as stored.
    pub fn all(snapshot: &Snapshot) -> Self {
        let schema = SchemaRef::clone(snapshot.schema());
        let indices = (0..schema.fields().len()).collect();
        Self { indices, schema, is_wide: false, keyable: Vec::new(), views: Arc::default() }
    }

    /// The same, but texts and bytes of columns that `may` come as dictionaries of int32 keys, in row groups that store
    /// them as nothing else: what such a column's values become is then worked out once for each distinct one.
    #[must_use]
    pub fn with_keys(self, may: impl Fn(&str) -> bool) -> Self {
        let is_text = |kind: &DataType| {
            matches!(kind, DataType::Utf8 | DataType::LargeUtf8 | DataType::Binary | DataType::LargeBinary)
        };
        let fields = self.schema.fields().iter().enumerate();
        let keyable = fields.filter(|(_, field)| is_text(field.data_type()) && may(field.name()));
        Self { keyable: keyable.map(|(place, _)| place).collect(), ..self }
    }

    /// The schema of what is read; columns may come as dictionaries of what it says.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Compressed bytes of these columns in a row group.
    pub fn stored_bytes(&self, snapshot: &Snapshot, row_group: &RowGroup) -> u64 {
        self.sum_chunks(snapshot, row_group, ColumnChunkMetaData::compressed_size)
    }

    /// Bytes that a row of these columns has in the files, uncompressed: the mean, rounded up. Texts have at least their
    /// length's bytes, whatever a dictionary makes of them.
    pub fn row_bytes(&self, snapshot: &Snapshot) -> u64 {
        const LENGTH_BYTES: u64 = 8;
        if self.indices.is_empty() {
            return 0;
        }
        let sum = |bytes: u64, group| bytes.saturating_add(self.sum_chunks(snapshot, group, value_bytes));
        let bytes = snapshot.row_groups().iter().fold(0, sum);
        bytes.div_ceil(snapshot.row_count().max(1)) + LENGTH_BYTES * self.indices.len() as u64
    }

    /// Rows of a row group that are decoded at a time: always the same, so that chunks end at the same rows wherever
    /// a stream begins. At least 1.
    pub fn chunk_rows(&self, snapshot: &Snapshot, row_group: &RowGroup) -> u64 {
        let bytes = self.sum_chunks(snapshot, row_group, value_bytes);
        let rows = row_group.rows.end - row_group.rows.start;
        let row_bytes = bytes.checked_div(rows).unwrap_or(0).max(1);
        (CHUNK_BYTES / row_bytes).clamp(1, CHUNK_ROWS_MAX as u64)
    }

    /// Bytes of a decoded chunk of a row group, about.
    pub fn chunk_bytes(&self, snapshot: &Snapshot, row_group: &RowGroup) -> u64 {
        /// Decoded values of a fixed width are at most this large; dictionaries make stored ones smaller than they are.
        const VALUE_BYTES: u64 = 32;
        let bytes = self.sum_chunks(snapshot, row_group, value_bytes);
        let rows = (row_group.rows.end - row_group.rows.start).max(1);
        let chunk_rows = self.chunk_rows(snapshot, row_group).min(rows);
        let fixed = chunk_rows * VALUE_BYTES * self.indices.len().max(1) as u64;
        fixed.saturating_add((bytes / rows).saturating_mul(chunk_rows))
    }

    /// Bytes that the decoders of these columns hold for one reader of a row group: each column's dictionary, and a page.
    pub fn decoder_bytes(&self, snapshot: &Snapshot, row_group: &RowGroup) -> u64 {
        /// The size that writers aim at for dictionaries and pages.
        const PAGE_BYTES: i64 = 1 << 20;
        self.sum_chunks(snapshot, row_group, |chunk| {
            let uncompressed = chunk.uncompressed_size().max(0);
            // The dictionary lies before the data. How well it is compressed is not said: as well as the rest.
            let dictionary = chunk.dictionary_page_offset().map_or(0, |start| {
                let stored = chunk.data_page_offset().saturating_sub(start).max(0);
                let ratio = uncompressed as f64 / chunk.compressed_size().max(1) as f64;
                ((stored as f64 * ratio.max(1.0)) as i64).max(PAGE_BYTES)
            });
            uncompressed.min(dictionary.saturating_add(PAGE_BYTES))
        })
    }

    /// The columns in at most so many parts of about equal weight. No part is empty, but for the one of no columns.
    pub(super) fn parts(&self, snapshot: &Snapshot, row_group: &RowGroup, count: usize) -> Vec<Part> {
        let mut weights = vec![COLUMN_WEIGHT; self.indices.len()];
        self.each_chunk(snapshot, row_group, |place, _, chunk| {
            weights[place] += u64::try_from(chunk.uncompressed_size()).unwrap_or(0);
        });
        split(&weights, count)
    }

    /// A part's columns, as the file counts its own.
    pub(super) fn roots(&self, part: &Part) -> Vec<usize> {
        part.places.iter().map(|place| self.indices[*place]).collect()
    }

    /// The leaves of a part's columns, and where the file's footer says that their chunks lie: nowhere where it tells
    /// nonsense.
    pub(super) fn leaves(&self, snapshot: &Snapshot, row_group: &RowGroup, part: &Part) -> Vec<(usize, Range<u64>)> {
        let mut leaves = Vec::new();
        self.each_chunk(snapshot, row_group, |place, leaf, chunk| {
            if part.places.binary_search(&place).is_ok() {
                leaves.push((leaf, pages::place(chunk).unwrap_or(0..0)));
            }
        });
        leaves
    }

    /// How a row group is read.
    pub(super) fn view(&self, snapshot: &Snapshot, row_group: &RowGroup) -> Result<Arc<View>, ParquetError> {
        let keyed = self.keyed(snapshot, row_group);
        let mut views = self.views.lock().unwrap_or_else(PoisonError::into_inner);
        let same = |view: &&Arc<View>| view.file_index == row_group.file_index && view.keyed == keyed;
        if let Some(known) = views.iter().find(same) {
            return Ok(Arc::clone(known));
        }
        // One schema for all files: what is prepared for a schema need not be prepared again.
        let alike = views.iter().find(|view| view.keyed == keyed).map(|view| SchemaRef::clone(&view.schema));
        let view = Arc::new(self.new_view(snapshot, row_group, keyed, alike)?);
        views.insert(0, Arc::clone(&view));
        views.truncate(VIEWS_KEPT_MAX);
        Ok(view)
    }

    fn new_view(
        &self,
        snapshot: &Snapshot,
        row_group: &RowGroup,
        keyed: Vec<usize>,
        alike: Option<SchemaRef>,
    ) -> Result<View, ParquetError> {
        let (file, file_index) = (snapshot.file_of(row_group), row_group.file_index);
        let metadata = if self.is_wide { file.wide_metadata() } else { file.metadata() };
        let (metadata, schema) = if keyed.is_empty() {
            (metadata.clone(), SchemaRef::clone(&self.schema))
        } else {
            let roots: Vec<usize> = keyed.iter().map(|place| self.indices[*place]).collect();
            let options = ArrowReaderOptions::new().with_schema(with_dictionaries(metadata.schema(), &roots));
            let metadata = ArrowReaderMetadata::try_new(Arc::clone(metadata.metadata()), options)?;
            (metadata, alike.unwrap_or_else(|| with_dictionaries(&self.schema, &keyed)))
        };
        Ok(View {
            file_index,
            keyed,
            metadata,
            decoded: SchemaDescPtr::clone(file.decoded_schema()),
            intervals: if file.has_signed_intervals() { Intervals::Signed } else { Intervals::Unsigned },
            int96: snapshot.int96_unit(),
            schema,
            levels: Mutex::default(),
        })
    }

    /// The keyable columns of which a row group has nothing but dictionary-encoded pages.
    fn keyed(&self, snapshot: &Snapshot, row_group: &RowGroup) -> Vec<usize> {
        let mut keyed = Vec::new();
        if !self.keyable.is_empty() {
            self.each_chunk(snapshot, row_group, |place, _, chunk| {
                if self.keyable.binary_search(&place).is_ok() && is_all_dictionary(chunk) {
                    keyed.push(place);
                }
            });
        }
        keyed
    }

    fn sum_chunks(&self, snapshot: &Snapshot, row_group: &RowGroup, size: fn(&ColumnChunkMetaData) -> i64) -> u64 {
        let mut sum = 0_u64;
        self.each_chunk(snapshot, row_group, |_, _, chunk| {
            sum = sum.saturating_add(u64::try_from(size(chunk)).unwrap_or(0));
        });
        sum
    }

    /// Calls with every column chunk that is read: its column's place in the projection, its own among the leaves.
    fn each_chunk(
        &self,
        snapshot: &Snapshot,
        row_group: &RowGroup,
        mut call: impl FnMut(usize, usize, &ColumnChunkMetaData),
    ) {
        let metadata = snapshot.file_of(row_group).metadata().metadata();
        let leaves = metadata.file_metadata().schema_descr();
        let group = metadata.row_group(row_group.index_in_file);
        for (leaf, chunk) in group.columns().iter().enumerate() {
            if let Ok(place) = self.indices.binary_search(&leaves.get_column_root_idx(leaf)) {
                call(place, leaf, chunk);
            }
        }
    }
}

// === impl View ===

impl View {
    /// How these columns are put together, as the file counts its own.
    pub(super) fn levels(&self, roots: &[usize]) -> Result<Arc<FieldLevels>, ParquetError> {
        let mut kept = self.levels.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, levels)) = kept.iter().find(|(known, _)| known == roots) {
            return Ok(Arc::clone(levels));
        }
        let mask = ProjectionMask::roots(&self.decoded, roots.iter().copied());
        let fields = self.metadata.schema().fields();
        let levels = Arc::new(parquet_to_arrow_field_levels(&self.decoded, mask, Some(fields))?);
        kept.insert(0, (roots.to_vec(), Arc::clone(&levels)));
        kept.truncate(LEVELS_KEPT_MAX);
        Ok(levels)
    }
}

/// Bytes of a chunk's values once they are decoded, where the writer tells: a dictionary holds a text once, and a page of
/// it may stand for a thousand.
fn value_bytes(chunk: &ColumnChunkMetaData) -> i64 {
    chunk.uncompressed_size().max(chunk.unencoded_byte_array_data_bytes().unwrap_or(0))
}

/// Whether every data page of a chunk is dictionary-encoded. A writer that does not say so is taken for one that may
/// have given up on its dictionary, as most do when it grows.
fn is_all_dictionary(chunk: &ColumnChunkMetaData) -> bool {
    chunk.dictionary_page_offset().is_some()
        && chunk
            .page_encoding_stats_mask()
            .is_some_and(|pages| pages.is_only(Encoding::RLE_DICTIONARY) || pages.is_only(Encoding::PLAIN_DICTIONARY))
}

/// A schema with the fields at these places made dictionaries.
fn with_dictionaries(schema: &Schema, places: &[usize]) -> SchemaRef {
    let mut fields: Vec<FieldRef> = schema.fields().to_vec();
    for place in places {
        let field = fields[*place].as_ref();
        let data_type = DataType::Dictionary(Box::new(DataType::Int32), Box::new(field.data_type().clone()));
        fields[*place] = Arc::new(field.clone().with_data_type(data_type));
    }
    Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()))
}

/// Places `0..weights.len()` in at most `count` parts: the heaviest first, each into the part that is lightest so far.
fn split(weights: &[u64], count: usize) -> Vec<Part> {
    let mut parts: Vec<Part> = (0..count.clamp(1, weights.len().max(1))).map(|_| Part::default()).collect();
    let mut places: Vec<usize> = (0..weights.len()).collect();
    places.sort_by_key(|place| (Reverse(weights[*place]), *place));
    for place in places {
        if let Some(lightest) = parts.iter_mut().min_by_key(|part| part.bytes) {
            lightest.bytes = lightest.bytes.saturating_add(weights[place]);
            lightest.places.push(place);
        }
    }
    for part in &mut parts {
        part.places.sort_unstable();
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_about_equal_and_hold_every_column_once() {
        let places =
            |weights: &[u64], count| split(weights, count).into_iter().map(|part| part.places).collect::<Vec<_>>();
        assert_eq!(places(&[5, 1, 1, 3], 2), [vec![0], vec![1, 2, 3]]);
        assert_eq!(places(&[u64::MAX, u64::MAX, 1], 2), [vec![0, 2], vec![1]]);
        assert_eq!(places(&[2, 2, 2], 8), [vec![0], vec![1], vec![2]]);
        assert_eq!(places(&[2, 2, 2], 1), [vec![0, 1, 2]]);
        assert_eq!(places(&[], 3), [Vec::<usize>::new()]);
    }
}
