//! Padding of a shuffled rank: fills its last batches with its first rows.

use forebay_kernels::Interleave;
use forebay_order::Share;
use forebay_runtime::metrics::StageTimes;

use super::{interleave::LaneInterleaver, lane_task::ShuffledEpoch};
use crate::{error::StreamError, prepare::ordered::Ordered};

/// Fills a batch with the rank's first rows, repeated as often as necessary.
///
/// A rank without rows repeats the row at the position of its rank, modulo the epoch's rows.
pub(super) async fn fill(
    epoch: &ShuffledEpoch,
    share: &Share,
    mut batch: Interleave,
    times: &mut StageTimes,
) -> Result<Interleave, StreamError> {
    let order = &epoch.opener.prepared.epoch;
    let missing = (batch.capacity() - batch.len()) as u64;
    let lanes = match share.length {
        0 => {
            let position = share.rank % order.row_count();
            let lanes = order.shuffle().map_or(1, |shuffle| shuffle.lanes);
            order.lane(position % lanes).into_iter().collect()
        }
        _ => order.lanes_of(share.rank),
    };
    let count = missing.min(share.length.max(1));
    let mut lanes = LaneInterleaver::start(epoch, &lanes, 0, count);
    let first = Interleave::new(epoch.opener.prepared.program(), count as usize);
    let first = [lanes.take(first, count, times).await?.finish()?];
    while !batch.is_full() {
        let rows = (batch.capacity() - batch.len()).min(count as usize);
        batch.append(&first, 0, rows)?;
    }
    Ok(batch)
}
