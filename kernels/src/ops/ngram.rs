//! `ngram`: turns a list into the list of its runs of n elements, each as the hash of its tuple (see [`super::cross`])
//! modulo `buckets`. Spark's `NGram` joins the words of a run with spaces instead.
//!
//! - A list of m elements has m − n + 1 runs, or none if it is shorter. A null element is hashed like any other
//!   component. A null list stays null.
//! - Lists of numbers, text or bytes. `n` is from 1 to 256, `buckets` from 1 to 2^63 − 1.

use super::hash::{self, Modulus};
use crate::error::OpProblem;

/// The largest number of elements per run.
const N_MAX: u32 = 256;

/// The parameters.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ngram {
    pub(crate) n: usize,
    modulus: Modulus,
    seed: u64,
}

impl Ngram {
    pub(crate) fn compile(n: u32, buckets: u64, seed: u64) -> Result<Self, OpProblem> {
        if !(1..=N_MAX).contains(&n) {
            return Err(OpProblem::Parameter(format!("n must be from 1 to {N_MAX}, not {n}")));
        }
        Ok(Self { n: n as usize, modulus: Modulus::of_buckets(buckets)?, seed })
    }

    /// The buckets of a list's runs.
    pub(crate) fn runs<'a>(&'a self, components: &'a [i64]) -> impl Iterator<Item = i64> + 'a {
        let mut bytes = Vec::with_capacity(self.n * 8);
        components.windows(self.n).map(move |run| {
            bytes.clear();
            bytes.extend(run.iter().flat_map(|component| component.to_le_bytes()));
            self.modulus.remainder(hash::bytes(&bytes, self.seed)) as i64
        })
    }
}

#[cfg(test)]
mod tests {
    use arrow::{array::AsArray, datatypes::Int64Type};
    use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

    use crate::{
        DType, Fill, Op,
        testing::{compile_error, int_lists, ragged, text_lists},
    };

    fn ngram(n: u32) -> Op {
        Op::Ngram { n, buckets: 1 << 30, seed: 3 }
    }

    fn bucket(components: &[Option<&[u8]>]) -> i64 {
        let bytes: Vec<u8> = components.iter().flat_map(|part| part.map_or(0, xxh3_64).to_le_bytes()).collect();
        (xxh3_64_with_seed(&bytes, 3) % (1 << 30)) as i64
    }

    #[test]
    fn hashes_runs_of_text_and_numbers() {
        let lists = text_lists(&[Some(&[Some("a"), Some("b"), None]), Some(&[Some("a")]), Some(&[])]);
        let runs = ragged(DType::Int64, &[ngram(2)], lists).unwrap();
        assert_eq!(runs.value_offsets(), [0, 2, 2, 2]);
        let expected = [bucket(&[Some(b"a"), Some(b"b")]), bucket(&[Some(b"b"), None])];
        assert_eq!(runs.values().as_primitive::<Int64Type>().values(), &expected);
        let (one, two) = (1_i64.to_le_bytes(), 2_i64.to_le_bytes());
        let lists = int_lists(&[None, Some(&[Some(1), Some(2)])]);
        let runs = ragged(DType::Int64, &[Op::FillNull(Fill::Number(0.0)), ngram(2)], lists).unwrap();
        assert_eq!(runs.value_offsets(), [0, 0, 1]);
        assert_eq!(runs.values().as_primitive::<Int64Type>().values(), &[bucket(&[Some(&one), Some(&two)])]);
    }

    #[test]
    fn rejects_invalid_parameters_and_columns() {
        assert!(compile_error(&[ngram(0)], int_lists(&[None])).ends_with("n must be from 1 to 256, not 0"));
        let none = Op::Ngram { n: 1, buckets: 0, seed: 0 };
        assert!(compile_error(&[none], int_lists(&[None])).ends_with("buckets must be from 1 to 2^63 - 1, not 0"));
        assert!(compile_error(&[ngram(2)], crate::testing::ints(&[None])).contains("it takes lists"));
    }
}
