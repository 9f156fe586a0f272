//! A rank's batches of a mixture: a feed for each source and lane computes windows of rows, in the source's own order,
//! and the mixer puts them at their positions.

mod feed;
mod mixer;
mod positions;

use std::sync::Arc;

use forebay_kernels::Interleave;
use forebay_order::Share;

use super::{
    group::GroupOpener,
    outlet::{Ended, Outlet},
};
use crate::stream::prepare::prepared::PreparedMixture;
use feed::MixedEpoch;
use mixer::Mixer;
use positions::RankPositions;

pub(crate) use positions::sources_of;

/// Sends a share's batches.
pub(super) async fn send(
    opener: &GroupOpener,
    mixture: &Arc<PreparedMixture>,
    share: &Share,
    outlet: &mut Outlet,
) -> Result<(), Ended> {
    let GroupOpener { environment, prepared, .. } = opener;
    let epoch = MixedEpoch::new(opener, mixture);
    let positions = RankPositions::of_share(prepared, share);
    let own_end = share.start + share.own_rows();
    let mut mixer = Mixer::start(&epoch, positions, share.start..own_end);
    let mut next = share.start;
    while next < share.end {
        let rows = prepared.request.batch_size.min(share.end - next);
        let own_rows = own_end.saturating_sub(next).min(rows);
        let mut batch = Interleave::new(prepared.program(), rows as usize);
        batch = mixer.take(batch, own_rows, &mut outlet.times).await?;
        if own_rows < rows {
            mixer.release_windows();
            let (positions, count) = RankPositions::of_padding(prepared, share, rows - own_rows);
            let first = Interleave::new(prepared.program(), count as usize);
            let mut repeated = Mixer::start(&epoch, positions, 0..count);
            let first = [repeated.take(first, count, &mut outlet.times).await?.finish()?];
            while !batch.is_full() {
                let rows = (batch.capacity() - batch.len()).min(count as usize);
                batch.append(&first, 0, rows)?;
            }
        }
        let batch = environment.cpu.run_short(move || batch.finish()).await??;
        outlet.send(batch).await?;
        next += rows;
    }
    Ok(())
}
