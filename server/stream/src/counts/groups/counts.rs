//! The rows of each group, counted in one pass over the column, then kept in memory and under `--state`.

use std::{collections::HashMap, sync::Arc};

use forebay_plan::{GroupBuckets, PlanError};
use forebay_runtime::{metrics::StageTimes, state::Kind};
use futures::TryStreamExt;

use super::table::{GroupTable, GroupTableBuilder};
use crate::{
    counts::{
        filtered_rows::{COUNTED_AT_ONCE, FilteredRows},
        store::Results,
    },
    error::StreamError,
    rows::{
        drive::RowSink,
        group::{GroupColumn, GroupKey},
        pass::each,
        prefilter::NextRows,
    },
};

/// Tables in memory; further ones are read from the state again.
const CACHED_MAX: usize = 8;

/// Tables to keep under `--state`.
const KEPT_MAX: usize = 64;

/// Tables by snapshot, rows and column.
#[derive(Debug)]
pub(crate) struct GroupTables(Results<GroupTable>);

/// Counts the rows of each group of a row group.
struct GroupCounter {
    column: Arc<GroupColumn>,
    groups_max: usize,
    counts: HashMap<GroupKey, u64>,
}

impl Default for GroupTables {
    fn default() -> Self {
        Self(Results::new(Kind::GroupCounts, CACHED_MAX, KEPT_MAX))
    }
}

impl GroupTables {
    /// The groups among the rows that pass.
    pub(crate) async fn table(
        &self,
        rows: FilteredRows<'_>,
        column: &Arc<GroupColumn>,
    ) -> Result<Arc<GroupTable>, StreamError> {
        let groups_max = groups_max(&rows, column);
        if let Some(GroupBuckets::Hashes(buckets)) = &column.buckets
            && buckets.get() > groups_max as u64
        {
            let reason = format!("{buckets} exceed the {groups_max} of --groups-max: send fewer, or raise the limit");
            return Err(PlanError::field("group_buckets", reason).into());
        }
        let buckets: Vec<u8> = match &column.buckets {
            Some(GroupBuckets::Hashes(buckets)) => buckets.get().to_le_bytes().into(),
            Some(GroupBuckets::Lengths(buckets)) => {
                [0].iter().chain(buckets.boundaries.iter()).flat_map(|number| number.to_le_bytes()).collect()
            }
            None => 0_u64.to_le_bytes().into(),
        };
        let key = rows.key_of(&[b"groups", &buckets, column.name.as_bytes(), &column.source]);
        let context = (Arc::clone(rows.snapshot), Arc::clone(column), rows.environment.budget.clone());
        let count = async || Box::pin(count(rows, column)).await;
        let table = self.0.get(rows.environment, &key, context, count).await?;
        check_group_count(column, table.keys().len(), groups_max)?;
        Ok(table)
    }
}

/// The limit of the groups: buckets of lengths are few.
fn groups_max(rows: &FilteredRows<'_>, column: &GroupColumn) -> usize {
    match column.buckets {
        Some(GroupBuckets::Lengths(_)) => usize::MAX,
        _ => rows.environment.limits.groups_max,
    }
}

fn check_group_count(column: &GroupColumn, found: usize, limit: usize) -> Result<(), StreamError> {
    if found <= limit {
        return Ok(());
    }
    Err(StreamError::Groups {
        reason: format!("column \"{}\" has more than {limit} values in these rows (--groups-max)", column.name),
    })
}

async fn count(rows: FilteredRows<'_>, column: &Arc<GroupColumn>) -> Result<GroupTable, StreamError> {
    let groups_max = groups_max(&rows, column);
    let (scan, row_groups) = rows.scan(vec![column.name.clone()]).await?;
    let counter = |_| GroupCounter { column: Arc::clone(column), groups_max, counts: HashMap::new() };
    let mut counted = std::pin::pin!(each(&scan, row_groups, COUNTED_AT_ONCE, counter));
    let mut builder = GroupTableBuilder::default();
    while let Some((row_group, counter)) = counted.try_next().await? {
        builder.add(row_group, counter.counts);
        check_group_count(column, builder.group_count(), groups_max)?;
        if let Some(reason) = builder.exceeded() {
            return Err(StreamError::Groups { reason });
        }
    }
    let hashes = if let Some(GroupBuckets::Hashes(buckets)) = &column.buckets { buckets.get() } else { 0 };
    let budget = rows.environment.budget.clone();
    let finish = move || builder.finish(&budget, (0..hashes).map(GroupKey::Bucket));
    rows.environment.cpu.run(finish).await?
}

impl RowSink<NextRows> for GroupCounter {
    type Output = ();

    fn add(&mut self, rows: NextRows, _: &mut StageTimes) -> Result<Option<()>, StreamError> {
        // The rows were made for this column.
        if let Some(values) = rows.passing.rows.column_by_name(&self.column.name) {
            self.column.count(values, &mut self.counts)?;
        }
        check_group_count(&self.column, self.counts.len(), self.groups_max)?;
        Ok(Some(()))
    }
}
