//! What decoders return.

use crate::image::pixels::Layout;

/// A decoder's pixels, as stored.
pub(super) struct Decoded {
    pub(super) width: usize,
    pub(super) height: usize,
    pub(super) layout: Layout,
    pub(super) values: Vec<u8>,
}
