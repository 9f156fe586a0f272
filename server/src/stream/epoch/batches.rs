//! One rank's batches: reserved for, numbered and sent. How their rows come about is `in_order`'s and `shuffled`'s matter.

use std::{mem, sync::Arc, time::Instant};

use arrow::array::RecordBatch;
use forebay_proto::v1;

use crate::stream::{
    BATCHES_AHEAD, Batch, BatchTask, Prepared, SENDING_BYTES, StreamError, Streams, epoch::in_order, epoch::shuffled,
    epoch::task::BatchSender,
};
use crate::{
    budget::Reservation,
    metrics::{Stage, StageTimes},
    order::Share,
};

/// Batches of a stream that exist at once: one filled, those that wait, one on the wire.
const BATCHES_HELD: u64 = BATCHES_AHEAD as u64 + 2;

/// Numbers the batches of a rank and sends them.
pub(crate) struct Outlet {
    pub prepared: Prepared,
    share: Share,
    /// Rows of the rank's sequence that lie before the next batch.
    next: u64,
    sender: BatchSender,
    pub times: StageTimes,
}

impl Streams {
    /// The batches of a rank, from the request's start position on; of the first `steps` steps from there, if any number
    /// is given.
    pub async fn batches(
        self: &Arc<Self>,
        prepared: &Prepared,
        rank: u64,
        steps: Option<u64>,
    ) -> Result<BatchTask, StreamError> {
        let share = prepared.share_from_start(rank)?;
        let sent = steps.map_or(share, |steps| share.first_steps(steps, prepared.request.batch_size));
        let (streams, prepared) = (Arc::clone(self), prepared.clone());
        // The footers of all row groups are looked at, which may be many.
        let reckoned = prepared.clone();
        let memory = self.cpu.run(move || reckoned.memory_bytes(&sent)).await?;
        let memory = self.budget.reserve(memory)?;
        Ok(BatchTask::batches(self.limits.idle_max, move |sender| {
            let outlet = Outlet::new(&prepared, share, sender);
            streams.send_batches(prepared, sent, outlet, memory)
        }))
    }

    async fn send_batches(
        self: Arc<Self>,
        prepared: Prepared,
        sent: Share,
        mut outlet: Outlet,
        memory: Reservation,
    ) -> Result<(), StreamError> {
        if sent.row_count() == 0 {
            let _ = outlet.send(RecordBatch::new_empty(prepared.schema())).await;
            return Ok(());
        }
        let done = match prepared.epoch.shuffle() {
            None => in_order::send(&self, &prepared, &sent, &mut outlet).await,
            Some(shuffle) => shuffled::send(&self, &prepared, *shuffle, &sent, &mut outlet).await,
        };
        outlet.times.record();
        drop(memory);
        match done {
            Ok(()) | Err(Ended::Gone) => Ok(()),
            Err(Ended::Failed(error)) => Err(error),
        }
    }
}

/// Why a rank's batches end early.
pub(crate) enum Ended {
    /// Nobody reads them any more.
    Gone,
    /// One cannot be made.
    Failed(StreamError),
}

impl<E: Into<StreamError>> From<E> for Ended {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

impl Prepared {
    /// Rows came to an end before their number did.
    pub(crate) fn miscounted(&self) -> StreamError {
        StreamError::Miscounted { counted: self.epoch.row_count(), dataset: self.request.dataset.clone() }
    }

    /// What a stream holds at most: compressed row groups in flight, decoded chunks, windows, and its batches.
    pub(crate) fn memory_bytes(&self, share: &Share) -> u64 {
        let reading = match self.epoch.shuffle() {
            None => in_order::reading_bytes(self, &in_order::pieces(self, &self.epoch.sequence(), share)),
            Some(shuffle) => shuffled::reading_bytes(self, shuffle, share),
        };
        self.held_bytes(reading)
    }

    /// What a stream holds beside what it takes to read its rows: its batches, and those that wait for the socket.
    pub(crate) fn held_bytes(&self, reading: u64) -> u64 {
        let epoch = self.epoch.sent_row_count().saturating_mul(self.wire_row_bytes());
        let sending = epoch.min(SENDING_BYTES as u64);
        reading.saturating_add(self.batch_bytes().saturating_mul(BATCHES_HELD)).saturating_add(sending)
    }
}

// === impl Outlet ===

impl Outlet {
    fn new(prepared: &Prepared, share: Share, sender: BatchSender) -> Self {
        Self { prepared: prepared.clone(), share, next: share.start, sender, times: StageTimes::default() }
    }

    /// Rows of the batch that comes next.
    pub(crate) fn batch_rows(&self) -> u64 {
        self.prepared.request.batch_size.min(self.share.end - self.next)
    }

    /// Numbers a batch and sends it.
    pub(crate) async fn send(&mut self, data: RecordBatch) -> Result<(), Ended> {
        let times = mem::take(&mut self.times);
        times.record();
        let batch = self.number(data, times);
        let start = Instant::now();
        let sent = self.sender.send(Ok(batch)).await;
        self.times.add_since(Stage::SendWait, start);
        sent.map_err(|_| Ended::Gone)
    }

    fn number(&mut self, data: RecordBatch, times: StageTimes) -> Batch {
        let rows = data.num_rows() as u64;
        let request = &self.prepared.request;
        // Every rank is at the same place of its sequence, which begins at the start position.
        let position = request.start_position + (self.next - self.share.start) * request.world_size;
        let end = self.next + rows;
        let header = v1::BatchHeader {
            epoch: request.epoch,
            step: position / request.step_rows(),
            position,
            rows,
            padding_rows: self.share.padding(self.next, end),
            last: end == self.share.end,
            checksum: 0,
            stage_seconds: None,
        };
        self.next = end;
        Batch { header, data, times }
    }
}
