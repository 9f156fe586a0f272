//! One stream of a run: reads its rank's epochs in turn and checks that each is complete.
//!
//! Transient errors (a draining server, a broken connection) are counted, and the stream resumes, as the client
//! library's streams do. Other errors end the stream.

use std::{sync::Arc, time::Instant};

use forebay_client::{Batch, Client, Cursor, Epoch, Error, HeaderError, Retry, StreamRequest};
use futures::TryStreamExt;
use tokio::sync::watch;

use super::{epochs::Epochs, measures::Measures, pace::Schedule, settings::RunEnd};

/// State shared by the streams of a run.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) epochs: Epochs,
    pub(super) first_epoch: u64,
    pub(super) end: RunEnd,
    pub(super) measures: Measures,
}

/// One stream, with a tally that stays readable after it ends.
#[derive(Debug)]
pub(super) struct Reader {
    pub(super) run: Arc<Run>,
    pub(super) client: Client,
    pub(super) schedule: Schedule,
    /// Among all streams of the run, from 0.
    pub(super) number: usize,
    pub(super) rank: usize,
    pub(super) tally: Tally,
}

/// Counts of one stream.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    /// Batches received, including the warm-up.
    pub(super) received: u64,
    pub(super) batches: u64,
    pub(super) rows: u64,
    pub(super) bytes: u64,
    /// Complete epochs.
    pub(super) epochs: u64,
}

/// A stream that has ended.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) number: usize,
    pub(super) rank: usize,
    pub(super) tally: Tally,
    pub(super) at: Instant,
    pub(super) overdue: u64,
    pub(super) failure: Option<StreamFailure>,
}

/// Error that ended a stream.
#[derive(Debug, thiserror::Error)]
#[error("stream {stream} (rank {rank}), epoch {epoch}, step {step}")]
pub(crate) struct StreamFailure {
    stream: usize,
    rank: usize,
    epoch: u64,
    /// The corrupt step, or the first missing one.
    step: u64,
    #[source]
    reason: Reason,
}

#[derive(Debug, thiserror::Error)]
enum Reason {
    #[error(transparent)]
    Client(Error),

    #[error(transparent)]
    Header(HeaderError),

    #[error("the epoch has no such rank")]
    NoRank,

    #[error("the server announced {announced} rows for the rank and sent {found}")]
    Share { announced: u64, found: u64 },
}

/// Position of a stream in an epoch.
struct EpochProgress {
    epoch: u64,
    began: Instant,
    /// Global position of the next batch.
    position: u64,
    /// Step of the next batch; 0 before the first one.
    step: u64,
    rows: u64,
    batches: u64,
    is_complete: bool,
    /// Since when the next batch is awaited, over all attempts.
    requested: Option<Instant>,
}

impl StreamFailure {
    /// Whether data was corrupt, rather than missing.
    pub(crate) fn is_corruption(&self) -> bool {
        match &self.reason {
            Reason::Client(error) => matches!(error, Error::Data(_) | Error::Message { .. }),
            Reason::Header(_) | Reason::NoRank | Reason::Share { .. } => true,
        }
    }
}

impl From<Error> for Reason {
    /// Drops a header error's step, which the failure reports.
    fn from(error: Error) -> Self {
        match error {
            Error::Header { reason, .. } => Self::Header(reason),
            error => Self::Client(error),
        }
    }
}

impl Reader {
    /// Reads until the end, a failure or the stop signal.
    pub(super) async fn run(mut self, mut stop: watch::Receiver<bool>) -> Ended {
        let (failure, was_stopped) = tokio::select! {
            biased;
            _ = stop.wait_for(|stop| *stop) => (None, true),
            outcome = self.read() => (outcome.err(), false),
        };
        let at = Instant::now();
        let overdue = if was_stopped { self.schedule.overdue(self.tally.received, at) } else { 0 };
        Ended { number: self.number, rank: self.rank, tally: self.tally, at, overdue, failure }
    }

    async fn read(&mut self) -> Result<(), StreamFailure> {
        for epoch in self.run.first_epoch..=u64::MAX {
            let batches = self.read_epoch(epoch).await?;
            self.tally.epochs += 1;
            let is_last = match self.run.end {
                RunEnd::Epochs(count) => epoch - self.run.first_epoch + 1 == count,
                // A rank without rows has none in later epochs either, unless the epoch began at a start position.
                RunEnd::Duration(_) => batches == 0 && self.run.epochs.request(epoch).start_position == 0,
            };
            if is_last {
                break;
            }
        }
        Ok(())
    }

