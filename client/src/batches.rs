//! Verified batches of a stream of Flight messages: complete, in order and with matching checksums.
//!
//! Checksums are verified over the received bytes, before decoding. A stream is complete only if a batch is marked as
//! the last and the server then ends the stream without an error.

use std::{
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use arrow::{array::RecordBatch, datatypes::SchemaRef};
use arrow_flight::FlightData;
use forebay_proto::v1::BatchHeader;
use futures::{Stream, StreamExt, stream::BoxStream};
use tonic::Status;
use xxhash_rust::xxh3::xxh3_64;

use crate::{Error, HeaderError, Result, decode::Decoder};

/// One step of one rank.
#[derive(Clone, Debug)]
pub struct Batch {
    /// Position in the epoch, and row counts.
    pub header: BatchHeader,
    /// Rows.
    pub data: RecordBatch,
    /// Bytes of the received Arrow body.
    pub body_bytes: u64,
}

/// Batches of one endpoint, in order. The stream ends after an error.
pub struct BatchStream {
    messages: BoxStream<'static, std::result::Result<FlightData, Status>>,
    decoder: Decoder,
    checksums: bool,
    sequence: Sequence,
    url: Arc<str>,
    ended: bool,
}

/// Checks that a batch continues the preceding ones.
#[derive(Debug, Default)]
struct Sequence {
    /// A rank without rows may end without a batch.
    may_be_empty: bool,
    batches: u64,
    previous: Option<BatchHeader>,
}

// === impl BatchStream ===

impl BatchStream {
    pub(crate) fn new<S>(messages: S, url: &Arc<str>, may_be_empty: bool, checksums: bool) -> Self
    where
        S: Stream<Item = std::result::Result<FlightData, Status>> + Send + 'static,
    {
        Self {
            messages: messages.boxed(),
            decoder: Decoder::default(),
            checksums,
            sequence: Sequence { may_be_empty, ..Sequence::default() },
            url: Arc::clone(url),
            ended: false,
        }
    }

    /// Returns the schema once the first message has arrived.
    pub fn schema(&self) -> Option<&SchemaRef> {
        self.decoder.schema()
    }

    /// Returns the batch of a message that has one.
    fn batch_of(&mut self, message: &FlightData) -> Result<Option<Batch>> {
        let header = header(message)?;
        if let (true, Some(header)) = (self.checksums, &header) {
            check_body(message, header)?;
        }
        let data = self.decoder.decode(message).map_err(|error| Error::Data(Box::new(error)))?;
        data.map(|data| self.sequence.accept(header, data, message.data_body.len())).transpose()
    }
}

impl fmt::Debug for BatchStream {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("BatchStream").field("sequence", &self.sequence).finish_non_exhaustive()
    }
}

impl Stream for BatchStream {
    type Item = Result<Batch>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        while !self.ended {
            let outcome = match ready!(self.messages.poll_next_unpin(context)) {
                None => {
                    self.ended = true;
                    return Poll::Ready(self.sequence.end().err().map(Err));
                }
                Some(Err(status)) => Err(Error::from_status(status, &self.url)),
                Some(Ok(message)) => match self.batch_of(&message).transpose() {
                    None => continue,
                    Some(outcome) => outcome,
                },
            };
            self.ended = outcome.is_err();
            return Poll::Ready(Some(outcome));
        }
        Poll::Ready(None)
    }
}

// === impl Sequence ===

impl Sequence {
    /// Checks a batch against its header, and the header against the preceding one.
    fn accept(&mut self, header: Option<BatchHeader>, data: RecordBatch, body_bytes: usize) -> Result<Batch> {
        let header = header.ok_or_else(|| wrong(self.next_step(), HeaderError::Missing))?;
        if let Some(previous) = &self.previous {
            if previous.last {
                return Err(wrong(header.step, HeaderError::AfterLast));
            }
            if header.epoch != previous.epoch {
                let reason = HeaderError::Epoch { expected: previous.epoch, found: header.epoch };
                return Err(wrong(header.step, reason));
            }
            if header.step != self.next_step() {
                return Err(wrong(header.step, HeaderError::Step { expected: self.next_step() }));
            }
        }
        let rows = data.num_rows() as u64;
        if header.rows != rows {
            return Err(wrong(header.step, HeaderError::Rows { header: header.rows, batch: rows }));
        }
        if header.padding_rows > rows {
            return Err(wrong(header.step, HeaderError::Padding { padding_rows: header.padding_rows, rows }));
        }
        self.batches += 1;
        self.previous = Some(header);
        Ok(Batch { header, data, body_bytes: body_bytes as u64 })
    }

    fn end(&self) -> Result<()> {
        match &self.previous {
            Some(header) if header.last => Ok(()),
            None if self.may_be_empty => Ok(()),
            _ => Err(Error::Truncated { batches: self.batches, next_step: self.next_step() }),
        }
    }

    fn next_step(&self) -> u64 {
        self.previous.as_ref().map_or(0, |header| header.step.saturating_add(1))
    }
}

/// Checks a message's body against the checksum in its header.
fn check_body(message: &FlightData, header: &BatchHeader) -> Result<()> {
    match xxh3_64(&message.data_body) {
        found if found == header.checksum => Ok(()),
        found => Err(wrong(header.step, HeaderError::Checksum { expected: header.checksum, found })),
    }
}

/// Returns the header of a message; schemas and dictionaries have none.
fn header(message: &FlightData) -> Result<Option<BatchHeader>> {
    if message.app_metadata.is_empty() {
        return Ok(None);
    }
    let (header, _) = forebay_proto::decode(&message.app_metadata)
        .map_err(|source| Error::Message { what: "batch header", source })?;
    Ok(Some(header))
}

fn wrong(step: u64, reason: HeaderError) -> Error {
    Error::Header { step, reason }
}

#[cfg(test)]
mod tests;
