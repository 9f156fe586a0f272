use std::{collections::HashMap, sync::Arc};

use proptest::prelude::*;

use super::*;
use crate::{OrderVersion, Piece, mixture::weights::gcd};

fn counts() -> impl Strategy<Value = Vec<u64>> {
    prop_oneof![
        prop::collection::vec(1_u64..20, 1..7),
        prop::collection::vec(1_u64..2000, 2..5),
        prop::collection::vec(1_u64..4, 60..=SOURCES_MAX),
        (1_u64..3000).prop_map(|large| vec![1, large]),
    ]
}

fn mixture(counts: &[u64], sources: &[(u64, bool)], is_spread: bool) -> Mixture {
    let pattern = Arc::new(Pattern::new(counts, is_spread));
    let sources = sources.iter().map(|(rows, repeats)| MixedRows { rows: *rows, repeats: *repeats }).collect();
    Mixture::new(pattern, sources).unwrap()
}

fn shuffle(lanes: u64, window_rows: u64) -> Shuffle {
    Shuffle { seed: 5, epoch: 2, lanes, window_rows, version: OrderVersion::LATEST }
}

/// The row of a source at a position of a shuffled mixture: row group, and row within it.
fn row_at(
    mixture: &Mixture,
    strides: &Strides,
    shuffle: &Shuffle,
    passing: &[u64],
    position: u64,
) -> (MixedRow, (usize, u64)) {
    let row = mixture.row_at(position);
    let repetition = Repetition::new(mixture, strides, row.source, row.repetition, shuffle);
    let lane = repetition.lane(position % strides.lanes());
    let offset = strides.count_before(row.source, lane.index, position) - repetition.before(lane.index);
    let place = lane.row_at(offset);
    let sequence = repetition.sequence(passing);
    let Piece { row_group, skip, take } = sequence.pieces(place..place + 1)[0];
    assert_eq!((take, sequence.row_group_at(place), sequence.place_of(row_group, skip)), (1, row_group, place));
    (row, (row_group, skip))
}

#[test]
fn golden_patterns_stay() {
    let first = |counts: &[u64], is_spread| {
        let pattern = Pattern::new(counts, is_spread);
        (0..40).map(|position| char::from(b'a' + pattern.at(position).0 as u8)).collect::<String>()
    };
    for (counts, in_order, spread) in GOLDEN {
        assert_eq!((first(counts, false).as_str(), first(counts, true).as_str()), (in_order, spread), "{counts:?}");
    }
    assert_eq!(source_seed(7, 1, 3), GOLDEN_SEED);
}

#[test]
fn weights_are_exact_where_a_denominator_is() {
    for (weights, expected) in [
        (vec![0.7, 0.3], vec![7, 3]),
        (vec![7.0, 3.0], vec![7, 3]),
        (vec![1.0], vec![1]),
        (vec![0.1, 0.2, 0.7], vec![1, 2, 7]),
        (vec![1.0 / 3.0, 1.0 / 3.0, 1.0 / 3.0], vec![1, 1, 1]),
        (vec![0.123, 0.877], vec![123, 877]),
        (vec![1e300, 3e300], vec![1, 3]),
        (vec![1e-300, 3e-300], vec![1, 3]),
        (vec![5.0, 1.0, 64.0], vec![5, 1, 64]),
    ] {
        assert_eq!(quantize(&weights).unwrap(), expected, "{weights:?}");
    }
    assert_eq!(exact(&[700, 300]), Ok(vec![7, 3]));
}

