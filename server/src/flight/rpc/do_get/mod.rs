//! The response of a `DoGet`: batches encoded on the CPU pool, counted when they go out, cut when the server ends.

use std::{
    collections::VecDeque,
    fmt,
    time::{Duration, Instant},
};

use arrow::datatypes::SchemaRef;
use forebay_proto::{Encoding, v1};
use futures::{Stream, StreamExt};
use tonic::{Code, Status};
use tracing::Instrument;

use crate::{
    auth::StreamPermit,
    cpu_pool::{CpuError, CpuPool},
    flight::{
        call::Call,
        status,
        wire::{Encoder, Message},
    },
    log,
    metrics::{self, Stage, StageTimes, StreamGuard, StreamLabels, StreamStatus},
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
    with_stage_seconds: bool,
    call: Call,
    log: EndLog,
    /// Where the stream would go on, for a client that is cut off; a raw table cannot be resumed.
    resume: Option<Resume>,
    _place: StreamPermit,
    ended: bool,
}

/// A stream that has been opened.
pub(crate) struct Opened {
    /// The call that asked for it.
    pub call: Call,
    /// What tells it from others.
    pub labels: StreamLabels,
    /// Its headers.
    pub headers: Headers,
    /// Where it can be resumed.
    pub resume: Option<Resume>,
    /// Its place among the streams that may be open.
    pub place: StreamPermit,
}

/// How the headers of a stream are written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Headers {
    /// As what.
    pub encoding: Encoding,
    /// Whether they say where the time went.
    pub with_stage_seconds: bool,
}

/// Where a stream can be resumed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Resume {
    /// The position of the next batch.
    pub position: u64,
    /// Positions from one step to the next.
    pub step_rows: u64,
    /// Where the run's steps are counted from.
    pub resumed_from: u64,
}

/// One line when a stream ends, whatever ends it.
struct EndLog {
    labels: StreamLabels,
    call: Call,
    guard: StreamGuard,
    batches: u64,
    rows: u64,
    bytes: u64,
    outcome: Outcome,
}

/// What ends a stream.
enum Outcome {
    Complete,
    /// The client went away, or its connection did.
    Cancelled,
    /// The server ended before it.
    Cut,
    Failed(String),
}

