//! The order of a mixture: global position → source and row of the source, and back.
//!
//! Source i has weight cᵢ/D, where D = Σcᵢ ([`quantize`]). A [`Pattern`] assigns a source to every position, so that of
//! the first p positions more than p·cᵢ/D − 1 and fewer than p·cᵢ/D + 1 are of source i. It depends on the weights
//! alone: not on seed, epoch, lanes or world size. The j-th position of source i has row j mod nᵢ of the ⌊j/nᵢ⌋-th
//! repetition of the source, which has nᵢ rows. The epoch ends at the first position for which a source that does not
//! repeat has no row left.
//!
//! **In file order** the rows of each repetition are in file order.
//!
//! **Shuffled**, position p is in lane p mod L. Each repetition of a source is divided into L lanes as well: lane ℓ has
//! as many of its rows as it has positions in lane ℓ, so a lane of the mixture reads only its own lane of each source.
//! A repetition's row groups are permuted and then rotated by a number of rows, so that an epoch that ends before the
//! repetition has other rows than the epoch before. Lanes are permuted window by window as in an [`Epoch`](super::Epoch),
//! with windows of max(⌈w·cᵢ/D⌉, 1) rows. The seed of repetition k of source i is XXH3-64 (seed 0) of
//! `forebay mixture`, a zero byte, and the request's seed, i and k as 8 little-endian bytes each; the rotation is the
//! key of letter `r`, modulo nᵢ.

mod pattern;
mod repetition;
mod seed;
mod strides;
mod weights;

use std::sync::Arc;

pub use pattern::Pattern;
pub use repetition::Repetition;
pub use strides::Strides;
pub use weights::{DENOMINATOR_MAX, WeightProblem, exact, quantize};

use super::Shuffle;
use seed::source_seed;

/// Limit of the sources of a mixture.
pub const SOURCES_MAX: usize = 64;

/// Rows of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MixedRows {
    /// Rows of a repetition; at least 1.
    pub rows: u64,
    /// Whether the source begins again after its last row.
    pub repeats: bool,
}

/// The position of a row in its source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MixedRow {
    /// Index of the source.
    pub source: usize,
    /// How often the source has begun again before.
    pub repetition: u64,
    /// Index of the row in the repetition's order.
    pub index: u64,
}

/// An epoch of a mixture.
#[derive(Clone, Debug)]
pub struct Mixture {
    pattern: Arc<Pattern>,
    sources: Vec<MixedRows>,
    row_count: u64,
}

impl Mixture {
    /// Creates an epoch; none if every source repeats, for then it has no end.
    pub fn new(pattern: Arc<Pattern>, sources: Vec<MixedRows>) -> Option<Self> {
        let ends = sources.iter().enumerate().filter(|(_, source)| !source.repeats);
        let row_count = ends.map(|(index, source)| pattern.position(index, source.rows)).min()?;
        Some(Self { pattern, sources, row_count })
    }

    /// Returns the rows of an epoch.
    pub fn row_count(&self) -> u64 {
        self.row_count
    }

    /// Returns the assignment of positions to sources.
    pub fn pattern(&self) -> &Pattern {
        &self.pattern
    }

    /// Returns the rows of each source.
    pub fn sources(&self) -> &[MixedRows] {
        &self.sources
    }

    /// Returns how many rows of a source an epoch has.
    pub fn rows_of(&self, source: usize) -> u64 {
        self.pattern.count(source, self.row_count)
    }

    /// Returns the row at a position.
    pub fn row_at(&self, position: u64) -> MixedRow {
        let (source, index) = self.pattern.at(position);
        let rows = self.sources[source].rows;
        MixedRow { source, repetition: index / rows, index: index % rows }
    }

    /// Returns the position of a row.
    pub fn position_of(&self, row: MixedRow) -> u64 {
        let index = row.repetition.saturating_mul(self.sources[row.source].rows).saturating_add(row.index);
        self.pattern.position(row.source, index)
    }

    /// Returns the parameters of a source's shuffle, in a shuffled mixture with these.
    pub fn source_shuffle(&self, source: usize, repetition: u64, shuffle: &Shuffle) -> Shuffle {
        let window_rows = self.pattern.share_of(source, shuffle.window_rows);
        Shuffle { seed: source_seed(shuffle.seed, source, repetition), window_rows, ..*shuffle }
    }
}

#[cfg(test)]
mod tests;