#[test]
fn unusable_weights_are_errors() {
    for (weights, problem) in [
        (vec![1.0, 0.0], WeightProblem::NotPositive(1)),
        (vec![-1.0, 2.0], WeightProblem::NotPositive(0)),
        (vec![1.0, f64::NAN], WeightProblem::NotPositive(1)),
        (vec![f64::INFINITY, 1.0], WeightProblem::NotPositive(0)),
        (vec![f64::MAX, f64::MAX], WeightProblem::Sum),
        (vec![1e-9, 1.0], WeightProblem::TooSmall(0)),
        (vec![1.0, f64::MIN_POSITIVE], WeightProblem::TooSmall(1)),
    ] {
        assert_eq!(quantize(&weights), Err(problem), "{weights:?}");
    }
    assert_eq!(exact(&[1, 0]), Err(WeightProblem::NotPositive(1)));
    assert_eq!(exact(&[1, DENOMINATOR_MAX]), Err(WeightProblem::Counts));
    assert_eq!(exact(&[1, u64::MAX]), Err(WeightProblem::Counts));
}

#[test]
fn other_weights_are_close() {
    // Two fractions are approximated to within 1/D², three to within D^(-3/2), by Dirichlet.
    for (weights, error_max) in [(vec![2.0_f64.sqrt(), 1.0], 1e-10), (vec![2.0_f64.sqrt(), 3.0_f64.sqrt(), 1.0], 1e-7)]
    {
        let (counts, sum) = (quantize(&weights).unwrap(), weights.iter().sum::<f64>());
        let denominator: u64 = counts.iter().sum();
        for (count, weight) in counts.iter().zip(&weights) {
            let error = (*count as f64 / denominator as f64 - weight / sum).abs();
            assert!(error < error_max, "{weights:?} {counts:?} {error}");
        }
    }
}

#[test]
fn an_epoch_ends_with_the_first_source_that_does_not_repeat() {
    let of = |sources: &[(u64, bool)]| mixture(&[1, 1], sources, false);
    // a b a b a b a …: the fourth row of a is at position 6.
    assert_eq!(of(&[(3, false), (100, false)]).row_count(), 6);
    assert_eq!(of(&[(100, false), (3, false)]).row_count(), 7);
    assert_eq!(of(&[(100, false), (3, true)]).row_count(), 200);
    let repeated = of(&[(100, false), (3, true)]);
    assert_eq!((repeated.rows_of(0), repeated.rows_of(1)), (100, 100));
    assert_eq!(repeated.row_at(199), MixedRow { source: 1, repetition: 33, index: 0 });
    let pattern = Arc::new(Pattern::new(&[1], false));
    assert!(Mixture::new(pattern, vec![MixedRows { rows: 3, repeats: true }]).is_none());
}

#[test]
fn lanes_have_similar_shares_of_each_source() {
    // Without spreading, lanes 0, 2, … of two equal sources would have one of them each.
    for counts in [vec![1, 1], vec![7, 3], vec![1, 1, 1, 1], vec![99, 1], vec![5, 4, 3, 2, 1, 1], vec![2047, 2049]] {
        let pattern = Pattern::new(&counts, true);
        for lanes in [2, 3, 4, 8, 16, 18, 40] {
            let strides = Strides::new(&pattern, lanes);
            for (source, count) in counts.iter().enumerate() {
                let share = *count as f64 / pattern.denominator() as f64;
                for lane in 0..lanes {
                    let found = strides.count(source, lane, pattern.period()) as f64 / pattern.period() as f64;
                    assert!((found - share).abs() <= 0.1, "{counts:?} {lane}/{lanes}: {found}, not {share}");
                }
            }
        }
    }
}

