//! Random numbers of an image: hashes of what names it, so that every replica, world size and resumed stream draws the
//! same, and no state has to be kept.
//!
//! Draw n is XXH3-64 (seed 0) of the text `forebay image 1` and of the op's seed, the stream's seed, the epoch, the row and
//! n, as 8 little-endian bytes each.

use xxhash_rust::xxh3::xxh3_64;

/// Changes with everything that a draw means.
const VERSION: &[u8] = b"forebay image 1";

/// What names an image of an epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ImageKey {
    /// The seed of the stream.
    pub seed: u64,
    /// The number of the epoch.
    pub epoch: u64,
    /// The index of the row in the snapshot, `__row_id`.
    pub row: u64,
}

/// The draws of an image under an op.
#[derive(Clone, Copy, Debug)]
pub(super) struct Draws {
    key: ImageKey,
    op_seed: u64,
}

// === impl Draws ===

impl Draws {
    pub(super) fn new(key: ImageKey, op_seed: u64) -> Self {
        Self { key, op_seed }
    }

    fn bits(&self, number: u64) -> u64 {
        let ImageKey { seed, epoch, row } = self.key;
        let mut bytes = VERSION.to_vec();
        for word in [self.op_seed, seed, epoch, row, number] {
            bytes.extend(word.to_le_bytes());
        }
        xxh3_64(&bytes)
    }

    /// Whether draw `number` is in the upper half of its range.
    pub(super) fn coin(&self, number: u64) -> bool {
        self.bits(number) >> 63 == 1
    }

    /// A number from `start` to below `end`: the upper 53 bits of draw `number`, as a fraction of the range.
    pub(super) fn between(&self, number: u64, (start, end): (f64, f64)) -> f64 {
        /// 2^-53.
        const UNIT: f64 = 1.0 / 9_007_199_254_740_992.0;
        start + (end - start) * ((self.bits(number) >> 11) as f64 * UNIT)
    }

    /// An integer from 0 to below `count`: the upper 64 bits of the product of draw `number` and `count`.
    pub(super) fn below(&self, number: u64, count: u32) -> u32 {
        ((u128::from(self.bits(number)) * u128::from(count)) >> 64) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draws(row: u64) -> Draws {
        Draws::new(ImageKey { seed: 7, epoch: 2, row }, 1)
    }

    /// `xxhash.xxh3_64(b"forebay image 1" + struct.pack("<5Q", 1, 7, 2, 5, 0)).intdigest()` in Python.
    #[test]
    fn draws_are_those_of_the_documentation() {
        let mut bytes = b"forebay image 1".to_vec();
        bytes.extend([1_u64, 7, 2, 5, 0].into_iter().flat_map(u64::to_le_bytes));
        assert_eq!(bytes.len(), 55);
        assert_eq!(draws(5).bits(0), xxh3_64(&bytes));
    }

    #[test]
    fn draws_are_spread_evenly() {
        let rows = 0..4096_u64;
        let heads = rows.clone().filter(|row| draws(*row).coin(0)).count();
        assert!((1920..2176).contains(&heads), "{heads}");
        let mut counts = [0; 5];
        rows.clone().for_each(|row| counts[draws(row).below(1, 5) as usize] += 1);
        assert!(counts.iter().all(|count| (720..920).contains(count)), "{counts:?}");
        let mean = rows.map(|row| draws(row).between(2, (-1.0, 3.0))).sum::<f64>() / 4096.0;
        assert!((mean - 1.0).abs() < 0.06, "{mean}");
    }
}
