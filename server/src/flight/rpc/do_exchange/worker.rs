//! Decodes, computes and encodes the batches of one exchange, on the CPU pool.

use std::{collections::HashMap, sync::Arc, time::Instant};

use arrow::array::RecordBatch;
use arrow_flight::FlightData;
use bytes::Bytes;
use forebay_proto::v1::Reason;
use forebay_runtime::{
    budget::Reservation,
    metrics::{Stage, StageTimes},
};
use forebay_stream::{DerivedRows, Exchange, StreamError};
use tonic::Status;

use crate::flight::{
    status,
    wire::{
        Encoder,
        decode::{Decoder, MessageError, MessageKind},
    },
};

/// The state of an exchange whose schema is known.
pub(super) struct Worker {
    pub exchange: Arc<Exchange>,
    pub decoder: Decoder,
    pub encoder: Encoder,
    /// Memory of the dictionaries, by id: a delta adds to the existing values.
    pub dictionaries: HashMap<i64, Vec<Reservation>>,
}

/// The result of a message.
pub(super) enum Processed {
    /// Nothing to send.
    Nothing,
    /// Rows that wait for the functions of the plan: [`Worker::finish`] computes their outputs.
    Derived(Derived),
    /// The messages of a batch's outputs, and the memory they hold.
    Outputs { rows: u64, messages: Vec<FlightData>, held: Reservation },
}

/// The passing rows of a batch, and the memory it holds.
pub(super) struct Derived {
    pub rows: DerivedRows,
    pub times: StageTimes,
    metadata: Bytes,
    held: Reservation,
}

/// Why a message could not be processed.
#[derive(Debug)]
pub(super) enum WorkerError {
    Message(MessageError),
    Stream(StreamError),
}

impl Worker {
    pub(super) fn process(&mut self, data: &FlightData) -> Result<Processed, WorkerError> {
        match self.decoder.check(data, self.exchange.batch_bytes_max())? {
            MessageKind::Empty => Ok(Processed::Nothing),
            MessageKind::Dictionary { id, bytes, is_delta } => {
                let held = self.exchange.reserve_dictionary(bytes)?;
                self.decoder.dictionary(data)?;
                let reservations = self.dictionaries.entry(id).or_default();
                if !is_delta {
                    reservations.clear();
                }
                reservations.push(held);
                Ok(Processed::Nothing)
            }
            MessageKind::Batch { rows, bytes } => {
                let held = self.exchange.reserve(rows, bytes)?;
                let mut times = StageTimes::default();
                let start = Instant::now();
                let batch = self.decoder.batch(data)?;
                times.add_since(Stage::Decode, start);
                let metadata = Bytes::clone(&data.app_metadata);
                if self.exchange.has_functions() {
                    let rows = self.exchange.derive(&batch, &mut times)?;
                    return Ok(Processed::Derived(Derived { rows, times, metadata, held }));
                }
                let outputs = self.exchange.compute(&batch, &mut times)?;
                self.encoded(&outputs, &times, metadata, held)
            }
        }
    }

    /// Computes the outputs of rows to which the columns of functions were added.
    pub(super) fn finish(&mut self, derived: Derived) -> Result<Processed, WorkerError> {
        let Derived { rows, mut times, metadata, held } = derived;
        let outputs = self.exchange.finish(&rows, &mut times)?;
        self.encoded(&outputs, &times, metadata, held)
    }

    fn encoded(
        &mut self,
        outputs: &RecordBatch,
        times: &StageTimes,
        metadata: Bytes,
        held: Reservation,
    ) -> Result<Processed, WorkerError> {
        times.record();
        let messages = self.encoder.exchanged(outputs, metadata).map_err(StreamError::from)?;
        let messages = messages.into_iter().map(FlightData::from).collect();
        Ok(Processed::Outputs { rows: outputs.num_rows() as u64, messages, held })
    }
}

impl From<MessageError> for WorkerError {
    fn from(error: MessageError) -> Self {
        Self::Message(error)
    }
}

impl From<StreamError> for WorkerError {
    fn from(error: StreamError) -> Self {
        Self::Stream(error)
    }
}

impl WorkerError {
    pub(super) fn status(&self) -> Status {
        match self {
            Self::Message(error @ MessageError::Malformed(_)) => {
                status::refusal(Reason::InvalidRequest, &error.to_string())
            }
            Self::Message(error @ MessageError::TooLarge(_)) => status::refusal(Reason::Limit, &error.to_string()),
            Self::Stream(error) => status::of(error),
        }
    }
}
