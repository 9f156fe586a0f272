//! Bytes that buckets read from storage and keep in memory.

use std::collections::BTreeSet;

use forebay_order::{Piece, Sequence};
use forebay_proto::v1;

use super::totals::add_totals;
use crate::{
    epoch::{in_order, memory},
    prepare::{bucketed::PreparedBuckets, dataset::PreparedDataset, prepared::Prepared},
};

/// Adds the rows, the reads and the memory. Lanes of the same place in their buckets read row groups at about the same time, and
/// share their bytes.
pub(super) fn add(prepared: &Prepared, buckets: &PreparedBuckets, explained: &mut v1::Explain) {
    let first = buckets.first();
    let (snapshot, projection) = (&first.snapshot, &first.compiled.rows.projection);
    let bytes: Vec<u64> = snapshot.row_groups().iter().map(|group| projection.stored_bytes(snapshot, group)).collect();
    let sum = |row_groups: &BTreeSet<usize>| row_groups.iter().map(|group| bytes[*group]).fold(0, u64::saturating_add);
    let passing = buckets.buckets.iter().flat_map(|bucket| {
        bucket.epoch.passing().iter().enumerate().filter(|(_, rows)| **rows > 0).map(|(row_group, _)| row_group)
    });
    let passing: BTreeSet<usize> = passing.collect();
    explained.row_groups = passing.len() as u64;
    explained.stored_bytes = sum(&passing);
    let info = prepared.stream_info();
    (explained.rows, explained.steps) = (info.rows, info.steps);
    explained.bytes = info.rows.saturating_mul(explained.row_bytes);
    let sequences: Vec<Sequence> = buckets.buckets.iter().map(|bucket| bucket.epoch.sequence()).collect();
    let pieces = |rank: u64| buckets.buckets.iter().zip(&sequences).map(move |parts| lanes(parts, rank));
    let memory = |rank: u64| memory::bucketed_stream_bytes(buckets, &buckets.epoch.share(rank));
    // Shuffled, rank 0 has the longest lanes.
    let of_lanes_bytes = buckets.epoch.shuffle().map(|_| memory(0));
    for rank in &mut explained.ranks {
        let v1::RankInfo { rows, steps, .. } = prepared.rank_info(rank.rank);
        (rank.rows, rank.steps) = (rows, steps);
        rank.bytes = rows.saturating_mul(explained.row_bytes);
        let mut of_lanes: Vec<BTreeSet<usize>> = Vec::new();
        for (place, row_groups) in pieces(rank.rank).flat_map(|lanes| lanes.into_iter().enumerate()) {
            of_lanes.resize(of_lanes.len().max(place + 1), BTreeSet::new());
            of_lanes[place].extend(row_groups);
        }
        rank.read_bytes = of_lanes.iter().map(sum).fold(0, u64::saturating_add);
        rank.memory_bytes = of_lanes_bytes.unwrap_or_else(|| memory(rank.rank));
    }
    add_totals(explained);
}

/// The row groups of each lane of a rank; in file order, of its rows.
fn lanes((bucket, sequence): (&PreparedDataset, &Sequence), rank: u64) -> Vec<Vec<usize>> {
    let row_groups = |pieces: Vec<Piece>| pieces.into_iter().map(|piece| piece.row_group).collect();
    if bucket.epoch.shuffle().is_none() {
        return vec![row_groups(in_order::pieces(bucket, sequence, &bucket.epoch.share(rank)))];
    }
    let lanes = bucket.epoch.lanes_of(rank).into_iter();
    lanes.map(|lane| row_groups(sequence.pieces(lane.start..lane.start + lane.length))).collect()
}
