//! Splitting of rows into tiles.

use std::ops::Range;

/// Rows per tile: 1,024 × 8 bytes are 8 KiB, about a quarter of the smallest L1 data cache, with 16 words of validity.
pub(crate) const TILE_ROWS: usize = 1024;

/// The most elements of a tile of rows with many elements each, such as images: 8 MiB as doubles.
const TILE_ELEMENTS_MAX: usize = 1 << 20;

/// The consecutive runs of at most [`TILE_ROWS`] rows that cover `rows`.
pub(crate) fn tiles(rows: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    tiles_of(rows, TILE_ROWS)
}

/// The consecutive runs of at most `tile` rows, which is not 0, that cover `rows`.
pub(crate) fn tiles_of(rows: Range<usize>, tile: usize) -> impl Iterator<Item = Range<usize>> {
    let end = rows.end;
    rows.step_by(tile).map(move |start| start..end.min(start + tile))
}

/// Rows of a tile of rows with `width` elements each.
pub(crate) fn tile_rows(width: usize) -> usize {
    (TILE_ELEMENTS_MAX / width.max(1)).clamp(1, TILE_ROWS)
}
