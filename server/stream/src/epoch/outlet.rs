//! Numbers the batches of a rank and sends them.

use std::{mem, time::Instant};

use arrow::array::RecordBatch;
use forebay_order::Share;
use forebay_plan::Request;
use forebay_proto::v1;
use forebay_runtime::metrics::{Stage, StageTimes};

use crate::{
    ahead::{Batch, BatchSender},
    error::StreamError,
};

/// Numbers the batches of a rank and sends them.
pub(crate) struct Outlet {
    request: Request,
    share: Share,
    /// Rows of the rank's sequence before the next batch.
    next: u64,
    batches_sent: u64,
    sender: BatchSender,
    pub times: StageTimes,
}

/// Why a rank's batches end early.
pub(crate) enum Ended {
    /// The reader was dropped.
    ReaderDropped,
    /// A batch cannot be computed.
    Failed(StreamError),
}

impl<E: Into<StreamError>> From<E> for Ended {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

// === impl Outlet ===

impl Outlet {
    /// An outlet of a share's batches, of which these have been sent.
    pub(crate) fn new(request: &Request, share: Share, batches_sent: u64, sender: BatchSender) -> Self {
        let next = share.start + batches_sent.saturating_mul(request.batch_size);
        let (request, next, times) = (request.clone(), next.min(share.end), StageTimes::default());
        Self { request, share, next, batches_sent, sender, times }
    }

    /// Whether no batch has been sent.
    pub(crate) fn is_first(&self) -> bool {
        self.batches_sent == 0
    }

    /// Rows of the next batch.
    pub(crate) fn batch_rows(&self) -> u64 {
        self.request.batch_size.min(self.share.end - self.next)
    }

    /// Numbers a batch and sends it.
    pub(crate) async fn send(&mut self, data: RecordBatch) -> Result<(), Ended> {
        let times = mem::take(&mut self.times);
        times.record();
        let batch = self.number(data, times);
        let start = Instant::now();
        let sent = self.sender.send(Ok(batch)).await;
        self.times.add_since(Stage::SendWait, start);
        sent.map_err(|_| Ended::ReaderDropped)
    }

    fn number(&mut self, data: RecordBatch, times: StageTimes) -> Batch {
        let rows = data.num_rows() as u64;
        let request = &self.request;
        // All ranks advance together from the start position.
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
        self.batches_sent += 1;
        Batch { header, data, times }
    }
}
