//! The Flight service: one method a call, each readable in one sitting.

use std::{pin::Pin, sync::Arc};

use arrow::datatypes::SchemaRef;
use arrow_flight::{
    Action, ActionType, Criteria, Empty, FlightData, FlightDescriptor, FlightEndpoint, FlightInfo, HandshakeRequest,
    HandshakeResponse, IpcMessage, PollInfo, PutResult, SchemaAsIpc, SchemaResult, Ticket,
    flight_service_server::FlightService,
};
use bytes::Bytes;
use forebay_proto::{Encoding, v1};
use futures::{Stream, StreamExt};
use tonic::{Request, Response, Status, Streaming};

use super::{
    access::Access,
    call::Call,
    descriptor::Command,
    limits,
    rpc::{
        do_action, do_exchange,
        do_get::{self, Headers, Opened},
    },
    status, ticket,
    wire::Message,
};
use crate::{
    auth::{Caller, StreamPermit},
    catalog::{CatalogError, Dataset, Snapshot},
    cpu_pool::CpuPool,
    metrics::StreamLabels,
    order::ORDER_VERSION,
    plan::{self, PlanError, RequestLimits},
    shutdown::{Phase, ShutdownWatch},
    stream::{Prepared, StreamError, Streams},
};

/// The Flight calls over the server's streams. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Service {
    streams: Arc<Streams>,
    cpu: CpuPool,
    shutdown: ShutdownWatch,
    /// URLs of every replica, named in the endpoints; none: this server alone.
    replicas: Arc<Vec<String>>,
    access: Access,
    limits: RequestLimits,
}

type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

impl Service {
    /// A service over these, for everybody.
    pub fn new(streams: Arc<Streams>, cpu: CpuPool, shutdown: ShutdownWatch, replicas: Vec<String>) -> Self {
        let (access, limits) = (Access::default(), RequestLimits::default());
        Self { streams, cpu, shutdown, replicas: Arc::new(replicas), access, limits }
    }

    /// The same for those whom the rules let in, within the limits.
    #[must_use]
    pub fn with_rules(self, access: Access, limits: RequestLimits) -> Self {
        Self { access, limits, ..self }
    }

    pub(super) fn access(&self) -> &Access {
        &self.access
    }

    pub(super) fn limits(&self) -> &RequestLimits {
        &self.limits
    }

    pub(super) fn cpu(&self) -> &CpuPool {
        &self.cpu
    }

    pub(super) fn streams(&self) -> &Arc<Streams> {
        &self.streams
    }

