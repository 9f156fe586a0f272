//! Memory accounting: the most bytes that a stream keeps at once, reserved before it starts.

use forebay_catalog::RowGroup;
use forebay_order::{Piece, Share, Shuffle};

use super::{
    batch_task::BatchMemory,
    bucketed,
    in_order::{self, RUNS_AHEAD},
    interleave::WINDOWS_AHEAD,
    windowed,
};
use crate::{
    ahead::{BATCHES_AHEAD, FETCH_AHEAD},
    prepare::{
        bucketed::PreparedBuckets,
        dataset::{PreparedDataset, Units},
        mixed::PreparedMixture,
        ordered::Ordered,
        prepared::{Prepared, PreparedRows},
    },
};

/// Bytes of a stream that may wait for its socket besides the batch being written: room for part of the next batch, so
/// that the stream does not stall within every batch.
pub const SENDING_BYTES: usize = 4 << 20;

/// Batches of a stream that exist at once: one being filled, those that wait, one on the wire.
const BATCHES_MAX: u64 = BATCHES_AHEAD as u64 + 2;

/// Windows of a lane that exist at once: the one that batches take rows of, and those computed ahead.
const WINDOWS_MAX: u64 = WINDOWS_AHEAD as u64 + 1;

/// Bytes of a lane besides rows and fetched bytes: its task, and per column the state of a decoder. Measured on lanes
/// of a few rows.
const LANE_BYTES: u64 = 96 << 10;

/// See [`LANE_BYTES`].
const LANE_COLUMN_BYTES: u64 = 48 << 10;

/// Rows of AS_STORED columns that are split into rows at once.
const SCRATCH_ROWS: u64 = 1024;

/// A row's place in its window, and for AS_STORED columns, which a window assembles at its end, its block and row.
const PLACE_BYTES: u64 = (size_of::<u32>() + size_of::<(usize, usize)>()) as u64;

/// Bytes of a packed output's tokens per decoded byte of its documents: at most a token per byte, which packing copies.
const DOCUMENT_TOKEN_BYTES: u64 = 4;

/// The largest row groups of a snapshot with passing rows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RowGroupSizes {
    /// Compressed bytes of the columns.
    fetched: u64,
    /// Bytes of a decoded block, and of the decoder's state.
    block: u64,
    /// The fewest passing rows.
    rows_min: u64,
    count: u64,
}

/// The memory of a share's stream.
pub(crate) fn stream_bytes(prepared: &Prepared, share: &Share) -> u64 {
    let dataset = match prepared.rows() {
        PreparedRows::Mixture(mixture) => return mixture_stream_bytes(mixture, share),
        PreparedRows::Buckets(buckets) => return bucketed_stream_bytes(buckets, share),
        PreparedRows::Dataset(dataset) => dataset,
    };
    with_batches(dataset.as_ref(), reading_bytes(dataset, share))
}

/// The memory for reading a share.
fn reading_bytes(dataset: &PreparedDataset, share: &Share) -> u64 {
    match dataset.epoch.shuffle() {
        None => in_order_bytes(dataset, &in_order::pieces(dataset, &dataset.epoch.sequence(), share)),
        Some(shuffle) => shuffled_bytes(dataset, shuffle, share),
    }
}

/// The same for buckets, each of which has batches that wait for their step.
pub(crate) fn bucketed_stream_bytes(prepared: &PreparedBuckets, share: &Share) -> u64 {
    let batch_size = prepared.request.batch_size;
    let step = |row: u64| prepared.order.before(row / batch_size);
    let (before, after) = (step(share.start), step(share.end));
    let bytes = prepared.buckets.iter().enumerate().map(|(bucket, dataset)| {
        let share = prepared.order.share(bucket, share.rank, (&before, &after));
        if share.row_count() == 0 {
            return 0;
        }
        let batches = dataset.batch_bytes().saturating_mul(bucketed::WAITING as u64 + 1);
        let kept = dataset.wire_row_bytes().saturating_mul(bucketed::kept_rows(dataset, &share));
        reading_bytes(dataset, &share).saturating_add(batches).saturating_add(kept)
    });
    // Of all buckets: a block has few rows of each.
    let blocks = prepared.wire_row_bytes().saturating_mul(bucketed::BLOCKS_KEPT.min(prepared.epoch.row_count()));
    with_batches(prepared, bytes.fold(blocks, u64::saturating_add))
}

