//! The response of a `DoGet`: batches encoded on the CPU pool, counted when they go out, cut when the server ends.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use arrow::datatypes::SchemaRef;
use forebay_proto::Encoding;
use futures::{Stream, StreamExt};
use tonic::Status;

use super::{
    encode::{Encoder, Message},
    status,
};
use crate::{
    metrics::{self, StreamGuard, StreamStatus},
    runtime::{CpuError, CpuPool},
    shutdown::{Phase, ShutdownWatch},
    stream::{Batch, BatchTask, StreamError},
};

/// What a stream needs until its end.
struct Outgoing {
    batches: BatchTask,
    /// Away while a job has it.
    encoder: Option<Encoder>,
    ready: VecDeque<Message>,
    cpu: CpuPool,
    shutdown: ShutdownWatch,
    guard: StreamGuard,
    log: EndLog,
    /// Where the stream would go on, for a client that is cut off; a raw table cannot be resumed.
    resume: Option<Resume>,
    ended: bool,
}

/// Where a stream can be resumed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Resume {
    /// The position of the next batch.
    pub position: u64,
    /// Positions from one step to the next.
    pub step_rows: u64,
    /// Where the run's steps are counted from.
    pub resumed_from: u64,
}

/// One line when a stream ends, whatever ends it.
struct EndLog {
    what: String,
    started: Instant,
    batches: u64,
    rows: u64,
    bytes: u64,
    outcome: &'static str,
}

/// Flight messages of a stream: the schema, then the batches.
pub(super) fn messages(
    what: String,
    schema: &SchemaRef,
    headers: Encoding,
    batches: BatchTask,
    resume: Option<Resume>,
    cpu: &CpuPool,
    shutdown: &ShutdownWatch,
) -> Result<impl Stream<Item = Result<Message, Status>> + Send + use<>, StreamError> {
    let encoder = Encoder::new(schema, headers)?;
    let ready = VecDeque::from([Encoder::schema(schema)]);
    tracing::info!(stream = what, "stream opened");
    let log = EndLog { what, started: Instant::now(), batches: 0, rows: 0, bytes: 0, outcome: "cancelled" };
    let outgoing = Outgoing {
        batches,
        encoder: Some(encoder),
        ready,
        cpu: cpu.clone(),
        shutdown: shutdown.clone(),
        guard: StreamGuard::open(),
        log,
        resume,
        ended: false,
    };
    Ok(futures::stream::unfold(outgoing, async |mut outgoing| {
        let item = outgoing.next().await?;
        Some((item, outgoing))
    }))
}

impl Outgoing {
    async fn next(&mut self) -> Option<Result<Message, Status>> {
        if let Some(message) = self.ready.pop_front() {
            return Some(Ok(message));
        }
        if self.ended {
            return None;
        }
        let start = Instant::now();
        let made = tokio::select! {
            biased;
            () = self.shutdown.reached(Phase::Ended) => return Some(Err(self.cut())),
            made = self.batches.next() => made,
        };
        match made {
            None => {
                self.end(StreamStatus::Complete, "complete");
                None
            }
            Some(Err(error)) => Some(Err(self.fail(&error))),
            Some(Ok(batch)) => match self.encode(batch, start.elapsed()).await {
                Ok(first) => Some(Ok(first)),
                Err(error) => Some(Err(self.fail(&error))),
            },
        }
    }

    /// Encodes a batch and returns its first message.
    async fn encode(&mut self, batch: Batch, waited: Duration) -> Result<Message, StreamError> {
        let start = Instant::now();
        let header = batch.header;
        let mut encoder = self.encoder.take().ok_or(CpuError::Gone)?;
        let encoded = self.cpu.run(move || {
            let encoded = encoder.batch(&batch.data, batch.header);
            (encoder, encoded)
        });
        let (back, encoded) = encoded.await?;
        self.encoder = Some(back);
        let messages = encoded?;
        let bytes = messages.iter().map(|message| message.byte_count() as u64).sum();
        metrics::batch_sent(header.rows, bytes, waited + start.elapsed());
        self.log.batches += 1;
        self.log.rows += header.rows;
        self.log.bytes += bytes;
        if let Some(resume) = &mut self.resume {
            resume.position = header.position + resume.step_rows;
        }
        self.ready = messages.into();
        // A batch is at least one message.
        Ok(self.ready.pop_front().unwrap_or_default())
    }

    fn cut(&mut self) -> Status {
        self.end(StreamStatus::Failed, "cut by shutdown");
        Status::unavailable(match self.resume {
            Some(Resume { position, resumed_from, .. }) => {
                let origin = if resumed_from > 0 { format!(" and resumed_from {resumed_from}") } else { String::new() };
                format!(
                    "the server is shutting down: go on at another replica, or here after its restart, with \
                     start_position {position}{origin}"
                )
            }
            None => "the server is shutting down: read the table again at another replica, or here after its restart"
                .to_owned(),
        })
    }

    fn fail(&mut self, error: &StreamError) -> Status {
        self.end(StreamStatus::Failed, "failed");
        tracing::warn!(stream = self.log.what, %error, "stream failed");
        status::of(error)
    }

    fn end(&mut self, status: StreamStatus, outcome: &'static str) {
        self.ended = true;
        self.guard.end(status);
        self.log.outcome = outcome;
    }
}

impl Drop for EndLog {
    fn drop(&mut self) {
        tracing::info!(
            stream = self.what,
            batches = self.batches,
            rows = self.rows,
            bytes = self.bytes,
            seconds = self.started.elapsed().as_secs_f64(),
            outcome = self.outcome,
            "stream ended"
        );
    }
}
