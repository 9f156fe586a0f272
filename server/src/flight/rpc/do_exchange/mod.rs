//! `DoExchange`: raw batches in, the plan's outputs out, a batch for a batch.
//!
//! Nothing runs ahead: the next message is taken from the client when the one before has been answered and the answer
//! is on its way. So a client that does not read stops its own exchange and holds one batch's memory, and an idle
//! exchange holds none.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::Instant,
};

use arrow::datatypes::SchemaRef;
use arrow_flight::{FlightData, FlightDescriptor, flight_descriptor::DescriptorType};
use bytes::Bytes;
use forebay_proto::{Encoding, v1};
use futures::Stream;
use tonic::{Code, Status, Streaming};

use crate::{
    auth::{Caller, StreamPermit},
    budget::Reservation,
    flight::{
        limits,
        service::Service,
        status,
        wire::{
            Encoder,
            decode::{Decoder, Message, Refused, read_schema},
        },
    },
    metrics::{self, ExchangeGuard, Stage, StageTimes, StreamStatus},
    shutdown::Phase,
    stream::{Exchange, StreamError},
};

/// An exchange until its end.
struct Exchanging {
    incoming: Streaming<FlightData>,
    service: Service,
    caller: Caller,
    _place: StreamPermit,
    /// What is asked for, once it is known.
    descriptor: Option<FlightDescriptor>,
    /// What computes, once the schema has come; away while a job has it.
    worker: Option<Worker>,
    ready: VecDeque<FlightData>,
    /// Memory of the batch that is on its way out.
    held: Option<Reservation>,
    guard: ExchangeGuard,
    log: EndLog,
    ended: bool,
}

/// Decodes, computes and encodes; on the CPU pool while it does.
struct Worker {
    exchange: Arc<Exchange>,
    decoder: Decoder,
    encoder: Encoder,
    /// Memory of the dictionaries, by id: a delta adds to what is there.
    dictionaries: HashMap<i64, Vec<Reservation>>,
}

/// What has become of a message.
enum Done {
    /// It has no answer.
    Nothing,
    /// The messages of its outputs, and the memory that they hold.
    Outputs { rows: u64, messages: Vec<FlightData>, held: Reservation },
}

/// One line when an exchange ends, whatever ends it.
struct EndLog {
    plan: String,
    started: Instant,
    batches: u64,
    rows: u64,
    outcome: &'static str,
}

/// The answers to a client's messages.
pub(crate) fn answers(
    incoming: Streaming<FlightData>,
    service: &Service,
    caller: Caller,
    place: StreamPermit,
) -> impl Stream<Item = Result<FlightData, Status>> + Send + use<> {
    let log = EndLog { plan: String::new(), started: Instant::now(), batches: 0, rows: 0, outcome: "cancelled" };
    let exchanging = Exchanging {
        incoming,
        service: service.clone(),
        caller,
        _place: place,
        descriptor: None,
        worker: None,
        ready: VecDeque::new(),
        held: None,
        guard: ExchangeGuard::open(),
        log,
        ended: false,
    };
    futures::stream::unfold(exchanging, async |mut exchanging| {
        let item = exchanging.next().await?;
        Some((item, exchanging))
    })
}

// === impl Exchanging ===

