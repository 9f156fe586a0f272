//! Metrics of a stream, and its part of the access log. Its end is recorded when it is dropped, so cancelled streams
//! count too.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
    time::{Duration, Instant},
};

use forebay_runtime::{
    log,
    metrics::{self, Stage, StreamGuard, StreamLabels, StreamStatus},
};
use futures::{Stream, StreamExt};

use super::encoded::{EncodedBatch, Interruption};
use crate::flight::call::Call;

/// A stream of batches that are counted as they pass.
pub(super) struct Recorded<S> {
    stream: S,
    record: StreamRecord,
    /// When the next batch was first polled for.
    polled: Option<Instant>,
}

/// The counts of a stream. Dropping it adds them to the call's line in the access log.
pub(super) struct StreamRecord {
    call: Call,
    guard: StreamGuard,
    batches: u64,
    rows: u64,
    /// None before the first batch.
    next_position: Option<u64>,
    outcome: Outcome,
}

/// How a stream ended.
enum Outcome {
    Complete,
    /// Dropped before its end: the client cancelled or disconnected.
    Cancelled,
    Shutdown,
    Failed(String),
}

impl<S> Recorded<S> {
    pub(super) fn new(stream: S, record: StreamRecord) -> Self {
        Self { stream, record, polled: None }
    }
}

impl<S: Stream<Item = Result<EncodedBatch, Interruption>> + Unpin> Stream for Recorded<S> {
    type Item = S::Item;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<S::Item>> {
        let Self { stream, record, polled } = &mut *self;
        let _in_call = record.call.span.clone().entered();
        let start = *polled.get_or_insert_with(Instant::now);
        let item = ready!(stream.poll_next_unpin(context));
        *polled = None;
        match &item {
            Some(Ok(batch)) => record.batch(batch, start.elapsed()),
            Some(Err(Interruption::Shutdown)) => record.end(StreamStatus::Failed, Outcome::Shutdown),
            Some(Err(Interruption::Failed(error))) => {
                record.end(StreamStatus::Failed, Outcome::Failed(error.to_string()));
            }
            None => record.end(StreamStatus::Complete, Outcome::Complete),
        }
        Poll::Ready(item)
    }
}

// === impl StreamRecord ===

impl StreamRecord {
    pub(super) fn open(labels: &StreamLabels, call: Call) -> Self {
        let guard = StreamGuard::open(labels, call.received);
        Self { call, guard, batches: 0, rows: 0, next_position: None, outcome: Outcome::Cancelled }
    }

    fn batch(&mut self, batch: &EncodedBatch, waited: Duration) {
        let bytes = batch.byte_count();
        metrics::batch_sent(batch.rows, bytes, waited);
        if self.batches == 0 {
            metrics::first_batch(self.call.received.elapsed());
        }
        self.guard.batch(batch.rows, bytes, batch.next_position, &batch.times);
        self.batches += 1;
        self.rows += batch.rows;
        self.next_position = Some(batch.next_position);
    }

    /// Sets the outcome. The first one counts.
    fn end(&mut self, status: StreamStatus, outcome: Outcome) {
        if matches!(self.outcome, Outcome::Cancelled) {
            self.guard.end(status);
            self.outcome = outcome;
        }
    }
}

impl Drop for StreamRecord {
    fn drop(&mut self) {
        if let Outcome::Failed(reason) = &self.outcome {
            log::failed(&self.call.span, reason);
        }
        self.call.note(|facts| {
            facts.batches = Some(self.batches);
            facts.rows = Some(self.rows);
            facts.position = self.next_position.or(facts.position);
            facts.stage_seconds = Some(Stage::ALL.map(|stage| self.guard.seconds(stage)));
        });
    }
}

#[cfg(test)]
mod tests {
    use forebay_runtime::metrics::StageTimes;
    use futures::stream;

    use super::*;

    type Item = Result<EncodedBatch, Interruption>;

    fn recorded(items: Vec<Item>) -> Recorded<impl Stream<Item = Item> + Unpin> {
        let record = StreamRecord::open(&StreamLabels::default(), Call::new("DoGet", None));
        Recorded::new(stream::iter(items), record)
    }

    fn batch() -> EncodedBatch {
        EncodedBatch { messages: Vec::new(), rows: 8, next_position: 8, times: StageTimes::default() }
    }

    #[tokio::test]
    async fn a_stream_is_cancelled_unless_it_ends() {
        let mut stream = recorded(vec![Ok(batch()), Ok(batch())]);
        assert!(stream.next().await.is_some());
        assert_eq!((stream.record.batches, stream.record.rows), (1, 8));
        assert!(matches!(stream.record.outcome, Outcome::Cancelled));
        while stream.next().await.is_some() {}
        assert_eq!((stream.record.batches, stream.record.rows), (2, 16));
        assert!(matches!(stream.record.outcome, Outcome::Complete));
    }

    #[tokio::test]
    async fn the_first_outcome_counts() {
        let mut stream = recorded(vec![Ok(batch()), Err(Interruption::Shutdown)]);
        while stream.next().await.is_some() {}
        assert!(matches!(stream.record.outcome, Outcome::Shutdown));
    }
}
