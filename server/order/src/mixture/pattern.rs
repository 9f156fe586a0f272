//! The source of each position: a table of one period, and arithmetic beyond it.
//!
//! Position p is one of D·⌈2¹⁴/D⌉, rounded up to an odd number of times D, positions of a period. The k-th position of
//! source i, counted from 0, is between ⌊k·D/cᵢ⌋ and ⌈(k+1)·D/cᵢ⌉ − 1. Each position has, of the sources whose next one
//! may be there, that whose next one must come first, at the lowest index if several must: a feasible order of unit jobs with
//! total utilization 1 (Baruah, Cohen, Plaxton and Varvel, "Proportionate Progress", 1996).
//!
//! Every second or third position of such an order may have the same source, and so may a lane and a rank. A spread
//! pattern therefore makes passes that swap neighbors p and p + 1 of different sources that may take each other's place,
//! forward in even passes and backward in odd ones:
//! - [`RANDOM_PASSES`] swap where the lowest two bits of the first number of `SplitMix64` seeded with 2³²·pass + p are not
//!   both 0.
//! - [`LEVELING_PASSES`] swap if that makes residues more equal. Let n(s, x) be the positions of source s that the pass has
//!   left behind and that are x modulo R, where R is D, or 240 if D is above [`RESIDUES_MAX`]. With the sources s at p and
//!   t at p + 1, they swap if n(s, p) − n(s, p+1) + n(t, p+1) − n(t, p) > 2.
//!
//! A pattern that is not spread has the period D.

use super::weights::gcd;
use crate::permutation::split_mix;

/// Positions of a period of a spread pattern, at least.
const PERIOD_MIN: u64 = 1 << 14;

/// Passes that swap at random; even.
const RANDOM_PASSES: u64 = 8;

/// Passes that level the residues; even.
const LEVELING_PASSES: u64 = 8;

/// The largest D that is R.
const RESIDUES_MAX: u64 = 1024;

/// R for a larger D: a multiple of most world sizes.
const RESIDUES: u64 = 240;

/// The source of each position.
#[derive(Debug, PartialEq, Eq)]
pub struct Pattern {
    /// cᵢ.
    counts: Vec<u64>,
    /// The source of each position of a period.
    sources: Vec<u8>,
    /// The positions of the same source before each one.
    before: Vec<u32>,
    /// The positions of each source in a period.
    positions: Vec<Vec<u32>>,
}

impl Pattern {
    /// Creates the pattern of sources with the weights cᵢ/D: at most 256, whose sum is at most
    /// [`DENOMINATOR_MAX`](super::DENOMINATOR_MAX).
    pub fn new(counts: &[u64], is_spread: bool) -> Self {
        let denominator: u64 = counts.iter().sum();
        let repeats = if is_spread { PERIOD_MIN.div_ceil(denominator) | 1 } else { 1 };
        let mut sources = earliest_first(counts, denominator);
        sources = sources.repeat(repeats as usize);
        if is_spread && counts.len() > 1 {
            spread(&mut sources, counts, denominator);
        }
        let mut positions = vec![Vec::new(); counts.len()];
        let mut before = Vec::with_capacity(sources.len());
        for (position, source) in sources.iter().enumerate() {
            let of_source: &mut Vec<u32> = &mut positions[usize::from(*source)];
            before.push(of_source.len() as u32);
            of_source.push(position as u32);
        }
        Self { counts: counts.to_vec(), sources, before, positions }
    }

    /// Returns cᵢ.
    pub fn counts(&self) -> &[u64] {
        &self.counts
    }

