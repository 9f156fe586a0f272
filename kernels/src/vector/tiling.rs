//! How rows are cut into tiles.

use std::ops::Range;

/// Rows of a tile: 1,024 × 8 bytes are 8 KiB, a quarter of the smallest L1 data cache about, and 16 words of validity.
pub(crate) const TILE_ROWS: usize = 1024;

/// The runs of at most [`TILE_ROWS`] that make up `rows`.
pub(crate) fn tiles(rows: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    let end = rows.end;
    rows.step_by(TILE_ROWS).map(move |start| start..end.min(start + TILE_ROWS))
}
