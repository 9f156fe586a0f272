use std::sync::Arc;

use arrow::{
    array::{Array, ArrayRef, AsArray, Float64Array, Int64Array, RecordBatch, StringArray, UInt64Array},
    datatypes::{DataType, Int64Type},
};
use forebay_runtime::{budget::Budget, cpu_pool::CpuPool, state::State};

use super::{Engine, EngineError, Keep, QUEUE_BATCHES_MAX, Summary, summary::summary_schema};

fn engine(memory_bytes: usize) -> (Engine, tempfile::TempDir) {
    engine_on(&CpuPool::inline(), memory_bytes)
}

fn engine_on(cpu: &CpuPool, memory_bytes: usize) -> (Engine, tempfile::TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let state = State::open(directory.path(), directory.path(), cpu).unwrap();
    (Engine::new(memory_bytes, &Budget::new(u64::MAX), &state).unwrap(), directory)
}

const ALL: Keep = Keep { min_count: 0, max_size: 0, text_bytes_max: usize::MAX };

fn column(values: ArrayRef) -> RecordBatch {
    RecordBatch::try_from_iter_with_nullable([("value", values, true)]).unwrap()
}

async fn summary(values: ArrayRef, rows_a_batch: usize) -> Option<Summary> {
    let (engine, _directory) = engine(64 << 20);
    let types = [values.data_type().clone()];
    let job = engine.summaries(&types).unwrap();
    for start in (0..values.len()).step_by(rows_a_batch) {
        let part = values.slice(start, rows_a_batch.min(values.len() - start));
        assert!(job.push(RecordBatch::try_new(summary_schema(&types), vec![part]).unwrap()).await);
    }
    job.finish().await.unwrap()[0]
}

#[tokio::test]
async fn summaries_ignore_nulls() {
    let (engine, _directory) = engine(64 << 20);
    let types = [DataType::Float64, DataType::Float64];
    let job = engine.summaries(&types).unwrap();
    for values in [vec![Some(1.0), None], vec![Some(4.0), Some(1.0)]] {
        let empty: ArrayRef = Arc::new(Float64Array::from(vec![None; 2]));
        let columns: Vec<ArrayRef> = vec![Arc::new(Float64Array::from(values)), empty];
        job.push(RecordBatch::try_new(summary_schema(&types), columns).unwrap()).await;
    }
    let expected = Summary { count: 3, mean: 2.0, deviation: 2.0_f64.sqrt(), min: 1.0, max: 4.0 };
    assert_eq!(job.finish().await.unwrap(), [Some(expected), None]);
}

#[tokio::test]
async fn sums_are_exact_in_any_order_and_batch_size() {
    // Values, mean and deviation, which were computed by hand.
    let third = 1.0 / 3.0;
    let cases: [(Vec<f64>, f64, f64); 9] = [
        ([1e9 - 1.0, 1e9 + 1.0].repeat(5003), 1e9, 1.0),
        (vec![1e300, 1.0, -1e300], third, f64::NAN),
        (vec![2.0_f64.powi(1000), 3.0 * 2.0_f64.powi(1000)], 2.0_f64.powi(1001), 2.0_f64.powi(1000)),
        (vec![f64::MAX, f64::MAX, f64::MAX], f64::MAX, 0.0),
        // 1.5 units of 2^-1074 is a tie and rounds to the even 2; the deviation of half a unit rounds to the even 0.
        (vec![5e-324, 1e-323], 1e-323, 0.0),
        (vec![-0.1; 9973], -0.1, 0.0),
        (vec![7.25], 7.25, 0.0),
        ([1e16, 1.0, -1e16, -1.0].repeat(1000), 0.0, f64::NAN),
        ((1..=5).map(f64::from).collect(), 3.0, 2.0_f64.sqrt()),
    ];
    for (values, mean, deviation) in cases {
        let rows = values.len();
        let mut backwards = values.clone();
        backwards.reverse();
        let whole = summary(Arc::new(Float64Array::from(values.clone())), rows).await.unwrap();
        assert_eq!(whole.mean.to_bits(), mean.to_bits(), "{whole:?}");
        if !deviation.is_nan() {
            assert_eq!(whole.deviation.to_bits(), deviation.to_bits(), "{whole:?}");
        }
        for cut in [1_usize, 7, 1000].into_iter().filter(|cut| rows / cut < 3000) {
            assert_eq!(summary(Arc::new(Float64Array::from(values.clone())), cut).await, Some(whole));
            assert_eq!(summary(Arc::new(Float64Array::from(backwards.clone())), cut).await, Some(whole));
        }
    }
}

