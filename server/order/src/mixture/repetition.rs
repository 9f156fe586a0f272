//! One repetition of a source in a shuffled mixture: its lanes and its row groups.

use super::{Mixture, strides::Strides};
use crate::{Lane, Permutation, Sequence, Shuffle};

/// The order of one repetition of a source.
#[derive(Clone, Debug)]
pub struct Repetition {
    shuffle: Shuffle,
    /// Rows of the source in each lane before the repetition.
    before: Vec<u64>,
    /// The first row of each lane, and the end of the last one.
    starts: Vec<u64>,
}

impl Repetition {
    /// Creates the order of a repetition. Takes time in proportion to the number of lanes.
    pub fn new(mixture: &Mixture, strides: &Strides, source: usize, repetition: u64, shuffle: &Shuffle) -> Self {
        let rows = mixture.sources()[source].rows;
        let position = |repetition: u64| mixture.pattern().position(source, repetition.saturating_mul(rows));
        let (first, end) = (position(repetition), position(repetition.saturating_add(1)));
        let (mut before, mut starts, mut start) = (Vec::new(), vec![0], 0);
        for lane in 0..strides.lanes() {
            let in_lane = strides.count_before(source, lane, first);
            start += strides.count_before(source, lane, end) - in_lane;
            before.push(in_lane);
            starts.push(start);
        }
        Self { shuffle: mixture.source_shuffle(source, repetition, shuffle), before, starts }
    }

    /// Returns the rows of the source in a lane before the repetition.
    pub fn before(&self, lane: u64) -> u64 {
        self.before[lane as usize]
    }

    /// Returns a lane. Rows count from the start of the repetition's sequence.
    pub fn lane(&self, index: u64) -> Lane {
        let (start, end) = (self.starts[index as usize], self.starts[index as usize + 1]);
        Lane { index, start, length: end - start, shuffle: self.shuffle }
    }

    /// Returns T of the repetition, from the passing rows of each row group of the source.
    pub fn sequence(&self, passing: &[u64]) -> Sequence {
        let rows = self.starts.last().copied().unwrap_or(0).max(1);
        let order = Permutation::new(passing.len() as u64, self.shuffle.key(b'g', 0, 0));
        Sequence::permuted(passing, order).rotated(self.shuffle.key(b'r', 0, 0) % rows)
    }
}
