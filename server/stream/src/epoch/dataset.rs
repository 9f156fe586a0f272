//! A rank's batches of one dataset, in file order or shuffled.

use forebay_order::Share;

use super::{
    in_order,
    outlet::{Ended, Outlet},
    row_group::RowGroupOpener,
    shuffled,
};

/// Sends a share's batches.
pub(super) async fn send(opener: &RowGroupOpener, share: &Share, outlet: &mut Outlet) -> Result<(), Ended> {
    match opener.prepared.epoch.shuffle() {
        None => in_order::send(opener, share, outlet).await,
        Some(_) => shuffled::send(opener, share, outlet).await,
    }
}