#[tokio::test]
async fn integers_beyond_2_to_the_53_are_summed_exactly() {
    // 2^53 + 1 and 2^53 + 3 have the mean 2^53 + 2; as floats they are 2^53 and 2^53 + 4.
    let near = (1_i64 << 53) + 1;
    let odd: ArrayRef = Arc::new(Int64Array::from(vec![near, near + 2]));
    let learned = summary(odd, 1).await.unwrap();
    assert_eq!((learned.mean, learned.deviation), ((near + 1) as f64, 1.0));
    let ends: ArrayRef = Arc::new(Int64Array::from(vec![i64::MIN, i64::MAX]));
    let learned = summary(ends, 2).await.unwrap();
    assert_eq!((learned.mean, learned.min, learned.max), (-0.5, -(2.0_f64.powi(63)), 2.0_f64.powi(63)));
    let large: ArrayRef = Arc::new(UInt64Array::from(vec![u64::MAX; 3]));
    let learned = summary(large, 2).await.unwrap();
    assert_eq!((learned.mean, learned.deviation), (2.0_f64.powi(64), 0.0));
}

#[tokio::test]
async fn an_infinite_value_has_no_mean() {
    let learned = summary(Arc::new(Float64Array::from(vec![1.0, f64::INFINITY])), 1).await.unwrap();
    assert!(learned.mean.is_nan() && learned.deviation.is_nan());
    assert_eq!((learned.min, learned.max), (1.0, f64::INFINITY));
}

#[tokio::test]
async fn counts_are_sorted_by_count_then_value() {
    let (engine, _directory) = engine(64 << 20);
    let texts: ArrayRef = Arc::new(StringArray::from(vec!["b", "a", "c", "b", "a", "d", "c", "c", "e", "e", "é"]));
    for (min_count, max_size, expected, counts) in [
        (2, 3, &["c", "a", "b"][..], &[3, 2, 2][..]),
        (0, 0, &["c", "a", "b", "e", "d", "é"], &[3, 2, 2, 2, 1, 1]),
        (0, 1, &["c"], &[3]),
        (1, 5, &["c", "a", "b", "e", "d"], &[3, 2, 2, 2, 1]),
        (9, 0, &[], &[]),
    ] {
        let job = engine.value_counts(&DataType::Utf8, Keep { min_count, max_size, ..ALL }).unwrap();
        job.push(column(Arc::clone(&texts))).await;
        let counted = job.finish().await.unwrap();
        assert_eq!(counted.values.as_string::<i32>().iter().flatten().collect::<Vec<_>>(), expected);
        assert_eq!(counted.counts, counts);
    }
}

#[tokio::test]
async fn a_vocabulary_beyond_its_limit_is_an_error() {
    let (engine, _directory) = engine(64 << 20);
    for (max_size, is_too_much) in [(0, true), (10, false)] {
        let keep = Keep { min_count: 0, max_size, text_bytes_max: 1000 };
        let job = engine.value_counts(&DataType::Utf8, keep).unwrap();
        let texts = StringArray::from_iter_values((0..1000).map(|number| format!("{number:05}")));
        job.push(column(Arc::new(texts))).await;
        let counted = job.finish().await;
        assert_eq!(matches!(counted, Err(EngineError::TooManyValues { bytes: 1000 })), is_too_much, "{counted:?}");
    }
}

/// Batches with each number twice, in scattered order (7,919 is prime and does not divide the count).
fn scattered_twice(distinct: i64) -> impl Iterator<Item = ArrayRef> {
    [0, 1].into_iter().flat_map(move |_| {
        (0..distinct).step_by(8192).map(move |start| {
            let values = (start..(start + 8192).min(distinct)).map(|i| i * 7919 % distinct);
            Arc::new(Int64Array::from_iter_values(values)) as ArrayRef
        })
    })
}

