//! Lanes of a shuffled epoch, and their windows.

use std::ops::Range;

use super::{permutation::Permutation, shuffle::Shuffle, windows::Windows};

/// Consecutive rows of the sequence, which are permuted window by window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lane {
    /// Index among the epoch's lanes.
    pub index: u64,
    /// Place of its first row in the sequence.
    pub start: u64,
    /// Number of rows.
    pub length: u64,
    pub(super) shuffle: Shuffle,
}

/// Consecutive rows of a lane that are permuted together.
#[derive(Clone, Debug)]
pub struct Window {
    /// Places of its rows in the sequence.
    pub rows: Range<u64>,
    /// None: in the order of the sequence.
    permutation: Option<Permutation>,
}

impl Lane {
    /// Returns the window of an index; empty past the end of the lane.
    pub fn window(&self, index: u64) -> Window {
        let offsets = self.offsets(index);
        let key = self.shuffle.key(b'w', self.index, index);
        let permutation = Permutation::new(offsets.end - offsets.start, key);
        Window { rows: self.start + offsets.start..self.start + offsets.end, permutation: Some(permutation) }
    }

    /// Returns the offsets in the lane of the rows of a window.
    pub fn offsets(&self, window: u64) -> Range<u64> {
        let offsets = self.windows().offsets(window);
        offsets.start.min(self.length)..offsets.end.min(self.length)
    }

    /// Returns the index of the window of an offset.
    pub fn window_at(&self, offset: u64) -> u64 {
        self.windows().index_at(offset)
    }

    /// Returns the place in the sequence of the row at an offset below the lane's length.
    pub fn row_at(&self, offset: u64) -> u64 {
        let index = self.window_at(offset);
        let window = self.window(index);
        window.rows.start + window.at(offset - self.offsets(index).start)
    }

    /// Returns the offset of a row of the lane, by its place in the sequence.
    pub fn offset_of(&self, row: u64) -> u64 {
        let index = self.window_at(row - self.start);
        let window = self.window(index);
        self.offsets(index).start + window.place_of(row - window.rows.start)
    }

    fn windows(&self) -> Windows {
        Windows::of_lane(&self.shuffle, self.index)
    }
}

impl Window {
    /// Creates a window whose rows stay in the order of the sequence.
    pub fn in_order(rows: Range<u64>) -> Self {
        Self { rows, permutation: None }
    }

    /// Returns, for each row of the window in the order of the sequence, its place in the permuted window.
    pub fn places(&self) -> Vec<u32> {
        let mut places = vec![0; (self.rows.end - self.rows.start) as usize];
        for place in 0..places.len() {
            places[self.at(place as u64) as usize] = place as u32;
        }
        places
    }

    /// The row at a place, counted from the window's first.
    fn at(&self, place: u64) -> u64 {
        self.permutation.as_ref().map_or(place, |permutation| permutation.at(place))
    }

    /// The place of a row, counted from the window's first.
    fn place_of(&self, row: u64) -> u64 {
        self.permutation.as_ref().map_or(row, |permutation| permutation.inverse(row))
    }
}
