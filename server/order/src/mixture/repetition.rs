//! One repetition of a source in a shuffled mixture: its lanes and its row groups.

use std::sync::Arc;

use super::{Mixture, strides::Strides};
use crate::{Lane, Permutation, Sequence, Shuffle, lanes::Lanes};

/// The order of one repetition of a source.
#[derive(Clone, Debug)]
pub struct Repetition {
    shuffle: Shuffle,
    /// Rows of the source in each lane before the repetition.
    before: Vec<u64>,
    lanes: Arc<Lanes>,
}

impl Repetition {
    /// Creates the order of a repetition. Takes time in proportion to the number of lanes.
    pub fn new(mixture: &Mixture, strides: &Strides, source: usize, repetition: u64, shuffle: &Shuffle) -> Self {
        let rows = mixture.sources()[source].rows;
        let position = |repetition: u64| mixture.pattern().position(source, repetition.saturating_mul(rows));
        let (first, end) = (position(repetition), position(repetition.saturating_add(1)));
        let before_in = |lane, position| strides.count_before(source, lane, position);
        let before: Vec<u64> = (0..strides.lanes()).map(|lane| before_in(lane, first)).collect();
        let shuffle = mixture.source_shuffle(source, repetition, shuffle);
        let lanes = Lanes::new(&shuffle, false, |lane| before_in(lane, end) - before[lane as usize]);
        Self { shuffle, before, lanes: Arc::new(lanes) }
    }

    /// Returns the rows of the source in a lane before the repetition.
    pub fn before(&self, lane: u64) -> u64 {
        self.before[lane as usize]
    }

    /// Returns a lane, below their number.
    pub fn lane(&self, index: u64) -> Lane {
        self.lanes.lane(index)
    }

    /// Returns the sequence of the repetition, from the passing rows of each row group of the source.
    pub fn sequence(&self, passing: &[u64]) -> Sequence {
        let rotation = self.lanes.rotation();
        let order = Permutation::new(passing.len() as u64, self.shuffle.key(b'g', 0, 0));
        Sequence::permuted(passing, order, rotation, self.lanes.course(passing))
    }
}
