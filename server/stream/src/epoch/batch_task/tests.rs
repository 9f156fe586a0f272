use std::sync::atomic::{AtomicU64, Ordering};

use arrow::{array::RecordBatch, datatypes::Schema};
use forebay_runtime::{metrics::StageTimes, tenant::Tenant};
use futures::StreamExt;

use super::*;

const MEMORY: BatchMemory = BatchMemory { bytes: 100, batch_bytes: 10, sending_bytes: 5 };

/// What is left of the memory of a paused stream.
const PAUSED: u64 = 15;

fn limits(pause: u64, idle: u64) -> Limits {
    let [pause_max, idle_max] = [pause, idle].map(Duration::from_secs);
    Limits { batch_bytes_max: 1, pause_max, idle_max, groups_max: 1 }
}

/// A stream of ten batches of three rows, and the number of times that it began to compute.
fn stream(budget: &Budget, limits: Limits) -> (BatchTask, Arc<AtomicU64>) {
    let starts = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&starts);
    let held = budget.reserve(MEMORY.bytes).unwrap();
    let task = BatchTask::start(budget, limits, (MEMORY, held), move |taken, sender| {
        counted.fetch_add(1, Ordering::SeqCst);
        assert_eq!(taken.position, taken.batches * 3);
        async move {
            for step in taken.batches..10 {
                let header = v1::BatchHeader { step, position: step * 3, rows: 3, ..Default::default() };
                let data = RecordBatch::new_empty(Arc::new(Schema::empty()));
                let _ = sender.send(Ok(Batch { header, data, times: StageTimes::default() })).await;
            }
            Ok(())
        }
    });
    (task, starts)
}

async fn steps(task: &mut BatchTask, count: usize) -> Vec<u64> {
    task.take(count).map(|batch| batch.unwrap().header.step).collect().await
}

#[tokio::test(start_paused = true)]
async fn an_unread_stream_releases_its_memory_and_continues_where_it_was() {
    let budget = Budget::new(100);
    let (mut task, starts) = stream(&budget, limits(20, 1000));
    assert_eq!(steps(&mut task, 4).await, [0, 1, 2, 3]);
    tokio::time::sleep(Duration::from_secs(19)).await;
    assert!(budget.reserve(1).is_err());
    tokio::time::sleep(Duration::from_secs(2)).await;
    drop(budget.reserve(100 - PAUSED).unwrap());
    assert!(budget.reserve(101 - PAUSED).is_err());
    assert_eq!(steps(&mut task, 20).await, [4, 5, 6, 7, 8, 9]);
    assert_eq!(starts.load(Ordering::SeqCst), 2);
}

#[tokio::test(start_paused = true)]
async fn another_tenant_gets_the_memory_of_an_unread_stream_at_once() {
    let budget = Budget::new(100);
    let (mut task, _) = Tenant::new(&"greedy".into()).run(|| stream(&budget, limits(0, 0)));
    assert_eq!(steps(&mut task, 1).await, [0]);
    tokio::time::sleep(Duration::from_secs(2)).await;
    let held = Tenant::new(&"modest".into()).scope(budget.reserve_fairly(80)).await.unwrap();
    // The stream waits for the memory, and continues with it.
    let (rest, ()) = tokio::join!(steps(&mut task, 20), async {
        tokio::time::sleep(Duration::from_secs(5)).await;
        drop(held);
    });
    assert_eq!(rest, (1..10).collect::<Vec<u64>>());
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_gets_no_memory_back_ends_with_an_error() {
    let budget = Budget::new(100);
    let (mut task, _) = stream(&budget, limits(20, 1000));
    assert_eq!(steps(&mut task, 2).await, [0, 1]);
    tokio::time::sleep(Duration::from_secs(30)).await;
    let _held = budget.reserve(80).unwrap();
    assert!(matches!(task.next().await, Some(Err(StreamError::Paused(_)))));
    assert!(task.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_stays_unread_ends() {
    let budget = Budget::new(100);
    let (mut task, starts) = stream(&budget, limits(20, 60));
    assert_eq!(steps(&mut task, 2).await, [0, 1]);
    tokio::time::sleep(Duration::from_secs(61)).await;
    assert!(matches!(task.next().await, Some(Err(StreamError::Idle { .. }))));
    assert!(task.next().await.is_none());
    assert_eq!(starts.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_takes_batches_slowly_is_not_paused() {
    let budget = Budget::new(100);
    let (mut task, starts) = stream(&budget, limits(20, 60));
    for step in 0..10 {
        tokio::time::sleep(Duration::from_secs(19)).await;
        assert_eq!(steps(&mut task, 1).await, [step]);
    }
    assert!(task.next().await.is_none());
    assert_eq!(starts.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn the_last_batches_are_computed_again_too() {
    let budget = Budget::new(100);
    let (mut task, starts) = stream(&budget, limits(20, 0));
    assert_eq!(steps(&mut task, 8).await.len(), 8);
    // The computation has ended, and two batches wait.
    tokio::time::sleep(Duration::from_secs(21)).await;
    drop(budget.reserve(100 - PAUSED).unwrap());
    assert_eq!(steps(&mut task, 20).await, [8, 9]);
    assert_eq!(starts.load(Ordering::SeqCst), 2);
}