impl Exchanging {
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
                // An exchange has no end of its own, and nothing of it is lost: the client asks another replica.
                () = self.service.shutdown().reached(Phase::Draining) => {
                    self.end(StreamStatus::Failed, "cut by shutdown");
                    return Some(Err(Status::unavailable(
                        "the server is shutting down: exchange with another replica, or here after its restart",
                    )));
                }
                received = self.incoming.message() => received,
            };
            let answered = match received {
                Ok(Some(data)) => self.answer(data).await,
                Ok(None) => {
                    self.end(StreamStatus::Complete, "complete");
                    return None;
                }
                Err(status) => Err(self.unreadable(status)),
            };
            if let Err(status) = answered {
                self.end(StreamStatus::Failed, "failed");
                return Some(Err(status));
            }
        }
    }

    /// Makes ready what answers a message.
    async fn answer(&mut self, mut data: FlightData) -> Result<(), Status> {
        if let Some(descriptor) = data.flight_descriptor.take() {
            self.descriptor.get_or_insert(descriptor);
        }
        let Some(worker) = self.worker.take() else { return self.begin(data).await };
        let start = Instant::now();
        let batch = self.log.batches;
        let job = self.service.cpu().run(move || {
            let mut worker = worker;
            let done = worker.answer(&data);
            (worker, done)
        });
        let (worker, done) = job.await.map_err(|error| status::of(&error.into()))?;
        self.worker = Some(worker);
        match done {
            Ok(Done::Nothing) => {}
            Ok(Done::Outputs { rows, messages, held }) => {
                metrics::exchanged(rows, start.elapsed());
                self.log.batches += 1;
                self.log.rows += rows;
                self.held = Some(held);
                self.ready = messages.into();
            }
            Err(error) => {
                let status = error.status();
                return Err(Status::new(status.code(), format!("batch {batch}: {}", status.message())));
            }
        }
        Ok(())
    }

    /// Compiles the plan once the client has said which, and what its batches are.
    async fn begin(&mut self, data: FlightData) -> Result<(), Status> {
        let Some(descriptor) = &self.descriptor else {
            return Err(Status::invalid_argument(
                "the first message of an exchange names it: a FlightDescriptor whose command is an ExchangeRequest",
            ));
        };
        if data.data_header.is_empty() {
            return Ok(());
        }
        if descriptor.r#type() != DescriptorType::Cmd {
            return Err(Status::invalid_argument("descriptor: a command, an ExchangeRequest, names an exchange"));
        }
        let command = descriptor.cmd.clone();
        limits::check_bytes(self.service.limits(), command.len())?;
        let read = self.service.cpu().run(move || {
            let (request, _) =
                forebay_proto::decode::<v1::ExchangeRequest>(&command).map_err(|error| status::of_bytes(&error))?;
            let schema = read_schema(&data.data_header).map_err(|refused| Failed::from(refused).status())?;
            Ok::<_, Status>((request, SchemaRef::new(schema)))
        });
        let (request, schema) = read.await.map_err(|error| status::of(&error.into()))??;
        self.service.check(&self.caller, "", request.plan.as_ref(), &request.plan_id).await?;
        let exchange = self.service.streams().exchange(request, SchemaRef::clone(&schema)).await;
        let exchange = exchange.map_err(|error| status::of(&error))?;
        exchange.plan_id().clone_into(&mut self.log.plan);
        tracing::info!(plan = self.log.plan, "exchange opened");
        let schema_out = exchange.schema();
        let encoder =
            Encoder::new(&schema_out, Encoding::Json).map_err(|error| status::of(&StreamError::from(error)))?;
        self.ready.push_back(Encoder::schema(&schema_out).into());
        let decoder = Decoder::new(schema, exchange.columns().to_vec());
        self.worker = Some(Worker { exchange, decoder, encoder, dictionaries: HashMap::new() });
        Ok(())
    }

    /// The status of a message that did not arrive.
    fn unreadable(&self, status: Status) -> Status {
        match status.code() {
            // tonic's word for a message that is too long.
            Code::OutOfRange => Status::resource_exhausted(format!(
                "batch {}: a message of more than {} bytes is not taken (--message-bytes-max): send smaller batches",
                self.log.batches,
                self.service.limits().message_bytes_max
            )),
            // Its word for bytes that are no message, or half of one: the client's mistake, and no bug of ours.
            Code::Internal => status::of_words(
                Code::InvalidArgument,
                &format!("batch {}: what came is no FlightData: {}", self.log.batches, status.message()),
            ),
            _ => status,
        }
    }

    fn end(&mut self, status: StreamStatus, outcome: &'static str) {
        self.ended = true;
        self.worker = None;
        self.guard.end(status);
        self.log.outcome = outcome;
    }
}

// === impl Worker ===

impl Worker {
    fn answer(&mut self, data: &FlightData) -> Result<Done, Failed> {
        match self.decoder.look(data, self.exchange.batch_bytes_max())? {
            Message::Empty => Ok(Done::Nothing),
            Message::Dictionary { id, bytes, is_delta } => {
                let held = self.exchange.reserve_dictionary(bytes)?;
                self.decoder.dictionary(data)?;
                let reservations = self.dictionaries.entry(id).or_default();
                if !is_delta {
                    reservations.clear();
                }
                reservations.push(held);
                Ok(Done::Nothing)
            }
            Message::Batch { rows, bytes } => {
                let held = self.exchange.reserve(rows, bytes)?;
                let mut times = StageTimes::default();
                let start = Instant::now();
                let batch = self.decoder.batch(data)?;
                times.add_since(Stage::Decode, start);
                let outputs = self.exchange.compute(&batch, &mut times)?;
                times.record();
                let rows = outputs.num_rows() as u64;
                let metadata = Bytes::clone(&data.app_metadata);
                let messages = self.encoder.exchanged(&outputs, metadata).map_err(StreamError::from)?;
                let messages = messages.into_iter().map(FlightData::from).collect();
                Ok(Done::Outputs { rows, messages, held })
            }
        }
    }
}

/// Why a message has no answer.
#[derive(Debug)]
enum Failed {
    Refused(Refused),
    Stream(StreamError),
}

impl From<Refused> for Failed {
    fn from(refused: Refused) -> Self {
        Self::Refused(refused)
    }
}

impl From<StreamError> for Failed {
    fn from(error: StreamError) -> Self {
        Self::Stream(error)
    }
}

impl Failed {
    fn status(&self) -> Status {
        match self {
            Self::Refused(refused @ Refused::Malformed(_)) => {
                status::of_words(Code::InvalidArgument, &refused.to_string())
            }
            Self::Refused(refused @ Refused::Large(_)) => {
                status::of_words(Code::ResourceExhausted, &refused.to_string())
            }
            Self::Stream(error) => status::of(error),
        }
    }
}

impl Drop for EndLog {
    fn drop(&mut self) {
        tracing::info!(
            plan = self.plan,
            batches = self.batches,
            rows = self.rows,
            seconds = self.started.elapsed().as_secs_f64(),
            outcome = self.outcome,
            "exchange ended"
        );
    }
}
