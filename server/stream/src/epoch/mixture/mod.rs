//! A rank's batches of a mixture: a feed for each source and lane computes windows of rows, in the source's own order,
//! and the mixer puts them at their positions.

mod feed;
mod mixer;
mod positions;

use forebay_kernels::Interleave;
use forebay_order::Share;

use super::outlet::{Ended, Outlet};
use crate::prepare::ordered::Ordered;
use mixer::Mixer;
use positions::RankPositions;

pub(super) use feed::MixedEpoch;
pub(crate) use positions::sources_of;

/// Sends a share's batches.
pub(super) async fn send(epoch: &MixedEpoch, share: &Share, outlet: &mut Outlet) -> Result<(), Ended> {
    let MixedEpoch { environment, mixture, .. } = epoch;
    let positions = RankPositions::of_share(mixture, share);
    let own_end = share.start + share.own_rows();
    let mut mixer = Mixer::start(epoch, positions, share.start..own_end);
    let mut next = share.start;
    while next < share.end {
        let rows = mixture.request.batch_size.min(share.end - next);
        let own_rows = own_end.saturating_sub(next).min(rows);
        let mut batch = Interleave::new(mixture.program(), rows as usize);
        batch = mixer.take(batch, own_rows, &mut outlet.times).await?;
        if own_rows < rows {
            mixer.release_windows();
            let (positions, count) = RankPositions::of_padding(mixture, share, rows - own_rows);
            let first = Interleave::new(mixture.program(), count as usize);
            let mut repeated = Mixer::start(epoch, positions, 0..count);
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
