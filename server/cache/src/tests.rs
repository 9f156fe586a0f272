//! Admission, eviction, claims and waiting.

use std::{pin::pin, sync::Arc};

use arrow::array::{ArrayRef, Int32Array, RecordBatch};
use futures::FutureExt;

use super::*;

/// Row groups of 4 blocks of 10 rows: 40 × 8 bytes, and 1 KiB for each block.
const BLOCKS: RowGroupBlocks = RowGroupBlocks { stored: 40, passing: 40, block_rows: 10, row_bytes: 8 };
const GROUP_BYTES: u64 = 40 * 8 + 4 * 1024;

fn rows(values: std::ops::Range<i32>) -> RecordBatch {
    RecordBatch::try_from_iter([("x", Arc::new(Int32Array::from_iter_values(values)) as ArrayRef)]).unwrap()
}

fn opened(cache: &RowCache, key: &str) -> PlanRows {
    cache.open(key.to_owned(), true).unwrap()
}

/// Which of the first row groups a new stream of a plan gets.
fn admitted(plan: &PlanRows, groups: usize) -> Vec<bool> {
    (0..groups).map(|index| plan.group(index, "file", &BLOCKS).is_some()).collect()
}

#[test]
fn a_cache_of_no_bytes_is_off() {
    let cache = RowCache::new(0);
    assert!(cache.open("a".to_owned(), true).is_none());
    assert_eq!((cache.capacity(), cache.bytes_of("a")), (0, 0));
}

#[test]
fn a_scan_larger_than_the_cache_keeps_its_first_row_groups() {
    let cache = RowCache::new(GROUP_BYTES * 3 + 5);
    let first = opened(&cache, "a");
    assert_eq!(admitted(&first, 5), [true, true, true, false, false]);
    drop(first);
    // The second epoch evicts no row group of the same plan.
    assert_eq!(admitted(&opened(&cache, "a"), 5), [true, true, true, false, false]);
    assert_eq!(cache.bytes_of("a"), GROUP_BYTES * 3);
}

#[test]
fn rows_of_an_idle_plan_give_way_to_rows_that_are_read_again() {
    let cache = RowCache::new(GROUP_BYTES * 3);
    let idle = opened(&cache, "a");
    assert_eq!(admitted(&idle, 3), [true; 3]);
    // While a stream reads them, and for rows that are read for the first time, they stay.
    assert_eq!(admitted(&opened(&cache, "b"), 2), [false; 2]);
    assert_eq!(admitted(&opened(&cache, "b"), 2), [false; 2]);
    drop(idle);
    let one_scan = opened(&cache, "c");
    assert_eq!(admitted(&one_scan, 2), [false; 2]);
    assert_eq!(admitted(&one_scan, 2), [false; 2]);
    assert_eq!(cache.bytes_of("a"), GROUP_BYTES * 3);
    assert_eq!(admitted(&opened(&cache, "b"), 2), [true; 2]);
    assert_eq!((cache.bytes_of("a"), cache.bytes_of("b")), (GROUP_BYTES, GROUP_BYTES * 2));
    assert_eq!(admitted(&opened(&cache, "a"), 3), [true, false, false]);
}

#[test]
fn the_plan_that_was_opened_longest_ago_is_evicted_first() {
    let cache = RowCache::new(GROUP_BYTES * 2);
    assert_eq!(admitted(&opened(&cache, "old"), 1), [true]);
    assert_eq!(admitted(&opened(&cache, "new"), 1), [true]);
    drop(opened(&cache, "old"));
    drop(opened(&cache, "third").group(0, "file", &BLOCKS));
    assert!(opened(&cache, "third").group(0, "file", &BLOCKS).is_some());
    assert_eq!(["old", "new", "third"].map(|key| cache.bytes_of(key)), [GROUP_BYTES, 0, GROUP_BYTES]);
}

#[test]
fn a_row_group_larger_than_the_cache_is_never_admitted() {
    let cache = RowCache::new(GROUP_BYTES);
    let hostile = RowGroupBlocks { stored: u64::MAX, passing: u64::MAX, block_rows: 1, row_bytes: u64::MAX };
    for _ in 0..3 {
        let plan = opened(&cache, "a");
        assert!(plan.group(0, "file", &hostile).is_none());
    }
    assert_eq!(cache.bytes_of("a"), 0);
}

#[test]
fn rows_of_another_state_of_a_file_are_never_returned() {
    let cache = RowCache::new(GROUP_BYTES * 2);
    let plan = opened(&cache, "a");
    let group = plan.group(0, "file 1", &BLOCKS).unwrap();
    group.claim(0).unwrap().finish(rows(0..10));
    assert!(plan.group(0, "file 2", &BLOCKS).is_none());
    drop(group);
    let replaced = plan.group(0, "file 2", &BLOCKS).unwrap();
    assert!(replaced.finished(0).is_none());
    assert_eq!(cache.bytes_of("a"), GROUP_BYTES);
}

#[test]
fn a_stream_that_does_not_admit_reads_what_is_there() {
    let cache = RowCache::new(GROUP_BYTES * 2);
    opened(&cache, "a").group(0, "file", &BLOCKS).unwrap().claim(0).unwrap().finish(rows(0..10));
    let reader = cache.open("a".to_owned(), false).unwrap();
    assert_eq!(reader.group(0, "file", &BLOCKS).unwrap().finished(0), Some(rows(0..10)));
    assert!(reader.group(1, "file", &BLOCKS).is_none());
}

