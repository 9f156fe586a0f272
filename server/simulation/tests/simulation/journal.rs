//! The events of a run in order, to compare two runs of a seed, and counts by kind of event.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Mutex, PoisonError},
    time::Duration,
};

/// The log of a run. A run is single-threaded; the lock is for the borrow checker.
#[derive(Debug, Default)]
pub(crate) struct Journal(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    lines: Vec<String>,
    counts: Counts,
}

/// Counts by kind of event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts(BTreeMap<&'static str, u64>);

impl Journal {
    /// Records an event at the current simulated time.
    pub(crate) fn note(&self, event: impl fmt::Display) {
        self.note_at(turmoil::sim_elapsed().unwrap_or_default(), event);
    }

    /// Records an event from outside of the simulated machines.
    pub(crate) fn note_at(&self, at: Duration, event: impl fmt::Display) {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        inner.lines.push(format!("{:>9.3} s  {event}", at.as_secs_f64()));
    }

    /// Counts an event.
    pub(crate) fn count(&self, kind: &'static str) {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *inner.counts.0.entry(kind).or_default() += 1;
    }

    /// The log so far.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).lines.clone()
    }

    /// The counts so far.
    pub(crate) fn counts(&self) -> Counts {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).counts.clone()
    }
}

impl Counts {
    /// The count of a kind.
    pub(crate) fn of(&self, kind: &str) -> u64 {
        self.0.get(kind).copied().unwrap_or_default()
    }

    /// Adds the counts of another run, and increments `runs` for each kind in it.
    pub(crate) fn add(&mut self, other: &Self, runs: &mut Self) {
        for (kind, count) in &other.0 {
            *self.0.entry(kind).or_default() += count;
            *runs.0.entry(kind).or_default() += 1;
        }
    }

    /// Every kind and its count, sorted by name.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.0.iter().map(|(kind, count)| (*kind, *count))
    }
}