    /// Returns D.
    pub fn denominator(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Returns ⌈cᵢ/D · rows⌉.
    pub fn share_of(&self, source: usize, rows: u64) -> u64 {
        let product = u128::from(rows) * u128::from(self.counts[source]);
        product.div_ceil(u128::from(self.denominator())) as u64
    }

    /// Returns the source at a position, and how many positions before it are the source's.
    pub fn at(&self, position: u64) -> (usize, u64) {
        let (period, slot) = (position / self.period(), (position % self.period()) as usize);
        let source = usize::from(self.sources[slot]);
        (source, period * self.positions[source].len() as u64 + u64::from(self.before[slot]))
    }

    /// Returns how many of the first positions are a source's.
    pub fn count(&self, source: usize, positions: u64) -> u64 {
        let (periods, rest) = (positions / self.period(), positions % self.period());
        let of_source = &self.positions[source];
        let in_rest = of_source.partition_point(|position| u64::from(*position) < rest);
        periods * of_source.len() as u64 + in_rest as u64
    }

    /// Returns the position of a source's row of an index; the largest number if it is beyond that.
    pub fn position(&self, source: usize, index: u64) -> u64 {
        let of_source = &self.positions[source];
        let (periods, slot) = (index / of_source.len() as u64, (index % of_source.len() as u64) as usize);
        periods.checked_mul(self.period()).map_or(u64::MAX, |start| start.saturating_add(u64::from(of_source[slot])))
    }

    /// Returns the positions of a period.
    pub(super) fn period(&self) -> u64 {
        self.sources.len() as u64
    }

    /// Returns the positions of a source in a period.
    pub(super) fn positions_of(&self, source: usize) -> &[u32] {
        &self.positions[source]
    }

    /// Returns the greatest common divisor of the period and a number of lanes.
    pub(super) fn common_divisor(&self, lanes: u64) -> u64 {
        gcd(self.period(), lanes)
    }
}

/// The first position that may be a source's k-th one, counted from 0.
fn release(index: u64, count: u64, denominator: u64) -> u64 {
    index * denominator / count
}

/// The first position after those that may be a source's k-th one.
fn deadline(index: u64, count: u64, denominator: u64) -> u64 {
    ((index + 1) * denominator).div_ceil(count)
}

/// A period of D positions.
fn earliest_first(counts: &[u64], denominator: u64) -> Vec<u8> {
    let bounds = |index: u64, count: u64| (release(index, count, denominator), deadline(index, count, denominator));
    let mut next: Vec<(u64, u64)> = counts.iter().map(|count| bounds(0, *count)).collect();
    let mut taken = vec![0_u64; counts.len()];
    let mut sources = Vec::with_capacity(denominator as usize);
    for position in 0..denominator {
        let waiting = (0..counts.len()).filter(|source| next[*source].0 <= position);
        let source = waiting.min_by_key(|source| next[*source].1).unwrap_or(0);
        taken[source] += 1;
        next[source] = bounds(taken[source], counts[source]);
        sources.push(source as u8);
    }
    sources
}

/// Decides which neighbors a pass swaps.
enum SwapRule {
    /// At random; the number of the pass.
    Random(u64),
    /// If it levels R residues. The positions of each source that the pass has left behind, by residue.
    Leveling { residues: usize, level: Vec<i64> },
}

impl SwapRule {
    /// Whether to swap the sources at p and p + 1.
    fn swaps(&self, position: u64, left: usize, right: usize) -> bool {
        match self {
            Self::Random(pass) => split_mix(&mut ((pass << 32) + position)) & 3 != 0,
            Self::Leveling { residues, level } => {
                let level = |source: usize, position: u64| level[cell(*residues, source, position)];
                let next = position + 1;
                level(left, position) - level(left, next) + level(right, next) - level(right, position) > 2
            }
        }
    }

    /// Notes the source of a position that the pass leaves behind.
    fn leave(&mut self, position: u64, source: usize) {
        if let Self::Leveling { residues, level } = self {
            level[cell(*residues, source, position)] += 1;
        }
    }
}

fn cell(residues: usize, source: usize, position: u64) -> usize {
    source * residues + (position % residues as u64) as usize
}

/// Swaps neighbors, back and forth.
fn spread(sources: &mut [u8], counts: &[u64], denominator: u64) {
    for pass in 0..RANDOM_PASSES {
        sweep(sources, counts, pass % 2 == 0, SwapRule::Random(pass));
    }
    let residues = if denominator <= RESIDUES_MAX { denominator } else { RESIDUES } as usize;
    for pass in 0..LEVELING_PASSES {
        let level = vec![0; counts.len() * residues];
        sweep(sources, counts, pass % 2 == 0, SwapRule::Leveling { residues, level });
    }
}

/// One pass, from one end to the other.
fn sweep(sources: &mut [u8], counts: &[u64], is_forward: bool, mut rule: SwapRule) {
    let denominator: u64 = counts.iter().sum();
    let last = sources.len().saturating_sub(1);
    // Positions of each source before the pair of a forward pass, and before the end of the pair of a backward one.
    let mut before = vec![0_u64; counts.len()];
    if !is_forward {
        for source in sources.iter() {
            before[usize::from(*source)] += 1;
        }
    }
    for step in 0..last {
        let at = if is_forward { step } else { last - 1 - step };
        let (left, right, position) = (usize::from(sources[at]), usize::from(sources[at + 1]), at as u64);
        let index = |source: usize| before[source] - u64::from(!is_forward);
        let may_swap = left != right
            && position + 1 < deadline(index(left), counts[left], denominator)
            && release(index(right), counts[right], denominator) <= position;
        if may_swap && rule.swaps(position, left, right) {
            sources.swap(at, at + 1);
        }
        let behind = if is_forward { at } else { at + 1 };
        let source = usize::from(sources[behind]);
        rule.leave(behind as u64, source);
        before[source] = if is_forward { before[source] + 1 } else { before[source] - 1 };
    }
}
