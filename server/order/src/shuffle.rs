//! The parameters of a shuffled epoch, and the keys of its permutations.

use super::version::OrderVersion;

/// The parameters that determine the order of a shuffled epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shuffle {
    /// Seed of the request.
    pub seed: u64,
    /// Number of the epoch.
    pub epoch: u64,
    /// L: a multiple of the world size.
    pub lanes: u64,
    /// w: at least 1.
    pub window_rows: u64,
    /// The arithmetic.
    pub version: OrderVersion,
}

impl Shuffle {
    /// Returns the key of a permutation.
    pub(super) fn key(&self, purpose: u8, lane: u64, window: u64) -> u64 {
        let mut bytes = [0_u8; 48];
        bytes[..15].copy_from_slice(match self.version {
            OrderVersion::One => b"forebay order 1",
            OrderVersion::Two => b"forebay order 2",
            OrderVersion::Three => b"forebay order 3",
        });
        bytes[15] = purpose;
        for (field, number) in bytes[16..].chunks_exact_mut(8).zip([self.seed, self.epoch, lane, window]) {
            field.copy_from_slice(&number.to_le_bytes());
        }
        xxhash_rust::xxh3::xxh3_64(&bytes)
    }
}