    /// Reads a message in either encoding. One that may hold a vocabulary is work for the CPU pool.
    pub(super) async fn decode<M: forebay_proto::Message + 'static>(
        &self,
        bytes: &Bytes,
    ) -> Result<(M, Encoding), Status> {
        const SHORT_BYTES: usize = 16 << 10;
        limits::check_bytes(&self.limits, bytes.len())?;
        let decoded = if bytes.len() <= SHORT_BYTES {
            forebay_proto::decode(bytes)
        } else {
            let bytes = bytes.clone();
            let decoded = self.cpu.run_short(move || forebay_proto::decode(&bytes)).await;
            decoded.map_err(|error| status::of(&error.into()))?
        };
        decoded.map_err(|error| status::of_bytes(&error))
    }

    pub(super) fn shutdown(&self) -> &ShutdownWatch {
        &self.shutdown
    }

    /// New work is refused once the server is on its way out.
    fn refuse_while_draining(&self) -> Result<(), Status> {
        match self.shutdown.phase() {
            Phase::Serving => Ok(()),
            Phase::Draining | Phase::Ended | Phase::Closed => Err(Status::unavailable(
                "the server is shutting down and takes no new streams: try another replica, or again",
            )),
        }
    }

    /// Whether a caller may have this computed: its sources are granted, and its plan is within the limits.
    pub(super) async fn check(
        &self,
        caller: &Caller,
        dataset: &str,
        plan: Option<&v1::Plan>,
        plan_id: &str,
    ) -> Result<(), Status> {
        Access::sources(caller, &self.streams, dataset, plan, plan_id).await?;
        plan.map_or(Ok(()), |plan| limits::check_plan(&self.limits, plan))
    }

    async fn prepare(&self, caller: &Caller, message: &v1::StreamRequest) -> Result<Prepared, Status> {
        self.check(caller, &message.dataset, message.plan.as_ref(), &message.plan_id).await?;
        let request = plan::Request::check(message).map_err(|error| status::of(&error.into()))?;
        self.streams.prepare(request).await.map_err(|error| status::of(&error))
    }

    async fn present(&self, caller: &Caller, name: &str) -> Result<Arc<Snapshot>, Status> {
        Access::dataset(caller, &self.streams, name)?;
        let dataset = self.streams.catalog().dataset(name).map_err(|error| status::of(&error.into()))?;
        dataset.present().await.map_err(|error| status::of(&error.into()))
    }

    async fn table_messages(
        &self,
        read: v1::TableRead,
        place: StreamPermit,
        call: &Call,
    ) -> Result<Answers<Message>, StreamError> {
        let dataset = self.streams.catalog().dataset(&read.dataset)?;
        let snapshot = match read.snapshot.as_str() {
            "" => dataset.present().await?,
            digest => dataset.pinned(digest).await?,
        };
        let labels =
            StreamLabels { stream: call.id.to_string(), dataset: read.dataset.clone(), ..StreamLabels::default() };
        let schema = SchemaRef::clone(snapshot.schema());
        let batches = self.streams.table(snapshot)?;
        let headers = Headers { encoding: Encoding::Json, with_stage_seconds: false };
        let opened = Opened { call: call.clone(), labels, headers, resume: None, place };
        let messages = do_get::messages(opened, &schema, batches, &self.cpu, &self.shutdown)?;
        Ok(messages.boxed())
    }

    async fn stream_messages(
        &self,
        read: v1::StreamRead,
        place: StreamPermit,
        call: &Call,
    ) -> Result<Answers<Message>, StreamError> {
        let message = read.request.ok_or_else(|| PlanError::field("stream.request", "missing: a StreamRequest"))?;
        let prepared = self.streams.prepare(plan::Request::check(&message)?).await?;
        let request = prepared.request();
        let encoding = match v1::Encoding::try_from(read.encoding) {
            Ok(v1::Encoding::Protobuf) => Encoding::Protobuf,
            _ => Encoding::Json,
        };
        let headers = Headers { encoding, with_stage_seconds: request.with_stage_seconds };
        let labels = StreamLabels {
            stream: call.id.to_string(),
            dataset: request.dataset.clone(),
            epoch: request.epoch.to_string(),
            rank: read.rank.to_string(),
        };
        let steps = Some(read.steps).filter(|steps| *steps > 0);
        let batches = self.streams.batches(&prepared, read.rank, steps).await?;
        let resume = do_get::Resume {
            position: request.start_position,
            step_rows: request.step_rows(),
            resumed_from: request.resumed_from,
        };
        let schema = prepared.schema();
        let opened = Opened { call: call.clone(), labels, headers, resume: Some(resume), place };
        let messages = do_get::messages(opened, &schema, batches, &self.cpu, &self.shutdown)?;
        Ok(messages.boxed())
    }

    /// The messages that a ticket stands for.
    pub(super) async fn messages(
        &self,
        ticket: &Ticket,
        caller: &Caller,
        call: &Call,
    ) -> Result<Answers<Message>, Status> {
        self.refuse_while_draining()?;
        // Before anything is looked at: whoever is refused costs next to nothing.
        let place = self.access.stream(caller)?;
        let messages = match ticket::read(&self.access.unsigned(ticket, caller)?)? {
            v1::ticket::Read::Table(read) => {
                Access::dataset(caller, &self.streams, &read.dataset)?;
                self.table_messages(read, place, call).await
            }
            v1::ticket::Read::Stream(read) => {
                if let Some(request) = &read.request {
                    self.check(caller, &request.dataset, request.plan.as_ref(), &request.plan_id).await?;
                }
                self.stream_messages(read, place, call).await
            }
        };
        messages.map_err(|error| status::of(&error))
    }
}

#[tonic::async_trait]
impl FlightService for Service {
    type HandshakeStream = Answers<HandshakeResponse>;
    type ListFlightsStream = Answers<FlightInfo>;
    type DoGetStream = Answers<FlightData>;
    type DoPutStream = Answers<PutResult>;
    type DoActionStream = Answers<arrow_flight::Result>;
    type ListActionsStream = Answers<ActionType>;
    type DoExchangeStream = Answers<FlightData>;

