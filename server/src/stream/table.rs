//! The raw table: every column as stored, in file order, chunk by chunk.

use std::{mem, sync::Arc, time::Instant};

use arrow::{array::RecordBatch, datatypes::SchemaRef};
use forebay_proto::v1;
use futures::StreamExt;

use super::{
    BATCHES_AHEAD, Batch, BatchTask, FETCH_AHEAD, SENDING_BYTES, StreamError, Streams,
    decode::decode,
    epoch::task::{BatchSender, fetched_ahead},
};
use crate::{
    budget::Reservation,
    catalog::Snapshot,
    metrics::{Stage, StageTimes},
    scan::{self, Projection},
};

impl Streams {
    /// The rows of a snapshot. `position` of a header is the index of its first row.
    pub fn table(self: &Arc<Self>, snapshot: Arc<Snapshot>) -> Result<BatchTask, StreamError> {
        let projection = Projection::all(&snapshot);
        let held = |group| {
            let fetched = projection.stored_bytes(&snapshot, group).saturating_mul(FETCH_AHEAD as u64 + 1);
            fetched.saturating_add(projection.chunk_bytes(&snapshot, group).saturating_mul(BATCHES_AHEAD as u64 + 2))
        };
        let sending = snapshot.byte_count().min(SENDING_BYTES as u64);
        let memory = snapshot.row_groups().iter().map(held).max().unwrap_or(0).saturating_add(sending);
        let memory = self.budget.reserve(memory)?;
        let streams = Arc::clone(self);
        Ok(BatchTask::batches(self.limits.idle_max, move |sender| {
            streams.send_table(snapshot, projection, sender, memory)
        }))
    }

    async fn send_table(
        self: Arc<Self>,
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
            let (snapshot, projection, cpu) = (Arc::clone(&snapshot), projection.clone(), self.cpu.clone());
            let budget = self.budget.clone();
            async move {
                let reader =
                    scan::open(&snapshot, &snapshot.row_groups()[index], &projection, 0, &cpu, &budget).await?;
                Ok((index, reader))
            }
        }));
        loop {
            let start = Instant::now();
            let Some(opened) = readers.next().await else { break };
            let (index, mut reader) = opened?;
            times.add(Stage::Fetch, start.elapsed().min(reader.fetch_time()));
            let group = &snapshot.row_groups()[index];
            loop {
                let step = move || {
                    let start = Instant::now();
                    let chunk = reader.next_chunk();
                    times.add_since(Stage::Decode, start);
                    (reader, times, chunk)
                };
                let chunk;
                (reader, times, chunk) = decode(&self.cpu, &snapshot, group, projection.schema(), step).await?;
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
}
