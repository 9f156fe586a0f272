//! The column chunks of a row group in the cache of decompressed pages.

use std::sync::Arc;

use forebay_cache::CachedChunks;
use forebay_catalog::{RowGroup, Snapshot};
use forebay_pages::{Column, ColumnChunk, Form};
use forebay_runtime::metrics;

use super::{decoder::described, projection::Projection};

/// Bits of the number of a leaf column.
const LEAF_BITS: u32 = 24;

/// The column chunks of one row group, for one stream.
#[derive(Debug)]
pub struct RowGroupChunks {
    cache: Arc<CachedChunks>,
    /// The index in the snapshot.
    row_group: usize,
    /// The state of the file.
    file: String,
}

impl RowGroupChunks {
    /// The chunks of a row group, by its index in the snapshot. `file` names the state of its file.
    pub fn new(cache: &Arc<CachedChunks>, row_group: usize, file: String) -> Self {
        Self { cache: Arc::clone(cache), row_group, file }
    }

    /// The chunk of a leaf column, if it is kept.
    pub(super) fn get(&self, leaf: usize, column: &Column) -> Option<Arc<ColumnChunk>> {
        let found = self.cache.get(self.index(leaf, column), &self.file);
        let found = found.filter(|chunk| is_of(chunk, column));
        metrics::cache_pages(found.is_some());
        found
    }

    /// Decompresses the pages of a chunk and keeps them, if there is room. Returns the chunk to read.
    pub(super) fn kept(&self, leaf: usize, chunk: Arc<ColumnChunk>) -> Arc<ColumnChunk> {
        let index = self.index(leaf, chunk.column());
        self.cache.keep(index, &self.file, &chunk).unwrap_or(chunk)
    }

    /// Plans may read a column as values or as keys.
    fn index(&self, leaf: usize, column: &Column) -> usize {
        (((self.row_group << LEAF_BITS) | leaf) << 1) | usize::from(column.form == Form::Keys)
    }
}

/// Whether a decompressed chunk is that of a column.
fn is_of(chunk: &ColumnChunk, column: &Column) -> bool {
    *chunk.column() == Column { codec: chunk.column().codec, ..column.clone() }
}

impl Projection {
    /// Bytes of the columns of a row group with their pages decompressed, of those that the cache can keep.
    pub fn unpacked_bytes(&self, snapshot: &Snapshot, row_group: &RowGroup) -> u64 {
        let Ok(view) = self.view(snapshot, row_group) else { return 0 };
        let (metadata, mut bytes) = (&view.metadata, 0_u64);
        if view.arrow.is_some() {
            return 0;
        }
        self.each_chunk(snapshot, row_group, |_, leaf, chunk| {
            let root = metadata.metadata().file_metadata().schema_descr().get_column_root_idx(leaf);
            let data_type = metadata.schema().field(root).data_type();
            let place = (row_group.index_in_file, leaf);
            if described(metadata.metadata(), place, data_type, view.keys(root)).is_ok() {
                bytes = bytes.saturating_add(u64::try_from(chunk.uncompressed_size()).unwrap_or(0));
            }
        });
        bytes
    }
}
