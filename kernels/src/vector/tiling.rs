//! Splitting of rows into tiles.

use std::ops::Range;

/// Rows per tile: 1,024 × 8 bytes are 8 KiB, about a quarter of the smallest L1 data cache, with 16 words of validity.
pub(crate) const TILE_ROWS: usize = 1024;

/// The consecutive runs of at most [`TILE_ROWS`] rows that cover `rows`.
pub(crate) fn tiles(rows: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    let end = rows.end;
    rows.step_by(TILE_ROWS).map(move |start| start..end.min(start + TILE_ROWS))
}