    async fn list_flights(&self, request: Request<Criteria>) -> Result<Response<Self::ListFlightsStream>, Status> {
        let caller = self.access.known(&request)?;
        let granted = self.streams.catalog().datasets().filter(|dataset| caller.may_read(dataset.name()));
        let datasets: Vec<Arc<Dataset>> = granted.cloned().collect();
        let access = self.access.clone();
        let infos = futures::stream::iter(datasets).then(move |dataset| {
            let (access, caller) = (access.clone(), caller.clone());
            async move {
                match dataset.present().await {
                    Ok(snapshot) => table_info(&snapshot, |ticket| access.sign(ticket, &caller)),
                    Err(error) => unreadable_info(&dataset, &error),
                }
            }
        });
        Ok(Response::new(infos.boxed()))
    }

    async fn get_flight_info(&self, request: Request<FlightDescriptor>) -> Result<Response<FlightInfo>, Status> {
        let caller = self.access.known(&request)?;
        let descriptor = request.into_inner();
        let sign = |ticket| self.access.sign(ticket, &caller);
        let info = match Command::read(self, &descriptor).await? {
            Command::Table(name) => table_info(&*self.present(&caller, &name).await?, sign)?,
            Command::Stream(message, encoding) => {
                let prepared = self.prepare(&caller, &message).await?;
                stream_info(*message, &prepared, encoding, &self.replicas, sign)?.with_descriptor(descriptor)
            }
        };
        Ok(Response::new(info))
    }

    async fn get_schema(&self, request: Request<FlightDescriptor>) -> Result<Response<SchemaResult>, Status> {
        let caller = self.access.known(&request)?;
        let schema = match Command::read(self, request.get_ref()).await? {
            Command::Table(name) => SchemaRef::clone(self.present(&caller, &name).await?.schema()),
            Command::Stream(message, _) => self.prepare(&caller, &message).await?.schema(),
        };
        let options = arrow::ipc::writer::IpcWriteOptions::default();
        let IpcMessage(bytes) = SchemaAsIpc::new(&schema, &options).try_into().map_err(|error| arrow_status(&error))?;
        Ok(Response::new(SchemaResult { schema: bytes }))
    }

    /// `calls` answers this call without the copies that are made here.
    async fn do_get(&self, request: Request<Ticket>) -> Result<Response<Self::DoGetStream>, Status> {
        let caller = self.access.known(&request)?;
        let messages = self.messages(request.get_ref(), &caller, &Call::new("DoGet", None)).await?;
        Ok(Response::new(messages.map(|message| message.map(FlightData::from)).boxed()))
    }

    async fn do_action(&self, request: Request<Action>) -> Result<Response<Self::DoActionStream>, Status> {
        self.refuse_while_draining()?;
        let caller = self.access.known(&request)?;
        Ok(Response::new(do_action::run(self, &caller, request.get_ref()).await?))
    }

    async fn list_actions(&self, _request: Request<Empty>) -> Result<Response<Self::ListActionsStream>, Status> {
        Ok(Response::new(futures::stream::iter(do_action::types().into_iter().map(Ok)).boxed()))
    }

    async fn poll_flight_info(&self, _request: Request<FlightDescriptor>) -> Result<Response<PollInfo>, Status> {
        Err(Status::unimplemented("PollFlightInfo: flights are ready at once, ask GetFlightInfo"))
    }

    async fn handshake(
        &self,
        _request: Request<Streaming<HandshakeRequest>>,
    ) -> Result<Response<Self::HandshakeStream>, Status> {
        Err(Status::unimplemented(
            "Handshake: credentials go with every call, as the header \"authorization: Bearer TOKEN\"; call it directly",
        ))
    }

    async fn do_put(&self, _request: Request<Streaming<FlightData>>) -> Result<Response<Self::DoPutStream>, Status> {
        Err(Status::unimplemented("DoPut: datasets are read from storage and never written; put Parquet files there"))
    }

