//! The validity of a tile's rows: one bit per row, in words of 64. A flag marks tiles without nulls, whose bits no op
//! reads.

use arrow::{buffer::NullBuffer, util::bit_chunk_iterator::BitChunks};

use super::{Tile, WORDS};
use crate::vector::{simd, tiling::TILE_ROWS};

impl Tile<'_> {
    /// Sets the validity of the rows, which start at `start`, from an array's nulls. Free if the array has none.
    pub(crate) fn set_nulls(&mut self, nulls: Option<&NullBuffer>, start: usize) {
        self.has_nulls = false;
        let Some(nulls) = nulls.filter(|nulls| nulls.null_count() > 0) else { return };
        let bits = nulls.inner();
        let first = bits.offset() + start;
        if first.is_multiple_of(8) {
            // Prefetch the bits of the next tile too: they are few, and hardware prefetchers miss them.
            let next = bits.values()[first / 8..].as_ptr().wrapping_add(TILE_ROWS / 8);
            simd::prefetch(next, TILE_ROWS / 8);
            // Whole words as stored; bytes after the last one are not read.
            let (words, rest) = bits.values()[first / 8..].as_chunks::<8>();
            let mut last = [0; 8];
            last[..rest.len()].copy_from_slice(rest);
            let words = words.iter().chain([&last]).map(|word| u64::from_le_bytes(*word));
            return self.set_valid(words.take(self.rows.div_ceil(64)));
        }
        let chunks = BitChunks::new(bits.values(), first, self.rows);
        self.set_valid(chunks.iter_padded());
    }

    /// Sets the validity words, one bit per row.
    pub(crate) fn set_valid(&mut self, words: impl IntoIterator<Item = u64>) {
        let used = self.rows.div_ceil(64);
        for (word, bits) in self.valid[..used].iter_mut().zip(words) {
            *word = bits;
        }
        if let Some(last) = self.valid[..used].last_mut() {
            // Bits after the last row are arbitrary; set, they are not mistaken for nulls.
            *last |= !(u64::MAX >> (used * 64 - self.rows));
        }
        self.has_nulls = self.valid[..used].iter().fold(u64::MAX, |all, word| all & word) != u64::MAX;
    }

    /// Makes every row null.
    pub(crate) fn set_all_null(&mut self) {
        self.valid = [0; WORDS];
        self.has_nulls = self.rows > 0;
    }

    /// Makes the rows for which `is_null` returns true null; the others are unchanged.
    pub(crate) fn clear_where(&mut self, is_null: impl Fn(usize) -> bool) {
        if !self.has_nulls {
            self.valid = [u64::MAX; WORDS];
        }
        for row in (0..self.rows).filter(|row| is_null(*row)) {
            self.valid[row / 64] &= !(1 << (row % 64));
            self.has_nulls = true;
        }
    }

    /// The validity words, one bit per row; `None` if every row is valid.
    pub(crate) fn valid_words(&self) -> Option<&[u64]> {
        self.has_nulls.then(|| &self.valid[..self.rows.div_ceil(64)])
    }

    pub(crate) fn is_valid(&self, row: usize) -> bool {
        !self.has_nulls || (self.valid[row / 64] >> (row % 64)) & 1 == 1
    }

    /// The first null row.
    pub(crate) fn first_null(&self) -> Option<usize> {
        if !self.has_nulls {
            return None;
        }
        (0..self.rows).find(|row| !self.is_valid(*row))
    }
}