#[tokio::test]
async fn values_beyond_memory_are_spilled_and_counted() {
    let distinct = 600_000;
    let (engine, directory) = engine(8 << 20);
    let keep = Keep { min_count: 3, ..ALL };
    let job = engine.value_counts(&DataType::Int64, keep).unwrap();
    let mut has_spilled = false;
    // Every sixteenth value occurs a third time, after the first two were spilled.
    let thirds: ArrayRef = Arc::new(Int64Array::from_iter_values((0..distinct).step_by(16)));
    for values in scattered_twice(distinct).chain([thirds]) {
        job.push(column(values)).await;
        has_spilled |= spilled_bytes(&directory) > 0;
    }
    let counted = job.finish().await.unwrap();
    assert!(has_spilled, "nothing was spilled: the memory limit of this test is too large");
    assert!(counted.values.as_primitive::<Int64Type>().values().iter().copied().eq((0..distinct).step_by(16)));
    assert!(counted.counts.iter().all(|count| *count == 3));
    assert_eq!(spilled_bytes(&directory), 0);
}

#[tokio::test]
async fn a_dropped_job_stops_and_deletes_its_files() {
    for is_complete in [false, true] {
        let (engine, directory) = engine(8 << 20);
        let job = engine.value_counts(&DataType::Int64, ALL).unwrap();
        for values in scattered_twice(600_000) {
            job.push(column(values)).await;
        }
        while spilled_bytes(&directory) == 0 {
            tokio::task::yield_now().await;
        }
        if is_complete {
            let finished = job.finish();
            // Polled once: the input is complete, and the merge has started.
            assert!(futures::FutureExt::now_or_never(finished).is_none(), "the job has finished too early");
        } else {
            drop(job);
        }
        let deadline = std::time::Instant::now() + std::time::Duration::from_mins(1);
        while spilled_bytes(&directory) > 0 || engine.context.memory_pool().reserved() > 0 {
            assert!(std::time::Instant::now() < deadline, "the job is still running");
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::test]
async fn aggregates_compute_on_the_cpu_pool_only() {
    let cpu = CpuPool::new(1).unwrap();
    let (engine, _directory) = engine_on(&cpu, 64 << 20);
    let values: ArrayRef = Arc::new(Int64Array::from(vec![3, 3, 5]));
    // The only thread is busy: an aggregate waits, whichever it is.
    let (release, gate) = std::sync::mpsc::channel::<()>();
    let busy = tokio::spawn({
        let cpu = cpu.clone();
        async move { cpu.run(move || gate.recv()).await }
    });
    tokio::task::yield_now().await;
    let counts = engine.value_counts(&DataType::Int64, ALL).unwrap();
    let distribution = engine.distribution(&DataType::Int64);
    for number in 0..QUEUE_BATCHES_MAX {
        assert!(counts.push(column(Arc::clone(&values))).await, "{number}");
        assert!(distribution.push(column(Arc::clone(&values))).await, "{number}");
    }
    let deadline = std::time::Instant::now() + std::time::Duration::from_mins(1);
    while cpu.waiting() < 2 {
        assert!(std::time::Instant::now() < deadline, "an aggregate does not wait for the pool");
        tokio::task::yield_now().await;
    }
    release.send(()).unwrap();
    let (counted, spread) = tokio::join!(counts.finish(), distribution.finish());
    assert_eq!(counted.unwrap().counts, [8, 4]);
    assert_eq!(spread.unwrap().unwrap().quantile(0.5).to_bits(), 3.0_f64.to_bits());
    busy.await.unwrap().unwrap().unwrap();
}

fn spilled_bytes(directory: &tempfile::TempDir) -> u64 {
    let folders = std::fs::read_dir(directory.path().join("spill")).unwrap();
    let files = folders.flat_map(|folder| std::fs::read_dir(folder.unwrap().path()).into_iter().flatten());
    files.map(|file| file.and_then(|file| file.metadata()).map_or(0, |about| about.len())).sum()
}
