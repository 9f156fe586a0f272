//! How many positions of a lane are a source's: arithmetic over the pattern's period.
//!
//! Lane ℓ of L has the positions ℓ, ℓ + L, ℓ + 2L … Modulo the period P they run through a cycle of P/g positions, where
//! g = gcd(P, L), and lanes that are equal modulo g share a cycle.

use super::pattern::Pattern;

/// The positions of a pattern in the order of the lanes.
#[derive(Debug)]
pub struct Strides {
    lanes: u64,
    /// Positions of a cycle.
    cycle: u64,
    /// The place of each position of a period: the cycles follow each other.
    places: Vec<u32>,
    /// The places of each source, ascending.
    of_source: Vec<Vec<u32>>,
}

impl Strides {
    /// Creates the strides of a number of lanes, at least 1. Takes time and memory in proportion to the period.
    pub fn new(pattern: &Pattern, lanes: u64) -> Self {
        let (period, cycles) = (pattern.period(), pattern.common_divisor(lanes));
        let cycle = period / cycles;
        let mut places = vec![0; period as usize];
        for first in 0..cycles {
            let mut position = first;
            for place in first * cycle..(first + 1) * cycle {
                places[position as usize] = place as u32;
                position = (position + lanes % period) % period;
            }
        }
        let sorted = |source| {
            let positions = pattern.positions_of(source).iter();
            let mut of_source: Vec<u32> = positions.map(|position| places[*position as usize]).collect();
            of_source.sort_unstable();
            of_source
        };
        let of_source = (0..pattern.counts().len()).map(sorted).collect();
        Self { lanes, cycle, places, of_source }
    }

    /// Returns the number of lanes.
    pub fn lanes(&self) -> u64 {
        self.lanes
    }

    /// Returns how many of a lane's positions below a position are a source's.
    pub fn count_before(&self, source: usize, lane: u64, position: u64) -> u64 {
        self.count(source, lane, position.saturating_sub(lane).div_ceil(self.lanes))
    }

    /// Returns how many of the first positions of a lane are a source's.
    pub fn count(&self, source: usize, lane: u64, positions: u64) -> u64 {
        let place = u64::from(self.places[(lane % self.places.len() as u64) as usize]);
        let start = place - place % self.cycle;
        let (cycles, rest) = (positions / self.cycle, positions % self.cycle);
        let within = |from: u64, to: u64| {
            let before = |place: u64| self.of_source[source].partition_point(|known| u64::from(*known) < place);
            (before(to) - before(from)) as u64
        };
        let end = start + self.cycle;
        let in_rest = match (place + rest).checked_sub(end) {
            None => within(place, place + rest),
            Some(wrapped) => within(place, end) + within(start, start + wrapped),
        };
        cycles * within(start, end) + in_rest
    }
}
