//! XXH3-64 of values, and remainders by a fixed divisor.

use std::hint::black_box;

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::error::OpProblem;

/// The hash of text or bytes. The branches of XXH3 for up to 16 bytes are implemented here so that they are inlined,
/// since most values are that short; longer values use the crate.
#[inline(always)]
pub(crate) fn bytes(bytes: &[u8], seed: u64) -> u64 {
    match bytes.len() {
        4..=8 => up_to_8(bytes, seed),
        9..=16 => up_to_16(bytes, seed),
        1..=3 => up_to_3(bytes, seed),
        _ => xxh3_64_with_seed(bytes, seed),
    }
}

/// Hashes many values of 4 to 16 bytes at once: computes both of XXH3's branches and selects one result, so that loops
/// over it vectorize.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ByEnds {
    seed: u64,
    secret: Halves,
}

impl ByEnds {
    pub(crate) fn new(seed: u64) -> Self {
        Self { seed, secret: Halves::hidden(LONG_SECRETS.1.wrapping_sub(seed)) }
    }

    /// Hashes a value by the eight bytes from its start and the eight bytes before its end; bytes of these outside the
    /// value have no effect.
    #[inline(always)]
    pub(crate) fn hash(self, first: u64, last: u64, len: u64) -> u64 {
        let short = joined((first << 32) | (last >> 32), len, self.seed);
        let of_last = Halves { low: last ^ self.secret.low, high: (last >> 32) ^ self.secret.high };
        let long = long(first, last, len, self.seed, |low, _| of_last.upper_product(low));
        if len <= 8 { short } else { long }
    }
}

#[inline(always)]
fn up_to_3(bytes: &[u8], seed: u64) -> u64 {
    /// Bytes 0 to 3 of XXH3's default secret XOR bytes 4 to 7.
    const SECRET: u32 = 0x396c_feb8 ^ 0xbe4b_a423;
    let (len, byte) = (bytes.len(), |place: usize| u32::from(bytes[place]));
    let joined = (byte(0) << 16) | (byte(len / 2) << 24) | byte(len - 1) | ((len as u32) << 8);
    let mixed = u64::from(joined) ^ u64::from(SECRET).wrapping_add(seed);
    let mixed = (mixed ^ (mixed >> 33)).wrapping_mul(0xc2b2_ae3d_27d4_eb4f);
    let mixed = (mixed ^ (mixed >> 29)).wrapping_mul(0x1656_67b1_9e37_79f9);
    mixed ^ (mixed >> 32)
}

#[inline(always)]
fn up_to_8(bytes: &[u8], seed: u64) -> u64 {
    let first = bytes.first_chunk().map_or(0, |chunk| u32::from_le_bytes(*chunk));
    let last = bytes.last_chunk().map_or(0, |chunk| u32::from_le_bytes(*chunk));
    joined((u64::from(first) << 32) | u64::from(last), bytes.len() as u64, seed)
}

#[inline(always)]
fn up_to_16(bytes: &[u8], seed: u64) -> u64 {
    let first = bytes.first_chunk().map_or(0, |chunk| u64::from_le_bytes(*chunk));
    let last = bytes.last_chunk().map_or(0, |chunk| u64::from_le_bytes(*chunk));
    long(first, last, bytes.len() as u64, seed, high)
}

/// Bytes 24 to 31 of XXH3's default secret XOR bytes 32 to 39, and bytes 40 to 47 XOR bytes 48 to 55.
const LONG_SECRETS: (u64, u64) =
    (0x1f67_b3b7_a4a4_4072 ^ 0x78e5_c0cc_4ee6_79cb, 0x2172_ffcc_7dd0_5a82 ^ 0x8e24_43f7_7446_08b8);

/// The hash of 9 to 16 bytes: the first eight and the last eight.
#[inline(always)]
fn long(first: u64, last: u64, len: u64, seed: u64, high_of: impl Fn(u64, u64) -> u64) -> u64 {
    let low = first ^ LONG_SECRETS.0.wrapping_add(seed);
    let high = last ^ LONG_SECRETS.1.wrapping_sub(seed);
    let folded = low.wrapping_mul(high) ^ high_of(low, high);
    let mixed = len.wrapping_add(low.swap_bytes()).wrapping_add(high).wrapping_add(folded);
    let mixed = (mixed ^ (mixed >> 37)).wrapping_mul(0x1656_6791_9e37_79f9);
    mixed ^ (mixed >> 32)
}

