use std::{
    collections::{BTreeSet, HashSet},
    sync::Arc,
};

use proptest::prelude::*;

use super::{Epoch, OrderVersion, Piece, Remainder, Sequence, Share, Shuffle};

fn epoch(passing: &[u64], world: u64, batch: u64, remainder: Remainder, shuffle: Option<Shuffle>) -> Epoch {
    Epoch::new(Arc::new(passing.to_vec()), world, batch, remainder, shuffle)
}

/// The rows of pieces: row group, and row within it.
fn rows(pieces: &[Piece]) -> Vec<(usize, u64)> {
    pieces.iter().flat_map(|piece| (piece.skip..piece.skip + piece.take).map(|row| (piece.row_group, row))).collect()
}

fn all_rows(passing: &[u64]) -> Vec<(usize, u64)> {
    passing.iter().enumerate().flat_map(|(group, count)| (0..*count).map(move |row| (group, row))).collect()
}

/// The rows of a share in file order, including repeats that are read again.
fn read_in_order(epoch: &Epoch, share: &Share) -> Vec<(usize, u64)> {
    let sequence = epoch.sequence();
    epoch.runs(share).into_iter().flat_map(|run| rows(&sequence.pieces(run))).collect()
}

/// The row at a global position, found in the steps of a stream: lane, window, place in it, piece.
fn row_at(epoch: &Epoch, sequence: &Sequence, position: u64) -> (usize, u64) {
    let shuffle = epoch.shuffle().unwrap();
    let lane = epoch.lane(position % shuffle.lanes).unwrap();
    let offset = position / shuffle.lanes;
    let window = lane.window(lane.window_at(offset));
    let place = (offset - lane.offsets(lane.window_at(offset)).start) as u32;
    let index = window.places().iter().position(|found| *found == place).unwrap() as u64;
    let row = window.rows.start + index;
    assert_eq!(epoch.row_at(position), Some(row));
    assert_eq!(epoch.position_of(row), Some(position));
    let found = rows(&sequence.pieces(row..row + 1))[0];
    assert_eq!((sequence.place_of(found.0, found.1), sequence.row_group_at(row)), (row, found.0));
    found
}

/// The rows of a share of a shuffled epoch, without repeats.
fn read_shuffled(epoch: &Epoch, world: u64, share: &Share) -> Vec<(usize, u64)> {
    let sequence = epoch.sequence();
    (share.start..share.start + share.own_rows())
        .map(|row| row_at(epoch, &sequence, share.rank + world * row))
        .collect()
}

#[test]
fn ranks_get_contiguous_ranges_that_differ_by_a_row() {
    let epoch = epoch(&[3, 0, 4], 3, 2, Remainder::Keep, None);
    let shares: Vec<_> = (0..3).map(|rank| epoch.share(rank)).collect();
    assert_eq!(shares.iter().map(Share::row_count).collect::<Vec<_>>(), [2, 2, 3]);
    assert_eq!(shares.iter().map(|share| share.step_count).collect::<Vec<_>>(), [1, 1, 2]);
    assert_eq!(read_in_order(&epoch, &shares[1]), [(0, 2), (2, 0)]);
    assert_eq!(read_in_order(&epoch, &epoch.share_from(2, 2)), [(2, 3)]);
}

#[test]
fn an_empty_epoch_has_no_steps() {
    let shuffle = Shuffle { seed: 1, epoch: 0, lanes: 4, window_rows: 3, version: OrderVersion::LATEST };
    for remainder in [Remainder::Keep, Remainder::Drop, Remainder::Pad] {
        for shuffle in [None, Some(shuffle)] {
            let epoch = epoch(&[0, 0], 4, 8, remainder, shuffle);
            assert_eq!((epoch.sent_row_count(), epoch.step_count_max()), (0, 0));
            assert_eq!(epoch.share(3).row_count(), 0);
            assert!(read_in_order(&epoch, &epoch.share(3)).is_empty());
            assert_eq!(epoch.row_at(0), None);
        }
    }
}

