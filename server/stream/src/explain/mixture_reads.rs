//! Bytes that a mixture reads from storage and keeps in memory.

use std::collections::HashSet;

use forebay_order::{Repetition, Sequence};
use forebay_proto::v1;

use super::{
    piece_reads::{KnownPages, PieceReads},
    totals::{SAMPLE_BATCHES_MAX, SAMPLE_ROWS, add_totals},
};
use crate::{
    epoch::memory,
    prepare::{dataset::PreparedDataset, mixed::PreparedMixture},
};

/// One source of a mixture.
struct SourceReads<'a> {
    prepared: &'a PreparedDataset,
    /// Compressed bytes of the columns of each row group.
    bytes: Vec<u64>,
    reads: PieceReads<'a>,
    /// The first repetition; none in file order.
    repetition: Option<Repetition>,
    /// The order of the repetition, or file order.
    sequence: Sequence,
    index: usize,
}

/// Adds the reads of every source and the memory. A source that repeats reads as much each time as the first time.
pub(super) fn add(mixture: &PreparedMixture, pages: &KnownPages, explained: &mut v1::Explain) {
    let sources: Vec<SourceReads<'_>> =
        (0..mixture.sources.len()).map(|index| SourceReads::new(mixture, index, pages)).collect();
    for source in &sources {
        let passing = source.bytes.iter().zip(source.prepared.epoch.passing()).filter(|(_, rows)| **rows > 0);
        explained.row_groups += passing.clone().count() as u64;
        explained.stored_bytes = passing.map(|(bytes, _)| *bytes).fold(explained.stored_bytes, u64::saturating_add);
    }
    for rank in &mut explained.ranks {
        let reads = sources.iter().map(|source| source.read_bytes(mixture, rank.rank));
        rank.read_bytes = reads.fold(0, u64::saturating_add);
        rank.memory_bytes = memory::mixture_stream_bytes(mixture, &mixture.epoch.share(rank.rank));
    }
    add_totals(explained);
    explained.sources = mixture.infos();
    explained.row_groups_per_batch = row_groups_per_batch(mixture, &sources);
}

/// The mean number of row groups in a full batch of rank 0, over evenly spaced batches.
fn row_groups_per_batch(mixture: &PreparedMixture, sources: &[SourceReads<'_>]) -> f64 {
    let share = mixture.epoch.share(0);
    let rows = mixture.request.batch_size.min(share.length).min(SAMPLE_ROWS);
    if rows == 0 {
        return 0.0;
    }
    let batches = (share.length / rows).min(SAMPLE_BATCHES_MAX).min((SAMPLE_ROWS / rows).max(1));
    let distance = share.length / rows / batches;
    let mut groups = 0;
    for batch in 0..batches {
        let start = batch * distance * rows;
        let positions = (start..start + rows).map(|row| mixture.epoch.position_in(0, row));
        let found: HashSet<(usize, usize)> = positions
            .filter_map(|position| {
                let source = mixture.order.row_at(position).source;
                Some((source, sources[source].row_group_at(mixture, position)?))
            })
            .collect();
        groups += found.len();
    }
    groups as f64 / batches as f64
}

impl<'a> SourceReads<'a> {
    fn new(mixture: &'a PreparedMixture, index: usize, pages: &'a KnownPages) -> Self {
        let source = &mixture.sources[index];
        let (snapshot, projection) = (&source.snapshot, &source.compiled.rows.projection);
        let shuffled = mixture.strides.as_ref().zip(mixture.epoch.shuffle());
        let repetition = shuffled.map(|(strides, shuffle)| Repetition::new(&mixture.order, strides, index, 0, shuffle));
        let sequence = match &repetition {
            Some(repetition) => repetition.sequence(source.epoch.passing()),
            None => source.epoch.sequence(),
        };
        Self {
            prepared: source,
            bytes: snapshot.row_groups().iter().map(|group| projection.stored_bytes(snapshot, group)).collect(),
            reads: PieceReads::new(source, index, pages),
            repetition,
            sequence,
            index,
        }
    }

    /// Compressed bytes that a rank reads.
    fn read_bytes(&self, mixture: &PreparedMixture, rank: u64) -> u64 {
        let (end, rows) = (mixture.order.row_count(), mixture.order.sources()[self.index].rows);
        let scaled = |bytes: u64, needed: u64, counted: u64| {
            if needed > counted { (bytes as f64 * needed as f64 / counted.max(1) as f64) as u64 } else { bytes }
        };
        if let (Some(repetition), Some(strides)) = (&self.repetition, &mixture.strides) {
            let (mut needed, mut counted) = (0, 0);
            let lanes = mixture.epoch.lanes_of(rank).into_iter().map(|lane| {
                let own = repetition.lane(lane.index);
                let rows = strides.count_before(self.index, lane.index, end);
                needed += rows;
                counted += rows.min(own.length);
                self.sequence.pieces(own.start..own.start + rows.min(own.length))
            });
            let bytes = self.reads.lanes_bytes(lanes);
            return scaled(bytes, needed, counted);
        }
        let share = mixture.epoch.share(rank);
        let positions = (mixture.epoch.position_in(rank, 0), mixture.epoch.position_in(rank, share.length));
        let count = |position: u64| mixture.order.pattern().count(self.index, position);
        let (first, needed) = (count(positions.0) % rows, count(positions.1) - count(positions.0));
        let counted = needed.min(rows - first);
        // Windows begin at multiples of their size.
        let window_rows = memory::source_window_rows(mixture, self.index).max(1);
        let end = (first + counted).div_ceil(window_rows).saturating_mul(window_rows);
        scaled(self.reads.bytes(&self.sequence.pieces(first / window_rows * window_rows..end)), needed, counted)
    }

    /// The row group of the row at a position, as if the source did not repeat.
    fn row_group_at(&self, mixture: &PreparedMixture, position: u64) -> Option<usize> {
        if let (Some(repetition), Some(strides)) = (&self.repetition, &mixture.strides) {
            let lane = repetition.lane(position % strides.lanes());
            let offset = strides.count_before(self.index, lane.index, position) % lane.length.max(1);
            let row = (lane.length > 0).then(|| lane.row_at(offset))?;
            return Some(self.sequence.row_group_at(row));
        }
        Some(self.sequence.row_group_at(mixture.order.row_at(position).index))
    }
}
