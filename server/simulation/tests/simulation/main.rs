//! Replicas and ranks under schedules of faults, each drawn from a seed; the crate's own page says what that is worth.
//!
//! `SIMULATE_SEED=N cargo test -p forebay-simulation replay -- --nocapture` runs one seed again and shows all of it, with
//! `SIMULATE_LOG=h2=trace,turmoil=trace` and the like what its parts say too.

#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, clippy::panic, reason = "tests stop at the first surprise")]

mod bucket;
mod chance;
mod dataset;
mod journal;
mod panics;
mod replica;
mod run;
mod schedule;
mod sweep;
mod trainer;
mod truth;
mod wire;

use std::{env, time::Duration};

use dataset::Plan;
use schedule::{Fault, Planned, Scenario};
use trainer::Request;

/// Seeds of every test run.
const SEEDS: u64 = 200;

/// Seeds that are run twice.
const SEEDS_TWICE: u64 = 12;

/// Seeds of `make simulate`, unless it is told another number.
const SEEDS_MANY: u64 = 10_000;

fn number(name: &str) -> Option<u64> {
    env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is no number: {text:?}")))
}

#[test]
fn every_rank_gets_its_one_true_stream_under_any_schedule() {
    let sum = sweep::sweep(0..SEEDS, false);
    for kind in [
        "fail-overs",
        "ranks that went on from a cursor",
        "jobs that went on at another world size",
        "storage requests tried again",
        "replica killed",
        "machine vanished",
        "replica drained",
        "partition",
        "link held",
        "link slow",
        "connections cut",
        "storage fault",
        "rank killed",
    ] {
        assert!(sum.runs.of(kind) > 0, "no run saw: {kind}\n{sum}");
    }
}

/// Each with what was wrong then.
#[test]
fn seeds_that_have_failed_pass() {
    // A signal to a machine that was gone ended the server that came after it: a fault of the schedule, which nobody mended.
    let seeds = [5277];
    for seed in seeds {
        assert_eq!(truth::check(&Scenario::of(seed)).failure, None, "seed {seed}");
    }
}

#[test]
fn a_seed_is_the_same_run_every_time() {
    sweep::on_all_cores(0..SEEDS_TWICE, |seed| {
        let runs = [(); 2].map(|()| truth::check(&Scenario::of(seed)).log);
        let differs = runs[0].iter().zip(&runs[1]).position(|(one, other)| one != other);
        let at = differs.or_else(|| (runs[0].len() != runs[1].len()).then(|| runs[0].len().min(runs[1].len())));
        at.map_or(Ok(()), |at| {
            let shown = |log: &[String]| log[at.saturating_sub(3)..log.len().min(at + 3)].join("\n");
            Err(format!("seed {seed} went two ways:\n{}\n-- or --\n{}", shown(&runs[0]), shown(&runs[1])))
        })
    });
}

/// A job on two replicas whose first one does these things for longer than a silent connection is waited for.
fn check_failover(faults: &[(u64, Fault)]) {
    let lasts = Duration::from_secs(90);
    let faults = faults.iter().map(|(at, fault)| Planned { at: Duration::from_millis(*at), lasts, fault: *fault });
    let calm = Scenario::of(0);
    let request = Request { plan: Plan::Whole, batch_size: 8, ..calm.request };
    let scenario =
        Scenario { replicas: 2, request, world_size: 1, portion_bytes: 60, faults: faults.collect(), ..calm };
    let outcome = truth::check(&scenario);
    assert_eq!(outcome.failure, None, "{scenario}{}", outcome.log.join("\n"));
    assert!(outcome.counts.of("fail-overs") > 0, "{scenario}{}", outcome.log.join("\n"));
    assert!(outcome.simulated < lasts, "{:?}", outcome.simulated);
}

#[test]
fn a_stream_whose_machine_falls_silent_goes_on_elsewhere() {
    check_failover(&[(1_000, Fault::Vanish { replica: 0 })]);
    check_failover(&[(1_000, Fault::Hold { replica: 0, rank: 0 })]);
}

#[test]
fn a_stream_whose_machine_falls_silent_while_it_drains_goes_on_elsewhere() {
    let grace = Duration::from_secs(30);
    check_failover(&[(1_000, Fault::Drain { replica: 0, grace }), (1_300, Fault::Vanish { replica: 0 })]);
}

#[test]
fn replay() {
    let Some(seed) = number("SIMULATE_SEED") else { return };
    if let Ok(filter) = env::var("SIMULATE_LOG") {
        tracing_subscriber::fmt().with_env_filter(filter).init();
    }
    let scenario = Scenario::of(seed);
    let outcome = truth::check(&scenario);
    println!("{scenario}{}", outcome.log.join("\n"));
    assert_eq!(outcome.failure, None, "seed {seed}");
}

#[test]
#[ignore = "minutes: make simulate"]
fn many_seeds() {
    let first = number("SIMULATE_FIRST").unwrap_or_default();
    let seeds = number("SIMULATE_SEEDS").unwrap_or(SEEDS_MANY);
    println!("{}", sweep::sweep(first..first + seeds, true));
}
