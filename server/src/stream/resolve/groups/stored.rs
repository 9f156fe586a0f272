//! Counts of groups as they are stored under `--state`. The digest detects damage, which would silently shift every row.

use forebay_proto::v1;
use prost::Message;

use super::{
    column::GroupColumn,
    table::{GroupRows, GroupTable},
};
use crate::{budget::Budget, catalog::RowGroup, state::short_digest};

/// Length of the digest before the message.
const DIGEST_BYTES: usize = 32;

/// A table as it is stored.
#[derive(Clone, PartialEq, Message)]
struct StoredGroups {
    #[prost(message, repeated, tag = "1")]
    keys: Vec<v1::GroupKey>,
    #[prost(uint64, repeated, tag = "2")]
    ends: Vec<u64>,
    #[prost(uint32, repeated, tag = "3")]
    row_groups: Vec<u32>,
    #[prost(uint64, repeated, tag = "4")]
    rows: Vec<u64>,
}

/// Decodes a table; none if it is damaged or of other row groups, so that it is counted again.
pub(super) fn decode(
    bytes: &[u8],
    id: &str,
    column: &GroupColumn,
    row_groups: &[RowGroup],
    budget: &Budget,
) -> Option<GroupTable> {
    let (digest, message) = bytes.split_at_checked(DIGEST_BYTES)?;
    if short_digest(&[id.as_bytes(), message]).as_bytes() != digest {
        return None;
    }
    let stored = StoredGroups::decode(message).ok()?;
    let key = |message: &v1::GroupKey| column.key(message.key.as_ref()?, "group").ok();
    let keys = stored.keys.iter().map(key).collect::<Option<Vec<_>>>()?;
    let ends: Vec<usize> = stored.ends.iter().map(|end| *end as usize).collect();
    let runs: Vec<GroupRows> = stored
        .row_groups
        .iter()
        .zip(&stored.rows)
        .map(|(group, rows)| GroupRows { row_group: *group, rows: *rows })
        .collect();
    let fits = |run: &GroupRows| {
        row_groups.get(run.row_group as usize).is_some_and(|group| run.rows <= group.rows.end - group.rows.start)
    };
    let is_valid = keys.is_sorted()
        && ends.len() == keys.len()
        && ends.is_sorted()
        && ends.last().copied().unwrap_or(0) == runs.len()
        && runs.iter().all(fits);
    if is_valid { GroupTable::new(budget, keys, ends, runs).ok() } else { None }
}

/// Encodes a table.
pub(super) fn encode(id: &str, column: &GroupColumn, table: &GroupTable) -> Vec<u8> {
    let mut stored = StoredGroups::default();
    for (index, key) in table.keys().iter().enumerate() {
        stored.keys.push(column.message(key));
        for run in table.runs_of(index) {
            stored.row_groups.push(run.row_group);
            stored.rows.push(run.rows);
        }
        stored.ends.push(stored.rows.len() as u64);
    }
    let message = stored.encode_to_vec();
    [short_digest(&[id.as_bytes(), &message]).as_bytes(), &message].concat()
}