/// Flight messages of a stream: the schema, then the batches.
pub(crate) fn messages(
    opened: Opened,
    schema: &SchemaRef,
    batches: BatchTask,
    cpu: &CpuPool,
    shutdown: &ShutdownWatch,
) -> Result<impl Stream<Item = Result<Message, Status>> + Send + use<>, StreamError> {
    let Opened { call, labels, headers, resume, place } = opened;
    let encoder = Encoder::new(schema, headers.encoding)?;
    let ready = VecDeque::from([Encoder::schema(schema)]);
    let StreamLabels { dataset, epoch, rank, .. } = &labels;
    let position = resume.map_or(0, |resume| resume.position);
    tracing::info!(dataset, epoch, rank, position, "stream opened");
    let guard = StreamGuard::open(&labels, call.asked);
    let log = EndLog { labels, call: call.clone(), guard, batches: 0, rows: 0, bytes: 0, outcome: Outcome::Cancelled };
    let outgoing = Outgoing {
        batches,
        encoder: Some(encoder),
        ready,
        cpu: cpu.clone(),
        shutdown: shutdown.clone(),
        with_stage_seconds: headers.with_stage_seconds,
        call,
        log,
        resume,
        _place: place,
        ended: false,
    };
    Ok(futures::stream::unfold(outgoing, async |mut outgoing| {
        let span = outgoing.call.span.clone();
        let item = outgoing.next().instrument(span).await?;
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
                self.end(StreamStatus::Complete, Outcome::Complete);
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
        let times = batch.times;
        let stage_seconds = self.with_stage_seconds.then(|| stage_seconds(&times));
        let header = v1::BatchHeader { stage_seconds, ..batch.header };
        let mut encoder = self.encoder.take().ok_or(CpuError::Gone)?;
        let encoded = self.cpu.run_short(move || {
            let encoded = encoder.batch(&batch.data, header);
            (encoder, encoded)
        });
        let (back, encoded) = encoded.await?;
        self.encoder = Some(back);
        let messages = encoded?;
        let bytes = messages.iter().map(|message| message.byte_count() as u64).sum();
        metrics::batch_sent(header.rows, bytes, waited + start.elapsed());
        if self.log.batches == 0 {
            metrics::first_batch(self.call.asked.elapsed());
        }
        if let Some(resume) = &mut self.resume {
            resume.position = header.position + resume.step_rows;
        }
        let position = self.resume.map_or(header.position + header.rows, |resume| resume.position);
        self.log.guard.batch(header.rows, bytes, position, &times);
        self.log.batches += 1;
        self.log.rows += header.rows;
        self.log.bytes += bytes;
        self.ready = messages.into();
        // A batch is at least one message.
        Ok(self.ready.pop_front().unwrap_or_default())
    }

    fn cut(&mut self) -> Status {
        self.end(StreamStatus::Failed, Outcome::Cut);
        self.call.error(&Status::unavailable(match self.resume {
            Some(resume) => format!(
                "the server is shutting down: go on at another replica, or here after its restart, with {resume}"
            ),
            None => "the server is shutting down: read the table again at another replica, or here after its restart"
                .to_owned(),
        }))
    }

    fn fail(&mut self, error: &StreamError) -> Status {
        self.end(StreamStatus::Failed, Outcome::Failed(error.to_string()));
        let status = status::of(error);
        self.call.error(&match self.resume {
            Some(resume) if status.code() == Code::Unavailable => {
                Status::unavailable(format!("{}; go on later with {resume}", status.message()))
            }
            _ => status,
        })
    }

    fn end(&mut self, status: StreamStatus, outcome: Outcome) {
        self.ended = true;
        self.log.guard.end(status);
        self.log.outcome = outcome;
    }
}

impl fmt::Display for Resume {
    /// The fields of the request that goes on.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "start_position {}", self.position)?;
        if self.resumed_from > 0 {
            write!(formatter, " and resumed_from {}", self.resumed_from)?;
        }
        Ok(())
    }
}

fn stage_seconds(times: &StageTimes) -> v1::StageSeconds {
    let seconds = |stage| times.of(stage).as_secs_f64();
    v1::StageSeconds {
        fetch: seconds(Stage::Fetch),
        decode: seconds(Stage::Decode),
        transform: seconds(Stage::Transform),
        assemble: seconds(Stage::Assemble),
        send_wait: seconds(Stage::SendWait),
    }
}

impl Drop for EndLog {
    fn drop(&mut self) {
        let _in_call = self.call.span.enter();
        let StreamLabels { dataset, epoch, rank, .. } = &self.labels;
        let seconds = |stage| self.guard.seconds(stage);
        macro_rules! tell {
            ($level:ident, $($more:tt)*) => {
                tracing::$level!(
                    dataset,
                    epoch,
                    rank,
                    // Signed: traces know no other numbers.
                    batches = self.batches as i64,
                    rows = self.rows as i64,
                    bytes = self.bytes as i64,
                    seconds = self.call.asked.elapsed().as_secs_f64(),
                    fetch_seconds = seconds(Stage::Fetch),
                    decode_seconds = seconds(Stage::Decode),
                    transform_seconds = seconds(Stage::Transform),
                    assemble_seconds = seconds(Stage::Assemble),
                    send_wait_seconds = seconds(Stage::SendWait),
                    $($more)*
                    "stream ended"
                )
            };
        }
        if let Outcome::Failed(reason) = &self.outcome {
            log::failed(&self.call.span, reason);
        }
        match &self.outcome {
            Outcome::Complete => tell!(info, outcome = "complete",),
            Outcome::Cancelled => tell!(info, outcome = "cancelled",),
            Outcome::Cut => tell!(warn, outcome = "cut by shutdown",),
            Outcome::Failed(error) => tell!(warn, outcome = "failed", error,),
        }
    }
}
