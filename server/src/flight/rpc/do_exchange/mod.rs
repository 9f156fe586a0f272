//! `DoExchange`: raw batches in, the plan's outputs out, one batch for each.
//!
//! The next message is read from the client when the outputs of the previous one have been sent. So a client that does
//! not read stalls only its own exchange and holds the memory of one batch, and an idle exchange holds none.

mod worker;

use std::{
    collections::{HashMap, VecDeque},
    time::Instant,
};

use arrow::datatypes::SchemaRef;
use arrow_flight::{FlightData, FlightDescriptor, flight_descriptor::DescriptorType};
use forebay_proto::{
    Encoding,
    v1::{self, Reason},
};
use forebay_runtime::{
    budget::Reservation,
    metrics::{self, ExchangeGuard, StreamStatus},
    shutdown::Phase,
};
use forebay_stream::StreamError;
use futures::Stream;
use tonic::{Code, Status, Streaming};

use worker::{Derived, Processed, Worker, WorkerError};

use crate::{
    auth::StreamPermit,
    flight::{
        context::CallContext,
        status,
        wire::{
            Encoder,
            decode::{Decoder, read_schema},
        },
    },
};

/// An open exchange.
struct ExchangeSession {
    incoming: Streaming<FlightData>,
    context: CallContext,
    _permit: StreamPermit,
    /// The request, once it has arrived.
    descriptor: Option<FlightDescriptor>,
    /// None before the schema has arrived, and while a job of the CPU pool uses it.
    worker: Option<Worker>,
    ready: VecDeque<FlightData>,
    /// Memory of the batch that is being sent.
    held: Option<Reservation>,
    guard: ExchangeGuard,
    batches: u64,
    rows: u64,
    ended: bool,
}

/// The outputs for a client's messages.
pub(crate) fn outputs(
    context: CallContext,
    incoming: Streaming<FlightData>,
) -> Result<impl Stream<Item = Result<FlightData, Status>> + Send, Status> {
    let permit = context.access().stream(&context.caller)?;
    let session = ExchangeSession {
        incoming,
        context,
        _permit: permit,
        descriptor: None,
        worker: None,
        ready: VecDeque::new(),
        held: None,
        guard: ExchangeGuard::open(),
        batches: 0,
        rows: 0,
        ended: false,
    };
    Ok(futures::stream::unfold(session, async |mut session| {
        let item = session.next().await?;
        Some((item, session))
    }))
}

impl ExchangeSession {
    async fn next(&mut self) -> Option<Result<FlightData, Status>> {
        loop {
            if let Some(message) = self.ready.pop_front() {
                return Some(Ok(message));
            }
            self.held = None;
            if self.ended {
                return None;
            }
            let received = tokio::select! {
                biased;
                // An exchange may have no end, and loses nothing: the client sends the batch to another replica.
                () = self.context.resources.shutdown.reached(Phase::Draining) => {
                    self.end(StreamStatus::Failed);
                    return Some(Err(status::refusal(
                        Reason::ShuttingDown,
                        "the server is shutting down: exchange with another replica, or here after its restart",
                    )));
                }
                received = self.incoming.message() => received,
            };
            let processed = match received {
                Ok(Some(data)) => self.process(data).await,
                Ok(None) => {
                    self.end(StreamStatus::Complete);
                    return None;
                }
                Err(status) => Err(self.receive_error(&status)),
            };
            if let Err(status) = processed {
                self.end(StreamStatus::Failed);
                return Some(Err(status));
            }
        }
    }

    /// Processes a message; its outputs become ready.
    async fn process(&mut self, mut data: FlightData) -> Result<(), Status> {
        if let Some(descriptor) = data.flight_descriptor.take() {
            self.descriptor.get_or_insert(descriptor);
        }
        let Some(worker) = self.worker.take() else { return self.begin(data).await };
        let start = Instant::now();
        let batch = self.batches;
        let job = self.context.cpu().run(move || {
            let mut worker = worker;
            let processed = worker.process(&data);
            (worker, processed)
        });
        let (worker, processed) = job.await.map_err(|error| status::of(&error.into()))?;
        let (worker, processed) = match processed {
            Ok(Processed::Derived(derived)) => self.complete(worker, derived).await?,
            other => (worker, other),
        };
        self.worker = Some(worker);
        match processed {
            // Only `Worker::process` returns rows that wait.
            Ok(Processed::Nothing | Processed::Derived(_)) => {}
            Ok(Processed::Outputs { rows, messages, held }) => {
                metrics::exchanged(rows, start.elapsed());
                self.batches += 1;
                self.rows += rows;
                self.context.call.note(|facts| (facts.batches, facts.rows) = (Some(self.batches), Some(self.rows)));
                self.held = Some(held);
                self.ready = messages.into();
            }
            Err(error) => {
                return Err(status::reworded(&error.status(), |text| format!("batch {batch}: {text}")));
            }
        }
        Ok(())
    }

