//! The raw table: every column as stored, in file order, chunk by chunk.

use std::{sync::Arc, time::Instant};

use arrow::{array::RecordBatch, datatypes::SchemaRef};
use forebay_proto::v1;
use futures::StreamExt;

use super::{BATCHES_AHEAD, Batch, BatchTask, FETCH_AHEAD, SENDING_BYTES, StreamError, Streams, task::BatchSender};
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
        Ok(BatchTask::start(move |sender| streams.send_table(snapshot, projection, sender, memory)))
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
            let _ = sender.send(Ok(Batch { header, data })).await;
            return Ok(());
        }
        let mut times = StageTimes::default();
        let (snapshot_ref, projection_ref, cpu) = (&snapshot, &projection, &self.cpu);
        let mut readers = futures::stream::iter((0..snapshot.row_groups().len()).map(|index| async move {
            let group = &snapshot_ref.row_groups()[index];
            Ok::<_, StreamError>((group, scan::open(snapshot_ref, group, projection_ref, 0, cpu).await?))
        }))
        .buffered(FETCH_AHEAD);
        loop {
            let start = Instant::now();
            let Some(opened) = readers.next().await else { break };
            times.add_since(Stage::Fetch, start);
            let (group, mut reader) = opened?;
            loop {
                let start = Instant::now();
                let step = self.cpu.run(move || {
                    let chunk = reader.next_chunk();
                    (reader, chunk)
                });
                let (back, chunk) = step.await.map_err(|panic| scan::panicked(&snapshot, group, &panic))?;
                times.add_since(Stage::Decode, start);
                reader = back;
                let Some(data) = chunk? else { break };
                header.rows = data.num_rows() as u64;
                header.last = header.position + header.rows == snapshot.row_count();
                let start = Instant::now();
                if sender.send(Ok(Batch { header, data })).await.is_err() {
                    return Ok(());
                }
                times.add_since(Stage::SendWait, start);
                times.record();
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