/// The same for a mixture.
pub(crate) fn mixture_stream_bytes(mixture: &PreparedMixture, share: &Share) -> u64 {
    with_batches(mixture, mixture_bytes(mixture, share))
}

/// The memory of a stream that takes these bytes, by what releases it.
pub(crate) fn of_batches(prepared: &dyn Ordered, bytes: u64) -> BatchMemory {
    BatchMemory { bytes, batch_bytes: prepared.batch_bytes(), sending_bytes: sending_bytes(prepared) }
}

/// Bytes of an epoch that may wait for the socket.
fn sending_bytes(prepared: &dyn Ordered) -> u64 {
    prepared.epoch().sent_row_count().saturating_mul(prepared.wire_row_bytes()).min(SENDING_BYTES as u64)
}

/// Adds the batches, and the bytes that wait for the socket, to the memory for reading rows.
pub(crate) fn with_batches(prepared: &dyn Ordered, reading: u64) -> u64 {
    let batches = prepared.batch_bytes().saturating_mul(BATCHES_MAX);
    reading.saturating_add(batches).saturating_add(sending_bytes(prepared))
}

/// The memory for reading pieces in file order: compressed row groups in flight, and decoded blocks, of which one is
/// computed from, [`RUNS_AHEAD`] wait and one is being decoded.
pub(crate) fn in_order_bytes(prepared: &PreparedDataset, pieces: &[Piece]) -> u64 {
    let projection = &prepared.compiled.rows.projection;
    let groups = prepared.snapshot.row_groups();
    let (mut fetched, mut block) = (0, 0);
    for piece in pieces {
        let group = &groups[piece.row_group];
        fetched = projection.stored_bytes(&prepared.snapshot, group).max(fetched);
        let decoding = decoded_bytes(prepared, group);
        block = decoding.saturating_add(projection.decoder_bytes(&prepared.snapshot, group)).max(block);
    }
    block.saturating_mul(RUNS_AHEAD as u64 + 2).saturating_add(fetched.saturating_mul(FETCH_AHEAD as u64 + 1))
}

/// Bytes of a decoded block of a row group, with what is made of it.
fn decoded_bytes(prepared: &PreparedDataset, group: &RowGroup) -> u64 {
    let block = prepared.compiled.rows.projection.block_bytes(&prepared.snapshot, group);
    match &prepared.units {
        Units::Sequences(_) => block.saturating_mul(1 + DOCUMENT_TOKEN_BYTES),
        Units::Windows(windows) => block.saturating_add(windowed::held_bytes(prepared, windows, group)),
        Units::Rows | Units::Drawn(_) => block,
    }
}

/// The memory of a take of rows of these pieces' row groups: for reading them, and its batches, of which one is also
/// assembled from blocks and may be copied to repeat rows.
pub(crate) fn taken_bytes(prepared: &PreparedDataset, pieces: &[Piece], rows: u64) -> u64 {
    let batch_rows = prepared.request.batch_size.min(rows);
    let batches = rows.div_ceil(batch_rows.max(1)).min(BATCHES_MAX) + 1;
    let batch = prepared.wire_row_bytes().saturating_mul(batch_rows);
    let filling = batch_rows.saturating_mul(PLACE_BYTES + prepared.compiled.stored_row_bytes);
    let sending = prepared.wire_row_bytes().saturating_mul(rows).min(SENDING_BYTES as u64);
    in_order_bytes(prepared, pieces)
        .saturating_add(batch.saturating_mul(batches))
        .saturating_add(filling)
        .saturating_add(sending)
}

/// The memory for reading a share's lanes.
pub(crate) fn shuffled_bytes(prepared: &PreparedDataset, shuffle: &Shuffle, share: &Share) -> u64 {
    lanes_bytes(prepared, &RowGroupSizes::of(prepared), shuffle, share.rank)
}

