//! Which bytes of a row group are fetched for some of its rows: its column chunks, or only their pages with these rows.

use std::ops::Range;

use forebay_catalog::{RowGroup, Snapshot};

use super::{
    arrow_part,
    fetch::{self, gap_bytes},
    page_index::PageRun,
    projection::{Part, Projection},
    row_group_pages::RowGroupPages,
};

/// The bytes to fetch of one leaf column.
#[derive(Clone, Debug)]
pub(super) struct LeafRead {
    /// Its index in the file.
    pub leaf: usize,
    /// The bytes of its chunk in the file.
    pub chunk: Range<u64>,
    /// The pages to fetch; `None`: the whole chunk.
    pub pages: Option<PageRun>,
    /// Whether nothing is fetched, because the chunk is in the cache.
    pub is_cached: bool,
}

impl LeafRead {
    /// The ranges to fetch, in order.
    pub(super) fn ranges(&self) -> Vec<Range<u64>> {
        match &self.pages {
            _ if self.is_cached => Vec::new(),
            None => vec![self.chunk.clone()],
            Some(run) => run.dictionary().into_iter().chain(run.pages().map(|(bytes, _)| bytes)).collect(),
        }
    }
}

/// Whether readers of these rows fetch only their pages, if the file has an index of them. Reading the index is a
/// request, which must save more bytes than a request is worth.
///
/// False for row groups with deleted rows, which are counted without these.
pub fn is_partial(snapshot: &Snapshot, row_group: &RowGroup, projection: &Projection, rows: &Range<u64>) -> bool {
    let count = row_group.rows.end - row_group.rows.start;
    let wanted = rows.end.min(count).saturating_sub(rows.start);
    if wanted == 0 || wanted >= count {
        return false;
    }
    let stored = u128::from(projection.stored_bytes(snapshot, row_group));
    let saved = stored * u128::from(count - wanted) / u128::from(count);
    saved > u128::from(gap_bytes(snapshot.store()))
        && snapshot.file_of(row_group).arrow().is_none()
        && snapshot.deleted_of(row_group).is_none()
}

/// Bytes that a reader of these rows fetches from storage, with the gaps that are read between ranges.
pub fn read_bytes(
    snapshot: &Snapshot,
    row_group: &RowGroup,
    projection: &Projection,
    rows: &Range<u64>,
    pages: Option<&RowGroupPages>,
) -> u64 {
    let parts = projection.parts(snapshot, row_group, 1);
    let reads = parts.iter().flat_map(|part| leaf_reads(snapshot, row_group, projection, part, (rows, pages)));
    let ranges: Vec<Range<u64>> = reads.flat_map(|read| read.ranges()).collect();
    fetch::merged_for(snapshot.store(), &ranges).iter().map(|read| read.end - read.start).sum()
}

/// The bytes to fetch for the columns of a part: pages with these rows of the chunks whose pages are known, and the other
/// chunks as a whole.
pub(super) fn leaf_reads(
    snapshot: &Snapshot,
    row_group: &RowGroup,
    projection: &Projection,
    part: &Part,
    (rows, pages): (&Range<u64>, Option<&RowGroupPages>),
) -> Vec<LeafRead> {
    if let Some(layout) = snapshot.file_of(row_group).arrow() {
        let roots = projection.roots(snapshot, row_group, part);
        let ranges = arrow_part::ranges(layout, row_group.index_in_file, &roots).into_iter();
        return ranges.map(|(leaf, chunk)| LeafRead { leaf, chunk, pages: None, is_cached: false }).collect();
    }
    let read = |(leaf, chunk)| {
        let known = pages.and_then(|pages| pages.of_leaf(leaf));
        LeafRead { leaf, chunk, pages: known.map(|pages| pages.run(rows)), is_cached: false }
    };
    projection.leaves(snapshot, row_group, part).into_iter().map(read).collect()
}
