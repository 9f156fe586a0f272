//! The rows of each group, counted in one pass over the column, then kept in memory and under `--state`.

use std::{collections::HashMap, sync::Arc};

use arrow::array::RecordBatch;
use futures::StreamExt;

use super::{
    GroupColumn,
    key::GroupKey,
    stored,
    table::{GroupTable, GroupTableBuilder},
};
use crate::{
    budget::Budget,
    catalog::{RowGroup, Snapshot},
    plan::PlanError,
    scan,
    state::{Kind, short_digest},
    stream::{
        decode::decode,
        environment::Environment,
        error::StreamError,
        resolve::{
            compiled::Compiled,
            count::{COUNTED_AT_ONCE, count_key, rows_and_groups},
            recent::SharedResults,
            rows::Rows,
        },
    },
};

/// Tables in memory; further ones are read from the state again.
const TABLES_CACHED_MAX: usize = 8;

/// Tables to keep under `--state`; those that were used longest ago are removed.
const KEPT_MAX: usize = 64;

/// Tables by snapshot, rows and column, those used last first.
#[derive(Debug)]
pub(crate) struct GroupTables(SharedResults<Arc<GroupTable>>);

impl Default for GroupTables {
    fn default() -> Self {
        Self(SharedResults::new(TABLES_CACHED_MAX))
    }
}

impl GroupTables {
    /// The groups among the rows that pass.
    pub(crate) async fn table(
        &self,
        environment: &Arc<Environment>,
        snapshot: &Arc<Snapshot>,
        compiled: &Compiled,
        column: &Arc<GroupColumn>,
    ) -> Result<Arc<GroupTable>, StreamError> {
        let groups_max = environment.limits.groups_max;
        if let Some(buckets) = column.buckets.filter(|buckets| buckets.get() > groups_max as u64) {
            let reason = format!("{buckets} exceed the {groups_max} of --groups-max: send fewer, or raise the limit");
            return Err(PlanError::field("group_buckets", reason).into());
        }
        let id = table_id(snapshot, compiled, column);
        let cell = self.0.of(&id);
        // Concurrent streams share one pass.
        let table =
            cell.get_or_try_init(|| Box::pin(load_or_count(environment, snapshot, compiled, column, &id))).await?;
        check_group_count(column, table.keys().len(), groups_max)?;
        Ok(Arc::clone(table))
    }
}

fn table_id(snapshot: &Snapshot, compiled: &Compiled, column: &GroupColumn) -> String {
    let rows = count_key(snapshot, &compiled.filter, &compiled.expressions);
    let buckets = column.buckets.map_or(0, std::num::NonZeroU64::get).to_le_bytes();
    let name_length = (column.name.len() as u64).to_le_bytes();
    let parts = [b"groups".as_slice(), rows.as_bytes(), &buckets, &name_length, column.name.as_bytes(), &column.source];
    format!("{}-{}", snapshot.state(), short_digest(&parts))
}

fn check_group_count(column: &GroupColumn, found: usize, limit: usize) -> Result<(), StreamError> {
    if found <= limit {
        return Ok(());
    }
    Err(StreamError::Groups {
        reason: format!("column \"{}\" has more than {limit} values in these rows (--groups-max)", column.name),
    })
}