/// The memory for reading a rank's lanes: compressed row groups that they have open, their blocks and their windows.
pub(crate) fn lanes_bytes(prepared: &PreparedDataset, sizes: &RowGroupSizes, shuffle: &Shuffle, rank: u64) -> u64 {
    let lanes = prepared.epoch.lanes_of(rank);
    let lane_rows = lanes.iter().map(|lane| lane.length).max().unwrap_or(0).max(1);
    windows_bytes(prepared, sizes, lanes.len().max(1) as u64, shuffle.window_rows.min(lane_rows))
}

/// The memory for reading lanes in windows of at most `window_rows` rows.
pub(super) fn windows_bytes(
    prepared: &PreparedDataset,
    sizes: &RowGroupSizes,
    lane_count: u64,
    window_rows: u64,
) -> u64 {
    let projection = &prepared.compiled.rows.projection;
    // A window spans at most two row groups that are not smaller than it. Lanes share the row groups they have in
    // common.
    let groups_open = if sizes.rows_min >= window_rows { 2 } else { FETCH_AHEAD as u64 + 1 };
    let groups_open = groups_open.saturating_mul(lane_count).min(sizes.count);
    let program = &prepared.compiled.program;
    let scratch = program.scratch_bytes(usize::try_from(window_rows).unwrap_or(usize::MAX)) as u64;
    let stored = window_rows.min(SCRATCH_ROWS).saturating_mul(prepared.compiled.stored_row_bytes);
    let lane = (prepared.wire_row_bytes().saturating_mul(WINDOWS_MAX.saturating_mul(window_rows)))
        .saturating_add(scratch.saturating_add(stored))
        .saturating_add(window_rows.saturating_mul(PLACE_BYTES + prepared.compiled.stored_row_bytes))
        .saturating_add(sizes.block)
        .saturating_add(LANE_BYTES)
        .saturating_add(LANE_COLUMN_BYTES.saturating_mul(projection.schema().fields().len() as u64));
    lane.saturating_mul(lane_count).saturating_add(sizes.fetched.saturating_mul(groups_open))
}

// === impl RowGroupSizes ===

impl RowGroupSizes {
    pub(crate) fn of(prepared: &PreparedDataset) -> Self {
        let projection = &prepared.compiled.rows.projection;
        let mut sizes = Self { fetched: 0, block: 0, rows_min: u64::MAX, count: 0 };
        for (group, passing) in prepared.snapshot.row_groups().iter().zip(prepared.epoch.passing()) {
            if *passing > 0 {
                let decoding = decoded_bytes(prepared, group);
                let decoding = decoding.saturating_add(projection.decoder_bytes(&prepared.snapshot, group));
                sizes.fetched = projection.stored_bytes(&prepared.snapshot, group).max(sizes.fetched);
                sizes.block = decoding.max(sizes.block);
                sizes.rows_min = sizes.rows_min.min(*passing);
                sizes.count += 1;
            }
        }
        sizes
    }
}

/// The memory for reading a rank's rows of every source.
fn mixture_bytes(mixture: &PreparedMixture, share: &Share) -> u64 {
    let lane_count = mixture.epoch.lanes_of(share.rank).len().max(1) as u64;
    let bytes = mixture.sources.iter().enumerate().map(|(index, source)| {
        let rows = mixture.order.sources()[index].rows;
        let window_rows = source_window_rows(mixture, index).min(rows);
        windows_bytes(source, &RowGroupSizes::of(source), lane_count, window_rows)
    });
    bytes.fold(0, u64::saturating_add)
}

/// Rows of a window of a source, at most: its part of a window, or of a batch in file order.
pub(crate) fn source_window_rows(mixture: &PreparedMixture, source: usize) -> u64 {
    let rows = mixture.epoch.shuffle().map_or(mixture.request.batch_size, |shuffle| shuffle.window_rows);
    mixture.order.pattern().share_of(source, rows)
}
