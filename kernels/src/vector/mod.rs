//! Tiles of values that fit the cache, and the SIMD loops over them. Independent of ops and programs.

pub(crate) mod cast;
pub(crate) mod collected;
pub(crate) mod exact;
pub(crate) mod mapped;
pub(crate) mod math;
pub(crate) mod select;
pub(crate) mod simd;
pub(crate) mod tile;
pub(crate) mod tiling;