#[test]
fn the_largest_numbers_do_not_overflow() {
    let shuffle = Shuffle {
        seed: u64::MAX,
        epoch: u64::MAX,
        lanes: 1 << 20,
        window_rows: 1 << 26,
        version: OrderVersion::LATEST,
    };
    for shuffle in [None, Some(shuffle)] {
        let epoch = epoch(&[u64::MAX / 2, 7], 1 << 20, 1 << 20, Remainder::Keep, shuffle);
        let lengths: Vec<u64> = (0..1_u64 << 20).step_by(1 << 14).map(|rank| epoch.share(rank).row_count()).collect();
        assert!(lengths.iter().all(|length| length.abs_diff(epoch.row_count() >> 20) <= 1));
    }
    let epoch = epoch(&[u64::MAX / 2, 7], 1 << 20, 1 << 20, Remainder::Keep, Some(shuffle));
    for position in [0, 1, epoch.row_count() / 3, epoch.row_count() - 1] {
        assert_eq!(epoch.position_of(epoch.row_at(position).unwrap()), Some(position));
    }
}

#[test]
fn rows_of_a_trillion_are_addressed_by_arithmetic() {
    let passing: Vec<u64> = (0..100_000).map(|group| 9_999_991 + group % 17).collect();
    let shuffle = Shuffle { seed: 3, epoch: 9, lanes: 96, window_rows: 65_536, version: OrderVersion::LATEST };
    let epoch = epoch(&passing, 32, 8192, Remainder::Keep, Some(shuffle));
    let sequence = epoch.sequence();
    let positions = (0..2000).map(|n| n * (epoch.row_count() / 2000));
    let found: HashSet<(usize, u64)> = positions
        .map(|position| {
            let row = epoch.row_at(position).unwrap();
            assert_eq!(epoch.position_of(row), Some(position));
            let found = rows(&sequence.pieces(row..row + 1))[0];
            assert!(found.1 < passing[found.0]);
            assert_eq!(sequence.place_of(found.0, found.1), row);
            found
        })
        .collect();
    assert_eq!(found.len(), 2000);
}

#[test]
fn seed_and_epoch_change_the_order() {
    let order = |seed, number| {
        let shuffle = Shuffle { seed, epoch: number, lanes: 2, window_rows: 8, version: OrderVersion::LATEST };
        let epoch = epoch(&[5; 12], 1, 4, Remainder::Keep, Some(shuffle));
        read_shuffled(&epoch, 1, &epoch.share(0))
    };
    assert_eq!(order(1, 1), order(1, 1));
    let orders: BTreeSet<_> = (0..5).flat_map(|seed| (0..5).map(move |number| order(seed, number))).collect();
    assert_eq!(orders.len(), 25);
}

/// The rows at the first positions of an order.
fn first_rows(shuffle: Shuffle, passing: &[u64], count: u64) -> Vec<(usize, u64)> {
    let epoch = epoch(passing, 2, 4, Remainder::Keep, Some(shuffle));
    let sequence = epoch.sequence();
    (0..count).map(|position| row_at(&epoch, &sequence, position)).collect()
}

