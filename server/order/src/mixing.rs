//! How much consecutive epochs differ: the rows that a rank reads again, and the places of a row.
//!
//! Row groups are permuted as wholes. Until version 2 of the order, lanes cut T at fixed places: with few row groups for
//! the number of lanes, a row is in the same lanes, and about as far from their starts, in every epoch. Both measures are
//! means over pairs of consecutive epochs, computed from runs of rows of one row group in one part of a lane, without
//! visiting rows.

use crate::{Epoch, Lane, Shuffle};

/// Runs of all epochs that are compared for the rows of a rank, at most: these take about a millisecond. With more row
/// groups, epochs differ anyway.
const RANK_RUNS_MAX: u64 = 1 << 14;

/// Runs of all epochs that are compared for the places of rows, at most.
const PLACE_RUNS_MAX: u64 = 1 << 18;

/// Pairs of epochs that are compared, at most.
const PAIRS_MAX: u64 = 16;

/// Parts of a lane whose rows have one mean place, at most.
const PARTS_MAX: u64 = 128;

/// Rows of one row group in one part of a lane.
struct Run {
    row_group: usize,
    /// Passing rows of the row group before the run.
    skip: u64,
    rows: u64,
    lane: u64,
    /// The mean global position of the part's rows.
    place: f64,
}

/// Returns the share of a rank's rows that the same rank reads in the next epoch, too: 1 / world size in independent
/// epochs. None in file order, for one rank, or for so many row groups that it is about that.
pub fn rank_rows_kept(epoch: &Epoch) -> Option<f64> {
    let world_size = epoch.world_size;
    if world_size == 1 {
        return None;
    }
    mean_of_pairs(
        epoch,
        1,
        RANK_RUNS_MAX,
        |before, after| {
            if before.lane % world_size == after.lane % world_size { 1.0 } else { 0.0 }
        },
    )
}

/// Returns the correlation of the positions that a row has in consecutive epochs: 0 in independent epochs. None in file
/// order, or of so many row groups that it is about that.
pub fn place_correlation(epoch: &Epoch) -> Option<f64> {
    let middle = epoch.row_count.saturating_sub(1) as f64 / 2.0;
    let variance = (epoch.row_count as f64).mul_add(epoch.row_count as f64, -1.0) / 12.0;
    let of_runs = |before: &Run, after: &Run| (before.place - middle) * (after.place - middle);
    let product = mean_of_pairs(epoch, PARTS_MAX, PLACE_RUNS_MAX, of_runs)?;
    Some(if variance > 0.0 { product / variance } else { 0.0 })
}

/// The mean over all rows and some pairs of consecutive epochs of a function of the runs that contain the row.
fn mean_of_pairs(epoch: &Epoch, parts_max: u64, runs_max: u64, of_runs: impl Fn(&Run, &Run) -> f64) -> Option<f64> {
    let shuffle = epoch.shuffle.filter(|_| epoch.row_count > 0)?;
    let runs_of_epoch = (epoch.passing.len() as u64).saturating_add(shuffle.lanes.saturating_mul(parts_max));
    let pairs = (runs_max / runs_of_epoch).min(PAIRS_MAX);
    if pairs == 0 {
        return None;
    }
    let mut before = runs(epoch, parts_max);
    let mut sum = 0.0;
    for number in 1..=pairs {
        let later = Shuffle { epoch: shuffle.epoch.wrapping_add(number), ..shuffle };
        let after = runs(&epoch.with(epoch.batch_size, Some(later)), parts_max);
        sum += sum_of_rows(&before, &after, &of_runs);
        before = after;
    }
    Some(sum / (epoch.row_count as f64 * pairs as f64))
}

/// The sum of a function of the runs of each row; both have the same rows, by row group.
fn sum_of_rows(before: &[Run], after: &[Run], of_runs: impl Fn(&Run, &Run) -> f64) -> f64 {
    let mut sum = 0.0;
    let (mut one, mut other) = (before.iter().peekable(), after.iter().peekable());
    while let (Some(first), Some(second)) = (one.peek(), other.peek()) {
        let (first_end, second_end) = (first.skip + first.rows, second.skip + second.rows);
        let shared = first_end.min(second_end) - first.skip.max(second.skip);
        sum += shared as f64 * of_runs(first, second);
        if first_end <= second_end {
            one.next();
        }
        if second_end <= first_end {
            other.next();
        }
    }
    sum
}

/// The runs of an epoch by row group and row. Lanes are divided into at most `parts_max` parts.
fn runs(epoch: &Epoch, parts_max: u64) -> Vec<Run> {
    let (sequence, lanes) = (epoch.sequence(), epoch.shuffle.map_or(0, |shuffle| shuffle.lanes));
    let mut runs = Vec::new();
    for lane in (0..lanes).filter_map(|lane| epoch.lane(lane)) {
        let mut start = 0;
        while start < lane.length {
            let end = part_end(&lane, start, parts_max);
            // The row at an offset is at position lane + lanes × offset.
            let place = (lanes as f64).mul_add((start + end - 1) as f64 / 2.0, lane.index as f64);
            let pieces = sequence.pieces(lane.start + start..lane.start + end);
            runs.extend(pieces.iter().map(|piece| Run {
                row_group: piece.row_group,
                skip: piece.skip,
                rows: piece.take,
                lane: lane.index,
                place,
            }));
            start = end;
        }
    }
    runs.sort_unstable_by_key(|run| (run.row_group, run.skip));
    runs
}

