//! The rows of a sample: each row's index decides alone, so a sample is the same for every plan, order and world size.
//!
//! A row is in the sample if `hash64(__row_id, sample_seed) < sample × 2^64`. Samples of one seed are nested.

use std::ops::Range;

use forebay_kernels::hash64_integer;
use forebay_proto::v1;

use super::error::PlanError;

/// A sample of a snapshot's rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    seed: u64,
    /// Exclusive upper bound of the hashes of sampled rows.
    end: u64,
}

impl Sample {
    /// The sample of a request's fields; none if every row is in it.
    pub fn check(sample: Option<f64>, seed: u64) -> Result<Option<Self>, PlanError> {
        /// 2^64.
        const HASHES: f64 = 18_446_744_073_709_551_616.0;
        match sample {
            None | Some(1.0) => Ok(None),
            // The product is exact, or so small that only its ceiling of 1 matters.
            Some(share) if share > 0.0 && share < 1.0 => Ok(Some(Self { seed, end: (share * HASHES).ceil() as u64 })),
            Some(other) => {
                let reason = format!("{other} is not a fraction of the rows: expected more than 0 and at most 1");
                Err(PlanError::field("sample", reason))
            }
        }
    }

    /// Whether a row of this index is in the sample.
    pub fn holds(self, row: u64) -> bool {
        hash64_integer(row, self.seed) < self.end
    }

    /// The number of sampled rows among these.
    pub fn count(self, rows: Range<u64>) -> u64 {
        rows.filter(|row| self.holds(*row)).count() as u64
    }

    /// Whether all of its rows are in the sample of a fit.
    pub fn is_of(self, fit: &v1::FittedRows) -> bool {
        self.seed == fit.sample_seed && self.end <= fit.sample_end
    }

    /// The seed, and the exclusive upper bound of the hashes of sampled rows.
    pub fn seed_and_end(self) -> (u64, u64) {
        (self.seed, self.end)
    }

    /// The sample of [`Self::key`].
    pub fn of_key(key: [u8; 16]) -> Self {
        let half = |start: usize| u64::from_le_bytes(std::array::from_fn(|byte| key[start + byte]));
        Self { seed: half(0), end: half(8) }
    }

    /// Bytes that identify the sample.
    pub fn key(self) -> [u8; 16] {
        let mut key = [0; 16];
        key[..8].copy_from_slice(&self.seed.to_le_bytes());
        key[8..].copy_from_slice(&self.end.to_le_bytes());
        key
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(share: f64, seed: u64) -> Sample {
        Sample::check(Some(share), seed).unwrap().unwrap()
    }

    #[test]
    fn samples_have_their_share_of_rows_and_are_nested() {
        const ROWS: u64 = 100_000;
        for seed in [0, 7, u64::MAX] {
            let small = sample(0.01, seed);
            let large = sample(0.1, seed);
            assert!((800..1200).contains(&small.count(0..ROWS)), "seed {seed}");
            assert!((9500..10_500).contains(&large.count(0..ROWS)), "seed {seed}");
            assert!((0..ROWS).filter(|row| small.holds(*row)).all(|row| large.holds(row)), "seed {seed}");
        }
        assert_ne!(sample(0.5, 1).count(0..1000), sample(0.5, 2).count(0..1000));
    }

    #[test]
    fn fractions_are_above_zero_and_at_most_one() {
        assert_eq!(Sample::check(None, 3).unwrap(), None);
        assert_eq!(Sample::check(Some(1.0), 3).unwrap(), None);
        assert_eq!(sample(0.5, 0).end, 1 << 63);
        assert_eq!(sample(f64::MIN_POSITIVE, 0).end, 1);
        assert_eq!(sample(1.0_f64.next_down(), 0).end, u64::MAX - 2047);
        for wrong in [0.0, -0.0, -0.1, 1.0_f64.next_up(), 50.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            let error = Sample::check(Some(wrong), 0).unwrap_err().to_string();
            assert!(error.starts_with("sample: ") && error.contains("at most 1"), "{error}");
        }
    }
}
