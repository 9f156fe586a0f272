//! Keyed permutations of 0…n−1 without a table: a Feistel network over the smallest power of two ≥ n, with cycle
//! walking until the value is below n (Black and Rogaway, "Ciphers with Arbitrary Finite Domains", 2002).
//!
//! The construction is part of the order's format (all versions of it so far): a value of `bits` bits, at least 2, is a
//! left half of ⌊bits/2⌋ bits and a right half of the rest. Even rounds xor `mix(right, key)` into the left half, odd
//! rounds `mix(left, key)` into the right one. There are 8 rounds, or 24 where `bits` is at most 8. Round keys are the
//! `SplitMix64` sequence of the permutation's key.

/// Rounds of the network.
const ROUNDS: usize = 8;

/// Rounds for values of at most [`SMALL_BITS`] bits: round functions of few bits mix little.
const SMALL_ROUNDS: usize = 24;

/// See [`SMALL_ROUNDS`].
const SMALL_BITS: u32 = 8;

/// Multiplier of the round function (Pelle Evensen's and Degski's 64-bit mixers use it).
const MULTIPLIER: u64 = 0xd6e8_feb8_6659_fd93;

/// A permutation of 0…n−1.
#[derive(Clone, Debug)]
pub struct Permutation {
    length: u64,
    right_bits: u32,
    left_mask: u64,
    right_mask: u64,
    keys: [u64; SMALL_ROUNDS],
    rounds: usize,
}

impl Permutation {
    /// Creates the permutation of 0…`length`−1 for a key.
    pub fn new(length: u64, key: u64) -> Self {
        let bits = (u64::BITS - length.saturating_sub(1).leading_zeros()).max(2);
        let left_bits = bits / 2;
        let right_bits = bits - left_bits;
        let rounds = if bits <= SMALL_BITS { SMALL_ROUNDS } else { ROUNDS };
        let (mut state, mut keys) = (key, [0; SMALL_ROUNDS]);
        keys[..rounds].fill_with(|| split_mix(&mut state));
        Self { length, right_bits, left_mask: mask(left_bits), right_mask: mask(right_bits), keys, rounds }
    }

    /// Returns the value at `index`, which is below the length.
    pub fn at(&self, index: u64) -> u64 {
        self.walk(index, Self::forward)
    }

    /// Returns the index of `value`, which is below the length.
    pub fn inverse(&self, value: u64) -> u64 {
        self.walk(value, Self::backward)
    }

    fn walk(&self, start: u64, step: impl Fn(&Self, u64) -> u64) -> u64 {
        if self.length <= 1 {
            return start;
        }
        let mut value = step(self, start);
        // Terminates at `start` at the latest, because the cycle returns to it and it is below the length.
        while value >= self.length {
            value = step(self, value);
        }
        value
    }

    fn forward(&self, value: u64) -> u64 {
        let (mut left, mut right) = self.halves(value);
        for keys in self.keys[..self.rounds].chunks_exact(2) {
            left ^= mix(right, keys[0]) & self.left_mask;
            right ^= mix(left, keys[1]) & self.right_mask;
        }
        left << self.right_bits | right
    }

    fn backward(&self, value: u64) -> u64 {
        let (mut left, mut right) = self.halves(value);
        for keys in self.keys[..self.rounds].chunks_exact(2).rev() {
            right ^= mix(left, keys[1]) & self.right_mask;
            left ^= mix(right, keys[0]) & self.left_mask;
        }
        left << self.right_bits | right
    }

    fn halves(&self, value: u64) -> (u64, u64) {
        (value >> self.right_bits, value & self.right_mask)
    }
}

fn mask(bits: u32) -> u64 {
    (1 << bits) - 1
}

/// Returns 32 bits that depend on every bit of a half and of a round key.
fn mix(half: u64, key: u64) -> u64 {
    let product = (half ^ key).wrapping_mul(MULTIPLIER);
    (product ^ product >> 32).wrapping_mul(MULTIPLIER) >> 32
}

/// Returns the next number of the `SplitMix64` sequence (Steele, Lea and Flood, "Fast Splittable Pseudorandom Number
/// Generators", 2014).
/// Returns the next number of a `SplitMix64` sequence.
pub(super) fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*state ^ *state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

#[cfg(test)]
mod tests {
    use super::Permutation;

    /// Pearson's chi-squared statistic of counts that are expected to be equal.
    fn chi_square(counts: &[u32], expected: f64) -> f64 {
        counts.iter().map(|count| (f64::from(*count) - expected).powi(2) / expected).sum()
    }

    /// The value that the statistic exceeds in about one of 10^6 uniform samples (Wilson and Hilferty).
    fn bound(degrees: f64) -> f64 {
        let spread = 2.0 / (9.0 * degrees);
        degrees * (1.0 - spread + 4.753 * spread.sqrt()).powi(3)
    }

