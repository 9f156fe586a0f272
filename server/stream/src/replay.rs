//! The rows of one batch: streams it again with row ids, and maps these to files, row groups and rows.

use std::{collections::HashMap, sync::Arc};

use arrow::{array::AsArray, datatypes::UInt64Type};
use forebay_catalog::{CatalogError, RowGroup, Snapshot, is_narrowed};
use forebay_plan::{PlanError, ROW_ID, Request};
use forebay_proto::v1;
use forebay_runtime::budget::Reservation;
use futures::StreamExt;

use super::{
    environment::Environment,
    epoch::{batches, mixture},
    error::StreamError,
    prepare::{
        prepared::{Prepared, PreparedRows},
        resolver::Resolver,
    },
};

/// Rows of a part.
const PART_ROWS: usize = 1 << 16;

/// Bytes of a row of a part, as a message and encoded.
const PART_ROW_BYTES: u64 = 512;

/// One batch and the source of its rows.
#[derive(Debug)]
pub struct Replayed {
    /// The stream.
    pub prepared: Prepared,
    /// A request whose first batch is this one.
    pub request: v1::StreamRequest,
    /// The batch's header.
    pub header: v1::BatchHeader,
    ids: Vec<u64>,
    /// The source of each row of a mixture; empty for one dataset.
    sources: Vec<usize>,
    /// The number of each row group's first row among the rows of all files, for each source of which a filter keeps
    /// some files.
    numbers: Vec<Option<Vec<u64>>>,
    /// Memory of the ids and of one part.
    _memory: Reservation,
}

impl Replayed {
    /// Parts of at most 65,536 rows; at least one.
    pub fn part_count(&self) -> usize {
        self.ids.len().div_ceil(PART_ROWS).max(1)
    }

    /// The sources of a part's rows, in the batch's order.
    pub fn part(&self, part: usize) -> Vec<v1::ReplayRow> {
        let own_rows = (self.header.rows - self.header.padding_rows) as usize;
        let rows = self.ids.iter().enumerate().skip(part * PART_ROWS).take(PART_ROWS);
        rows.map(|(index, id)| self.row(index, *id, index >= own_rows)).collect()
    }

    fn row(&self, index: usize, id: u64, padding: bool) -> v1::ReplayRow {
        let source = self.sources.get(index).copied().unwrap_or(0);
        let numbers = self.numbers.get(source).and_then(Option::as_deref);
        let dataset = &self.prepared.sources()[source];
        let found = source_of(&dataset.snapshot, numbers, id, padding);
        if let PreparedRows::Mixture(_) = self.prepared.rows() {
            return v1::ReplayRow { dataset: dataset.request.dataset.clone(), source: source as u32, ..found };
        }
        found
    }
}

/// Replays a rank's batch of a step.
pub(super) async fn replay(
    environment: &Arc<Environment>,
    resolver: &Resolver,
    message: v1::StreamRequest,
    rank: u64,
    step: u64,
) -> Result<Replayed, StreamError> {
    let prepared = resolver.prepare(Request::check(&message)?).await?;
    let checked = prepared.request();
    let share = prepared.ordered().share_from_start(rank)?;
    let first_step = checked.start_position / checked.step_rows();
    let steps = step.checked_sub(first_step).filter(|steps| *steps < share.step_count).ok_or_else(|| {
        let end = first_step + share.step_count;
        PlanError::field(
            "step",
            format!("{step} is not one of the steps {first_step} to {end}, exclusive, of rank {rank}"),
        )
    })?;
    if let PreparedRows::Buckets(buckets) = prepared.rows()
        && buckets.order.steps_of(rank, step..step + 1).next().is_none()
    {
        let reason = format!("rank {rank} has no batch in step {step}: fewer rows of its bucket are left than ranks");
        return Err(PlanError::field("step", reason).into());
    }
    let start_position = checked.start_position + steps * checked.step_rows();
    let snapshot = prepared.snapshot_digest().to_owned();
    let resumed_from = checked.resumed_from;
    let request = v1::StreamRequest { start_position, resumed_from, snapshot, ..message };
    let with_row_ids = v1::StreamRequest { with_row_ids: true, ..request.clone() };
    // The same snapshot: the ids are only the way to find the rows.
    let with_row_ids = Request { numbers_rows: prepared.request().numbers_rows, ..Request::check(&with_row_ids)? };
    let with_ids = resolver.prepare(with_row_ids).await?;
    let rows = with_ids.request().batch_size.min(share.row_count());
    let row_bytes = (size_of::<u64>() + size_of::<usize>()) as u64;
    let memory = environment.budget.reserve_fairly(rows * row_bytes + PART_ROWS as u64 * PART_ROW_BYTES).await?;
    let batch = batches::start(environment, &with_ids, rank, Some(1)).await?.next().await;
    let batch = batch.ok_or_else(|| prepared.ordered().miscounted())??;
    let ids = batch.data.column_by_name(ROW_ID).map(|ids| ids.as_primitive::<UInt64Type>().values().to_vec());
    let first = share.start + steps * checked.batch_size;
    let batch_rows = first..first + batch.header.rows;
    let sources = match prepared.rows() {
        PreparedRows::Mixture(mixture) => mixture::sources_of(mixture, &share, batch_rows),
        PreparedRows::Dataset(_) | PreparedRows::Buckets(_) => Vec::new(),
    };
    let ids = ids.unwrap_or_default();
    let mut numbers = Vec::with_capacity(prepared.sources().len());
    for source in prepared.sources() {
        numbers.push(first_rows(environment, &source.snapshot).await?);
    }
    Ok(Replayed { prepared, request, header: batch.header, ids, sources, numbers, _memory: memory })
}

/// The numbers of the first rows of a snapshot's row groups among the rows of all files, if it has only some of them.
async fn first_rows(environment: &Environment, kept: &Arc<Snapshot>) -> Result<Option<Vec<u64>>, StreamError> {
    if !is_narrowed(kept.digest()) {
        return Ok(None);
    }
    let all = environment.catalog.dataset(kept.dataset())?.present().await?;
    let kept = Arc::clone(kept);
    let found = environment.cpu.run(move || {
        let place = |snapshot: &Snapshot, group: &RowGroup| {
            let rows = group.rows.end - group.rows.start;
            (snapshot.file_of(group).display().to_owned(), group.index_in_file, rows)
        };
        let starts: HashMap<_, _> =
            all.row_groups().iter().map(|group| (place(&all, group), group.rows.start)).collect();
        let numbers = kept.row_groups().iter().map(|group| starts.get(&place(&kept, group)).copied());
        let numbers: Option<Vec<u64>> = numbers.collect();
        numbers.ok_or_else(|| CatalogError::Changed {
            dataset: kept.dataset().to_owned(),
            reason: "its files are no longer those of the stream".to_owned(),
        })
    });
    Ok(Some(found.await??))
}

/// Where a row is. `numbers` has the first row of each row group among those of all files, if the snapshot lacks some.
fn source_of(snapshot: &Snapshot, numbers: Option<&[u64]>, row: u64, padding: bool) -> v1::ReplayRow {
    let groups = snapshot.row_groups();
    let index = groups.partition_point(|group| group.rows.end <= row);
    let group = &groups[index];
    let first = numbers.map_or(group.rows.start, |numbers| numbers[index]);
    v1::ReplayRow {
        file: snapshot.file_of(group).display().to_owned(),
        row_group: group.index_in_file as u64,
        row: snapshot.stored_row(group, row),
        row_id: first + (row - group.rows.start),
        padding,
        ..v1::ReplayRow::default()
    }
}
