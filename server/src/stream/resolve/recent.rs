//! A few values by key, those that were added last.

use std::{
    collections::VecDeque,
    sync::{Mutex, PoisonError},
};

/// At most a number of values.
#[derive(Debug)]
pub(crate) struct Recent<K, T> {
    entries: Mutex<VecDeque<(K, T)>>,
    entries_max: usize,
}

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