    #[test]
    fn permutations_of_every_length_are_inverted() {
        for length in (0..70).chain([127, 128, 129, 1000, 4096, 10_007]) {
            for key in [0, 1, u64::MAX, 0x1234_5678_9abc_def0] {
                let permutation = Permutation::new(length, key);
                let mut seen = vec![false; length as usize];
                for index in 0..length {
                    let value = permutation.at(index);
                    assert!(!std::mem::replace(&mut seen[value as usize], true), "{length}: {value} twice");
                    assert_eq!(permutation.inverse(value), index);
                }
            }
        }
    }

    #[test]
    fn the_largest_lengths_are_supported() {
        for length in [u64::MAX, 1 << 63, (1 << 63) + 1, 1 << 33] {
            let permutation = Permutation::new(length, 7);
            for index in [0, 1, length / 2, length - 1] {
                let value = permutation.at(index);
                assert!(value < length);
                assert_eq!(permutation.inverse(value), index);
            }
        }
    }

    #[test]
    fn values_are_uniform_at_every_index() {
        const KEYS: u32 = 20_000;
        for length in [2_u64, 3, 4, 5, 6, 7, 8, 9, 12, 16, 17, 33, 100] {
            let n = length as usize;
            let mut counts = vec![0_u32; n * n];
            for key in 0..KEYS {
                let permutation = Permutation::new(length, u64::from(key));
                for index in 0..length {
                    counts[index as usize * n + permutation.at(index) as usize] += 1;
                }
            }
            // A doubly stochastic table of n² cells has (n − 1)² degrees of freedom.
            let degrees = f64::from((n as u32 - 1).pow(2));
            let statistic = chi_square(&counts, f64::from(KEYS) / n as f64);
            assert!(statistic < bound(degrees), "length {length}: {statistic} of {degrees} degrees");
        }
    }

    #[test]
    fn pairs_of_values_are_uniform() {
        const KEYS: u32 = 20_000;
        for length in [3_u64, 4, 5, 7, 8, 11] {
            let n = length as usize;
            for (a, b) in [(0, 1), (0, length - 1), (length / 2, length - 1)] {
                let mut counts = vec![0_u32; n * n];
                for key in 0..KEYS {
                    let permutation = Permutation::new(length, u64::from(key) << 17 | 5);
                    counts[permutation.at(a) as usize * n + permutation.at(b) as usize] += 1;
                }
                let pairs: Vec<u32> = (0..n * n).filter(|cell| cell / n != cell % n).map(|cell| counts[cell]).collect();
                let degrees = pairs.len() as f64 - 1.0;
                let statistic = chi_square(&pairs, f64::from(KEYS) / pairs.len() as f64);
                assert!(statistic < bound(degrees), "length {length}, places {a} {b}: {statistic} of {degrees}");
            }
        }
    }

    #[test]
    fn adjacent_indices_and_keys_are_uncorrelated() {
        const LENGTH: u64 = 16_384;
        /// Correlation of two sequences of values.
        fn correlation(pairs: impl Iterator<Item = (u64, u64)>) -> f64 {
            let half = (LENGTH - 1) as f64 / 2.0;
            let variance = ((LENGTH * LENGTH - 1) as f64) / 12.0;
            pairs.map(|(a, b)| (a as f64 - half) * (b as f64 - half)).sum::<f64>() / (LENGTH as f64 * variance)
        }
        for key in 0..40 {
            let (this, next) = (Permutation::new(LENGTH, key), Permutation::new(LENGTH, key + 1));
            // Five standard deviations of the correlation of LENGTH pairs.
            let bound = 5.0 / (LENGTH as f64).sqrt();
            for lag in [1, 2, 64, LENGTH / 2] {
                let found = correlation((0..LENGTH).map(|index| (this.at(index), this.at((index + lag) % LENGTH))));
                assert!(found.abs() < bound, "key {key}, lag {lag}: {found}");
            }
            let stays = correlation((0..LENGTH).map(|index| (index, this.at(index))));
            let follows = correlation((0..LENGTH).map(|index| (this.at(index), next.at(index))));
            assert!(stays.abs() < bound && follows.abs() < bound, "key {key}: {stays} {follows}");
        }
    }

    #[test]
    fn the_permutation_is_unchanged() {
        // Checkpoints contain positions: a change here requires a new order version.
        let values: Vec<u64> = (0..10).map(|index| Permutation::new(10, 42).at(index)).collect();
        assert_eq!(values, VALUES);
        assert_eq!(Permutation::new(1 << 40, 42).at(12_345), LARGE_VALUE);
    }

    const VALUES: [u64; 10] = [1, 7, 9, 8, 2, 0, 5, 3, 6, 4];
    const LARGE_VALUE: u64 = 916_349_185_429;
}