/// The end of the part of a lane that begins at an offset: a window, or more if a lane would have too many parts.
fn part_end(lane: &Lane, start: u64, parts_max: u64) -> u64 {
    let window_end = lane.offsets(lane.window_at(start)).end;
    window_end.max(start + lane.length.div_ceil(parts_max)).min(lane.length)
}

#[cfg(test)]
mod tests {
    use std::{collections::HashSet, sync::Arc};

    use super::*;
    use crate::{OrderVersion, Remainder};

    fn epoch(row_groups: u64, rows: u64, world_size: u64, lanes: u64, window_rows: u64) -> Epoch {
        let passing = (0..row_groups).map(|group| rows / row_groups + u64::from(group < rows % row_groups)).collect();
        let shuffle = Shuffle { seed: 7, epoch: 3, lanes, window_rows, version: OrderVersion::LATEST };
        Epoch::new(Arc::new(passing), world_size, 64, Remainder::Keep, Some(shuffle))
    }

    /// Both measures, row by row.
    fn counted(epoch: &Epoch, pairs: u64) -> (f64, f64) {
        let shuffle = *epoch.shuffle().unwrap();
        let positions = |number: u64| {
            let epoch = epoch.with(64, Some(Shuffle { epoch: shuffle.epoch + number, ..shuffle }));
            let sequence = epoch.sequence();
            let groups = epoch.passing().iter().enumerate();
            let places: Vec<u64> = groups
                .flat_map(|(group, rows)| (0..*rows).map(move |row| (group, row)))
                .map(|(group, row)| epoch.position_of(sequence.place_of(group, row)).unwrap())
                .collect();
            assert_eq!(places.iter().collect::<HashSet<_>>().len() as u64, epoch.row_count());
            places
        };
        let (mut kept, mut correlation) = (0.0, 0.0);
        for number in 0..pairs {
            let (one, other) = (positions(number), positions(number + 1));
            let rows = one.len() as f64;
            let middle = (rows - 1.0) / 2.0;
            let is_kept = |(one, other): (&u64, &u64)| one % epoch.world_size == other % epoch.world_size;
            kept += one.iter().zip(&other).filter(|pair| is_kept(*pair)).count() as f64 / rows;
            let products = one.iter().zip(&other).map(|(one, other)| (*one as f64 - middle) * (*other as f64 - middle));
            correlation += products.sum::<f64>() / rows / ((rows * rows - 1.0) / 12.0);
        }
        (kept / pairs as f64, correlation / pairs as f64)
    }

    #[test]
    fn measures_are_those_of_all_rows() {
        for (row_groups, rows, world_size, lanes, window_rows) in [
            (1, 4000, 4, 16, 256),
            (3, 2001, 2, 8, 100),
            (16, 4000, 4, 16, 64),
            (40, 4000, 4, 16, 4096),
            (7, 1300, 2, 4, 8),
        ] {
            let epoch = epoch(row_groups, rows, world_size, lanes, window_rows);
            let (kept, correlation) = counted(&epoch, PAIRS_MAX);
            let found = (rank_rows_kept(&epoch).unwrap(), place_correlation(&epoch).unwrap());
            assert!((found.0 - kept).abs() < 1e-9, "{row_groups} row groups: {found:?}, {kept}");
            // Only the mean place of a window's rows is known.
            assert!((found.1 - correlation).abs() < 0.02, "{row_groups} row groups: {found:?}, {correlation}");
        }
    }

    #[test]
    fn until_version_2_few_row_groups_stay_with_their_ranks_and_places() {
        let of_version_2 = |row_groups| {
            let epoch = epoch(row_groups, 1 << 20, 4, 16, 16_384);
            epoch.with(64, epoch.shuffle().map(|shuffle| Shuffle { version: OrderVersion::Two, ..*shuffle }))
        };
        for (row_groups, at_least, at_most) in [(1, 1.0, 1.0), (4, 0.9, 1.0), (128, 0.15, 0.35), (1000, 0.2, 0.3)] {
            let kept = rank_rows_kept(&of_version_2(row_groups)).unwrap();
            assert!((at_least..=at_most).contains(&kept), "{row_groups} row groups: {kept}");
        }
        assert!(place_correlation(&of_version_2(1)).unwrap() > 0.7);
        assert!(place_correlation(&of_version_2(1000)).unwrap().abs() < 0.1);
    }

    #[test]
    fn epochs_differ_for_any_number_of_row_groups() {
        for row_groups in [1, 3, 16, 32, 64, 150, 1000] {
            for world_size in [1, 2, 4, 16] {
                let lanes = 16.max(8 * world_size);
                let epoch = epoch(row_groups, 1 << 20, world_size, lanes, 16_384);
                let correlation = place_correlation(&epoch).unwrap();
                assert!(correlation.abs() < 0.1, "{row_groups} row groups, {world_size} ranks: {correlation}");
                let kept = rank_rows_kept(&epoch).unwrap_or(1.0) - 1.0 / world_size as f64;
                assert!(kept.abs() < 0.05, "{row_groups} row groups, {world_size} ranks: {kept}");
            }
        }
    }

    #[test]
    fn nothing_is_measured_without_a_shuffle_or_ranks() {
        let shuffled = epoch(4, 100, 2, 4, 10);
        assert_eq!(rank_rows_kept(&shuffled.with(64, None)), None);
        assert_eq!(place_correlation(&shuffled.with(64, None)), None);
        assert_eq!(rank_rows_kept(&epoch(4, 100, 1, 4, 10)), None);
        assert_eq!(rank_rows_kept(&epoch(1 << 19, 1 << 20, 2, 16, 10)), None);
    }
}
