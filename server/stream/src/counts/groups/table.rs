//! The groups of a column, and the rows of each per row group.

use std::collections::HashMap;

use forebay_runtime::budget::{Budget, Reservation};

use crate::{error::StreamError, rows::group::GroupKey};

/// Pairs of a group and a row group that has rows of it: some 150 MB.
const RUNS_MAX: usize = 8 << 20;

/// Bytes of all keys.
const KEYS_BYTES_MAX: usize = 64 << 20;

/// The groups of a column, in the order of their keys.
#[derive(Debug)]
pub(crate) struct GroupTable {
    keys: Vec<GroupKey>,
    /// The end of each group's runs.
    ends: Vec<usize>,
    runs: Vec<GroupRows>,
    _memory: Reservation,
}

/// The rows of a group in one row group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GroupRows {
    pub row_group: u32,
    pub rows: u64,
}

/// A table that is being counted, row group by row group.
#[derive(Debug, Default)]
pub(crate) struct GroupTableBuilder {
    groups: HashMap<GroupKey, Vec<GroupRows>>,
    runs: usize,
    key_bytes: usize,
}

// === impl GroupTable ===

impl GroupTable {
    /// A table of parts in the order of the keys.
    pub(crate) fn new(
        budget: &Budget,
        keys: Vec<GroupKey>,
        ends: Vec<usize>,
        runs: Vec<GroupRows>,
    ) -> Result<Self, StreamError> {
        let bytes = keys.len() * size_of::<(GroupKey, usize)>() + keys.iter().map(key_bytes).sum::<usize>();
        let memory = budget.reserve((bytes + runs.len() * size_of::<GroupRows>()) as u64)?;
        Ok(Self { keys, ends, runs, _memory: memory })
    }

    pub(crate) fn keys(&self) -> &[GroupKey] {
        &self.keys
    }

    /// The rows of each group, in the order of the keys.
    pub(crate) fn row_counts(&self) -> impl Iterator<Item = u64> {
        (0..self.keys.len()).map(|index| self.runs_of(index).iter().map(|run| run.rows).sum())
    }

    /// The rows of a group in each row group; zeros for a key that no row has.
    pub(crate) fn rows_of(&self, key: &GroupKey, row_groups: usize) -> Vec<u64> {
        let mut counts = vec![0; row_groups];
        if let Ok(index) = self.keys.binary_search(key) {
            for run in self.runs_of(index) {
                if let Some(count) = counts.get_mut(run.row_group as usize) {
                    *count = run.rows;
                }
            }
        }
        counts
    }

    pub(crate) fn runs_of(&self, index: usize) -> &[GroupRows] {
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.runs[start..self.ends[index]]
    }
}

fn key_bytes(key: &GroupKey) -> usize {
    if let GroupKey::Text(text) = key { text.len() } else { 0 }
}

// === impl GroupTableBuilder ===

impl GroupTableBuilder {
    /// Adds the groups of a row group, which follows those added before.
    pub(crate) fn add(&mut self, row_group: usize, counts: HashMap<GroupKey, u64>) {
        // A snapshot has fewer row groups.
        let row_group = u32::try_from(row_group).unwrap_or(u32::MAX);
        self.runs += counts.len();
        for (key, rows) in counts {
            let bytes = key_bytes(&key);
            let runs = self.groups.entry(key).or_insert_with(|| {
                self.key_bytes += bytes;
                Vec::new()
            });
            runs.push(GroupRows { row_group, rows });
        }
    }

    pub(crate) fn group_count(&self) -> usize {
        self.groups.len()
    }

    /// The limit that the table exceeds, if any.
    pub(crate) fn exceeded(&self) -> Option<String> {
        if self.runs > RUNS_MAX {
            let groups = self.groups.len();
            return Some(format!(
                "{groups} groups are spread over more than {RUNS_MAX} pairs of a group and a row group"
            ));
        }
        let has_long_keys = self.key_bytes > KEYS_BYTES_MAX;
        has_long_keys.then(|| format!("the values of the groups take more than {KEYS_BYTES_MAX} bytes"))
    }

    /// The table, with all of these keys.
    pub(crate) fn finish(
        mut self,
        budget: &Budget,
        all: impl Iterator<Item = GroupKey>,
    ) -> Result<GroupTable, StreamError> {
        for key in all {
            self.groups.entry(key).or_default();
        }
        let mut groups: Vec<_> = self.groups.into_iter().collect();
        groups.sort_by(|a, b| a.0.cmp(&b.0));
        let (mut keys, mut ends, mut runs) = (Vec::with_capacity(groups.len()), Vec::new(), Vec::new());
        for (key, of_key) in groups {
            keys.push(key);
            runs.extend(of_key);
            ends.push(runs.len());
        }
        GroupTable::new(budget, keys, ends, runs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_its_groups_in_order_and_their_rows() {
        let mut builder = GroupTableBuilder::default();
        let key = GroupKey::Integer;
        builder.add(0, HashMap::from([(key(7), 2), (GroupKey::Null, 1)]));
        builder.add(2, HashMap::from([(key(-3), 4), (key(7), 5)]));
        let table = builder.finish(&Budget::new(1 << 20), [key(9)].into_iter()).unwrap();
        assert_eq!(table.keys(), [key(-3), key(7), key(9), GroupKey::Null]);
        assert_eq!(table.row_counts().collect::<Vec<_>>(), [4, 7, 0, 1]);
        assert_eq!(table.rows_of(&key(7), 3), [2, 0, 5]);
        assert_eq!(table.rows_of(&key(8), 3), [0, 0, 0]);
    }
}
