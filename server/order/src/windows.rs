//! The bounds of a lane's windows.

use std::ops::Range;

use super::{shuffle::Shuffle, version::OrderVersion};

/// The base-2 logarithm of the fewest rows of a first window from version 2 on, unless windows are smaller. Computing it for
/// all lanes takes a few milliseconds, and it suffices for 8192 rows of 16 lanes.
const FIRST_ROWS_LOG2: u32 = 9;

/// The windows of a lane, by their offsets. After the ramp, all have the same number of rows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Windows {
    window_rows: u64,
    /// The windows of the ramp; window i of it ends at `ramp_end` >> (`ramp_count` − 1 − i).
    ramp_count: u64,
    ramp_end: u64,
}

impl Windows {
    /// Returns the windows of a lane of an unlimited number of rows.
    pub(super) fn of_lane(shuffle: &Shuffle, lane: u64) -> Self {
        let Shuffle { window_rows, lanes, .. } = *shuffle;
        match shuffle.version {
            OrderVersion::One => Self { window_rows, ramp_count: 0, ramp_end: 0 },
            OrderVersion::Two | OrderVersion::Three => {
                let log2 = window_rows.ilog2();
                let halvings = log2.saturating_sub(FIRST_ROWS_LOG2).max(1).min(log2);
                // The lane decides where the ramp ends, and so where all later windows begin.
                Self {
                    window_rows,
                    ramp_count: u64::from(halvings) + 1,
                    ramp_end: window_rows + window_rows * lane / lanes,
                }
            }
        }
    }

    /// Returns the offsets of a window.
    pub(super) fn offsets(&self, index: u64) -> Range<u64> {
        index.checked_sub(1).map_or(0, |before| self.end(before))..self.end(index)
    }

    /// Returns the index of the window that contains an offset.
    pub(super) fn index_at(&self, offset: u64) -> u64 {
        if offset < self.ramp_end {
            // The most halvings of the ramp's end that are past the offset.
            let halvings = u64::from((self.ramp_end / (offset + 1)).ilog2());
            return (self.ramp_count - 1).saturating_sub(halvings);
        }
        self.ramp_count + (offset - self.ramp_end) / self.window_rows
    }

    fn end(&self, index: u64) -> u64 {
        if index < self.ramp_count {
            return self.ramp_end >> (self.ramp_count - index - 1);
        }
        let after = (index - self.ramp_count).saturating_add(1);
        self.ramp_end.saturating_add(after.saturating_mul(self.window_rows))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn windows(version: OrderVersion, window_rows: u64, lanes: u64, lane: u64) -> Windows {
        Windows::of_lane(&Shuffle { seed: 0, epoch: 0, lanes, window_rows, version }, lane)
    }

    #[test]
    fn every_offset_is_in_one_window_of_at_most_window_rows() {
        for version in [OrderVersion::One, OrderVersion::Two] {
            for window_rows in [1, 2, 3, 4, 5, 7, 255, 511, 512, 513, 1000, 1024, 2047, 5000] {
                for (lanes, lane) in [(1, 0), (16, 0), (16, 1), (16, 15), (10_000, 9_999)] {
                    let windows = windows(version, window_rows, lanes, lane);
                    let mut end = 0;
                    for index in 0..30 {
                        let offsets = windows.offsets(index);
                        assert_eq!(offsets.start, end);
                        end = offsets.end;
                        let rows = end - offsets.start;
                        assert!((1..=window_rows).contains(&rows), "{window_rows} {lane}/{lanes}: {rows}");
                        for offset in [offsets.start, offsets.start + rows / 2, end - 1] {
                            assert_eq!(windows.index_at(offset), index, "{window_rows} {lane}/{lanes}: {offset}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn the_windows_of_version_2_double_up_to_window_rows() {
        let rows_of = |lane| {
            let windows = windows(OrderVersion::Two, 16_384, 16, lane);
            (0..9).map(|index| windows.offsets(index)).map(|window| window.end - window.start).collect::<Vec<_>>()
        };
        assert_eq!(rows_of(0), [512, 512, 1024, 2048, 4096, 8192, 16_384, 16_384, 16_384]);
        assert_eq!(rows_of(8), [768, 768, 1536, 3072, 6144, 12_288, 16_384, 16_384, 16_384]);
        assert_eq!(rows_of(15), [992, 992, 1984, 3968, 7936, 15_872, 16_384, 16_384, 16_384]);
    }

    #[test]
    fn few_lanes_begin_a_window_in_the_same_step() {
        // Rows of a lane in a step, of which a rank has every `world`-th lane.
        for (lanes, window_rows, step_rows, world) in
            [(16, 16_384, 512, 1), (16, 16_384, 4096, 8), (16, 1024, 64, 2), (24, 1000, 41, 3), (1024, 65_536, 8, 4)]
        {
            let rank_lanes = lanes / world;
            for rank in 0..world {
                let of_lanes: Vec<Windows> = (rank..lanes)
                    .step_by(world as usize)
                    .map(|lane| windows(OrderVersion::Two, window_rows, lanes, lane))
                    .collect();
                // Up to two windows after the longest ramp.
                let begun = (0..4 * window_rows / step_rows).map(|step| {
                    let at = step * step_rows;
                    let begins = |windows: &&Windows| windows.index_at(at) != windows.index_at(at + step_rows);
                    (at, of_lanes.iter().filter(begins).count() as u64)
                });
                let most = begun.filter(|(at, _)| *at >= window_rows).map(|(_, lanes)| lanes).max();
                let even = (rank_lanes * step_rows).div_ceil(window_rows);
                assert!(most <= Some(even + 1), "{most:?} of {rank_lanes} lanes, evenly {even}");
            }
        }
    }
}
