//! Replicas and ranks under schedules of faults, each drawn from a seed. The crate's documentation describes the model.
//!
//! `SIMULATE_SEED=N cargo test -p forebay-simulation replay -- --nocapture` runs one seed and prints its events;
//! `SIMULATE_LOG=h2=trace,turmoil=trace` adds the logs of these crates.

#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, clippy::panic, reason = "tests stop at the first error")]

mod bucket;
mod chance;
mod dataset;
mod journal;
mod oracle;
mod panics;
mod replica;
mod run;
mod schedule;
mod sweep;
mod trainer;
mod wire;

use std::{env, time::Duration};

use dataset::Plan;
use schedule::{Fault, Planned, Scenario};
use trainer::Request;

/// Seeds of every test run.
const SEEDS: u64 = 200;

/// Seeds that are run twice to compare their logs.
const SEEDS_TWICE: u64 = 12;

/// Seeds of `make simulate` by default.
const SEEDS_MANY: u64 = 10_000;

fn number(name: &str) -> Option<u64> {
    env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is not a number: {text:?}")))
}

#[test]
fn every_rank_gets_its_exact_stream_under_any_schedule() {
    let sum = sweep::sweep(0..SEEDS, false);
    for kind in [
        "fail-overs",
        "ranks resumed from a cursor",
        "jobs resumed at another world size",
        "storage requests retried",
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

/// Regressions, each with its cause.
#[test]
fn seeds_that_have_failed_pass() {
    // A bug of the simulation: a signal to a crashed machine ended the server that started there later.
    let seeds = [5277];
    for seed in seeds {
        assert_eq!(oracle::check(&Scenario::of(seed)).failure, None, "seed {seed}");
    }
}

#[test]
fn runs_of_a_seed_are_identical() {
    sweep::on_all_cores(0..SEEDS_TWICE, |seed| {
        let runs = [(); 2].map(|()| oracle::check(&Scenario::of(seed)).log);
        let differs = runs[0].iter().zip(&runs[1]).position(|(one, other)| one != other);
        let at = differs.or_else(|| (runs[0].len() != runs[1].len()).then(|| runs[0].len().min(runs[1].len())));
        at.map_or(Ok(()), |at| {
            let shown = |log: &[String]| log[at.saturating_sub(3)..log.len().min(at + 3)].join("\n");
            Err(format!("two runs of seed {seed} differ:\n{}\n-- and --\n{}", shown(&runs[0]), shown(&runs[1])))
        })
    });
}

/// Runs a job on two replicas, the first with faults that last longer than the timeout of a silent connection.
fn check_failover(faults: &[(u64, Fault)]) {
    let lasts = Duration::from_secs(90);
    let faults = faults.iter().map(|(at, fault)| Planned { at: Duration::from_millis(*at), lasts, fault: *fault });
    let calm = Scenario::of(0);
    let request = Request { plan: Plan::Whole, batch_size: 8, ..calm.request };
    let scenario =
        Scenario { replicas: 2, request, world_size: 1, portion_bytes: 60, faults: faults.collect(), ..calm };
    let outcome = oracle::check(&scenario);
    assert_eq!(outcome.failure, None, "{scenario}{}", outcome.log.join("\n"));
    assert!(outcome.counts.of("fail-overs") > 0, "{scenario}{}", outcome.log.join("\n"));
    assert!(outcome.simulated < lasts, "{:?}", outcome.simulated);
}

#[test]
fn a_stream_fails_over_from_a_silent_machine() {
    check_failover(&[(1_000, Fault::Vanish { replica: 0 })]);
    check_failover(&[(1_000, Fault::Hold { replica: 0, rank: 0 })]);
}

#[test]
fn a_stream_fails_over_from_a_machine_that_falls_silent_while_it_drains() {
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
    let outcome = oracle::check(&scenario);
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
