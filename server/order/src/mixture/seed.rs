//! Seeds of the sources of a mixture.

use xxhash_rust::xxh3::xxh3_64;

/// The seed of a repetition of a source.
pub(super) fn source_seed(seed: u64, source: usize, repetition: u64) -> u64 {
    let mut bytes = [0_u8; 40];
    bytes[..15].copy_from_slice(b"forebay mixture");
    for (field, number) in bytes[16..].chunks_exact_mut(8).zip([seed, source as u64, repetition]) {
        field.copy_from_slice(&number.to_le_bytes());
    }
    xxh3_64(&bytes)
}
