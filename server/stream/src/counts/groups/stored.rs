//! Tables of groups as they are stored.

use std::sync::Arc;

use forebay_catalog::Snapshot;
use forebay_proto::v1;
use forebay_runtime::budget::Budget;
use prost::Message;

use super::table::{GroupRows, GroupTable};
use crate::{counts::store::Storable, rows::group::GroupColumn};

/// A table as it is stored.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct StoredGroups {
    #[prost(message, repeated, tag = "1")]
    keys: Vec<v1::GroupKey>,
    #[prost(uint64, repeated, tag = "2")]
    ends: Vec<u64>,
    #[prost(uint32, repeated, tag = "3")]
    row_groups: Vec<u32>,
    #[prost(uint64, repeated, tag = "4")]
    rows: Vec<u64>,
}

impl Storable for GroupTable {
    type Stored = StoredGroups;
    type Context = (Arc<Snapshot>, Arc<GroupColumn>, Budget);

    fn store(&self, (_, column, _): &Self::Context) -> StoredGroups {
        let mut stored = StoredGroups::default();
        for (index, key) in self.keys().iter().enumerate() {
            stored.keys.push(column.message(key));
            for run in self.runs_of(index) {
                stored.row_groups.push(run.row_group);
                stored.rows.push(run.rows);
            }
            stored.ends.push(stored.rows.len() as u64);
        }
        stored
    }

    fn restore(stored: StoredGroups, (snapshot, column, budget): &Self::Context) -> Option<Self> {
        let key = |message: &v1::GroupKey| column.key(message.key.as_ref()?, "group").ok();
        let keys = stored.keys.iter().map(key).collect::<Option<Vec<_>>>()?;
        let ends: Vec<usize> = stored.ends.iter().map(|end| *end as usize).collect();
        let runs = stored.row_groups.iter().zip(&stored.rows);
        let runs: Vec<GroupRows> =
            runs.map(|(row_group, rows)| GroupRows { row_group: *row_group, rows: *rows }).collect();
        let fits = |run: &GroupRows| {
            let row_group = snapshot.row_groups().get(run.row_group as usize);
            row_group.is_some_and(|row_group| run.rows <= row_group.rows.end - row_group.rows.start)
        };
        let is_valid = keys.is_sorted()
            && ends.len() == keys.len()
            && ends.is_sorted()
            && ends.last().copied().unwrap_or(0) == runs.len()
            && runs.iter().all(fits);
        if is_valid { Self::new(budget, keys, ends, runs).ok() } else { None }
    }
}
