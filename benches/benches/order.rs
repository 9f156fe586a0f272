//! Mapping of positions of a shuffled epoch to rows, individually and per window, and back.

#![expect(clippy::expect_used, reason = "a bench stops at the first error")]

use std::{hint::black_box, sync::Arc};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use forebay_order::{Epoch, OrderVersion, Permutation, Remainder, Shuffle};

/// A billion rows in 10,000 row groups.
const ROW_GROUPS: u64 = 10_000;
const POSITIONS: u64 = 1 << 16;

fn order(criterion: &mut Criterion) {
    let passing: Vec<u64> = (0..ROW_GROUPS).map(|group| 100_000 + group % 7).collect();
    let shuffle = Shuffle { seed: 7, epoch: 3, lanes: 16, window_rows: 16_384, version: OrderVersion::LATEST };
    let epoch = Epoch::new(Arc::new(passing), 4, 8192, Remainder::Keep, Some(shuffle));
    let sequence = epoch.sequence();

    let mut group = criterion.benchmark_group("order");
    group.throughput(Throughput::Elements(POSITIONS));
    let permutation = Permutation::new(shuffle.window_rows, 42);
    group.bench_function("permutation", |bencher| {
        bencher
            .iter(|| (0..POSITIONS).fold(0, |sum, index| sum ^ permutation.at(black_box(index % shuffle.window_rows))));
    });
    let lane = epoch.lane(5).expect("one of 16 lanes");
    group.bench_function("places of windows", |bencher| {
        bencher.iter(|| {
            for window in 0..POSITIONS / shuffle.window_rows {
                black_box(lane.window(black_box(window)).places());
            }
        });
    });
    group.bench_function("position to place in T", |bencher| {
        bencher.iter(|| {
            (0..POSITIONS).filter_map(|position| epoch.row_at(black_box(position * 15_013))).fold(0, u64::max)
        });
    });
    group.bench_function("place in T to position", |bencher| {
        bencher.iter(|| (0..POSITIONS).filter_map(|row| epoch.position_of(black_box(row * 15_013))).fold(0, u64::max));
    });
    group.bench_function("place in T to row group", |bencher| {
        bencher.iter(|| (0..POSITIONS).map(|row| sequence.row_group_at(black_box(row * 15_013))).fold(0, usize::max));
    });
    group.finish();
}

criterion_group!(benches, order);
criterion_main!(benches);
