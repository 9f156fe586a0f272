//! Exact sums of numbers and of their squares, and mean and deviation rounded once from them.
//!
//! A float64 is an integer times a power of two, so a sum of them is an integer multiple of 2⁻¹⁰⁷⁴, and a sum of their
//! squares one of 2⁻²¹⁴⁸. Both are stored in full, as 32-bit digits in 64-bit words that rarely carry (the
//! superaccumulator of Neal, "Fast exact summation using small and large superaccumulators", 2015). Therefore the
//! result does not depend on the order of the values or on the sizes of batches.

use num_bigint::{BigInt, BigUint, Sign};

/// Bits of a digit.
const DIGIT_BITS: u32 = 32;

/// Values after which carries are propagated: each adds less than 2³⁴ to a word, which holds 2⁶³.
const VALUES_BETWEEN_CARRIES: u32 = 1 << 28;

/// Exponent of the smallest positive float64.
const UNIT_EXPONENT: i32 = -1074;

/// Words of a sum of squares in full: twice 1074 bits after the binary point, twice 1024 before it, and 64 for the count, with
/// room for the sign. A sum has half as many.
const WORDS_MAX: usize = (2 * (1074 + 1024) + 64) / DIGIT_BITS as usize + 4;

/// Words that one value changes.
const VALUE_WORDS: usize = 3;

/// Bits of a quotient or a root before rounding: more than the 53 of a float64 and the bit that decides the rounding.
/// The rest is reduced to whether it is zero.
const QUOTIENT_BITS: u64 = 66;

/// The exact sum and sum of squares of values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Moments {
    count: u64,
    sum: Digits,
    squares: Digits,
    /// Whether a value was infinite; then there is no sum.
    is_infinite: bool,
}

/// An integer, as the sum of its words times powers of 2³². Only the words between those that values have changed are stored:
/// a few, unless values are of very different magnitudes.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Digits {
    words: Vec<i64>,
    /// The power of the first word.
    first: usize,
    values_until_carry: u32,
}

impl Moments {
    /// Creates the moments of no values.
    pub(super) fn new() -> Self {
        Self { count: 0, sum: Digits::new(), squares: Digits::new(), is_infinite: false }
    }

    /// Adds a float. NaN is treated like an infinity: there is no mean.
    pub(super) fn add(&mut self, value: f64) {
        if !value.is_finite() {
            self.is_infinite = true;
            self.count += 1;
            return;
        }
        let (whole, place) = scaled(value);
        self.add_scaled(value.is_sign_negative(), whole, place);
    }

    /// Adds an integer.
    pub(super) fn add_integer(&mut self, is_negative: bool, magnitude: u64) {
        self.add_scaled(is_negative, magnitude, UNIT_EXPONENT.unsigned_abs());
    }

    fn add_scaled(&mut self, is_negative: bool, whole: u64, place: u32) {
        self.count += 1;
        if whole == 0 {
            return;
        }
        self.sum.add(is_negative, whole, place);
        let square = u128::from(whole) * u128::from(whole);
        self.squares.add(false, square as u64, 2 * place);
        self.squares.add(false, (square >> 64) as u64, 2 * place + 64);
    }

    /// Adds the values of another accumulator.
    pub(super) fn merge(&mut self, other: &Self) {
        self.count += other.count;
        self.is_infinite |= other.is_infinite;
        self.sum.merge(&other.sum);
        self.squares.merge(&other.squares);
    }

    /// Returns the mean, rounded once to the nearest float64, ties to even; NaN without values or with an infinite one.
    pub(super) fn mean(&self) -> f64 {
        if self.count == 0 || self.is_infinite {
            return f64::NAN;
        }
        let sum = self.sum.total();
        let mean = rounded_quotient(sum.magnitude(), &BigUint::from(self.count), UNIT_EXPONENT.into());
        if sum.sign() == Sign::Minus { -mean } else { mean }
    }

    /// Returns the population's standard deviation √(Σx²/n − (Σx/n)²), rounded once; NaN if there is no mean.
    pub(super) fn deviation(&self) -> f64 {
        if self.count == 0 || self.is_infinite {
            return f64::NAN;
        }
        // n² times the variance is an integer multiple of the unit, so the difference is exact.
        let sum = self.sum.total();
        let scaled = self.squares.total() * self.count - &sum * &sum;
        let count = BigUint::from(self.count);
        rounded_root(scaled.magnitude(), &(&count * &count), UNIT_EXPONENT.into())
    }