#[test]
fn the_largest_sources_do_not_overflow() {
    let most = mixture(&[1, DENOMINATOR_MAX - 1], &[(u64::MAX, false), (u64::MAX, true)], true);
    assert!(most.row_count() > u64::MAX / 2);
    let pattern = most.pattern();
    assert_eq!(pattern.position(0, u64::MAX), u64::MAX);
    assert!(pattern.count(1, u64::MAX) > pattern.count(0, u64::MAX));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn every_prefix_has_each_source_to_within_a_row(counts in counts(), is_spread: bool) {
        let divisor = counts.iter().fold(0, |divisor, count| gcd(divisor, *count));
        let counts: Vec<u64> = counts.iter().map(|count| count / divisor).collect();
        let pattern = Pattern::new(&counts, is_spread);
        let denominator = i128::from(pattern.denominator());
        let mut found = vec![0_u64; counts.len()];
        for position in 0..2 * pattern.period() {
            for (source, count) in counts.iter().enumerate() {
                let lag = i128::from(found[source]) * denominator - i128::from(position) * i128::from(*count);
                prop_assert!(lag.abs() < denominator, "{counts:?}: source {source} at {position}");
            }
            let (source, index) = pattern.at(position);
            prop_assert_eq!(index, found[source]);
            prop_assert_eq!(pattern.position(source, index), position);
            found[source] += 1;
            prop_assert_eq!(pattern.count(source, position + 1), found[source]);
        }
    }

    #[test]
    fn strides_count_what_a_scan_counts(counts in counts(), lanes in 1_u64..70, rounds in 0_u64..3000) {
        let pattern = Pattern::new(&counts, true);
        let strides = Strides::new(&pattern, lanes);
        let lane = rounds % lanes;
        let mut found = vec![0; counts.len()];
        for round in 0..rounds {
            found[pattern.at(round * lanes + lane).0] += 1;
        }
        for (source, found) in found.iter().enumerate() {
            prop_assert_eq!(strides.count(source, lane, rounds), *found);
            prop_assert_eq!(strides.count_before(source, lane, rounds * lanes + lane), *found);
            // Beyond several periods.
            let later = pattern.period() / 3 * 10 + rounds;
            let sum: u64 = (0..lanes).map(|lane| strides.count(source, lane, later)).sum();
            prop_assert_eq!(sum, pattern.count(source, later * lanes));
        }
    }

    #[test]
    fn every_repetition_has_every_row_once(
        counts in prop::collection::vec(1_u64..6, 1..4),
        passing in prop::collection::vec(0_u64..40, 1..6),
        lanes in 1_u64..9,
        window_rows in 1_u64..20,
    ) {
        let rows: u64 = passing.iter().sum();
        prop_assume!(rows > 0);
        let sources: Vec<(u64, bool)> = (0..counts.len()).map(|source| (rows, source > 0)).collect();
        let mixture = mixture(&counts, &sources, true);
        let (strides, shuffle) = (Strides::new(mixture.pattern(), lanes), shuffle(lanes, window_rows));
        let mut found: HashMap<(usize, u64), Vec<(usize, u64)>> = HashMap::new();
        for position in 0..mixture.row_count() {
            let (row, place) = row_at(&mixture, &strides, &shuffle, &passing, position);
            prop_assert_eq!(mixture.position_of(row), position);
            found.entry((row.source, row.repetition)).or_default().push(place);
        }
        let groups = passing.iter().enumerate();
        let all: Vec<(usize, u64)> = groups.flat_map(|(group, rows)| (0..*rows).map(move |row| (group, row))).collect();
        for ((source, repetition), mut places) in found {
            let is_whole = mixture.rows_of(source) >= (repetition + 1) * rows;
            places.sort_unstable();
            if is_whole {
                prop_assert_eq!(&places, &all);
            } else {
                places.dedup();
                prop_assert_eq!(places.len() as u64, mixture.rows_of(source) - repetition * rows);
            }
        }
    }
}

/// Patterns of the format: they never change.
const GOLDEN: [(&[u64], &str, &str); 3] = [
    (&[7, 3], "aabaabaaabaabaabaaabaabaabaaabaabaabaaab", "baaabaaabaaaababaababaaababaaaabaaabbaaa"),
    (&[1, 1], "abababababababababababababababababababab", "ababbababaabababbabaababbaabbaabbaabbaba"),
    (&[5, 4, 1], "ababababacababababacababababacababababac", "ababacbabaabababcabababacabaabacbabababa"),
];

/// See [`GOLDEN`].
const GOLDEN_SEED: u64 = 16_554_722_078_788_814_417;
