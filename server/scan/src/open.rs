//! Opens row groups: fetches the bytes that a reader's rows need, all before the first one is decoded, and opens the
//! decoders of their columns.

use std::{
    iter,
    ops::Range,
    sync::Arc,
    time::{Duration, Instant},
};

use forebay_catalog::{RowGroup, Snapshot};
use forebay_runtime::{budget::Budget, cpu_pool::CpuPool};
use parquet::errors::ParquetError;

use super::{
    chunks::FetchedChunk,
    columns::Fetched,
    decode_memory::DecodeMemory,
    decoder::described,
    error::{ErrorContext, ScanError},
    part::PartReader,
    projection::{Part, Projection},
    reader::{OpenedParts, RowGroupReader, project},
    reads::{self, LeafRead},
    row_group_pages::RowGroupPages,
    shared::SharedBytes,
    view::View,
};

/// All rows of any row group.
pub const ALL_ROWS: Range<u64> = 0..u64::MAX;

/// The most parts into which the columns of a row group are divided. More do not pay: a part is already a few columns.
const PARTS_MAX: usize = 8;

/// Parts per thread: a thread that finishes early or starts late takes a remaining part.
const PARTS_A_THREAD: usize = 4;

/// Page bytes of a row group beyond the stream's own reservation from which they are reserved separately.
const LARGE_PAGES_BYTES: u64 = 32 << 20;

/// What is opened.
struct Opening<'a> {
    snapshot: &'a Snapshot,
    row_group: &'a RowGroup,
    projection: &'a Projection,
    /// Within the row group.
    rows: Range<u64>,
    cpu: &'a CpuPool,
    shared: &'a Arc<SharedBytes>,
    view: Arc<View>,
    context: ErrorContext,
    memory: Arc<DecodeMemory>,
}

/// A part, the root columns of the file that it has, and their bytes.
type FetchedPart = (Part, Vec<usize>, Vec<Fetched>);

/// Opened decoders of a part, and the page bytes that it may hold; or why not.
type PartResult = (Part, Result<(PartReader, u64), ParquetError>);

/// Opens a row group to read all rows.
pub async fn open(
    snapshot: &Snapshot,
    row_group: &RowGroup,
    projection: &Projection,
    cpu: &CpuPool,
    budget: &Budget,
) -> Result<RowGroupReader, ScanError> {
    open_shared(snapshot, row_group, projection, ALL_ROWS, cpu, budget, &Arc::default()).await
}

/// Opens a row group to read these rows of it, counted without deleted ones. Shares the fetched bytes with other readers
/// of the row group until the last one is dropped.
pub async fn open_shared(
    snapshot: &Snapshot,
    row_group: &RowGroup,
    projection: &Projection,
    rows: Range<u64>,
    cpu: &CpuPool,
    budget: &Budget,
    shared: &Arc<SharedBytes>,
) -> Result<RowGroupReader, ScanError> {
    let file = snapshot.file_of(row_group);
    let context = ErrorContext { file: file.display().to_owned(), row_group: row_group.index_in_file };
    let view = projection.view(snapshot, row_group);
    let view = view.map_err(|source| context.corrupt(projection.schema(), source.to_string()))?;
    let memory = Arc::new(DecodeMemory::new(budget.clone(), projection.block_rows(snapshot, row_group)));
    let count = row_group.rows.end - row_group.rows.start;
    // Their decoders end with the row group.
    let is_whole = file.arrow().is_some() || snapshot.deleted_of(row_group).is_some();
    let rows = rows.start.min(count)..if is_whole { count } else { rows.end.min(count) };
    let due = rows.end.saturating_sub(rows.start);
    let opening = Opening { snapshot, row_group, projection, rows, cpu, shared, view, context, memory };
    let opened = if due == 0 { OpenedParts::default() } else { opening.open(budget).await? };
    let Opening { view, context, memory, .. } = opening;
    Ok(RowGroupReader::new((view, context, memory), due, opened, shared))
}

// === impl Opening ===