    /// Serializes the state, to be merged elsewhere.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut carried = self.clone();
        let mut bytes = Vec::new();
        for digits in [&mut carried.sum, &mut carried.squares] {
            digits.carry();
            let head = [digits.first as u64, digits.words.len() as u64];
            bytes.extend(head.into_iter().flat_map(u64::to_le_bytes));
            bytes.extend(digits.words.iter().flat_map(|word| word.to_le_bytes()));
        }
        bytes.extend(self.count.to_le_bytes());
        bytes.push(self.is_infinite.into());
        bytes
    }

    /// Reads the result of [`Self::to_bytes`]; `None` for other bytes.
    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (is_infinite, words) = bytes.split_last()?;
        let (words, rest) = words.as_chunks();
        let mut words = words.iter().map(|word| u64::from_le_bytes(*word));
        let (sum, squares, count) = (Digits::read(&mut words)?, Digits::read(&mut words)?, words.next()?);
        let is_whole = rest.is_empty() && words.next().is_none();
        is_whole.then_some(Self { count, sum, squares, is_infinite: *is_infinite != 0 })
    }

    /// Returns the number of values.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// Returns the bytes on the heap.
    pub(super) fn heap_bytes(&self) -> usize {
        (self.sum.words.capacity() + self.squares.words.capacity()) * size_of::<i64>()
    }
}

// === impl Digits ===

impl Digits {
    fn new() -> Self {
        Self { words: Vec::new(), first: 0, values_until_carry: VALUES_BETWEEN_CARRIES }
    }

    /// Reads the power of the first word, the number of words and the words.
    fn read(words: &mut impl Iterator<Item = u64>) -> Option<Self> {
        let (first, count) = (usize::try_from(words.next()?).ok()?, usize::try_from(words.next()?).ok()?);
        if first > WORDS_MAX || count > WORDS_MAX {
            return None;
        }
        let read: Vec<i64> = words.take(count).map(u64::cast_signed).collect();
        (read.len() == count).then_some(Self { words: read, first, values_until_carry: VALUES_BETWEEN_CARRIES })
    }

    /// Stores `count` words from a power on.
    #[cold]
    fn widen(&mut self, first: usize, count: usize) {
        if self.words.is_empty() {
            self.first = first;
        }
        if first < self.first {
            self.words.splice(..0, std::iter::repeat_n(0, self.first - first));
            self.first = first;
        }
        let words = (first + count - self.first).max(self.words.len());
        self.words.resize(words, 0);
    }

    fn has(&self, first: usize, count: usize) -> bool {
        self.first <= first && first + count <= self.first + self.words.len()
    }

    /// Adds ±`whole` × 2^`place`.
    fn add(&mut self, is_negative: bool, whole: u64, place: u32) {
        let first = (place / DIGIT_BITS) as usize;
        let shifted = u128::from(whole) << (place % DIGIT_BITS);
        let digits = [shifted as u32, (shifted >> 32) as u32, (shifted >> 64) as u32].map(i64::from);
        if !self.has(first, VALUE_WORDS) {
            self.widen(first, VALUE_WORDS);
        }
        let at = first - self.first;
        for (word, digit) in self.words[at..at + VALUE_WORDS].iter_mut().zip(digits) {
            *word += if is_negative { -digit } else { digit };
        }
        self.values_until_carry -= 1;
        if self.values_until_carry == 0 {
            self.carry();
        }
    }

    fn merge(&mut self, other: &Self) {
        if other.words.is_empty() {
            return;
        }
        let mut other = other.clone();
        other.carry();
        self.carry();
        if !self.has(other.first, other.words.len()) {
            self.widen(other.first, other.words.len());
        }
        let at = other.first - self.first;
        for (word, more) in self.words[at..].iter_mut().zip(&other.words) {
            *word += more;
        }
        self.carry();
    }

    /// Propagates the bits beyond 32 of each word to the next; only the last word may be negative.
    fn carry(&mut self) {
        self.values_until_carry = VALUES_BETWEEN_CARRIES;
        let Some((last, words)) = self.words.split_last_mut() else { return };
        let mut carry = 0;
        for word in words {
            let whole = *word + carry;
            carry = whole >> DIGIT_BITS;
            *word = whole & i64::from(u32::MAX);
        }
        *last += carry;
        if last.unsigned_abs() > u64::from(u32::MAX) {
            let more = *last >> DIGIT_BITS;
            *last &= i64::from(u32::MAX);
            self.words.push(more);
        }
    }

    fn total(&self) -> BigInt {
        let mut carried = self.clone();
        carried.carry();
        let Some((last, digits)) = carried.words.split_last() else { return BigInt::ZERO };
        let digits: Vec<u32> = digits.iter().map(|word| *word as u32).collect();
        let whole = (BigInt::from(*last) << (digits.len() * DIGIT_BITS as usize)) + BigInt::from(BigUint::new(digits));
        whole << (self.first * DIGIT_BITS as usize)
    }
}

/// Returns the magnitude of a finite float64 as an integer times 2^(place − 1074).
pub(super) fn scaled(value: f64) -> (u64, u32) {
    let bits = value.to_bits();
    let fraction = bits & ((1 << 52) - 1);
    let biased = ((bits >> 52) & 0x7ff) as u32;
    if biased == 0 { (fraction, 0) } else { (fraction | 1 << 52, biased - 1) }
}

// === rounding ===

