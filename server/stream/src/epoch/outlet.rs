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
    /// Whether another outlet sends what this one does, and records the times.
    is_inner: bool,
}

/// The place of a batch in the sequence of its rank.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub start: u64,
    pub end: u64,
    /// Repeated rows among its rows.
    pub padding_rows: u64,
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
        Self { request, share, next, batches_sent, sender, times, is_inner: false }
    }

    /// An outlet to another one, which records the times, and how long batches wait for the client.
    pub(super) fn inner(request: &Request, share: Share, sender: BatchSender) -> Self {
        Self { is_inner: true, ..Self::new(request, share, 0, sender) }
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
        let end = self.next + data.num_rows() as u64;
        let place = Place { start: self.next, end, padding_rows: self.share.padding(self.next, end) };
        self.send_at(data, place, end == self.share.end).await
    }

    /// Sends a batch that has this place in the rank's sequence.
    pub(super) async fn send_at(&mut self, data: RecordBatch, place: Place, is_last: bool) -> Result<(), Ended> {
        let times = mem::take(&mut self.times);
        if !self.is_inner {
            times.record();
        }
        let batch = self.number(data, times, (place, is_last));
        let start = Instant::now();
        let sent = self.sender.send(Ok(batch)).await;
        if !self.is_inner {
            self.times.add_since(Stage::SendWait, start);
        }
        sent.map_err(|_| Ended::ReaderDropped)
    }

    fn number(&mut self, data: RecordBatch, times: StageTimes, (place, is_last): (Place, bool)) -> Batch {
        let request = &self.request;
        // All ranks advance together from the start position.
        let position = request.start_position + (place.start - self.share.start) * request.world_size;
        let header = v1::BatchHeader {
            epoch: request.epoch,
            step: position / request.step_rows(),
            position,
            rows: data.num_rows() as u64,
            padding_rows: place.padding_rows,
            last: is_last,
            checksum: 0,
            stage_seconds: None,
        };
        self.next = place.end;
        self.batches_sent += 1;
        Batch { header, data, times }
    }
}