impl Opening<'_> {
    /// Fetches the bytes of the rows and opens the decoders.
    async fn open(&self, budget: &Budget) -> Result<OpenedParts, ScanError> {
        let Self { snapshot, row_group, projection, .. } = self;
        let mut fetch_time = Duration::ZERO;
        if !self.shared.is_cached() && reads::is_partial(snapshot, row_group, projection, &self.rows) {
            let start = Instant::now();
            let pages = self.shared.pages(snapshot, row_group, projection, self.cpu).await?;
            fetch_time = start.elapsed();
            if let Some(opened) = self.open_with(Some(&pages), &mut fetch_time, budget).await? {
                return Ok(opened);
            }
            // The index of the file is not that of its pages.
            pages.refute();
        }
        let opened = self.open_with(None, &mut fetch_time, budget).await?;
        opened.ok_or_else(|| self.corrupt("its pages are not readable".to_owned()))
    }

    /// Opens the decoders with these pages, or with whole chunks; `None` if the chunks have other pages.
    async fn open_with(
        &self,
        pages: Option<&RowGroupPages>,
        fetch_time: &mut Duration,
        budget: &Budget,
    ) -> Result<Option<OpenedParts>, ScanError> {
        let Self { snapshot, row_group, projection, .. } = self;
        let reads = self.reads(pages)?;
        let start = Instant::now();
        let parts = self.fetch(reads).await?;
        *fetch_time += start.elapsed();
        let Some(results) = self.decoders(parts).await? else { return Ok(None) };
        let (mut parts, mut page_bytes) = (Vec::with_capacity(results.len()), 0_u64);
        for (part, opened) in results {
            let of_part = |source: ParquetError| match self.memory.take_error() {
                Some(error) => self.context.decode(error),
                None => self.context.corrupt(&project(projection.schema(), &part.columns), source.to_string()),
            };
            let (reader, bytes) = opened.map_err(of_part)?;
            parts.push(reader);
            page_bytes = page_bytes.saturating_add(bytes);
        }
        let beyond = page_bytes.saturating_sub(projection.decoder_bytes(snapshot, row_group));
        let large_pages = (beyond > LARGE_PAGES_BYTES).then(|| budget.reserve(beyond)).transpose();
        let large_pages = large_pages.map_err(|source| self.context.memory(source))?;
        Ok(Some(OpenedParts { parts, fetch_time: *fetch_time, large_pages }))
    }

    /// The bytes to fetch of each part, checked against the size of the file.
    fn reads(&self, pages: Option<&RowGroupPages>) -> Result<Vec<(Part, Vec<LeafRead>)>, ScanError> {
        let Self { snapshot, row_group, projection, .. } = self;
        let file = snapshot.file_of(row_group);
        let size = file.object().size;
        let of_part = |part: Part| {
            let mut reads = reads::leaf_reads(snapshot, row_group, projection, &part, (&self.rows, pages));
            for read in &mut reads {
                read.is_cached = self.is_cached(read.leaf);
            }
            let is_invalid = |read: &&LeafRead| read.chunk.is_empty() || read.chunk.end > size;
            match reads.iter().find(is_invalid).filter(|_| file.arrow().is_none()) {
                None => Ok((part, reads)),
                Some(LeafRead { chunk, .. }) => {
                    let reason = format!("its footer declares bytes {chunk:?} of a file of {size} bytes");
                    Err(self.context.corrupt(&project(projection.schema(), &part.columns), reason))
                }
            }
        };
        let parts = projection.parts(snapshot, row_group, parts_for(self.cpu.threads()));
        parts.into_iter().map(of_part).collect()
    }

    /// Whether the cache has the chunk of a leaf column with its pages decompressed.
    fn is_cached(&self, leaf: usize) -> bool {
        if !self.shared.is_cached() || self.view.arrow.is_some() {
            return false;
        }
        let metadata = self.view.metadata.metadata();
        let root = metadata.file_metadata().schema_descr().get_column_root_idx(leaf);
        let data_type = self.view.metadata.schema().field(root).data_type();
        let place = (self.row_group.index_in_file, leaf);
        let column = described(metadata, place, data_type, self.view.keys(root));
        column.is_ok_and(|column| self.shared.has_cached(leaf, column))
    }

    /// Fetches the ranges of all parts together: adjacent ranges become one request across parts.
    async fn fetch(&self, reads: Vec<(Part, Vec<LeafRead>)>) -> Result<Vec<FetchedPart>, ScanError> {
        let Self { snapshot, row_group, projection, .. } = self;
        let ranges: Vec<Range<u64>> = reads.iter().flat_map(|(_, leaves)| leaves).flat_map(LeafRead::ranges).collect();
        let mut bytes = self.shared.ranges(snapshot, snapshot.file_of(row_group), &ranges).await?.into_iter();
        let mut fetched = |read: LeafRead| {
            let ranges = read.ranges();
            let bytes = bytes.by_ref().take(ranges.len()).collect::<Vec<_>>();
            (read.leaf, FetchedChunk::new(iter::zip(ranges, bytes), read.pages))
        };
        let parts = reads.into_iter().map(|(part, reads)| {
            let roots = projection.roots(snapshot, row_group, &part);
            (part, roots, reads.into_iter().map(&mut fetched).collect())
        });
        Ok(parts.collect())
    }

    /// Opens the decoders; `None` if a chunk has other pages than its index.
    async fn decoders(&self, parts: Vec<FetchedPart>) -> Result<Option<Vec<PartResult>>, ScanError> {
        let (snapshot, row_group) = (self.snapshot, self.row_group);
        let (view, index, memory) = (Arc::clone(&self.view), row_group.index_in_file, Arc::clone(&self.memory));
        let (shared, deleted) = (Arc::clone(self.shared), snapshot.deleted_of(row_group).cloned());
        let rows = self.rows.clone();
        // Opening the decoders is cheap, but hostile bytes may make it panic: the pool turns a panic into an error.
        let opened = self.cpu.run(move || {
            let group = view.metadata.metadata().row_group(index);
            let is_as_indexed =
                |(leaf, chunk): &Fetched| chunk.run().is_none() || chunk.is_as_indexed(group.column(*leaf));
            if !parts.iter().flat_map(|(_, _, fetched)| fetched).all(is_as_indexed) {
                return None;
            }
            let open = |(part, roots, fetched): FetchedPart| {
                let group = (index, deleted.as_ref());
                let reader = PartReader::open(&view, group, (&part, &roots), fetched, &rows, (&memory, &shared));
                (part, reader)
            };
            Some(parts.into_iter().map(open).collect())
        });
        opened.await.map_err(|panic| self.corrupt(panic.of_damage()))
    }

    fn corrupt(&self, reason: String) -> ScanError {
        self.context.corrupt(self.projection.schema(), reason)
    }
}

/// The number of parts. A single thread decodes all columns together, as each part has a cost.
fn parts_for(threads: usize) -> usize {
    if threads == 1 { 1 } else { threads.saturating_mul(PARTS_A_THREAD).min(PARTS_MAX) }
}