#[test]
fn the_orders_of_all_versions_are_unchanged() {
    // Checkpoints contain positions: a change here requires a new order version.
    for (version, rows) in [
        (OrderVersion::One, FIRST_ROWS_OF_VERSION_1),
        (OrderVersion::Two, FIRST_ROWS_OF_VERSION_2),
        (OrderVersion::Three, FIRST_ROWS_OF_VERSION_3),
    ] {
        let shuffle = Shuffle { seed: 7, epoch: 3, lanes: 4, window_rows: 3, version };
        assert_eq!(first_rows(shuffle, &[4, 0, 5, 2, 6], 8), rows);
    }
    let shuffle = Shuffle { seed: 7, epoch: 3, lanes: 2, window_rows: 2000, version: OrderVersion::Two };
    let epoch = epoch(&[3000, 9000, 4000], 2, 4, Remainder::Keep, Some(shuffle));
    // The first and the last row of windows of both lanes, in the ramp and after it.
    let positions = [0, 1, 1998, 1999, 2000, 2001, 2999, 3001, 3999, 4000, 5999, 6001, 7999, 15_998, 15_999];
    let places: Vec<u64> = positions.iter().filter_map(|position| epoch.row_at(*position)).collect();
    assert_eq!(places, PLACES_OF_VERSION_2);
    let shuffle = |lanes| Shuffle { seed: 5, epoch: 1, lanes, window_rows: 1, version: OrderVersion::Three };
    let meeting = [1, 2, 0, 1, 2, 1, 2, 1, 1, 2, 1, 1, 1, 1, 2, 1, 1];
    assert_eq!(first_rows(shuffle(2), &meeting, 21), MEETING_ROWS_OF_VERSION_3);
    assert_eq!(first_rows(shuffle(2), &[3, 2, 0, 1, 2], 8), STRAIGHT_ROWS_OF_VERSION_3);
    assert_eq!(first_rows(shuffle(4), &[3, 2, 0, 4, 3], 12), TURNED_ROWS_OF_VERSION_3);
}

const FIRST_ROWS_OF_VERSION_1: [(usize, u64); 8] = [(2, 2), (3, 0), (0, 3), (4, 3), (2, 1), (0, 0), (4, 0), (4, 2)];
const FIRST_ROWS_OF_VERSION_2: [(usize, u64); 8] = [(0, 0), (4, 1), (3, 0), (2, 1), (0, 2), (4, 2), (4, 5), (2, 2)];
const PLACES_OF_VERSION_2: [u64; 15] =
    [527, 8613, 584, 8410, 1890, 8166, 9448, 10_536, 10_962, 3952, 10_333, 11_659, 12_496, 6128, 15_547];

const FIRST_ROWS_OF_VERSION_3: [(usize, u64); 8] = [(3, 1), (4, 3), (0, 3), (2, 2), (0, 1), (4, 4), (4, 0), (2, 3)];
const MEETING_ROWS_OF_VERSION_3: [(usize, u64); 21] = [
    (3, 0),
    (4, 0),
    (7, 0),
    (4, 1),
    (5, 0),
    (14, 0),
    (8, 0),
    (14, 1),
    (10, 0),
    (9, 0),
    (11, 0),
    (9, 1),
    (6, 0),
    (0, 0),
    (6, 1),
    (12, 0),
    (13, 0),
    (15, 0),
    (16, 0),
    (1, 0),
    (1, 1),
];
const STRAIGHT_ROWS_OF_VERSION_3: [(usize, u64); 8] = [(4, 1), (0, 0), (1, 0), (0, 1), (1, 1), (0, 2), (3, 0), (4, 0)];
const TURNED_ROWS_OF_VERSION_3: [(usize, u64); 12] =
    [(4, 2), (3, 2), (0, 0), (1, 1), (4, 0), (3, 3), (0, 1), (3, 0), (4, 1), (3, 1), (0, 2), (1, 0)];

/// The pieces that the lanes of an epoch read, lane after lane by their places.
fn pieces_of_lanes(epoch: &Epoch) -> Vec<Vec<Piece>> {
    let (sequence, shuffle) = (epoch.sequence(), epoch.shuffle().unwrap());
    let mut lanes: Vec<_> = (0..shuffle.lanes).filter_map(|lane| epoch.lane(lane)).collect();
    lanes.sort_by_key(|lane| lane.start);
    lanes.iter().map(|lane| sequence.pieces(lane.start..lane.start + lane.length)).collect()
}

