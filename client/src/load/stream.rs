//! One stream of the load: it reads its rank's epochs, one behind the other, and checks that each is whole.
//!
//! A passing trouble (a server that drains, a connection that breaks) is counted and the stream opened again at its
//! place, as the client library's own streams do it; everything else ends the stream.

use std::sync::Arc;
use std::time::Instant;

use forebay_client::{Batch, Client, Cursor, Epoch, Error, HeaderError, Retry, StreamRequest};
use futures::TryStreamExt;
use tokio::sync::watch;

use super::epochs::Epochs;
use super::measures::Measures;
use super::pace::Schedule;
use super::settings::RunEnd;

/// What the streams of a run have in common.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) epochs: Epochs,
    pub(super) first_epoch: u64,
    pub(super) end: RunEnd,
    pub(super) measures: Measures,
}

/// One stream. What it has done stays readable however it ends.
#[derive(Debug)]
pub(super) struct Reader {
    pub(super) run: Arc<Run>,
    pub(super) client: Client,
    pub(super) schedule: Schedule,
    /// Of all the streams of the run, from 0.
    pub(super) number: usize,
    pub(super) rank: usize,
    pub(super) tally: Tally,
}

/// What one stream has done.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    /// Batches of the warm-up too.
    pub(super) taken: u64,
    pub(super) batches: u64,
    pub(super) rows: u64,
    pub(super) bytes: u64,
    /// Epochs read to their end.
    pub(super) epochs: u64,
}

/// A stream that is over.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) number: usize,
    pub(super) rank: usize,
    pub(super) tally: Tally,
    pub(super) at: Instant,
    pub(super) overdue: u64,
    pub(super) trouble: Option<StreamFailure>,
}

/// Why a stream could not go on.
#[derive(Debug, thiserror::Error)]
#[error("stream {stream} (rank {rank}), epoch {epoch}, step {step}")]
pub(crate) struct StreamFailure {
    stream: usize,
    rank: usize,
    epoch: u64,
    /// The step that was wrong, or the first that is missing.
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

    #[error("the server promised the rank {promised} rows, and {found} came")]
    Share { promised: u64, found: u64 },
}

/// Where a stream is in an epoch.
struct Place {
    epoch: u64,
    began: Instant,
    /// Global position of the next batch.
    position: u64,
    /// Of the next batch; before the first one has come, 0.
    step: u64,
    rows: u64,
    batches: u64,
    is_complete: bool,
    /// From when on the next batch is waited for, through all tries to get it.
    asked: Option<Instant>,
}

impl StreamFailure {
    /// Whether what came was wrong, rather than nothing.
    pub(crate) fn is_damage(&self) -> bool {
        match &self.reason {
            Reason::Client(error) => matches!(error, Error::Data(_) | Error::Message { .. }),
            Reason::Header(_) | Reason::NoRank | Reason::Share { .. } => true,
        }
    }
}

impl From<Error> for Reason {
    /// The step of a header's error is said by the trouble.
    fn from(error: Error) -> Self {
        match error {
            Error::Header { reason, .. } => Self::Header(reason),
            error => Self::Client(error),
        }
    }
}

impl Reader {
    /// Reads until the end, a trouble, or the word to stop.
    pub(super) async fn run(mut self, mut stop: watch::Receiver<bool>) -> Ended {
        let (trouble, was_stopped) = tokio::select! {
            biased;
            _ = stop.wait_for(|stop| *stop) => (None, true),
            outcome = self.read() => (outcome.err(), false),
        };
        let at = Instant::now();
        let overdue = if was_stopped { self.schedule.overdue(self.tally.taken, at) } else { 0 };
        Ended { number: self.number, rank: self.rank, tally: self.tally, at, overdue, trouble }
    }

    async fn read(&mut self) -> Result<(), StreamFailure> {
        for epoch in self.run.first_epoch..=u64::MAX {
            let batches = self.read_epoch(epoch).await?;
            self.tally.epochs += 1;
            let is_last = match self.run.end {
                RunEnd::Epochs(count) => epoch - self.run.first_epoch + 1 == count,
                // A rank without rows has none in the next epoch either; behind a start position it may.
                RunEnd::Duration(_) => batches == 0 && self.run.epochs.request(epoch).start_position == 0,
            };
            if is_last {
                break;
            }
        }
        Ok(())
    }