/// The hash of the 8 little-endian bytes of an integer: XXH3's branch for 4 to 8 bytes, without branches or memory
/// accesses, so that loops over it vectorize.
#[inline(always)]
pub(crate) fn word(word: u64, seed: u64) -> u64 {
    joined(word.rotate_left(32), 8, seed)
}

/// The hash of 4 to 8 bytes: the first four in the upper half, the last four in the lower half.
#[inline(always)]
fn joined(word: u64, len: u64, seed: u64) -> u64 {
    /// Bytes 8 to 15 of XXH3's default secret XOR bytes 16 to 23.
    const SECRET: u64 = 0x1cad_21f7_2c81_017c ^ 0xdb97_9083_e96d_d4de;
    const FACTOR: u64 = 0x9fb2_1c65_1e98_df25;
    let seed = seed ^ (u64::from((seed as u32).swap_bytes()) << 32);
    let mixed = word ^ SECRET.wrapping_sub(seed);
    let mixed = mixed ^ mixed.rotate_left(49) ^ mixed.rotate_left(24);
    let mixed = mixed.wrapping_mul(FACTOR);
    let mixed = (mixed ^ ((mixed >> 35) + len)).wrapping_mul(FACTOR);
    mixed ^ (mixed >> 28)
}

/// The upper half of a product.
#[inline(always)]
fn high(a: u64, b: u64) -> u64 {
    ((u128::from(a) * u128::from(b)) >> 64) as u64
}

const LOW: u64 = 0xffff_ffff;

/// A factor as two halves, whose products exist as vector instructions. The halves are hidden from the compiler, which
/// would otherwise combine them into a 64-bit multiplication, which does not vectorize.
#[derive(Clone, Copy, Debug)]
struct Halves {
    low: u64,
    high: u64,
}

impl Halves {
    fn hidden(factor: u64) -> Self {
        Self { low: black_box(factor & LOW), high: black_box(factor >> 32) }
    }

    /// The upper half of the product with a number.
    #[inline(always)]
    fn upper_product(self, number: u64) -> u64 {
        let (low, high) = (number & LOW, number >> 32);
        let (self_low, self_high) = (self.low & LOW, self.high & LOW);
        let middle = high * self_low + ((low * self_low) >> 32);
        let other = low * self_high + (middle & LOW);
        high * self_high + (middle >> 32) + (other >> 32)
    }
}

/// The bits that identify a float: all zeros are equal, and all NaNs.
#[inline(always)]
pub(crate) fn float_bits(value: f64) -> u64 {
    const NAN: u64 = 0x7ff8_0000_0000_0000;
    let bits = if value == 0.0 { 0 } else { value.to_bits() };
    if value.is_nan() { NAN } else { bits }
}

/// A divisor from 1 to 2^63 − 1, applied with a multiplication (Granlund and Montgomery, 1994).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Modulus {
    divisor: u64,
    factor: u64,
    shift: u32,
}

impl Modulus {
    /// The divisor of an op's `buckets`.
    pub(crate) fn of_buckets(buckets: u64) -> Result<Self, OpProblem> {
        if buckets == 0 || i64::try_from(buckets).is_err() {
            return Err(OpProblem::Parameter(format!("buckets must be from 1 to 2^63 - 1, not {buckets}")));
        }
        // ⌈2^(64 + ⌈log₂ d⌉) / d⌉ has 65 bits, of which the lowest 64 are stored.
        let log = u64::BITS - (buckets - 1).leading_zeros();
        let factor = ((((1_u128 << log) - u128::from(buckets)) << 64) / u128::from(buckets)) as u64;
        Ok(Self { divisor: buckets, factor: factor.wrapping_add(1), shift: log.saturating_sub(1) })
    }

    pub(crate) fn divisor(self) -> u64 {
        self.divisor
    }

    /// The remainder of a value.
    #[inline(always)]
    pub(crate) fn remainder(self, value: u64) -> u64 {
        self.remainder_by(value, high)
    }

    /// A function that computes remainders in loops that vectorize.
    pub(crate) fn vectorized_remainder(self) -> impl Fn(u64) -> u64 + Copy {
        let factor = Halves::hidden(self.factor);
        #[inline(always)]
        move |value| self.remainder_by(value, |value, _| factor.upper_product(value))
    }

