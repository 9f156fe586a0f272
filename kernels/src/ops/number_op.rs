//! What an op over numbers is once it is compiled: its function of a tile, and the same function on a device.

use std::fmt::Debug;

#[cfg(feature = "cuda")]
use crate::cuda::writer::Writer;
use crate::vector::tile::Tile;

/// A compiled op over numbers.
pub(crate) trait NumberOp: Debug + Send + Sync {
    /// Transforms a tile. Cannot fail.
    fn apply(&self, tile: &mut Tile);

    /// Writes the op for a device, whose results must equal those of [`Self::apply`] to the bit.
    #[cfg(feature = "cuda")]
    fn write(&self, writer: &mut Writer);

    /// Whether the op turns values that are not null into nulls.
    fn maps_to_null(&self) -> bool {
        false
    }
}
