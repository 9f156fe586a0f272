use std::sync::Arc;

use arrow::array::{Array, ArrayRef, Float64Array, Int64Array, RecordBatch, UInt64Array};
use datafusion_execution::memory_pool::{FairSpillPool, MemoryPool, UnboundedMemoryPool};

use super::{
    collector::{NumberKind, RESERVATION_VALUES},
    spread::{Spread, whole_between},
    *,
};
use crate::{EngineError, job::Fold};

fn collector(exact_values_max: usize) -> Collector {
    let pool: Arc<dyn MemoryPool> = Arc::new(UnboundedMemoryPool::default());
    Collector::new(NumberKind::Float, exact_values_max, MemoryConsumer::new("test").register(&pool))
}

fn distribution(exact_values_max: usize, values: &[f64], rows_a_batch: usize) -> Distribution {
    let mut collector = collector(exact_values_max);
    for values in values.chunks(rows_a_batch) {
        let column = Arc::new(Float64Array::from(values.to_vec()));
        collector.push(&RecordBatch::try_new(distribution_schema(&DataType::Float64), vec![column]).unwrap()).unwrap();
    }
    collector.finish().unwrap().unwrap()
}

fn shares() -> Vec<f64> {
    (0..=1000).map(|k| f64::from(k) / 1000.0).chain([1e-4, 0.9999]).collect()
}

/// Pseudo-random numbers in [0, 1), the same at every run.
fn scattered(count: u64) -> impl Iterator<Item = f64> {
    (1..=count).map(|i| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 11) as f64 / (1_u64 << 53) as f64)
}

/// The distance of the requested share from the range of shares that the returned value covers.
fn share_error(sorted: &[f64], answer: f64, share: f64) -> f64 {
    let rows = sorted.len() as f64;
    let below = sorted.partition_point(|value| *value < answer) as f64 / rows;
    let up_to = sorted.partition_point(|value| *value <= answer) as f64 / rows;
    (below - share).max(share - up_to).max(0.0)
}

#[test]
fn quantiles_are_exact_up_to_the_limit() {
    let values = [5.0, -1.0, 2.5, 2.5, 9.0];
    let spread = distribution(4, &values, 2);
    // numpy.quantile(values, shares).
    for (share, expected) in [(0.0, -1.0), (0.25, 2.5), (0.5, 2.5), (0.6, 3.5), (0.75, 5.0), (0.9, 7.4), (1.0, 9.0)] {
        assert_eq!(spread.quantile(share).to_bits(), f64::to_bits(expected), "{share}");
    }
    assert!(collector(4).finish().unwrap().is_none(), "no value, no quantile");
}

#[test]
fn the_error_above_the_limit_is_bounded() {
    let uniform: Vec<f64> = scattered(300_000).collect();
    let heavy_tail = uniform.iter().map(|u| (-(1.0 - u).ln() * 8.0).exp()).collect();
    let ascending = (0..300_000).map(f64::from).collect();
    let descending = (0..300_000).rev().map(f64::from).collect();
    // Half of the rows are 0, and a tenth are 100.
    let spiked = uniform
        .iter()
        .map(|u| {
            if *u < 0.5 {
                0.0
            } else if *u < 0.6 {
                100.0
            } else {
                u * 1000.0
            }
        })
        .collect();
    // Few distinct values at first, so that the digest starts late.
    let late =
        uniform.iter().enumerate().map(|(i, u)| if i < 150_000 { (u * 50.0).floor() } else { u * 50.0 }).collect();
    for (name, values) in [
        ("uniform", uniform.clone()),
        ("heavy tail", heavy_tail),
        ("ascending", ascending),
        ("descending", descending),
        ("spiked", spiked),
        ("late", late),
    ] {
        let spread = distribution(2000, &values, 8192);
        assert!(matches!(spread.spread, Spread::Sketch { .. }), "{name}");
        let mut sorted = values;
        sorted.sort_unstable_by(f64::total_cmp);
        let errors = shares().into_iter().map(|share| (share_error(&sorted, spread.quantile(share), share), share));
        let worst = errors.max_by(|a, b| a.0.total_cmp(&b.0)).unwrap();
        println!("{name}: the share is off by {:.1e} at most, at {}", worst.0, worst.1);
        assert!(worst.0 <= SKETCH_SHARE_ERROR_MAX, "{name}: {worst:?}");
    }
}

#[test]
fn a_quantile_in_a_spike_is_its_exact_value() {
    let values: Vec<f64> = scattered(100_000)
        .map(|u| {
            if u < 0.5 {
                -7.0
            } else if u < 0.6 {
                100.0
            } else {
                u * 1000.0
            }
        })
        .collect();
    let spread = distribution(1000, &values, 8192);
    let answers = [0.1, 0.3, 0.49, 0.55].map(|share| spread.quantile(share).to_bits());
    assert_eq!(answers, [-7.0, -7.0, -7.0, 100.0].map(f64::to_bits));
}

