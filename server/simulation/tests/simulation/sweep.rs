//! Runs many seeds on all cores, one per thread, until one fails.

use std::{
    fmt,
    ops::Range,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use crate::{journal::Counts, oracle, schedule::Scenario};

/// Stack size of the threads, as in the server: expressions are walked by recursion.
const STACK_BYTES: usize = 32 << 20;

/// Seeds per line of progress.
const PROGRESS_EVERY: u64 = 250;

/// Lines of a failing run's log to print.
const TAIL_LINES: usize = 40;

/// Totals of a sweep.
#[derive(Debug, Default)]
pub(crate) struct Sum {
    seeds: u64,
    simulated: Duration,
    wall: Duration,
    /// Counts by kind of event.
    counts: Counts,
    /// Runs with at least one event of the kind.
    pub(crate) runs: Counts,
}

/// Runs seeds. Panics with the schedule of the first one that fails and the command to reproduce it.
pub(crate) fn sweep(seeds: Range<u64>, prints_progress: bool) -> Sum {
    let (began, sum) = (Instant::now(), Mutex::new(Sum::default()));
    on_all_cores(seeds, |seed| {
        let scenario = Scenario::of(seed);
        let outcome = oracle::check(&scenario);
        if let Some(failure) = outcome.failure {
            let tail = outcome.log[outcome.log.len().saturating_sub(TAIL_LINES)..].join("\n");
            return Err(format!(
                "{scenario}{tail}\n\nseed {seed}: {failure}\nreproduce: SIMULATE_SEED={seed} cargo test -p \
                 forebay-simulation replay -- --nocapture"
            ));
        }
        let mut sum = sum.lock().unwrap_or_else(PoisonError::into_inner);
        let Sum { counts, runs, .. } = &mut *sum;
        counts.add(&outcome.counts, runs);
        sum.seeds += 1;
        sum.simulated += outcome.simulated;
        if prints_progress && sum.seeds.is_multiple_of(PROGRESS_EVERY) {
            println!("{} seeds, {:.0} s", sum.seeds, began.elapsed().as_secs_f64());
        }
        Ok(())
    });
    Sum { wall: began.elapsed(), ..sum.into_inner().unwrap_or_else(PoisonError::into_inner) }
}

/// Calls `call` with each seed, on one thread per core. Panics with the first failure.
pub(crate) fn on_all_cores(seeds: Range<u64>, call: impl Fn(u64) -> Result<(), String> + Sync) {
    let (next, failure) = (AtomicU64::new(seeds.start), Mutex::new(None));
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                return;
            }
            if let Err(reason) = call(seed) {
                next.store(seeds.end, Ordering::Relaxed);
                failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(reason);
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            thread::Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, work).unwrap();
        }
    });
    if let Some(reason) = failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
        panic!("{reason}");
    }
}

impl fmt::Display for Sum {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seeds, simulated, wall, counts, runs } = self;
        let (simulated, wall) = (simulated.as_secs_f64(), wall.as_secs_f64());
        writeln!(formatter, "{seeds} seeds passed; {simulated:.0} s simulated in {wall:.0} s")?;
        writeln!(formatter, "{:<46} {:>9} {:>9}", "event", "count", "runs")?;
        for (kind, count) in counts.iter() {
            writeln!(formatter, "{kind:<46} {count:>9} {:>9}", runs.of(kind))?;
        }
        Ok(())
    }
}
