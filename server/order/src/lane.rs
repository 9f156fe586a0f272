//! Lanes of a shuffled epoch, and their windows.

use std::ops::Range;

use super::{permutation::Permutation, shuffle::Shuffle};

/// A contiguous part of T whose rows are permuted window by window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lane {
    /// Index among the epoch's lanes.
    pub index: u64,
    /// First row in T.
    pub start: u64,
    /// Number of rows.
    pub length: u64,
    pub(super) shuffle: Shuffle,
}

/// Consecutive rows of a lane that are permuted together.
#[derive(Clone, Debug)]
pub struct Window {
    /// Rows in T.
    pub rows: Range<u64>,
    permutation: Permutation,
}

impl Lane {
    /// Returns the window of an index that is not past the end of the lane.
    pub fn window(&self, index: u64) -> Window {
        let window_rows = self.shuffle.window_rows;
        let first = (index * window_rows).min(self.length);
        let last = first.saturating_add(window_rows).min(self.length);
        let key = self.shuffle.key(b'w', self.index, index);
        Window { rows: self.start + first..self.start + last, permutation: Permutation::new(last - first, key) }
    }

    /// Returns the row in T at an offset below the lane's length.
    pub fn row_at(&self, offset: u64) -> u64 {
        let window = self.window(offset / self.shuffle.window_rows);
        window.rows.start + window.permutation.at(offset % self.shuffle.window_rows)
    }

    /// Returns the offset of a row in T that is part of the lane.
    pub fn offset_of(&self, row: u64) -> u64 {
        let index = (row - self.start) / self.shuffle.window_rows;
        let window = self.window(index);
        index * self.shuffle.window_rows + window.permutation.inverse(row - window.rows.start)
    }
}

impl Window {
    /// Returns, for each row of the window in the order of T, its place in the permuted window.
    pub fn places(&self) -> Vec<u32> {
        let mut places = vec![0; (self.rows.end - self.rows.start) as usize];
        for place in 0..places.len() {
            places[self.permutation.at(place as u64) as usize] = place as u32;
        }
        places
    }
}
