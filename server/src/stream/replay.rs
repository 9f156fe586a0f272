//! The rows behind one batch: made again with their row ids, which lead to files, row groups and rows.

use std::sync::Arc;

use arrow::{array::AsArray, datatypes::UInt64Type};
use forebay_proto::v1;
use futures::StreamExt;

use super::{Prepared, StreamError, Streams};
use crate::{
    catalog::Snapshot,
    plan::{PlanError, ROW_ID, Request},
};

/// One batch, and where its rows lie.
#[derive(Debug)]
pub struct Replayed {
    /// What was read.
    pub prepared: Prepared,
    /// A request whose first batch it is.
    pub request: v1::StreamRequest,
    /// What it is.
    pub header: v1::BatchHeader,
    /// Its rows, in its order.
    pub rows: Vec<v1::ReplayRow>,
}

impl Streams {
    /// Makes a rank's batch of a step again.
    pub async fn replay(
        self: &Arc<Self>,
        message: v1::StreamRequest,
        rank: u64,
        step: u64,
    ) -> Result<Replayed, StreamError> {
        let prepared = self.prepare(Request::check(&message)?).await?;
        let checked = prepared.request();
        let share = prepared.share_from_start(rank)?;
        let first_step = checked.start_position / checked.step_rows();
        let steps = step.checked_sub(first_step).filter(|steps| *steps < share.step_count).ok_or_else(|| {
            let end = first_step + share.step_count;
            PlanError::field("step", format!("{step} is not one of the steps {first_step} to {end}, exclusive, of rank {rank}"))
        })?;
        let start_position = checked.start_position + steps * checked.step_rows();
        let snapshot = prepared.snapshot_digest().to_owned();
        let request = v1::StreamRequest { start_position, snapshot, ..message };
        let with_row_ids = v1::StreamRequest { with_row_ids: true, ..request.clone() };
        let with_ids = self.prepare(Request::check(&with_row_ids)?).await?;
        let batch = self.batches(&with_ids, rank, Some(1))?.next().await;
        let batch = batch.ok_or_else(|| StreamError::Miscounted {
            dataset: request.dataset.clone(),
            counted: prepared.epoch.row_count(),
        })??;
        let ids = batch.data.column_by_name(ROW_ID).map(|ids| ids.as_primitive::<UInt64Type>().values().to_vec());
        let own_rows = (batch.header.rows - batch.header.padding_rows) as usize;
        let rows = ids.unwrap_or_default().into_iter().enumerate();
        let rows = rows.map(|(index, id)| place_of(&prepared.snapshot, id, index >= own_rows)).collect();
        Ok(Replayed { prepared, request, header: batch.header, rows })
    }
}

fn place_of(snapshot: &Snapshot, row_id: u64, padding: bool) -> v1::ReplayRow {
    let groups = snapshot.row_groups();
    let group = &groups[groups.partition_point(|group| group.rows.end <= row_id)];
    v1::ReplayRow {
        file: snapshot.file_of(group).display().to_owned(),
        row_group: group.index_in_file as u64,
        row: row_id - group.rows.start,
        row_id,
        padding,
    }
}