    /// Waits for the functions of the plan, and computes the outputs.
    async fn complete(
        &self,
        mut worker: Worker,
        mut derived: Derived,
    ) -> Result<(Worker, Result<Processed, WorkerError>), Status> {
        match worker.exchange.complete(derived.rows, &mut derived.times).await {
            Ok(rows) => derived.rows = rows,
            Err(error) => return Ok((worker, Err(error.into()))),
        }
        let job = self.context.cpu().run(move || {
            let finished = worker.finish(derived);
            (worker, finished)
        });
        job.await.map_err(|error| status::of(&error.into()))
    }

    /// Compiles the plan against the schema, once both have arrived.
    async fn begin(&mut self, data: FlightData) -> Result<(), Status> {
        let Some(descriptor) = &self.descriptor else {
            return Err(status::refusal(
                Reason::InvalidRequest,
                "the first message of an exchange needs a FlightDescriptor whose command is an ExchangeRequest",
            ));
        };
        if data.data_header.is_empty() {
            return Ok(());
        }
        if descriptor.r#type() != DescriptorType::Cmd {
            return Err(status::refusal(Reason::InvalidRequest, "descriptor: expected a command, an ExchangeRequest"));
        }
        let command = descriptor.cmd.clone();
        self.context.check_decoded::<v1::ExchangeRequest>(&command)?;
        let read = self.context.cpu().run(move || {
            let (request, _) =
                forebay_proto::decode::<v1::ExchangeRequest>(&command).map_err(|error| status::of_bytes(&error))?;
            let schema = read_schema(&data.data_header).map_err(|error| WorkerError::from(error).status())?;
            Ok::<_, Status>((request, SchemaRef::new(schema)))
        });
        let (request, schema) = read.await.map_err(|error| status::of(&error.into()))??;
        self.context.call.note(|facts| facts.set_plan_id(&request.plan_id));
        self.context.authorize("", request.plan.as_ref(), &request.plan_id).await?;
        let exchange = self.context.streams().exchange(request, SchemaRef::clone(&schema)).await;
        let exchange = exchange.map_err(|error| status::of(&error))?;
        self.context.call.note(|facts| facts.set_plan_id(exchange.plan_id()));
        let schema_out = exchange.schema();
        let encoder =
            Encoder::new(&schema_out, Encoding::Json).map_err(|error| status::of(&StreamError::from(error)))?;
        self.ready.push_back(Encoder::schema(&schema_out).into());
        let decoder = Decoder::new(schema, exchange.columns().to_vec());
        self.worker = Some(Worker { exchange, decoder, encoder, dictionaries: HashMap::new() });
        Ok(())
    }

    /// The status of a message that could not be received.
    fn receive_error(&self, status: &Status) -> Status {
        match status.code() {
            // tonic's code for a message that is too long.
            Code::OutOfRange => status::refusal(
                Reason::Limit,
                &format!(
                    "batch {}: the message exceeds {} bytes (--message-bytes-max): send smaller batches",
                    self.batches, self.context.resources.message_limits.bytes_max
                ),
            ),
            // tonic's code for malformed or incomplete messages, which are the client's fault.
            Code::Internal => status::refusal(
                Reason::InvalidRequest,
                &format!("batch {}: malformed message, expected FlightData: {}", self.batches, status.message()),
            ),
            _ => status::reworded(status, str::to_owned),
        }
    }

    fn end(&mut self, status: StreamStatus) {
        self.ended = true;
        self.worker = None;
        self.guard.end(status);
    }
}