    /// Reads one epoch to its end, with as many tries as the client library's own streams take; returns its batches.
    async fn read_epoch(&mut self, epoch: u64) -> Result<u64, StreamFailure> {
        let position = self.run.epochs.request(epoch).start_position;
        let mut place = Place {
            epoch,
            began: Instant::now(),
            position,
            step: 0,
            rows: 0,
            batches: 0,
            is_complete: false,
            asked: None,
        };
        let retry = Retry::default();
        let (mut tries, mut since, mut batches_then) = (0, Instant::now(), 0);
        loop {
            let reason = match self.read_on(&mut place).await {
                Ok(()) => return Ok(place.batches),
                Err(reason) => reason,
            };
            // A damaged batch might come whole another time; here it is what is looked for.
            let is_passing = matches!(&reason, Reason::Client(error) if error.is_passing());
            if is_passing && place.is_complete {
                // Nothing is missing but the server's goodbye.
                return Ok(place.batches);
            }
            self.run.measures.error(if let Reason::Client(error) = &reason { Some(error) } else { None });
            if tries == 0 || place.batches > batches_then {
                (tries, since, batches_then) = (0, Instant::now(), place.batches);
            }
            let pause = retry.pause(tries);
            tries += 1;
            if !is_passing || tries >= retry.passes_max || since.elapsed() + pause > retry.deadline {
                return Err(self.trouble(&place, reason));
            }
            tokio::time::sleep(pause).await;
            self.run.measures.retry();
        }
    }

    /// Reads from a place to the epoch's end.
    async fn read_on(&mut self, place: &mut Place) -> Result<(), Reason> {
        let cell = self.run.epochs.get(place.epoch).await?;
        let epoch = cell.get().ok_or(Error::Incomplete { call: "GetFlightInfo", missing: "epoch" })?;
        let request = self.run.epochs.request(place.epoch);
        let resumed;
        let (request, epoch) = if place.batches == 0 {
            (request, epoch)
        } else {
            let request = behind(&request, epoch, place.position)?;
            resumed = self.client.stream_info(&request).await?;
            (request, &resumed)
        };
        let endpoint = epoch.endpoints.get(self.rank).ok_or(Reason::NoRank)?;
        let step_rows = epoch.endpoints.len() as u64 * request.batch_size.unwrap_or(forebay_client::BATCH_SIZE_DEFAULT);
        let mut batches = self.client.read_from(endpoint, &request).await?;
        loop {
            let asked = match place.asked {
                Some(asked) => asked,
                None => *place.asked.insert(self.ask().await),
            };
            let Some(batch) = batches.try_next().await? else { break };
            self.take(place, &batch, asked, step_rows)?;
        }
        // The shares are of the whole epoch, wherever the stream began.
        let is_whole = self.run.epochs.request(place.epoch).start_position == 0;
        match endpoint.rank {
            Some(share) if is_whole && share.rows != place.rows => {
                Err(Reason::Share { promised: share.rows, found: place.rows })
            }
            _ => Ok(()),
        }
    }

    /// Waits until the next batch may be asked for, and returns from when on its latency counts.
    async fn ask(&self) -> Instant {
        match self.schedule.due(self.tally.taken) {
            None => Instant::now(),
            Some(due) => {
                tokio::time::sleep_until(due.into()).await;
                Schedule::since(due, Instant::now())
            }
        }
    }

    /// Checks a batch's place and counts it.
    fn take(&mut self, place: &mut Place, batch: &Batch, asked: Instant, step_rows: u64) -> Result<(), Error> {
        let arrived = Instant::now();
        let header = &batch.header;
        let wrong = |reason| Error::Header { step: header.step, reason };
        if header.epoch != place.epoch {
            return Err(wrong(HeaderError::Epoch { expected: place.epoch, found: header.epoch }));
        }
        if header.position != place.position {
            return Err(wrong(HeaderError::Position { expected: place.position, found: header.position }));
        }
        place.is_complete = header.last;
        place.asked = None;
        // A rank without rows gets a last batch without rows: an end, and no step.
        if header.rows == 0 {
            return Ok(());
        }
        let is_first = place.batches == 0;
        if is_first {
            self.run.measures.first_batch(arrived - place.began);
        }
        // In a closed loop the first batch's wait is a figure of its own; in an open one it was due like any other.
        let counts = !is_first || self.schedule.due(0).is_some();
        let waited = arrived.saturating_duration_since(asked);
        let latency = counts.then_some(waited);
        let is_counted = self.run.measures.batch(arrived, header, batch.body_bytes, waited, latency);
        self.tally.taken += 1;
        if is_counted {
            self.tally.batches += 1;
            self.tally.rows += header.rows;
            self.tally.bytes += batch.body_bytes;
        }
        place.batches += 1;
        place.rows += header.rows;
        place.step = header.step + 1;
        place.position = place.position.saturating_add(step_rows);
        Ok(())
    }

    fn trouble(&self, place: &Place, reason: Reason) -> StreamFailure {
        StreamFailure { stream: self.number, rank: self.rank, epoch: place.epoch, step: place.step, reason }
    }
}

/// The request that goes on behind the batches that have come.
fn behind(request: &StreamRequest, epoch: &Epoch, position: u64) -> Result<StreamRequest, Error> {
    let start = Cursor::start(request, &epoch.info);
    Ok(Cursor { position, snapshot: epoch.info.snapshot.clone(), ..start }.apply(request)?)
}
