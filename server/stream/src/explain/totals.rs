//! What the explanations of datasets and of mixtures share.

use forebay_proto::v1;

/// Rows sampled to estimate the row groups of a batch.
pub(super) const SAMPLE_ROWS: u64 = 1 << 18;

/// Batches sampled, at most.
pub(super) const SAMPLE_BATCHES_MAX: u64 = 32;

/// The sums and maxima over the ranks.
pub(super) fn add_totals(explained: &mut v1::Explain) {
    explained.read_bytes = explained.ranks.iter().map(|rank| rank.read_bytes).fold(0, u64::saturating_add);
    if explained.stored_bytes > 0 {
        explained.read_amplification = explained.read_bytes as f64 / explained.stored_bytes as f64;
    }
    explained.memory_bytes = explained.ranks.iter().map(|rank| rank.memory_bytes).max().unwrap_or(0);
}