#[test]
fn plans_without_rows_are_forgotten() {
    let cache = RowCache::new(1);
    for number in 0..100 {
        drop(opened(&cache, &number.to_string()).group(0, "file", &BLOCKS));
    }
    assert_eq!(lock(cache.contents.as_ref().unwrap()).key_count(), contents::KEYS_REMEMBERED);
}

#[test]
fn the_rows_of_a_chunk_are_known_before_they_are_computed_if_all_rows_pass() {
    let group = CachedRowGroup::new(&RowGroupBlocks { stored: 25, passing: 25, ..BLOCKS }, None, true);
    assert_eq!([0, 1, 2, 3].map(|block| group.passing(block)), [Some(10), Some(10), Some(5), None]);
    assert!(!group.is_past_end(2) && group.is_past_end(3));
    let filtered = Arc::new(CachedRowGroup::new(&RowGroupBlocks { stored: 25, passing: 7, ..BLOCKS }, None, true));
    assert_eq!(filtered.passing(0), None);
    filtered.claim(0).unwrap().count(3);
    filtered.claim(1).unwrap().finish(rows(0..4));
    assert_eq!([0, 1, 2].map(|block| filtered.passing(block)), [Some(3), Some(4), None]);
    assert_eq!([0, 1, 2].map(|block| filtered.finished(block).is_some()), [false, true, false]);
}

#[test]
fn a_reader_needs_the_file_from_the_first_unfinished_chunk_on() {
    let group = Arc::new(CachedRowGroup::new(&BLOCKS, None, true));
    assert_eq!(group.first_unfinished(0, 1), Some(0));
    group.claim(0).unwrap().finish(rows(0..10));
    group.claim(1).unwrap().finish(rows(10..20));
    assert_eq!([20, 21].map(|rows| group.first_unfinished(0, rows)), [None, Some(2)]);
    assert_eq!((group.first_unfinished(1, 10), group.first_unfinished(2, 1)), (None, Some(2)));
    let claim = group.claim(2).unwrap();
    assert_eq!(group.first_unfinished(1, 11), Some(2));
    claim.count(0);
    assert_eq!(group.first_unfinished(1, 11), Some(3));
}

#[tokio::test]
async fn one_reader_computes_a_chunk_and_the_others_wait() {
    let group = Arc::new(CachedRowGroup::new(&BLOCKS, None, true));
    let claim = group.claim(1).unwrap();
    assert!(group.claim(1).is_none() && group.finished(1).is_none());
    let mut waiting = pin!(group.unclaimed(1));
    assert!(waiting.as_mut().now_or_never().is_none());
    // Another block's end wakes the waiting reader, which waits on.
    group.claim(0).unwrap().finish(rows(0..10));
    assert!(waiting.as_mut().now_or_never().is_none());
    claim.finish(rows(10..20));
    waiting.await;
    assert_eq!(group.finished(1), Some(rows(10..20)));
    assert!(group.claim(1).is_none());
}

#[tokio::test]
async fn a_dropped_claim_passes_to_the_next_reader() {
    let group = Arc::new(CachedRowGroup::new(&BLOCKS, None, true));
    let claim = group.claim(3).unwrap();
    let waiting = group.unclaimed(3);
    drop(claim);
    waiting.await;
    assert!(group.finished(3).is_none() && group.claim(3).is_some());
    assert!(group.claim(4).is_none());
    assert!(group.unclaimed(4).await);
}

/// What a reader does with a claim.
#[derive(Clone, Copy, Debug)]
enum ClaimEnd {
    Finish,
    Count,
    Drop,
    Hold,
}

#[tokio::test(start_paused = true)]
async fn no_order_of_claims_keeps_a_reader_waiting_without_end() {
    const ENDS: [ClaimEnd; 4] = [ClaimEnd::Finish, ClaimEnd::Count, ClaimEnd::Drop, ClaimEnd::Hold];
    let orders = (0..4).flat_map(|a| (0..4).flat_map(move |b| (0..4).map(move |c| [a, b, c, 6 - a - b - c])));
    let orders = orders.filter(|order: &[i32; 4]| (0..4).all(|block| order.contains(&block)));
    for (order, turn, retains) in orders.flat_map(|order| (0..8).map(move |turn| (order, turn % 4, turn < 4))) {
        let group = Arc::new(CachedRowGroup::new(&RowGroupBlocks { passing: 20, ..BLOCKS }, None, retains));
        let claims: Vec<_> = order.iter().map(|block| (group.claim(*block as usize).unwrap(), *block)).collect();
        let waiting = futures::future::join_all((0..4).map(|block| group.unclaimed(block)));
        let mut held = Vec::new();
        let released = async {
            for (claim, block) in claims {
                tokio::task::yield_now().await;
                match ENDS[(block as usize + turn) % ENDS.len()] {
                    ClaimEnd::Finish => claim.finish(rows(0..5)),
                    ClaimEnd::Count => claim.count(5),
                    ClaimEnd::Drop => drop(claim),
                    ClaimEnd::Hold => held.push(claim),
                }
            }
        };
        let (ended, ()) = tokio::join!(waiting, released);
        // A block that is held to the end is computed by the reader itself.
        let expected: Vec<bool> =
            (0..4).map(|block| !matches!(ENDS[(block + turn) % ENDS.len()], ClaimEnd::Hold)).collect();
        assert_eq!(ended, expected, "{order:?} {turn} {retains}");
        drop(held);
        assert!(group.unclaimed((3 + 4 - turn) % 4).await);
    }
}
