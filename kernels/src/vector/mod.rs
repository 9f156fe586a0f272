//! Runs of values small enough for the cache, and the loops over them.

pub(crate) mod cast;
pub(crate) mod collected;
pub(crate) mod exact;
pub(crate) mod math;
pub(crate) mod select;
pub(crate) mod simd;
pub(crate) mod tile;
pub(crate) mod tiling;