#[test]
fn results_do_not_depend_on_batch_sizes() {
    let values: Vec<f64> = scattered(100_003).map(|u| if u < 0.2 { 0.0 } else { u }).collect();
    for exact_values_max in [1000, 200_000] {
        let whole = distribution(exact_values_max, &values, values.len());
        for rows_a_batch in [1, 7, 8192, 32_768] {
            let cut = distribution(exact_values_max, &values, rows_a_batch);
            for share in shares() {
                assert_eq!(cut.quantile(share).to_bits(), whole.quantile(share).to_bits(), "{rows_a_batch} {share}");
            }
        }
    }
}

#[test]
fn missing_memory_is_an_error() {
    let pool: Arc<dyn MemoryPool> = Arc::new(FairSpillPool::new(RESERVATION_VALUES * VALUE_BYTES));
    let mut collector =
        Collector::new(NumberKind::Float, EXACT_VALUES_MAX, MemoryConsumer::new("test").register(&pool));
    let error = (0..EXACT_VALUES_MAX).find_map(|value| collector.add((value as f64).to_bits()).err()).unwrap();
    assert!(matches!(error, EngineError::Memory(_)) && error.to_string().contains("--fit-memory-bytes"), "{error}");
}

fn of_integers(values: &[i128], is_unsigned: bool) -> Distribution {
    let column: ArrayRef = if is_unsigned {
        Arc::new(UInt64Array::from_iter_values(values.iter().map(|value| u64::try_from(*value).unwrap())))
    } else {
        Arc::new(Int64Array::from_iter_values(values.iter().map(|value| i64::try_from(*value).unwrap())))
    };
    let kind = NumberKind::of(column.data_type());
    let pool: Arc<dyn MemoryPool> = Arc::new(UnboundedMemoryPool::default());
    let mut collector = Collector::new(kind, 10, MemoryConsumer::new("test").register(&pool));
    let schema = distribution_schema(column.data_type());
    collector.push(&RecordBatch::try_new(schema, vec![column]).unwrap()).unwrap();
    collector.finish().unwrap().unwrap()
}

#[test]
fn integers_beyond_2_to_the_53_are_exact() {
    let odd = (1_i128 << 53) + 1;
    let (least, most) = (i128::from(i64::MIN), i128::from(i64::MAX));
    for (values, is_unsigned, median) in [
        (vec![odd, odd, 5], false, Some(odd)),
        (vec![odd - 1, odd + 1], false, Some(odd)),
        (vec![odd, odd + 1], false, None),
        (vec![1, 2, 3], false, None),
        (vec![-odd, -odd, most], false, Some(-odd)),
        (vec![(1 << 63) + 1, u64::MAX.into(), 0], true, Some((1 << 63) + 1)),
        (vec![u64::MAX.into()], true, Some(u64::MAX.into())),
    ] {
        assert_eq!(of_integers(&values, is_unsigned).whole_median(), median, "{values:?}");
    }
    let spread = of_integers(&[least, odd, most], false);
    assert_eq!(spread.whole_quantiles([0.5, 1.0].into_iter()), Some(vec![odd, most]));
    // Halfway between -2^63 and 2^53 + 1: a fraction, rounded up.
    assert_eq!(spread.whole_quantiles([0.25].into_iter()), Some(vec![(least + odd).div_euclid(2) + 1]));
    assert_eq!(of_integers(&[1, 2, 5], false).whole_quantiles([0.25].into_iter()), None, "doubles represent these");
    assert_eq!(of_integers(&[1, 2, 5], false).quantile(0.25).to_bits(), 1.5_f64.to_bits());
}

#[test]
fn quantiles_between_the_largest_doubles_of_both_signs_are_finite() {
    let spread = distribution(4, &[-1e308, 1e308], 2);
    for (share, expected) in [(0.25, -5e307), (0.5, 0.0), (0.75, 5e307), (1.0, 1e308)] {
        assert_eq!(spread.quantile(share).to_bits(), f64::to_bits(expected), "{share}");
    }
    assert!(!spread.is_infinite() && distribution(4, &[1.0, f64::INFINITY], 2).is_infinite());
}

#[test]
fn interpolation_between_integers_rounds_up() {
    for (a, b, t, expected) in [
        (0_i128, 10, 0.25, 3),
        (0, 10, 0.5, 5),
        (-10, 0, 0.25, -7),
        (7, 7, 0.5, 7),
        (7, 9, 0.0, 7),
        (0, 1, f64::MIN_POSITIVE, 1),
        (i128::from(i64::MIN), i128::from(i64::MAX), 0.5, 0),
        (0, i128::from(u64::MAX), 1.0 - f64::EPSILON / 2.0, i128::from(u64::MAX) - 2047),
    ] {
        assert_eq!(whole_between(a, b, t), expected, "{a} {b} {t}");
    }
}
