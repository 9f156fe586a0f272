//! What identifies the content of a local file in addition to its footer: its bytes, or samples of a large file's.
//!
//! `tar -x` of an archive with fixed times, or `cp -p` over a file, puts other bytes into a file of the same inode, size and
//! modification time; the footer of an Arrow file, and that of a Parquet file without statistics, may be equal too. The change
//! time tells such files apart on one machine. It is not part of a digest, because a copy of a file has another one.

use std::ops::Range;

use bytes::Bytes;
use forebay_runtime::state::short_digest;
use object_store::ObjectMeta;

use super::store::{Store, StoreError};

/// Files of at most this size are read as a whole.
const WHOLE_BYTES_MAX: u64 = BLOCKS * BLOCK_BYTES;

/// Blocks of larger files, from the first byte to the last one at equal distances.
const BLOCKS: u64 = 32;
const BLOCK_BYTES: u64 = 4 << 10;

/// Adds the content of a file, whose last bytes are `end`, to the digest of its footer.
pub(super) async fn digest(store: &Store, object: &ObjectMeta, footer: &str, end: Bytes) -> Result<String, StoreError> {
    let is_whole = end.len() as u64 == object.size;
    let read = if is_whole { vec![end] } else { store.read(object, &ranges(object.size)).await? };
    let parts = [footer.as_bytes()].into_iter().chain(read.iter().map(AsRef::as_ref));
    Ok(short_digest(&parts.collect::<Vec<_>>()))
}

fn ranges(bytes: u64) -> Vec<Range<u64>> {
    if bytes <= WHOLE_BYTES_MAX {
        return std::iter::once(0..bytes).collect();
    }
    let start = |block: u64| (u128::from(bytes - BLOCK_BYTES) * u128::from(block) / u128::from(BLOCKS - 1)) as u64;
    (0..BLOCKS).map(start).map(|start| start..start + BLOCK_BYTES).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_reach_both_ends() {
        for bytes in [0, 1, WHOLE_BYTES_MAX] {
            assert!(ranges(bytes).into_iter().eq(std::iter::once(0..bytes)), "{bytes}");
        }
        for bytes in [WHOLE_BYTES_MAX + 1, 10 << 20, 1 << 45] {
            let ranges = ranges(bytes);
            assert_eq!((ranges[0].clone(), ranges[31].clone()), (0..BLOCK_BYTES, bytes - BLOCK_BYTES..bytes));
            assert!(ranges.windows(2).all(|pair| pair[0].start < pair[1].start));
            assert_eq!(ranges.iter().map(|range| range.end - range.start).sum::<u64>(), WHOLE_BYTES_MAX);
        }
    }
}