    /// Reads one epoch to its end, with the retry limits of the client library; returns the number of batches.
    async fn read_epoch(&mut self, epoch: u64) -> Result<u64, StreamFailure> {
        let position = self.run.epochs.request(epoch).start_position;
        let mut progress = EpochProgress {
            epoch,
            began: Instant::now(),
            position,
            step: 0,
            rows: 0,
            batches: 0,
            is_complete: false,
            requested: None,
        };
        let retry = Retry::default();
        let (mut tries, mut since, mut batches_then) = (0, Instant::now(), 0);
        loop {
            let reason = match self.read_rest(&mut progress).await {
                Ok(()) => return Ok(progress.batches),
                Err(reason) => reason,
            };
            // A retry could return a corrupt batch intact, but a load run looks for corruption.
            let is_transient = matches!(&reason, Reason::Client(error) if error.is_passing());
            if is_transient && progress.is_complete {
                // All batches were received; only the end of the call is missing.
                return Ok(progress.batches);
            }
            self.run.measures.error(if let Reason::Client(error) = &reason { Some(error) } else { None });
            if tries == 0 || progress.batches > batches_then {
                (tries, since, batches_then) = (0, Instant::now(), progress.batches);
            }
            let pause = retry.pause(tries);
            tries += 1;
            if !is_transient || tries >= retry.passes_max || since.elapsed() + pause > retry.deadline {
                return Err(self.failure(&progress, reason));
            }
            tokio::time::sleep(pause).await;
            self.run.measures.retry();
        }
    }

    /// Reads from the current position to the epoch's end.
    async fn read_rest(&mut self, progress: &mut EpochProgress) -> Result<(), Reason> {
        let cell = self.run.epochs.get(progress.epoch).await?;
        let epoch = cell.get().ok_or(Error::Incomplete { call: "GetFlightInfo", missing: "epoch" })?;
        let request = self.run.epochs.request(progress.epoch);
        let resumed;
        let (request, epoch) = if progress.batches == 0 {
            (request, epoch)
        } else {
            let request = resumed_request(&request, epoch, progress.position)?;
            resumed = self.client.stream_info(&request).await?;
            (request, &resumed)
        };
        let endpoint = epoch.endpoints.get(self.rank).ok_or(Reason::NoRank)?;
        let step_rows = epoch.endpoints.len() as u64 * request.batch_size.unwrap_or(forebay_client::BATCH_SIZE_DEFAULT);
        let mut batches = self.client.read_from(endpoint, &request).await?;
        loop {
            let requested = match progress.requested {
                Some(requested) => requested,
                None => *progress.requested.insert(self.wait_until_due().await),
            };
            let Some(batch) = batches.try_next().await? else { break };
            self.accept(progress, &batch, requested, step_rows)?;
        }
        // Shares cover the whole epoch, regardless of the start position.
        let is_whole = self.run.epochs.request(progress.epoch).start_position == 0;
        match endpoint.rank {
            Some(share) if is_whole && share.rows != progress.rows => {
                Err(Reason::Share { announced: share.rows, found: progress.rows })
            }
            _ => Ok(()),
        }
    }

    /// Waits until the next batch is scheduled, and returns the start of its latency.
    async fn wait_until_due(&self) -> Instant {
        match self.schedule.due(self.tally.received) {
            None => Instant::now(),
            Some(due) => {
                tokio::time::sleep_until(due.into()).await;
                Schedule::since(due, Instant::now())
            }
        }
    }

    /// Checks a batch's position and counts it.
    fn accept(
        &mut self,
        progress: &mut EpochProgress,
        batch: &Batch,
        requested: Instant,
        step_rows: u64,
    ) -> Result<(), Error> {
        let arrived = Instant::now();
        let header = &batch.header;
        let wrong = |reason| Error::Header { step: header.step, reason };
        if header.epoch != progress.epoch {
            return Err(wrong(HeaderError::Epoch { expected: progress.epoch, found: header.epoch }));
        }
        if header.position != progress.position {
            return Err(wrong(HeaderError::Position { expected: progress.position, found: header.position }));
        }
        progress.is_complete = header.last;
        progress.requested = None;
        // A rank without rows receives an empty last batch, which is not a step.
        if header.rows == 0 {
            return Ok(());
        }
        let is_first = progress.batches == 0;
        if is_first {
            self.run.measures.first_batch(arrived - progress.began);
        }
        // A closed loop measures the first batch separately; in an open loop it is scheduled like any other.
        let is_measured = !is_first || self.schedule.due(0).is_some();
        let waited = arrived.saturating_duration_since(requested);
        let latency = is_measured.then_some(waited);
        let is_counted = self.run.measures.batch(arrived, header, batch.body_bytes, waited, latency);
        self.tally.received += 1;
        if is_counted {
            self.tally.batches += 1;
            self.tally.rows += header.rows;
            self.tally.bytes += batch.body_bytes;
        }
        progress.batches += 1;
        progress.rows += header.rows;
        progress.step = header.step + 1;
        progress.position = progress.position.saturating_add(step_rows);
        Ok(())
    }

    fn failure(&self, progress: &EpochProgress, reason: Reason) -> StreamFailure {
        StreamFailure { stream: self.number, rank: self.rank, epoch: progress.epoch, step: progress.step, reason }
    }
}

/// Returns the request that resumes after the batches received.
fn resumed_request(request: &StreamRequest, epoch: &Epoch, position: u64) -> Result<StreamRequest, Error> {
    let start = Cursor::start(request, &epoch.info);
    Ok(Cursor { position, snapshot: epoch.info.snapshot.clone(), ..start }.apply(request)?)
}