/// Returns units × 2⁻¹⁰⁷⁴, rounded to the nearest float64; infinite beyond its range.
pub(super) fn rounded(units: &BigInt) -> f64 {
    let magnitude = nearest(units.magnitude(), true, UNIT_EXPONENT.into());
    if units.sign() == Sign::Minus { -magnitude } else { magnitude }
}

/// Returns numerator / denominator × 2^exponent, rounded to the nearest float64.
fn rounded_quotient(numerator: &BigUint, denominator: &BigUint, exponent: i64) -> f64 {
    let shift = (QUOTIENT_BITS + denominator.bits()).saturating_sub(numerator.bits());
    let shifted = numerator << shift;
    let quotient = &shifted / denominator;
    let is_exact = &quotient * denominator == shifted;
    nearest(&quotient, is_exact, exponent - shift as i64)
}

/// Returns √(numerator / denominator) × 2^exponent, rounded to the nearest float64.
fn rounded_root(numerator: &BigUint, denominator: &BigUint, exponent: i64) -> f64 {
    let half_shift = (2 * QUOTIENT_BITS + denominator.bits()).saturating_sub(numerator.bits()).div_ceil(2);
    let shifted = numerator << (2 * half_shift);
    let root = (&shifted / denominator).sqrt();
    let is_exact = &root * &root * denominator == shifted;
    nearest(&root, is_exact, exponent - half_shift as i64)
}

/// Returns whole × 2^exponent, rounded to the nearest float64, ties to even. If it is not exact, the true value is
/// slightly larger.
fn nearest(whole: &BigUint, is_exact: bool, exponent: i64) -> f64 {
    if whole.bits() == 0 {
        return 0.0;
    }
    // The exponent of the result's last bit: 53 bits, fewer for numbers below 2^-1022.
    let last = (whole.bits() as i64 + exponent - 53).max(UNIT_EXPONENT.into());
    let dropped = u64::try_from(last - exponent).unwrap_or(0);
    let kept = whole >> dropped;
    let rest = whole - (&kept << dropped);
    let half = if dropped == 0 { BigUint::ZERO } else { BigUint::from(1_u32) << (dropped - 1) };
    let kept = u64::try_from(kept).unwrap_or(u64::MAX);
    let is_above = rest > half || (rest == half && dropped > 0 && (!is_exact || kept % 2 == 1));
    // At most 2^53 times a power of two: exact, or infinite.
    (kept + u64::from(is_above)) as f64 * power_of_two(exponent + dropped as i64)
}

/// Returns 2^exponent; exponents below the smallest float64 yield that.
fn power_of_two(exponent: i64) -> f64 {
    if exponent > 1023 {
        return f64::INFINITY;
    }
    let bits = if exponent >= -1022 { ((exponent + 1023) as u64) << 52 } else { 1 << (exponent + 1074).max(0) };
    f64::from_bits(bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_those_between_the_values_in_any_order() {
        let values = [-1.5, 1e300, 5e-324, -1e300, 3.25, f64::MAX, -f64::MAX, -0.0, 2.0_f64.powi(64)];
        let mut forwards = Moments::new();
        for value in values {
            forwards.add(value);
        }
        for cut in 0..values.len() {
            let (mut one, mut other) = (Moments::new(), Moments::new());
            for (place, value) in values.into_iter().enumerate().rev() {
                if place < cut { one.add(value) } else { other.add(value) }
            }
            // Merging and carrying an empty or a negative sum many times changes nothing.
            for _ in 0..100 {
                one.merge(&Moments::new());
                one = Moments::from_bytes(&one.to_bytes()).unwrap();
            }
            other.merge(&one);
            assert_eq!((other.mean(), other.deviation()), (forwards.mean(), forwards.deviation()), "{cut}");
            assert!(other.sum.words.len() < WORDS_MAX / 2 + 4 && other.squares.words.len() < WORDS_MAX + 4);
        }
    }

    #[test]
    fn values_of_one_magnitude_need_few_words() {
        let mut moments = Moments::new();
        (0..100_000).for_each(|value| moments.add(f64::from(value) * -0.25));
        assert!(moments.heap_bytes() < 200, "{}", moments.heap_bytes());
        moments.merge(&moments.clone());
        assert!(moments.to_bytes().len() < 200, "{}", moments.to_bytes().len());
        let mut cut = moments.to_bytes();
        cut.remove(3);
        assert!(Moments::from_bytes(&cut).is_none() && Moments::from_bytes(&[]).is_none());
    }

    #[test]
    fn words_carry_before_they_overflow() {
        let mut digits = Digits::new();
        let units = VALUES_BETWEEN_CARRIES / 4;
        digits.values_until_carry = units;
        // As if a quarter of the values between carries had been added, several times.
        for _ in 0..5 {
            digits.add(true, u64::MAX, 31);
            digits.words.iter_mut().for_each(|word| *word *= i64::from(units));
            digits.carry();
        }
        let negated = -digits.total();
        let mut expected = BigInt::ZERO;
        for _ in 0..5 {
            expected = (expected + (BigInt::from(u64::MAX) << 31_u32)) * units;
        }
        assert_eq!(negated, expected);
    }
}