async fn load_or_count(
    environment: &Arc<Environment>,
    snapshot: &Arc<Snapshot>,
    compiled: &Compiled,
    column: &Arc<GroupColumn>,
    id: &str,
) -> Result<Arc<GroupTable>, StreamError> {
    let state = &environment.state;
    // A state that cannot be read costs another pass.
    if let Ok(Some(bytes)) = state.read(Kind::GroupCounts, id).await {
        let (known, shared, groups) = (id.to_owned(), Arc::clone(environment), Arc::clone(snapshot));
        let of_keys = Arc::clone(column);
        let decode = move || stored::decode(&bytes, &known, &of_keys, groups.row_groups(), &shared.budget);
        if let Some(table) = environment.cpu.run(decode).await? {
            state.mark_used(Kind::GroupCounts, id).await;
            return Ok(Arc::new(table));
        }
    }
    let counted = count(environment, snapshot, compiled, column).await?;
    let (shared, column, of) = (Arc::clone(environment), Arc::clone(column), id.to_owned());
    let finish = move || {
        let buckets = 0..column.buckets.map_or(0, std::num::NonZeroU64::get);
        let table = counted.finish(&shared.budget, buckets.map(GroupKey::Bucket))?;
        let encoded = stored::encode(&of, &column, &table);
        Ok::<_, StreamError>((Arc::new(table), encoded))
    };
    let (table, encoded) = environment.cpu.run(finish).await??;
    if let Err(error) = state.write(Kind::GroupCounts, id, encoded).await {
        tracing::warn!(%error, "cannot store counts of groups; a restart counts them again");
    }
    state.trim(Kind::GroupCounts, KEPT_MAX).await;
    Ok(table)
}

async fn count(
    environment: &Environment,
    snapshot: &Arc<Snapshot>,
    compiled: &Compiled,
    column: &Arc<GroupColumn>,
) -> Result<GroupTableBuilder, StreamError> {
    let columns = vec![column.name.clone()];
    let (rows, may_pass) = rows_and_groups(environment, snapshot, &compiled.expressions, columns).await?;
    let counts =
        futures::stream::iter(may_pass.into_iter().enumerate().filter(|(_, may_pass)| *may_pass).map(|(index, _)| {
            let (rows, column) = (Arc::clone(&rows), Arc::clone(column));
            let row_group = &snapshot.row_groups()[index];
            async move {
                let counted = count_row_group(environment, snapshot, row_group, rows, column).await?;
                Ok::<_, StreamError>((index, counted))
            }
        }));
    let mut counts = std::pin::pin!(counts.buffered(COUNTED_AT_ONCE));
    let mut builder = GroupTableBuilder::default();
    while let Some(counted) = counts.next().await {
        let (index, counted) = counted?;
        builder.add(index, counted);
        check_group_count(column, builder.group_count(), environment.limits.groups_max)?;
        if let Some(reason) = builder.exceeded() {
            return Err(StreamError::Groups { reason });
        }
    }
    Ok(builder)
}

async fn count_row_group(
    environment: &Environment,
    snapshot: &Snapshot,
    row_group: &RowGroup,
    rows: Arc<Rows>,
    column: Arc<GroupColumn>,
) -> Result<HashMap<GroupKey, u64>, StreamError> {
    let Environment { cpu, budget, limits, .. } = environment;
    let (mut counts, mut next_row) = (HashMap::new(), row_group.rows.start);
    let mut reader = scan::open(snapshot, row_group, &rows.projection, cpu, budget).await?;
    loop {
        let (counting, keys) = (Arc::clone(&rows), Arc::clone(&column));
        let step = move || {
            let counted = match reader.next_chunk() {
                Ok(Some(chunk)) => add_chunk(&counting, &keys, (&chunk, next_row), reader.budget(), &mut counts)
                    .map(|()| Some(chunk.num_rows())),
                Ok(None) => Ok(None),
                Err(source) => Err(source.into()),
            };
            (reader, counts, counted)
        };
        let counted;
        (reader, counts, counted) = decode(cpu, snapshot, row_group, rows.projection.schema(), step).await?;
        match counted? {
            Some(row_count) => next_row += row_count as u64,
            None => return Ok(counts),
        }
        check_group_count(&column, counts.len(), limits.groups_max)?;
    }
}

fn add_chunk(
    rows: &Rows,
    column: &GroupColumn,
    (chunk, first_row): (&RecordBatch, u64),
    budget: &Budget,
    counts: &mut HashMap<GroupKey, u64>,
) -> Result<(), StreamError> {
    let passing = rows.apply(chunk, first_row, budget)?;
    // The rows were made for this column.
    passing.rows.column_by_name(&column.name).map_or(Ok(()), |values| column.count(values, counts))
}