    async fn do_exchange(
        &self,
        request: Request<Streaming<FlightData>>,
    ) -> Result<Response<Self::DoExchangeStream>, Status> {
        self.refuse_while_draining()?;
        let caller = self.access.known(&request)?;
        let place = self.access.stream(&caller)?;
        let answers = do_exchange::answers(request.into_inner(), self, caller, place);
        Ok(Response::new(answers.boxed()))
    }
}

/// The raw table of a snapshot: one endpoint, every column as stored.
fn table_info(snapshot: &Snapshot, sign: impl Fn(Ticket) -> Ticket) -> Result<FlightInfo, Status> {
    let about = v1::DatasetInfo {
        name: snapshot.dataset().to_owned(),
        snapshot: snapshot.digest().to_owned(),
        files: snapshot.files().len() as u64,
        row_groups: snapshot.row_groups().len() as u64,
        rows: snapshot.row_count(),
        bytes: snapshot.byte_count(),
        error: String::new(),
    };
    let endpoint = FlightEndpoint::new().with_ticket(sign(ticket::table(snapshot.dataset(), snapshot.digest())));
    let info = FlightInfo::new()
        .try_with_schema(snapshot.schema())
        .map_err(|error| arrow_status(&error))?
        .with_descriptor(FlightDescriptor::new_path(vec![snapshot.dataset().to_owned()]))
        .with_endpoint(endpoint)
        .with_total_records(signed(snapshot.row_count()))
        .with_total_bytes(signed(snapshot.byte_count()))
        .with_ordered(true)
        .with_app_metadata(forebay_proto::to_json(&about));
    Ok(info)
}

/// A dataset that cannot be read is listed with its error, and hides no other.
fn unreadable_info(dataset: &Dataset, error: &CatalogError) -> Result<FlightInfo, Status> {
    let about =
        v1::DatasetInfo { name: dataset.name().to_owned(), error: error.to_string(), ..v1::DatasetInfo::default() };
    let info = FlightInfo::new()
        .try_with_schema(&arrow::datatypes::Schema::empty())
        .map_err(|error| arrow_status(&error))?
        .with_descriptor(FlightDescriptor::new_path(vec![dataset.name().to_owned()]))
        .with_total_records(-1)
        .with_total_bytes(-1)
        .with_app_metadata(forebay_proto::to_json(&about));
    Ok(info)
}

/// An epoch under a plan: one endpoint a rank, in rank order.
fn stream_info(
    message: v1::StreamRequest,
    prepared: &Prepared,
    encoding: Encoding,
    replicas: &[String],
    sign: impl Fn(Ticket) -> Ticket,
) -> Result<FlightInfo, Status> {
    let epoch = prepared.epoch();
    let rows = epoch.sent_row_count();
    let about = v1::StreamInfo {
        snapshot: prepared.snapshot_digest().to_owned(),
        plan_id: prepared.plan_id().to_owned(),
        rows,
        steps: epoch.step_count_max(),
        lanes: epoch.shuffle().map_or(0, |shuffle| shuffle.lanes),
        window_rows: epoch.shuffle().map_or(0, |shuffle| shuffle.window_rows),
        order_version: ORDER_VERSION,
    };
    let bytes = prepared.row_bytes().map_or(-1, |row_bytes| signed(rows.saturating_mul(row_bytes as u64)));
    let mut info = FlightInfo::new()
        .try_with_schema(&prepared.schema())
        .map_err(|error| arrow_status(&error))?
        .with_total_records(signed(rows))
        .with_total_bytes(bytes)
        .with_app_metadata(forebay_proto::encode(&about, encoding));
    let request = prepared.ticket_request(message);
    for rank in 0..prepared.request().world_size {
        let share = epoch.share(rank);
        let about = v1::RankInfo { rank, rows: share.row_count(), steps: share.step_count };
        let endpoint = FlightEndpoint::new()
            .with_ticket(sign(ticket::stream(&request, rank, 0, encoding)))
            .with_app_metadata(forebay_proto::encode(&about, encoding));
        let endpoint = replicas.iter().fold(endpoint, |endpoint, url| endpoint.with_location(url.as_str()));
        info = info.with_endpoint(endpoint);
    }
    Ok(info)
}

fn arrow_status(error: &arrow::error::ArrowError) -> Status {
    Status::internal(format!("arrow: {error}"))
}

/// Flight's own counts are signed.
fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
