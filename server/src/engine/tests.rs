use std::sync::Arc;

use arrow::{
    array::{Array, ArrayRef, AsArray, Float64Array, Int64Array, RecordBatch, StringArray},
    datatypes::{DataType, Int64Type},
};

use super::{CountOrder, Engine, Summary, summary::summary_schema};
use crate::state::State;

fn engine(memory_bytes: usize) -> (Engine, tempfile::TempDir) {
    let directory = tempfile::tempdir().unwrap();
    (Engine::new(memory_bytes, &State::open(directory.path()).unwrap()).unwrap(), directory)
}

#[tokio::test]
async fn summaries_leave_nulls_out_and_say_when_there_is_nothing() {
    let (engine, _directory) = engine(64 << 20);
    let job = engine.summaries(2).unwrap();
    for values in [vec![Some(1.0), None], vec![Some(4.0), Some(1.0)]] {
        let empty: ArrayRef = Arc::new(Float64Array::from(vec![None; 2]));
        let columns: Vec<ArrayRef> = vec![Arc::new(Float64Array::from(values)), empty];
        job.push(RecordBatch::try_new(summary_schema(2), columns).unwrap()).await;
    }
    let expected = Summary { count: 3, mean: 2.0, deviation: 2.0_f64.sqrt(), min: 1.0, max: 4.0 };
    assert_eq!(job.finish().await.unwrap(), [Some(expected), None]);
}

#[tokio::test]
async fn counts_come_by_count_then_value() {
    let (engine, _directory) = engine(64 << 20);
    let order = CountOrder::ByCount { min_count: 2, max_size: 3 };
    let job = engine.value_counts(&DataType::Utf8, order).unwrap();
    let values: ArrayRef = Arc::new(StringArray::from(vec!["b", "a", "c", "b", "a", "d", "c", "c", "e", "e"]));
    job.push(RecordBatch::try_from_iter_with_nullable([("value", values, true)]).unwrap()).await;
    let counted = job.finish().await.unwrap();
    let (values, counts) = &counted.batches[0];
    assert_eq!(values.as_string::<i32>().iter().flatten().collect::<Vec<_>>(), ["c", "a", "b"]);
    assert_eq!(counts, &[3, 2, 2]);
}

#[tokio::test]
async fn more_values_than_memory_are_spilled_and_counted_right() {
    let (engine, _directory) = engine(8 << 20);
    let job = engine.value_counts(&DataType::Int64, CountOrder::ByValue).unwrap();
    let distinct = 600_000_i64;
    for _ in 0..2 {
        for start in (0..distinct).step_by(8192) {
            // Scattered, each value once a round (7,919 is prime and does not divide the count).
            let values = (start..(start + 8192).min(distinct)).map(|i| i * 7919 % distinct);
            let values: ArrayRef = Arc::new(Int64Array::from_iter_values(values));
            job.push(RecordBatch::try_from_iter_with_nullable([("value", values, true)]).unwrap()).await;
        }
    }
    let counted = job.finish().await.unwrap();
    let mut next = 0;
    for (values, counts) in &counted.batches {
        assert_eq!(values.len(), counts.len());
        for (value, count) in values.as_primitive::<Int64Type>().values().iter().zip(counts) {
            assert_eq!((*value, *count), (next, 2));
            next += 1;
        }
    }
    assert_eq!(next, distinct);
}