    /// A function with half the operations of [`Self::vectorized_remainder`], for divisors of at least 2^14; `None` for
    /// others.
    ///
    /// The quotient is below 2^50 and, computed in f64 with three roundings, off by less than 3/8. Rounded to the
    /// nearest integer it is off by less than 1, so the remainder is between −d and d.
    pub(crate) fn remainder_of_large(self) -> Option<impl Fn(u64) -> u64 + Copy> {
        /// 2^52: adding it to a smaller number rounds that number to an integer in the lowest bits.
        const ROUND: f64 = 4_503_599_627_370_496.0;
        let (divisor, inverse) = (self.divisor, 1.0 / self.divisor as f64);
        let rest = move |value: u64| {
            let quotient = (value as f64 * inverse + ROUND).to_bits().wrapping_sub(ROUND.to_bits());
            let rest = value.wrapping_sub(quotient.wrapping_mul(divisor));
            rest.min(rest.wrapping_add(divisor))
        };
        (divisor >= 1 << 14).then_some(rest)
    }

    #[inline(always)]
    fn remainder_by(self, value: u64, high_of: impl Fn(u64, u64) -> u64) -> u64 {
        let high = high_of(value, self.factor);
        // (value + high) / 2 without overflow. The quotient of a divisor of 1 is the value.
        let half = ((value - high) >> 1) + high;
        let quotient = if self.divisor == 1 { value } else { half >> self.shift };
        value.wrapping_sub(quotient.wrapping_mul(self.divisor))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use xxhash_rust::xxh3::xxh3_64_with_seed;

    use super::*;

    proptest! {
        #[test]
        fn an_integer_hashes_as_its_bytes(value: u64, seed: u64) {
            prop_assert_eq!(word(value, seed), xxh3_64_with_seed(&value.to_le_bytes(), seed));
            prop_assert_eq!(word(value, 0), xxh3_64_with_seed(&value.to_le_bytes(), 0));
        }

        #[test]
        fn bytes_hash_as_in_the_crate(value in prop::collection::vec(any::<u8>(), 0..40), seed: u64) {
            prop_assert_eq!(bytes(&value, seed), xxh3_64_with_seed(&value, seed));
            prop_assert_eq!(bytes(&value, 0), xxh3_64_with_seed(&value, 0));
            if let (4..=16, padding) = (value.len(), [7; 8]) {
                let padded = [&padding[..], &value, &padding].concat();
                let first = u64::from_le_bytes(*padded[8..].first_chunk().unwrap());
                let last = u64::from_le_bytes(*padded[..8 + value.len()].last_chunk().unwrap());
                let hash = ByEnds::new(seed).hash(first, last, value.len() as u64);
                prop_assert_eq!(hash, xxh3_64_with_seed(&value, seed));
            }
        }

        #[test]
        fn remainders_equal_those_of_division(value: u64, bits in 0_u32..63, low: u64) {
            let divisor = (1 << bits) | (low & ((1 << bits) - 1));
            let modulus = Modulus::of_buckets(divisor).unwrap();
            for value in [value, 0, 1, divisor - 1, divisor, divisor + 1, u64::MAX, u64::MAX - divisor] {
                prop_assert_eq!(modulus.remainder(value), value % divisor);
                prop_assert_eq!(modulus.vectorized_remainder()(value), value % divisor);
                prop_assert!(modulus.remainder_of_large().is_none_or(|remainder| remainder(value) == value % divisor));
            }
        }
    }

    #[test]
    fn remainders_are_exact_for_boundary_divisors() {
        for divisor in (1..2000).chain((1 << 14) - 9..(1 << 14) + 999).chain([
            (1 << 32) - 1,
            1 << 32,
            (1 << 32) + 1,
            (1 << 62) + 1,
            i64::MAX as u64,
        ]) {
            let modulus = Modulus::of_buckets(divisor).unwrap();
            for value in [0, 1, divisor - 1, divisor, 2 * divisor - 1, 2 * divisor, u64::MAX - 1, u64::MAX] {
                assert_eq!(modulus.remainder(value), value % divisor, "{value} % {divisor}");
                assert_eq!(modulus.vectorized_remainder()(value), value % divisor, "{value} % {divisor}");
                let large = modulus.remainder_of_large();
                assert!(large.is_none_or(|remainder| remainder(value) == value % divisor), "{value} % {divisor}");
            }
        }
    }
}
