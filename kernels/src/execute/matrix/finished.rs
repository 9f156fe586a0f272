//! Copies finished rows into a matrix: a run of them in order, or each to its place.

use pulp::bytemuck;

use super::{Matrix, copy_row};
use crate::vector::simd;

/// Rows between a row's prefetch and its copy: about as many as the processor fetches at once.
const AHEAD: usize = 12;

const LINE_BYTES: usize = 64;

const WORD_BYTES: usize = size_of::<u32>();

impl Matrix {
    /// Copies `count` rows to `row` and the rows after it.
    pub(crate) fn copy(&mut self, rows: &[u8], count: usize, row: usize) {
        let start = row * (rows.len() / count.max(1));
        let buffer = self.buffer_mut();
        if buffer.len() == start {
            buffer.extend_from_slice(rows);
            return;
        }
        if buffer.len() < start + rows.len() {
            buffer.resize(start + rows.len(), 0);
        }
        buffer.as_slice_mut()[start..start + rows.len()].copy_from_slice(rows);
    }

    /// Copies the i-th row to row `places[i]`.
    pub(crate) fn copy_to(&mut self, rows: &[u8], places: &[u32]) {
        let row_bytes = rows.len() / places.len().max(1);
        let all_bytes = self.rows * row_bytes;
        let buffer = self.buffer_mut();
        if buffer.len() < all_bytes {
            buffer.resize(all_bytes, 0);
        }
        let target = &mut buffer.as_slice_mut()[..all_bytes];
        // Words are copied with fewer instructions than bytes.
        let words = bytemuck::try_cast_slice::<u8, u32>(rows).ok().filter(|_| row_bytes.is_multiple_of(WORD_BYTES));
        match words {
            Some(words) => scatter(words, row_bytes / WORD_BYTES, bytemuck::cast_slice_mut(target), places),
            None => scatter(rows, row_bytes, target, places),
        }
    }
}

/// Copies the i-th row of `width` elements to row `places[i]` of the target.
fn scatter<T: Copy>(rows: &[T], width: usize, target: &mut [T], places: &[u32]) {
    for (at, (row, place)) in rows.chunks_exact(width.max(1)).zip(places).enumerate() {
        if let Some(ahead) = places.get(at + AHEAD) {
            // A row that does not start at a cache line ends in one more.
            simd::prefetch(target.as_ptr().wrapping_add(*ahead as usize * width), size_of_val(row) + LINE_BYTES - 1);
        }
        let start = *place as usize * width;
        copy_row(row, &mut target[start..start + width]);
    }
}
