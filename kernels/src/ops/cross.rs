//! `cross`: the hash of a tuple of the chain's value followed by other columns, stored or derived, modulo `buckets`.
//! `NVTabular`'s `HashedCross` with another hash function.
//!
//! - Each component is the XXH3-64 with seed 0 of the bytes that [`super::hash_bucket`] defines, as 8 little-endian
//!   bytes, or 8 zero bytes for a null. The result is the XXH3-64 with `seed` of all components, concatenated. In
//!   Python: `xxhash.xxh3_64_intdigest(b"".join(…), seed) % buckets`. The values of a dictionary are therefore hashed
//!   only once.
//! - The result is never null. Lists are rejected. `buckets` is from 1 to 2^63 − 1, and at least one other column is
//!   required.

use super::{
    hash::{self, Modulus},
    number_op::NumberOp,
};
use crate::{error::OpProblem, vector::tile::Tile};

/// The largest number of columns besides the chain's own.
const COLUMNS_MAX: usize = 255;

/// The parameters.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cross {
    modulus: Modulus,
    seed: u64,
}

/// Turns numbers into components of tuples; nulls become 0.
#[derive(Debug)]
pub(crate) struct Component;

/// Text or bytes as a component of a tuple.
pub(crate) fn component(bytes: &[u8]) -> i64 {
    hash::bytes(bytes, 0) as i64
}

impl NumberOp for Component {
    fn apply(&self, tile: &mut Tile) {
        tile.map_to_ints(
            #[inline(always)]
            move |value| hash::word(value as u64, 0) as i64,
            #[inline(always)]
            move |value| hash::word(value, 0) as i64,
            #[inline(always)]
            move |value| hash::word(hash::float_bits(value), 0) as i64,
        );
        tile.fill(0, 0, 0.0, 0.0);
    }

    #[cfg(feature = "cuda")]
    fn write(&self, writer: &mut crate::cuda::writer::Writer) {
        writer.leave_to_cpu();
    }
}

impl Cross {
    pub(crate) fn compile(columns: &[String], buckets: u64, seed: u64) -> Result<Self, OpProblem> {
        if !(1..=COLUMNS_MAX).contains(&columns.len()) {
            let reason = format!("columns must name from 1 to {COLUMNS_MAX} other columns, not {}", columns.len());
            return Err(OpProblem::Parameter(reason));
        }
        Ok(Self { modulus: Modulus::of_buckets(buckets)?, seed })
    }

    /// The bucket of a tuple, given the concatenated bytes of its components.
    pub(crate) fn bucket(self, components: &[u8]) -> i64 {
        self.modulus.remainder(hash::bytes(components, self.seed)) as i64
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::{
        array::{ArrayRef, DictionaryArray, Float64Array, RecordBatch, StringArray, UInt64Array},
        datatypes::Int8Type,
    };
    use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

    use crate::{
        Op, Prefix,
        testing::{assert_ints, compile_error, int_lists},
    };

    fn cross(columns: &[&str], buckets: u64) -> [Op; 1] {
        [Op::Cross { columns: columns.iter().map(|column| (*column).to_owned()).collect(), buckets, seed: 7 }]
    }

    fn bucket(components: &[Option<&[u8]>]) -> i64 {
        let bytes: Vec<u8> = components.iter().flat_map(|part| part.map_or(0, xxh3_64).to_le_bytes()).collect();
        (xxh3_64_with_seed(&bytes, 7) % 1000) as i64
    }

    #[test]
    fn hashes_the_hashes_of_the_components() {
        let words = vec![Some("a"), None, Some("a longer text, more than sixteen bytes of it")];
        let x: ArrayRef = Arc::new(StringArray::from(words.clone()));
        let n: ArrayRef = Arc::new(UInt64Array::from(vec![Some(1), Some(2), None]));
        let f: ArrayRef = Arc::new(Float64Array::from(vec![-0.0, f64::NAN, 1.5]));
        let d: ArrayRef = Arc::new(words.iter().copied().collect::<DictionaryArray<Int8Type>>());
        let batch =
            RecordBatch::try_from_iter_with_nullable([("x", x, true), ("n", n, true), ("f", f, true), ("d", d, true)])
                .unwrap();
        let prefix = Prefix::compile("x", &cross(&["n", "f", "d"], 1000), &batch.schema()).unwrap();
        let one = 1_u64.to_le_bytes();
        let two = 2_u64.to_le_bytes();
        let (zero, nan, half) = (0_u64.to_le_bytes(), 0x7ff8_0000_0000_0000_u64.to_le_bytes(), 1.5_f64.to_le_bytes());
        let long = words[2].map(str::as_bytes);
        let expected = [
            bucket(&[Some(b"a"), Some(&one), Some(&zero), Some(b"a")]),
            bucket(&[None, Some(&two), Some(&nan), None]),
            bucket(&[long, None, Some(&half), long]),
        ];
        assert_ints(&prefix.evaluate(&batch).unwrap(), &expected.map(Some));
    }

    #[test]
    fn hashes_the_result_of_earlier_ops() {
        let x: ArrayRef = Arc::new(Float64Array::from(vec![Some(-3.0), None]));
        let batch = RecordBatch::try_from_iter_with_nullable([("x", Arc::clone(&x), true), ("y", x, true)]).unwrap();
        let [cross] = cross(&["y"], 1000);
        let prefix = Prefix::compile("x", &[Op::Abs, cross], &batch.schema()).unwrap();
        let (three, minus) = (3_f64.to_le_bytes(), (-3_f64).to_le_bytes());
        let expected = [bucket(&[Some(&three), Some(&minus)]), bucket(&[None, None])];
        assert_ints(&prefix.evaluate(&batch).unwrap(), &expected.map(Some));
    }

    #[test]
    fn rejects_invalid_parameters_and_columns() {
        let text = || StringArray::from(vec!["a"]);
        assert!(
            compile_error(&cross(&[], 5), text()).ends_with("columns must name from 1 to 255 other columns, not 0")
        );
        assert!(compile_error(&cross(&["x"], 0), text()).ends_with("buckets must be from 1 to 2^63 - 1, not 0"));
        assert!(compile_error(&cross(&["y"], 5), text()).ends_with("there is no column \"y\""));
        assert!(
            compile_error(&cross(&["x"], 5), int_lists(&[None]))
                .ends_with("it takes one value per row, but its input is lists")
        );
    }
}
