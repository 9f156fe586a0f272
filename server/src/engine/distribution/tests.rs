use std::sync::Arc;

use arrow::array::Float64Array;
use datafusion_execution::memory_pool::{FairSpillPool, MemoryPool, UnboundedMemoryPool};

use super::*;

fn collector(exact_values_max: usize) -> Collector {
    let pool: Arc<dyn MemoryPool> = Arc::new(UnboundedMemoryPool::default());
    Collector::new(exact_values_max, MemoryConsumer::new("test").register(&pool))
}

fn distribution(exact_values_max: usize, values: &[f64], rows_a_batch: usize) -> Distribution {
    let mut collector = collector(exact_values_max);
    for values in values.chunks(rows_a_batch) {
        let column = Arc::new(Float64Array::from(values.to_vec()));
        collector.push(&RecordBatch::try_new(distribution_schema(), vec![column]).unwrap()).unwrap();
    }
    collector.finish().unwrap().unwrap()
}

fn shares() -> Vec<f64> {
    (0..=1000).map(|k| f64::from(k) / 1000.0).chain([1e-4, 0.9999]).collect()
}

/// Numbers of no pattern in [0, 1), the same every time.
fn scattered(count: u64) -> impl Iterator<Item = f64> {
    (1..=count).map(|i| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 11) as f64 / (1_u64 << 53) as f64)
}

/// How far the shares of the rows below an answer and up to it keep from the share asked for.
fn share_error(sorted: &[f64], answer: f64, share: f64) -> f64 {
    let rows = sorted.len() as f64;
    let below = sorted.partition_point(|value| *value < answer) as f64 / rows;
    let up_to = sorted.partition_point(|value| *value <= answer) as f64 / rows;
    (below - share).max(share - up_to).max(0.0)
}

#[test]
fn up_to_the_limit_quantiles_are_those_of_the_sorted_rows() {
    let values = [5.0, -1.0, 2.5, 2.5, 9.0];
    let spread = distribution(4, &values, 2);
    // numpy.quantile(values, shares).
    for (share, expected) in [(0.0, -1.0), (0.25, 2.5), (0.5, 2.5), (0.6, 3.5), (0.75, 5.0), (0.9, 7.4), (1.0, 9.0)] {
        assert_eq!(spread.quantile(share).to_bits(), f64::to_bits(expected), "{share}");
    }
    assert!(collector(4).finish().unwrap().is_none(), "no value, no quantile");
}

#[test]
fn above_the_limit_the_error_is_the_stated_one() {
    let uniform: Vec<f64> = scattered(300_000).collect();
    let heavy_tail = uniform.iter().map(|u| (-(1.0 - u).ln() * 8.0).exp()).collect();
    let ascending = (0..300_000).map(f64::from).collect();
    let descending = (0..300_000).rev().map(f64::from).collect();
    // Half of the rows are 0 and a tenth 100, among all others.
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
    // Few distinct values at first, so that the digest begins late.
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
        assert!(matches!(spread.0, Spread::Sketch { .. }), "{name}");
        let mut sorted = values;
        sorted.sort_unstable_by(f64::total_cmp);
        let errors = shares().into_iter().map(|share| (share_error(&sorted, spread.quantile(share), share), share));
        let worst = errors.max_by(|a, b| a.0.total_cmp(&b.0)).unwrap();
        println!("{name}: the share is off by {:.1e} at most, at {}", worst.0, worst.1);
        assert!(worst.0 <= SKETCH_SHARE_ERROR_MAX, "{name}: {worst:?}");
    }
}

#[test]
fn a_spike_is_answered_with_its_own_value() {
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
fn how_the_rows_were_cut_into_batches_cannot_be_seen() {
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
fn memory_that_is_not_there_is_an_error_and_not_another_answer() {
    let pool: Arc<dyn MemoryPool> = Arc::new(FairSpillPool::new(VALUES_A_RESERVATION * VALUE_BYTES));
    let mut collector = Collector::new(EXACT_VALUES_MAX, MemoryConsumer::new("test").register(&pool));
    let error = (0..EXACT_VALUES_MAX).find_map(|value| collector.add(value as f64).err()).unwrap();
    assert!(matches!(error, EngineError::Memory(_)) && error.to_string().contains("--fit-memory-bytes"), "{error}");
}
