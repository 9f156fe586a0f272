//! Batches → their Flight messages, encoded on the CPU pool. Ends when the server does.

use forebay_proto::v1;
use forebay_runtime::{
    cpu_pool::{CpuError, CpuPool},
    metrics::{Stage, StageTimes},
    shutdown::{Phase, ShutdownWatch},
};
use forebay_stream::{Batch, BatchTask, StreamError};
use futures::{Stream, StreamExt, stream};

use crate::{
    auth::StreamPermit,
    flight::wire::{Encoder, Message},
};

/// The source of a stream of messages.
pub(super) struct EncodedBatches {
    pub batches: BatchTask,
    /// None while a job of the CPU pool uses it.
    pub encoder: Option<Encoder>,
    /// A timed handle.
    pub cpu: CpuPool,
    pub shutdown: ShutdownWatch,
    pub with_stage_seconds: bool,
    /// Positions from one batch of the rank to its next; none for a raw table.
    pub step_rows: Option<u64>,
    pub _permit: StreamPermit,
}

/// The messages of a batch.
#[derive(Debug)]
pub(super) struct EncodedBatch {
    pub messages: Vec<Message>,
    pub rows: u64,
    /// Position of the rank's next batch.
    pub next_position: u64,
    pub times: StageTimes,
}

/// Why a stream ends before its last batch.
#[derive(Debug)]
pub(super) enum Interruption {
    Shutdown,
    Failed(StreamError),
}

impl EncodedBatches {
    /// The encoded batches, up to the last or the first error.
    pub(super) fn into_stream(self) -> impl Stream<Item = Result<EncodedBatch, Interruption>> + Send {
        stream::try_unfold(self, async |mut encoded| Ok(encoded.next().await?.map(|batch| (batch, encoded))))
    }

    async fn next(&mut self) -> Result<Option<EncodedBatch>, Interruption> {
        let batch = tokio::select! {
            biased;
            () = self.shutdown.reached(Phase::Ended) => return Err(Interruption::Shutdown),
            batch = self.batches.next() => batch,
        };
        match batch {
            Some(Ok(batch)) => self.encode(batch).await.map(Some).map_err(Interruption::Failed),
            Some(Err(error)) => Err(Interruption::Failed(error)),
            None => Ok(None),
        }
    }

    async fn encode(&mut self, batch: Batch) -> Result<EncodedBatch, StreamError> {
        let Batch { header, data, mut times } = batch;
        times.merge(self.queued());
        let stage_seconds = self.with_stage_seconds.then(|| stage_seconds(&times));
        let (rows, next_position) = (header.rows, header.position + self.step_rows.unwrap_or(header.rows));
        let header = v1::BatchHeader { stage_seconds, ..header };
        let mut encoder = self.encoder.take().ok_or(CpuError::Gone)?;
        let encoded = self.cpu.run_short(move || {
            let encoded = encoder.batch(&data, header);
            (encoder, encoded)
        });
        let (encoder, messages) = encoded.await?;
        self.encoder = Some(encoder);
        Ok(EncodedBatch { messages: messages?, rows, next_position, times })
    }

    /// The time that encoding the previous batch waited for a thread: its own header was complete before.
    fn queued(&self) -> StageTimes {
        let mut times = StageTimes::default();
        times.add(Stage::Queue, self.cpu.take_queued());
        times.record();
        times
    }
}

impl EncodedBatch {
    /// Bytes of the messages.
    pub(super) fn byte_count(&self) -> u64 {
        self.messages.iter().map(|message| message.byte_count() as u64).sum()
    }
}

fn stage_seconds(times: &StageTimes) -> v1::StageSeconds {
    let seconds = |stage| times.of(stage).as_secs_f64();
    v1::StageSeconds {
        fetch: seconds(Stage::Fetch),
        queue: seconds(Stage::Queue),
        decode: seconds(Stage::Decode),
        transform: seconds(Stage::Transform),
        assemble: seconds(Stage::Assemble),
        send_wait: seconds(Stage::SendWait),
        udf: seconds(Stage::Udf),
    }
}
