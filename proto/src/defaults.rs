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

/// Returns the default number of lanes: the smallest multiple of the world size that is at least [`LANES_MIN`].
///
/// A world size of 0 is treated as 1.
pub fn lanes(world_size: u64) -> u64 {
    let world_size = world_size.max(1);
    LANES_MIN.div_ceil(world_size).saturating_mul(world_size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_are_the_smallest_multiple_of_the_world_size_from_16() {
        let cases = [(0, 16), (1, 16), (5, 20), (16, 16), (17, 17), (u64::MAX, u64::MAX)];
        for (world_size, expected) in cases {
            assert_eq!(lanes(world_size), expected, "world size {world_size}");
        }
    }
}