#[test]
fn lanes_with_rows_of_the_same_row_group_read_it_at_the_same_time() {
    for number in 0..20 {
        let shuffle = Shuffle { seed: 3, epoch: number, lanes: 8, window_rows: 64, version: OrderVersion::Three };
        let epoch = epoch(&[100; 70], 1, 4, Remainder::Keep, Some(shuffle));
        let lanes = pieces_of_lanes(&epoch);
        let mut shared = 0;
        for place in 0..8 {
            let (these, next) = (&lanes[place], &lanes[(place + 1) % 8]);
            // At their ends after an even place, at their beginnings after an odd one.
            let ends = if place % 2 == 0 { (these.last(), next.last()) } else { (these.first(), next.first()) };
            let (this, other) = (ends.0.unwrap(), ends.1.unwrap());
            if this.row_group == other.row_group {
                assert!(this.skip + this.take == other.skip || place == 7, "{this:?} {other:?}");
                shared += 1;
            }
            // Every row group is read in one piece, but those at cuts.
            let inner = if these.len() > 2 { &these[1..these.len() - 1] } else { &[] };
            assert!(inner.iter().all(|piece| piece.take == 100), "{these:?}");
        }
        assert!(shared >= 6, "{shared} of 8 cuts");
    }
}

#[test]
fn cuts_first_rows_and_the_lanes_of_a_rank_differ_between_epochs() {
    let (mut cuts, mut firsts, mut places) = (HashSet::new(), HashSet::new(), HashSet::new());
    for number in 0..10 {
        let shuffle = Shuffle { seed: 3, epoch: number, lanes: 8, window_rows: 64, version: OrderVersion::Three };
        let epoch = epoch(&[10_000], 4, 4, Remainder::Keep, Some(shuffle));
        let lanes = pieces_of_lanes(&epoch);
        // A turned lane reads its rows in two pieces, or three if the file's first row is among them.
        assert!(lanes.iter().all(|lane| (1..=3).contains(&lane.len())), "{lanes:?}");
        cuts.insert(lanes[0].iter().map(|piece| piece.skip).min());
        firsts.insert(lanes[0][0].skip);
        places.insert(epoch.lanes_of(0).iter().map(|lane| lane.start).collect::<Vec<_>>());
    }
    assert!(cuts.len() >= 9 && firsts.len() >= 9 && places.len() >= 9);
}

#[test]
fn a_reach_ends_with_the_piece() {
    for (passing, lanes) in [(vec![7; 9], 2), (vec![40], 4), (vec![3, 0, 9, 5], 1)] {
        let shuffle = Shuffle { seed: 1, epoch: 2, lanes, window_rows: 4, version: OrderVersion::Three };
        let epoch = epoch(&passing, 1, 4, Remainder::Keep, Some(shuffle));
        let (sequence, end) = (epoch.sequence(), epoch.row_count());
        let mut place = 0;
        for piece in sequence.pieces(0..end) {
            assert_eq!(sequence.reach(place..end), piece.take);
            assert_eq!(sequence.reach(place..place + 1), 1);
            place += piece.take;
        }
        assert_eq!((place, sequence.reach(end..end)), (end, 0));
    }
}

#[derive(Clone, Debug)]
struct Case {
    passing: Vec<u64>,
    worlds: Vec<u64>,
    batch: u64,
    shuffle: Shuffle,
}

