use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use super::{Budget, Reservation};
use crate::tenant::Tenant;

#[test]
fn idle_memory_gives_way() {
    let budget = Budget::new(10);
    let idle = Arc::new(Mutex::new(Some(budget.reserve(6).unwrap())));
    budget.on_shortage({
        let idle = Arc::clone(&idle);
        move || drop(idle.lock().unwrap().take())
    });
    let first = budget.reserve(4).unwrap();
    assert!(idle.lock().unwrap().is_some());
    let second = budget.reserve(5).unwrap();
    assert!(idle.lock().unwrap().is_none());
    assert_eq!(budget.reserve(2).unwrap_err().reserved(), 9);
    drop((first, second));
}

#[test]
fn dropping_releases_bytes() {
    let budget = Budget::new(10);
    let first = budget.reserve(7).unwrap();
    assert!(budget.reserve(4).unwrap_err().to_string().contains("--memory-limit-bytes"));
    assert!(budget.reserve(u64::MAX).is_err());
    drop(first);
    assert!(budget.reserve(10).is_ok());
}

#[test]
fn a_reservation_is_resized_within_the_limit_or_beyond_it() {
    let budget = Budget::new(10);
    let mut first = budget.empty();
    first.try_resize(6).unwrap();
    let error = first.try_resize(11).unwrap_err();
    assert_eq!((error.bytes(), error.reserved(), error.limit()), (11, 0, 10));
    assert!(!error.may_pass());
    let error = budget.reserve(5).unwrap_err();
    assert_eq!((error.bytes(), error.reserved(), error.may_pass()), (5, 6, true));
    first.try_resize(2).unwrap();
    let second = budget.reserve(8).unwrap();
    first.resize(20);
    assert!(budget.reserve(0).is_err());
    drop((first, second));
    assert!(budget.reserve(10).is_ok());
}

fn tenant(name: &str) -> Tenant {
    Tenant::new(&name.into())
}

/// Memory of a tenant that releases it on request, and the number of times that it did.
fn lend(budget: &Budget, name: &str, bytes: u64, kept: u64) -> tokio::task::JoinHandle<Reservation> {
    let lent = tenant(name).run(|| (budget.reserve(bytes).unwrap(), budget.revocable()));
    let (mut reserved, revocable) = lent;
    revocable.set_bytes(bytes - kept);
    tokio::spawn(async move {
        revocable.recalled().await;
        reserved.resize(kept);
        revocable.set_bytes(0);
        reserved
    })
}

#[tokio::test(start_paused = true)]
async fn a_tenant_gives_unused_memory_to_one_that_would_have_less() {
    let budget = Budget::new(100);
    let (first, second) = (lend(&budget, "greedy", 50, 5), lend(&budget, "greedy", 45, 5));
    let modest = tenant("modest");
    // Its memory is not unused for long enough, and without any of it the other would have less.
    assert!(modest.scope(budget.reserve_fairly(60)).await.is_err());
    tokio::time::sleep(Duration::from_secs(2)).await;
    // Its own memory is not released for itself.
    assert!(tenant("greedy").scope(budget.reserve_fairly(10)).await.is_err());
    let held = modest.scope(budget.reserve_fairly(60)).await.unwrap();
    assert_eq!((held.bytes(), first.await.unwrap().bytes(), second.await.unwrap().bytes()), (60, 5, 5));
}

#[tokio::test(start_paused = true)]
async fn memory_in_use_is_recalled_only_from_a_tenant_that_keeps_as_much() {
    let budget = Budget::new(100);
    let _first = lend(&budget, "greedy", 50, 0);
    let _second = lend(&budget, "greedy", 50, 0);
    let modest = tenant("modest");
    assert!(modest.scope(budget.reserve_fairly(51)).await.is_err());
    let held = modest.scope(budget.reserve_fairly(50)).await.unwrap();
    assert!(tenant("third").scope(budget.reserve_fairly(1)).await.is_err());
    drop(held);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_recalled_that_would_not_suffice() {
    let budget = Budget::new(100);
    let lent = lend(&budget, "greedy", 50, 0);
    let fixed = tenant("greedy").run(|| budget.reserve(50).unwrap());
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(tenant("modest").scope(budget.reserve_fairly(60)).await.is_err());
    assert!(!lent.is_finished());
    drop(fixed);
}

#[tokio::test(start_paused = true)]
async fn a_tenant_with_more_does_not_take_what_another_waits_for() {
    let budget = Budget::new(100);
    let greedy = tenant("greedy");
    let (first, mut second) = greedy.run(|| (budget.reserve(40).unwrap(), budget.reserve(60).unwrap()));
    let waiting = budget.clone();
    let claim = tenant("modest").scope(async move { waiting.reserve_within(30, Duration::from_mins(1)).await });
    let claim = tokio::spawn(claim);
    tokio::task::yield_now().await;
    second.resize(45);
    // 15 are free, and 30 are needed.
    assert!(greedy.scope(budget.reserve_fairly(15)).await.is_err());
    drop(first);
    assert_eq!(claim.await.unwrap().unwrap().bytes(), 30);
    assert!(greedy.scope(budget.reserve_fairly(15)).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn memory_that_is_never_given_back_is_waited_for_briefly() {
    let budget = Budget::new(100);
    let (_held, stubborn) = tenant("greedy").run(|| (budget.reserve(100).unwrap(), budget.revocable()));
    stubborn.set_bytes(100);
    stubborn.set_used(false);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(stubborn.unused_for() >= Duration::from_secs(2));
    assert!(tenant("modest").scope(budget.reserve_fairly(1)).await.is_err());
    stubborn.recalled().await;
}
