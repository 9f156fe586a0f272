//! The raw table: every column as stored, in file order, chunk by chunk.

use std::{mem, sync::Arc, time::Instant};

use arrow::{array::RecordBatch, datatypes::SchemaRef};
use forebay_proto::v1;
use futures::StreamExt;

use super::{
    decode::decode,
    environment::Environment,
    epoch::{
        fitting,
        memory::SENDING_BYTES,
        task::{BATCHES_AHEAD, Batch, BatchSender, BatchTask, FETCH_AHEAD, fetched_ahead},
    },
    error::StreamError,
};
use crate::{
    budget::Reservation,
    catalog::Snapshot,
    metrics::{Stage, StageTimes},
    scan::{self, Projection},
};

/// Starts to read a snapshot's rows. The `position` of a header is the index of its first row.
pub(super) fn start(environment: &Arc<Environment>, snapshot: Arc<Snapshot>) -> Result<BatchTask, StreamError> {
    let projection = Projection::all(&snapshot);
    let memory = environment.budget.reserve(memory_bytes(&snapshot, &projection));
    let memory = memory.map_err(|source| StreamError::Memory { advice: fitting::of_table(&source), source })?;
    let idle_max = environment.limits.idle_max;
    let environment = Arc::clone(environment);
    Ok(BatchTask::batches(idle_max, move |sender| send(environment, snapshot, projection, sender, memory)))
}

fn memory_bytes(snapshot: &Snapshot, projection: &Projection) -> u64 {
    let reading = |row_group| {
        let fetched = projection.stored_bytes(snapshot, row_group).saturating_mul(FETCH_AHEAD as u64 + 1);
        fetched.saturating_add(projection.chunk_bytes(snapshot, row_group).saturating_mul(BATCHES_AHEAD as u64 + 2))
    };
    let sending = snapshot.byte_count().min(SENDING_BYTES as u64);
    snapshot.row_groups().iter().map(reading).max().unwrap_or(0).saturating_add(sending)
}

async fn send(
    environment: Arc<Environment>,
    snapshot: Arc<Snapshot>,
    projection: Projection,
    sender: BatchSender,
    memory: Reservation,
) -> Result<(), StreamError> {
    let mut header = v1::BatchHeader { last: snapshot.row_count() == 0, ..Default::default() };
    if header.last {
        let data = RecordBatch::new_empty(SchemaRef::clone(projection.schema()));
        let _ = sender.send(Ok(Batch { header, data, times: StageTimes::default() })).await;
        return Ok(());
    }
    let mut times = StageTimes::default();
    let mut readers = fetched_ahead((0..snapshot.row_groups().len()).map(|index| {
        let (environment, snapshot, projection) = (Arc::clone(&environment), Arc::clone(&snapshot), projection.clone());
        async move {
            let Environment { cpu, budget, .. } = environment.as_ref();
            let row_group = &snapshot.row_groups()[index];
            Ok((index, scan::open(&snapshot, row_group, &projection, 0, cpu, budget).await?))
        }
    }));
    loop {
        let start = Instant::now();
        let Some(opened) = readers.next().await else { break };
        let (index, mut reader) = opened?;
        times.add(Stage::Fetch, start.elapsed().min(reader.fetch_time()));
        loop {
            let step = move || {
                let start = Instant::now();
                let chunk = reader.next_chunk();
                times.add_since(Stage::Decode, start);
                (reader, times, chunk)
            };
            let row_group = &snapshot.row_groups()[index];
            let chunk;
            (reader, times, chunk) = decode(&environment.cpu, &snapshot, row_group, projection.schema(), step).await?;
            let Some(data) = chunk? else { break };
            header.rows = data.num_rows() as u64;
            header.last = header.position + header.rows == snapshot.row_count();
            let spent = mem::take(&mut times);
            spent.record();
            let start = Instant::now();
            if sender.send(Ok(Batch { header, data, times: spent })).await.is_err() {
                return Ok(());
            }
            times.add_since(Stage::SendWait, start);
            header.step += 1;
            header.position += header.rows;
        }
    }
    drop(memory);
    if header.position == snapshot.row_count() {
        return Ok(());
    }
    Err(StreamError::Miscounted { dataset: snapshot.dataset().to_owned(), counted: snapshot.row_count() })
}
