//! A rank's batches shuffled: lane tasks compute windows, batches interleave their rows, and padding fills the last
//! ones.

use std::sync::Arc;

use forebay_kernels::Interleave;
use forebay_order::Share;

use super::{
    interleave::LaneInterleaver,
    lane_task::ShuffledEpoch,
    outlet::{Ended, Outlet},
    padding,
    row_group::RowGroupOpener,
};
use crate::prepare::ordered::Ordered;

/// Sends a share's batches.
pub(super) async fn send(opener: &RowGroupOpener, share: &Share, outlet: &mut Outlet) -> Result<(), Ended> {
    let RowGroupOpener { environment, prepared, .. } = opener;
    let order = prepared.epoch.clone();
    let sequence = environment.cpu.run(move || Arc::new(order.sequence())).await?;
    let epoch = ShuffledEpoch { opener: opener.clone(), sequence };
    let own_end = share.start + share.own_rows();
    let own_lanes = prepared.epoch.lanes_of(share.rank);
    let mut lanes = LaneInterleaver::start(&epoch, &own_lanes, share.start, own_end);
    let mut next = share.start;
    while next < share.end {
        let rows = prepared.request.batch_size.min(share.end - next);
        let own_rows = own_end.saturating_sub(next).min(rows);
        let mut batch = Interleave::new(prepared.program(), rows as usize);
        batch = lanes.take(batch, own_rows, &mut outlet.times).await?;
        if own_rows < rows {
            lanes.release_windows();
            batch = padding::fill(&epoch, share, batch, &mut outlet.times).await?;
        }
        let batch = environment.cpu.run_short(move || batch.finish()).await??;
        outlet.send(batch).await?;
        next += rows;
    }
    Ok(())
}
