//! `hash_bucket`: XXH3-64 with a seed, modulo `buckets`. In Python: `xxhash.xxh3_64_intdigest(bytes, seed) % buckets`.
//!
//! The bytes of a value are part of the format, so that any implementation can serve a model:
//! - integers: 8 little-endian bytes, of the i64 or, for `UInt64` columns, of the u64. So −1 and 2^64 − 1 have the same
//!   hash, and 7 has the same hash in every width;
//! - dates and times: as integers, the stored count of the stored unit. The same instant in another unit, or the same
//!   day as Date32 and Date64, has another hash: cast such columns to one type first if files or datasets differ;
//! - floats and decimals: the 8 little-endian bytes of the f64, where −0.0 is 0.0 and every NaN is
//!   `0x7ff8000000000000`;
//! - text: its UTF-8; bytes: themselves.
//!
//! Null stays null. `buckets` is from 1 to 2^63 − 1, so that an index is an i64.

use super::{
    hash::{self, Modulus},
    number_op::NumberOp,
};
use crate::{error::OpProblem, vector::tile::Tile};

/// The parameters.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HashBucket {
    modulus: Modulus,
    seed: u64,
}

impl HashBucket {
    pub(crate) fn compile(buckets: u64, seed: u64) -> Result<Self, OpProblem> {
        Ok(Self { modulus: Modulus::of_buckets(buckets)?, seed })
    }

    pub(crate) fn cardinality(self) -> u64 {
        self.modulus.divisor()
    }

    /// The bucket of a value's bytes.
    #[inline(always)]
    pub(crate) fn bytes(self, bytes: &[u8]) -> i64 {
        self.modulus.remainder(hash::bytes(bytes, self.seed)) as i64
    }

    pub(crate) fn seed(self) -> u64 {
        self.seed
    }

    /// Turns a tile of hashes into buckets.
    pub(crate) fn to_buckets(self, tile: &mut Tile) {
        if let Some(remainder) = self.modulus.remainder_of_large() {
            return tile.map_ints(
                #[inline(always)]
                move |hash| remainder(hash as u64) as i64,
                |_| 0,
            );
        }
        let remainder = self.modulus.vectorized_remainder();
        tile.map_ints(
            #[inline(always)]
            move |hash| remainder(hash as u64) as i64,
            |_| 0,
        );
    }
}

impl NumberOp for HashBucket {
    fn apply(&self, tile: &mut Tile) {
        let seed = self.seed;
        tile.map_to_ints(
            #[inline(always)]
            move |value| hash::word(value as u64, seed) as i64,
            #[inline(always)]
            move |value| hash::word(value, seed) as i64,
            #[inline(always)]
            move |value| hash::word(hash::float_bits(value), seed) as i64,
        );
        self.to_buckets(tile);
    }

    #[cfg(feature = "cuda")]
    fn write(&self, writer: &mut crate::cuda::writer::Writer) {
        let first = writer.group(&[self.cardinality(), self.seed]);
        writer.assign_int(&format!("hash_bucket(value_bits({}), {first})", writer.value()));
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{BinaryArray, StringArray, UInt64Array};

    use crate::{
        Op,
        testing::{assert_ints, compile_error, doubles, evaluate, ints, singles},
    };

    fn hash(buckets: u64, seed: u64) -> [Op; 1] {
        [Op::HashBucket { buckets, seed }]
    }

    const MOST: u64 = i64::MAX as u64;

    /// `[xxhash.xxh3_64_intdigest(struct.pack('<q', v), seed=s) % 1000 for v in (0, 1, -1, 2**53 + 1)]` for s in 0, 42
    #[test]
    fn integers_hash_as_8_little_endian_bytes() {
        let column = ints(&[Some(0), Some(1), Some(-1), Some((1 << 53) + 1), None]);
        assert_ints(&evaluate(&hash(1000, 0), column.clone()), &[Some(897), Some(78), Some(627), Some(472), None]);
        assert_ints(&evaluate(&hash(1000, 42), column), &[Some(462), Some(795), Some(766), Some(455), None]);
        assert_ints(&evaluate(&hash(1000, 0), UInt64Array::from(vec![u64::MAX, 0])), &[Some(627), Some(897)]);
        let narrow = arrow::array::Int8Array::from(vec![0, 1, -1]);
        assert_ints(&evaluate(&hash(1000, 0), narrow), &[Some(897), Some(78), Some(627)]);
    }

    /// `struct.pack('<d', v)` of 0.0, 1.5 and `struct.pack('<Q', 0x7ff8000000000000)`, seed 0
    #[test]
    fn floats_hash_as_f64_with_equal_zeros_and_nans() {
        let other_nan = f64::from_bits(0xfff0_0000_0000_1234);
        let column = doubles(&[Some(0.0), Some(-0.0), Some(1.5), Some(f64::NAN), Some(other_nan), None]);
        let expected = [Some(897), Some(897), Some(384), Some(895), Some(895), None];
        assert_ints(&evaluate(&hash(1000, 0), column), &expected);
        let column = singles(&[Some(0.0), Some(-0.0), Some(1.5), Some(-f32::NAN), Some(f32::NAN), None]);
        assert_ints(&evaluate(&hash(1000, 0), column), &expected);
    }

    /// `b'AA', b'', 'Zürich'.encode(), b'x' * 300`, seeds 0 and 42
    #[test]
    fn text_hashes_as_its_utf8_bytes() {
        let long = "x".repeat(300);
        let words = [Some("AA"), Some(""), Some("Zürich"), Some(long.as_str()), None];
        let expected = [Some(244), Some(138), Some(630), Some(492), None];
        assert_ints(&evaluate(&hash(1000, 0), StringArray::from(words.to_vec())), &expected);
        let bytes = BinaryArray::from(words.map(|word| word.map(str::as_bytes)).to_vec());
        assert_ints(&evaluate(&hash(1000, 0), bytes), &expected);
        let expected = [Some(164), Some(650), Some(720), Some(674), None];
        assert_ints(&evaluate(&hash(1000, 42), StringArray::from(words.to_vec())), &expected);
    }

    /// `xxhash.xxh3_64_intdigest(b'AA') % (2**63 - 1)`
    #[test]
    fn accepts_buckets_from_1_to_the_largest_i64() {
        let words = StringArray::from(vec!["AA"]);
        assert_ints(&evaluate(&hash(MOST, 0), words.clone()), &[Some((9_571_879_760_930_627_244 % MOST) as i64)]);
        assert_ints(&evaluate(&hash(1, 0), words.clone()), &[Some(0)]);
        assert!(compile_error(&hash(0, 0), words.clone()).ends_with("buckets must be from 1 to 2^63 - 1, not 0"));
        assert!(compile_error(&hash(MOST + 1, 0), words).contains("not 9223372036854775808"));
    }
}
