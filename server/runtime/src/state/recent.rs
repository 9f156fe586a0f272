//! Names that were seen a short time ago.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// Names to remember; a bound on memory, as clients send some of them.
const NAMES_MAX: usize = 10_000;

/// Names, each remembered for a time.
#[derive(Debug)]
pub(super) struct RecentNames {
    lifetime: Duration,
    seen: Mutex<HashMap<String, Instant>>,
}

impl RecentNames {
    pub(super) fn new(lifetime: Duration) -> Self {
        Self { lifetime, seen: Mutex::default() }
    }

    pub(super) fn has(&self, name: &str) -> bool {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.get(name).is_some_and(|at| at.elapsed() < self.lifetime)
    }

    pub(super) fn add(&self, name: &str) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.len() >= NAMES_MAX {
            seen.retain(|_, at| at.elapsed() < self.lifetime);
        }
        if seen.len() < NAMES_MAX {
            seen.insert(name.to_owned(), Instant::now());
        }
    }

    pub(super) fn remove(&self, name: &str) {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn names_are_forgotten_after_their_time() {
        let names = RecentNames::new(Duration::from_secs(5));
        names.add("a");
        names.add("b");
        names.remove("b");
        assert_eq!((names.has("a"), names.has("b")), (true, false));
        tokio::time::advance(Duration::from_secs(6)).await;
        assert!(!names.has("a"));
    }

    #[tokio::test]
    async fn their_number_is_bounded() {
        let names = RecentNames::new(Duration::from_hours(1));
        (0..=NAMES_MAX).for_each(|number| names.add(&number.to_string()));
        assert_eq!(names.seen.lock().unwrap().len(), NAMES_MAX);
    }
}