fn cases() -> impl Strategy<Value = Case> {
    let passing = prop_oneof![
        prop::collection::vec(0_u64..40, 1..12),
        prop::collection::vec(0_u64..3, 1..60),
        (0_u64..300).prop_map(|rows| vec![rows]),
    ];
    let version = prop_oneof![Just(OrderVersion::One), Just(OrderVersion::Two), Just(OrderVersion::Three)];
    let window_rows = prop_oneof![1_u64..9, 20_u64..500];
    (passing, 1_u64..25, 1_u64..20, any::<u64>(), 0_u64..4, window_rows, version).prop_map(
        |(passing, lanes, batch, seed, number, window_rows, version)| Case {
            passing,
            worlds: (1..=lanes).filter(|world| lanes % world == 0).collect(),
            batch,
            shuffle: Shuffle { seed, epoch: number, lanes, window_rows, version },
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn keep_sends_every_row_exactly_once(
        passing in prop::collection::vec(0_u64..40, 0..12), world in 1_u64..9, batch in 1_u64..20,
    ) {
        let epoch = epoch(&passing, world, batch, Remainder::Keep, None);
        let sent: Vec<_> = (0..world).flat_map(|rank| read_in_order(&epoch, &epoch.share(rank))).collect();
        prop_assert_eq!(sent, all_rows(&passing));
        let steps = (0..world).map(|rank| epoch.share(rank).step_count);
        prop_assert_eq!(steps.max(), Some(epoch.step_count_max()));
    }

    #[test]
    fn shuffled_keep_sends_every_row_exactly_once_at_every_world_size(case in cases()) {
        for world in &case.worlds {
            let epoch = epoch(&case.passing, *world, case.batch, Remainder::Keep, Some(case.shuffle));
            let mut sent = Vec::new();
            for rank in 0..*world {
                let share = epoch.share(rank);
                let lanes: u64 = epoch.lanes_of(rank).iter().map(|lane| lane.length).sum();
                prop_assert_eq!(share.length, lanes);
                prop_assert!(share.step_count.abs_diff(epoch.step_count_max()) <= 1);
                sent.extend(read_shuffled(&epoch, *world, &share));
            }
            sent.sort_unstable();
            prop_assert_eq!(sent, all_rows(&case.passing));
        }
    }

    #[test]
    fn a_global_step_has_the_same_rows_at_every_world_size(case in cases(), per_lane in 1_u64..4) {
        // B·W is a multiple of L, the same at every world size.
        let step_rows = case.shuffle.lanes * per_lane;
        let mut steps: Option<Vec<BTreeSet<(usize, u64)>>> = None;
        for world in &case.worlds {
            let batch = step_rows / world;
            let epoch = epoch(&case.passing, *world, batch, Remainder::Keep, Some(case.shuffle));
            let mut these = vec![BTreeSet::new(); epoch.step_count_max() as usize];
            for rank in 0..*world {
                for (index, row) in read_shuffled(&epoch, *world, &epoch.share(rank)).into_iter().enumerate() {
                    these[index / batch as usize].insert(row);
                }
            }
            prop_assert_eq!(steps.get_or_insert_with(|| these.clone()), &these);
        }
    }

    #[test]
    fn a_resume_at_any_world_size_completes_the_epoch(
        case in cases(), before in any::<prop::sample::Index>(), after in any::<prop::sample::Index>(), lane_rows in 0_u64..40,
    ) {
        let (before, after) = (*before.get(&case.worlds), *after.get(&case.worlds));
        let first = epoch(&case.passing, before, case.batch, Remainder::Keep, Some(case.shuffle));
        let second = epoch(&case.passing, after, case.batch + 1, Remainder::Keep, Some(case.shuffle));
        let position = (lane_rows * case.shuffle.lanes).min(first.row_count() / case.shuffle.lanes * case.shuffle.lanes);
        let mut sent = Vec::new();
        for rank in 0..before {
            let share = Share { end: position / before, ..first.share(rank) };
            sent.extend(read_shuffled(&first, before, &share));
        }
        for rank in 0..after {
            sent.extend(read_shuffled(&second, after, &second.share_from(rank, position / after)));
        }
        sent.sort_unstable();
        prop_assert_eq!(sent, all_rows(&case.passing));
    }

    #[test]
    fn drop_and_pad_give_equal_whole_steps(case in cases(), is_shuffled in any::<bool>(), start in 0_u64..30) {
        let world = *case.worlds.last().unwrap();
        let shuffle = is_shuffled.then_some(case.shuffle);
        for remainder in [Remainder::Drop, Remainder::Pad] {
            let epoch = epoch(&case.passing, world, case.batch, remainder, shuffle);
            let mut sent = 0;
            for rank in 0..world {
                let share = epoch.share(rank);
                prop_assert_eq!(share.step_count, epoch.step_count_max());
                prop_assert_eq!(share.row_count(), share.step_count * case.batch);
                sent += share.row_count();
                let padding = share.padding(share.start, share.end);
                prop_assert_eq!(share.own_rows() + padding, share.row_count());
                // All repeats are in the last batch.
                prop_assert!(padding <= case.batch);
                if !is_shuffled {
                    let read = read_in_order(&epoch, &share).len() as u64;
                    prop_assert!(read == share.row_count() || share.step_count == 1, "only a single batch repeats itself");
                    prop_assert!(share.step_count == 0 || read > 0);
                }
                let rest = epoch.share_from(rank, start.min(share.end));
                prop_assert_eq!(rest.row_count(), rest.step_count * case.batch);
            }
            prop_assert_eq!(sent, epoch.sent_row_count());
        }
    }

    #[test]
    fn a_resumed_rank_reads_the_remaining_rows(
        passing in prop::collection::vec(0_u64..40, 1..12), world in 1_u64..9, batch in 1_u64..20, pad in any::<bool>(),
    ) {
        let remainder = if pad { Remainder::Pad } else { Remainder::Keep };
        let epoch = epoch(&passing, world, batch, remainder, None);
        for rank in 0..world {
            let share = epoch.share(rank);
            let whole = read_in_order(&epoch, &share);
            for step in 0..share.step_count {
                let rest = epoch.share_from(rank, step * batch);
                prop_assert_eq!(rest.step_count, share.step_count - step);
                let start = (step * batch) as usize;
                let read = read_in_order(&epoch, &rest);
                prop_assert_eq!(read.as_slice(), &whole[start.min(whole.len())..]);
            }
        }
    }

    #[test]
    fn a_batch_mixes_rows_of_many_row_groups(seed in any::<u64>()) {
        // 64 row groups of 1000 rows: a batch of 256 takes from about as many row groups as there are lanes.
        let shuffle = Shuffle { seed, epoch: 0, lanes: 16, window_rows: 1000, version: OrderVersion::LATEST };
        let epoch = epoch(&[1000; 64], 1, 256, Remainder::Keep, Some(shuffle));
        let sequence = epoch.sequence();
        let groups: HashSet<usize> = (0..256).map(|position| row_at(&epoch, &sequence, position).0).collect();
        prop_assert!(groups.len() >= 16, "{} row groups", groups.len());
    }
}

#[test]
fn parts_of_an_epoch_read_the_same_row_groups_at_the_same_time() {
    for (row_groups, lanes) in [(3, 4), (12, 4), (80, 4)] {
        let shuffle = Shuffle { seed: 2, epoch: 1, lanes, window_rows: 50, version: OrderVersion::Three };
        let part = |rows: u64| {
            let passing = (0..row_groups).map(|group| rows + group % 3).collect();
            Epoch::new(Arc::new(passing), 1, 8, Remainder::Keep, Some(shuffle)).of_part()
        };
        let (large, small) = (part(1000), part(40));
        let row_group_at = |epoch: &Epoch, lane: u64, part: f64| {
            let lane = epoch.lane(lane).unwrap();
            epoch.sequence().row_group_at(lane.start + (lane.length as f64 * part) as u64)
        };
        let (mut equal, mut all) = (0, 0);
        for lane in 0..lanes {
            for place in 0..100 {
                let part = f64::from(place) / 100.0;
                equal += u32::from(row_group_at(&large, lane, part) == row_group_at(&small, lane, part));
                all += 1;
            }
        }
        assert!(equal * 10 > all * 7, "{row_groups}: {equal} of {all}");
    }
    // In file order, the first ranks have a row more.
    let epoch = Epoch::new(Arc::new(vec![3, 8]), 4, 8, Remainder::Keep, None);
    let lengths = |epoch: &Epoch| (0..4).map(|rank| epoch.share(rank).length).collect::<Vec<_>>();
    assert_eq!((lengths(&epoch), lengths(&epoch.of_part())), (vec![2, 3, 3, 3], vec![3, 3, 3, 2]));
}
