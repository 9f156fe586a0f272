//! Defaults of a [`StreamRequest`](crate::v1::StreamRequest): the values of fields that a request leaves out.
//!
//! The server applies them and both clients write them into cursors. A test of the Python package compares its own
//! copy with this file. The remainder rule's default is the enum's zero value, `KEEP`.

/// Rows per batch and rank.
pub const BATCH_SIZE: u64 = 1024;

/// Ranks.
pub const WORLD_SIZE: u64 = 1;

/// Rows permuted together within a lane.
pub const WINDOW_ROWS: u64 = 16_384;

/// Lower bound of the default number of lanes.
pub const LANES_MIN: u64 = 16;

/// Lanes of a rank, at least, by default; one until version 2 of the order.
pub const LANES_A_RANK: u64 = 8;

/// Limit of the lanes of a shuffled epoch.
pub const LANES_MAX: u64 = 65_536;

/// Returns the default number of lanes in a version of the order, 0 for the latest: the smallest multiple of the world
/// size that is at least [`LANES_MIN`] and gives every rank its lanes, as far as [`LANES_MAX`] allows.
///
/// A world size of 0 is treated as 1.
pub fn lanes(world_size: u64, order_version: u32) -> u64 {
    let world_size = world_size.max(1);
    let of_rank = if matches!(order_version, 1 | 2) { 1 } else { LANES_A_RANK.min(LANES_MAX / world_size) };
    LANES_MIN.div_ceil(world_size).max(of_rank).saturating_mul(world_size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_are_a_multiple_of_the_world_size_from_16_with_8_for_each_rank() {
        let cases = [(0, 16), (1, 16), (2, 16), (3, 24), (5, 40), (16, 128), (10_000, 60_000), (u64::MAX, u64::MAX)];
        for (world_size, expected) in cases {
            assert_eq!(lanes(world_size, 0), expected, "world size {world_size}");
            assert_eq!(lanes(world_size, 3), expected, "world size {world_size}");
        }
        for (world_size, expected) in [(0, 16), (1, 16), (5, 20), (16, 16), (17, 17), (u64::MAX, u64::MAX)] {
            assert_eq!([1, 2].map(|version| lanes(world_size, version)), [expected; 2], "world size {world_size}");
        }
    }
}
