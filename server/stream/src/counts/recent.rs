//! A few values by key, those that were added or used last.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::sync::OnceCell;

/// At most a number of values.
#[derive(Debug)]
pub(crate) struct Recent<K, T> {
    entries: Mutex<VecDeque<(K, T)>>,
    entries_max: usize,
}

/// Results that concurrent requests share: the first request computes a result, and the others wait for it.
pub(crate) type SharedResults<T> = Recent<String, Arc<OnceCell<T>>>;

impl<K: PartialEq, T: Clone> Recent<K, T> {
    pub(crate) fn new(entries_max: usize) -> Self {
        Self { entries: Mutex::default(), entries_max }
    }

    pub(crate) fn find(&self, key: &K) -> Option<T> {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.iter().find(|(known, _)| known == key).map(|(_, found)| found.clone())
    }

    pub(crate) fn remember(&self, key: K, value: T) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.retain(|(known, _)| *known != key);
        entries.push_front((key, value));
        entries.truncate(self.entries_max);
    }
}

impl<T> SharedResults<T> {
    /// The result of a key; empty until it is computed.
    pub(crate) fn of(&self, key: &str) -> Arc<OnceCell<T>> {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let known = entries.iter().position(|(known, _)| known == key).and_then(|index| entries.remove(index));
        let entry = known.unwrap_or_else(|| (key.to_owned(), Arc::default()));
        let cell = Arc::clone(&entry.1);
        entries.push_front(entry);
        entries.truncate(self.entries_max);
        cell
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_the_results_that_were_used_last() {
        let results = SharedResults::new(2);
        for (key, result) in [("a", 1), ("b", 2)] {
            results.of(key).set(result).unwrap();
        }
        assert_eq!(results.of("a").get(), Some(&1));
        assert_eq!(results.of("c").get(), None);
        assert_eq!((results.of("a").get(), results.of("b").get()), (Some(&1), None));
    }
}
