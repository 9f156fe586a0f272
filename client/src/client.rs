//! A connection to one server, with a method for each call.

use std::sync::Arc;

use arrow::datatypes::{Schema, SchemaRef};
use arrow_flight::{
    Action, Criteria, Empty, FlightDescriptor, FlightEndpoint, FlightInfo, Ticket,
    flight_service_client::FlightServiceClient,
};
use bytes::Bytes;
use forebay_proto::{
    Encoding, Message, decode, encode,
    v1::{
        BatchHeader, CheckPlanRequest, DatasetInfo, DescribeRequest, DescribeUpdate, Description, Explain, FitProgress,
        FitRequest, FitResult, FitUpdate, Plan, PlanCheck, Plans, PlansRequest, RankInfo, RemovePlanRequest, Replay,
        ReplayRequest, ShowRequest, StoredPlan, StreamInfo, StreamRequest, TableRead, TakeRequest, describe_update,
        fit_update,
    },
};
use futures::{StreamExt, TryStreamExt};
use tonic::{Response, Status, Streaming, service::interceptor::InterceptedService, transport::Channel};

use crate::{
    Batch, BatchStream, Credentials, Error, Mismatch, Result, address,
    credentials::CallHeaders,
    cursor::EpochCursors,
    ring::RingAddress,
    server_version::{self, ServerVersion},
    transport::{self, Link},
};

/// Flight client that sends the headers of this client with each call.
pub(crate) type Calls = FlightServiceClient<InterceptedService<Channel, CallHeaders>>;

/// Connection to one server. Clones share it; connect once per rank if streams must not share flow control.
#[derive(Clone, Debug)]
pub struct Client {
    url: Arc<str>,
    flight: Calls,
    /// The ring that may replace Flight.
    ring: Option<RingAddress>,
    checksums: bool,
    /// Whether the port may expect TLS although the URL does not ask for it.
    may_be_tls: bool,
}

/// Dataset as stored.
#[derive(Clone, Debug)]
pub struct Table {
    /// Name and size; `error` is set if the dataset cannot be read.
    pub info: DatasetInfo,
    /// Stored columns; empty if the dataset cannot be read.
    pub schema: SchemaRef,
    /// Endpoints of its rows, in file order.
    pub endpoints: Vec<Endpoint>,
}

/// One epoch of a dataset under a plan.
#[derive(Clone, Debug)]
pub struct Epoch {
    /// Snapshot, plan and size.
    pub info: StreamInfo,
    /// Columns of every batch.
    pub schema: SchemaRef,
    /// One per rank, in rank order.
    pub endpoints: Vec<Endpoint>,
}

/// Source of a stream of batches.
#[derive(Clone, Debug, Default)]
pub struct Endpoint {
    /// Opaque argument of DoGet.
    pub ticket: Bytes,
    /// URLs of servers that accept the ticket; empty: only the server that issued it.
    pub locations: Vec<String>,
    /// The rank's share of the epoch; none for a raw table.
    pub rank: Option<RankInfo>,
}

impl Client {
    /// Connects to `grpc://HOST:PORT`, `grpc+tls://HOST:PORT` or `grpc+unix://PATH`.
    pub async fn connect(url: &str) -> Result<Self> {
        Self::connect_with(url, &Credentials::default()).await
    }

    /// Connects with credentials.
    pub async fn connect_with(url: &str, credentials: &Credentials) -> Result<Self> {
        Self::connect_by(&Link::of(credentials.clone()), url).await
    }

    pub(crate) async fn connect_by(link: &Link, url: &str) -> Result<Self> {
        let endpoint = address::endpoint(url, &link.credentials)?;
        let channel = link.connect(&endpoint).await.map_err(|source| match Mismatch::of(&source, url) {
            Some(mismatch) => Error::Handshake { url: url.to_owned(), mismatch },
            None => Error::Unreachable { url: url.to_owned(), source },
        })?;
        // The server limits the size of a batch, not the transport.
        let flight = FlightServiceClient::with_interceptor(channel, link.credentials.call_headers())
            .max_decoding_message_size(usize::MAX)
            .max_encoding_message_size(usize::MAX);
        // A simulated network has no TLS.
        let may_be_tls = link.transport.is_none() && address::is_plain_tcp(url);
        let socket = address::unix_path(url).filter(|_| link.transport.is_none()).map(str::to_owned);
        let ring = RingAddress::of(socket, link.credentials.headers());
        Ok(Self { url: url.into(), flight, ring, checksums: true, may_be_tls })
    }

    /// Returns the same connection without verification of checksums, to measure its cost.
    #[must_use]
    pub fn without_checksums(self) -> Self {
        Self { checksums: false, ..self }
    }

    /// Lists the server's datasets, including unreadable ones, whose `error` is set.
    pub async fn list(&self) -> Result<Vec<Table>> {
        let answer = self.begun(self.flight.clone().list_flights(Criteria::default()).await).await?;
        let flights = answer.into_inner().map_err(|status| self.failed(status));
        flights.and_then(|flight| async move { table(flight) }).try_collect().await
    }

    /// Returns one dataset as stored.
    pub async fn table_info(&self, name: &str) -> Result<Table> {
        let descriptor = FlightDescriptor::new_path(vec![name.to_owned()]);
        table(self.flight_info(descriptor).await?)
    }

    /// Returns rows of one dataset as stored: some columns, the first rows, or both. The server reads no others.
    pub async fn table_rows(&self, read: &TableRead) -> Result<Table> {
        let request = StreamRequest { table: Some(read.clone()), ..StreamRequest::default() };
        table(self.flight_info(FlightDescriptor::new_cmd(encode(&request, Encoding::Protobuf))).await?)
    }

    /// Reads rows of a dataset by their numbers, with the values of a plan, in the order of the request: one batch, unless
    /// the request divides them.
    pub async fn take(&self, request: &TakeRequest) -> Result<BatchStream> {
        let request = StreamRequest { take: Some(request.clone()), ..StreamRequest::default() };
        let info = self.flight_info(FlightDescriptor::new_cmd(encode(&request, Encoding::Protobuf))).await?;
        let endpoint = endpoints(&info)?.into_iter().next();
        self.read(&endpoint.ok_or(Error::Incomplete { call: "GetFlightInfo", missing: "endpoint" })?).await
    }

    /// Returns one epoch of a dataset under a plan: schema, size and one endpoint per rank.
    pub async fn stream_info(&self, request: &StreamRequest) -> Result<Epoch> {
        let command = encode(request, Encoding::Protobuf);
        let info = self.flight_info(FlightDescriptor::new_cmd(command)).await?;
        Ok(Epoch {
            info: metadata("stream metadata", &info.app_metadata)?,
            endpoints: endpoints(&info)?,
            schema: schema(info)?,
        })
    }

    /// Fits a plan: learns its missing parameters (means, bounds, vocabularies) from a dataset and stores the result on
    /// the server.
    pub async fn fit(&self, dataset: &str, plan: Plan, progress: impl FnMut(&FitProgress)) -> Result<FitResult> {
        let request = FitRequest { dataset: dataset.to_owned(), plan: Some(plan), ..FitRequest::default() };
        self.fit_request(&request, progress).await
    }

    /// Like [`fit`](Self::fit), also from a sample of the rows.
    pub async fn fit_request(&self, request: &FitRequest, mut progress: impl FnMut(&FitProgress)) -> Result<FitResult> {
        let mut updates = self.action("fit", request).await?;
        while let Some(update) = updates.next().await {
            let update = update.map_err(|status| self.failed(status))?;
            match metadata::<FitUpdate>("fit update", &update.body)?.update {
                Some(fit_update::Update::Progress(done)) => progress(&done),
                Some(fit_update::Update::Result(result)) => return Ok(result),
                None => {}
            }
        }
        Err(Error::Incomplete { call: "fit", missing: "result" })
    }

    /// Checks a plan on a dataset from types and footers: what its outputs are, and what a fit would learn.
    pub async fn check_plan(&self, dataset: &str, plan: Plan) -> Result<PlanCheck> {
        let request = CheckPlanRequest { dataset: dataset.to_owned(), plan: Some(plan) };
        let mut answers = self.action("check_plan", &request).await?;
        match answers.next().await {
            Some(answer) => metadata("checked plan", &answer.map_err(|status| self.failed(status))?.body),
            None => Err(Error::Incomplete { call: "check_plan", missing: "result" }),
        }
    }

    /// Describes what columns of a dataset hold, in one pass over its rows.
    pub async fn describe(
        &self,
        request: &DescribeRequest,
        mut progress: impl FnMut(&FitProgress),
    ) -> Result<Description> {
        let mut updates = self.action("describe", request).await?;
        while let Some(update) = updates.next().await {
            let update = update.map_err(|status| self.failed(status))?;
            match metadata::<DescribeUpdate>("description", &update.body)?.update {
                Some(describe_update::Update::Progress(done)) => progress(&done),
                Some(describe_update::Update::Result(result)) => return Ok(result),
                None => {}
            }
        }
        Err(Error::Incomplete { call: "describe", missing: "result" })
    }

    /// Returns the server's version and time.
    pub async fn server_version(&self) -> Result<ServerVersion> {
        let answer = self.begun(self.flight.clone().list_actions(Empty {}).await).await?;
        Ok(ServerVersion::of(answer.metadata()))
    }

    /// Returns a fit's result as stored on the server.
    pub async fn show(&self, plan_id: &str) -> Result<FitResult> {
        let mut answers = self.action("show", &ShowRequest { plan_id: plan_id.to_owned() }).await?;
        match answers.next().await {
            Some(answer) => metadata("fitted plan", &answer.map_err(|status| self.failed(status))?.body),
            None => Err(Error::Incomplete { call: "show", missing: "result" }),
        }
    }

    /// Lists the plans stored on the server that the caller may see, those used last first.
    pub async fn plans(&self) -> Result<Vec<StoredPlan>> {
        let mut answers = self.action("plans", &PlansRequest {}).await?;
        let mut plans = Vec::new();
        while let Some(answer) = answers.next().await {
            let part: Plans = metadata("list of plans", &answer.map_err(|status| self.failed(status))?.body)?;
            plans.extend(part.plans);
        }
        Ok(plans)
    }

    /// Removes a plan stored on the server, and returns what it was. Open streams continue.
    pub async fn remove_plan(&self, plan_id: &str) -> Result<StoredPlan> {
        let mut answers = self.action("remove_plan", &RemovePlanRequest { plan_id: plan_id.to_owned() }).await?;
        match answers.next().await {
            Some(answer) => metadata("removed plan", &answer.map_err(|status| self.failed(status))?.body),
            None => Err(Error::Incomplete { call: "remove_plan", missing: "result" }),
        }
    }

    /// Estimates the cost of an epoch from arithmetic and file footers. Without a dataset, but with assumed rows and
    /// row bytes, from arithmetic alone.
    pub async fn explain(&self, request: &StreamRequest) -> Result<Explain> {
        let mut answers = self.action("explain", request).await?;
        match answers.next().await {
            Some(answer) => metadata("explanation", &answer.map_err(|status| self.failed(status))?.body),
            None => Err(Error::Incomplete { call: "explain", missing: "result" }),
        }
    }

    /// Returns the file, row group and row of each row of a batch, in the batch's order.
    pub async fn replay(&self, request: &ReplayRequest) -> Result<Replay> {
        let mut answers = self.action("replay", request).await?;
        let mut whole: Option<Replay> = None;
        while let Some(answer) = answers.next().await {
            let part: Replay = metadata("replay", &answer.map_err(|status| self.failed(status))?.body)?;
            match &mut whole {
                None => whole = Some(part),
                Some(whole) => whole.rows.extend(part.rows),
            }
        }
        whole.ok_or(Error::Incomplete { call: "replay", missing: "result" })
    }

    /// Returns the batch of a replay, byte for byte as it was sent.
    pub async fn replayed(&self, replay: &Replay) -> Result<Batch> {
        let endpoint = Endpoint { ticket: replay.ticket.clone().into(), ..Endpoint::default() };
        let mut batches = self.read(&endpoint).await?;
        let batch = batches.try_next().await?.ok_or(Error::Incomplete { call: "DoGet", missing: "batch" })?;
        // The ticket covers this step alone, so the stream ends after it even if it is not the epoch's last step.
        match batches.try_next().await {
            Ok(None) | Err(Error::Truncated { .. }) => {}
            Ok(Some(_)) => return Err(Error::Incomplete { call: "DoGet", missing: "end after the batch" }),
            Err(error) => return Err(error),
        }
        let expected = replay.header.unwrap_or_default();
        // These fields do not depend on the rows.
        let BatchHeader { checksum, stage_seconds, .. } = expected;
        if (BatchHeader { checksum, stage_seconds, ..batch.header }) != expected {
            return Err(Error::Incomplete { call: "DoGet", missing: "batch with the header of the replay" });
        }
        Ok(batch)
    }

    /// Reads an endpoint's batches, verifying each against its header. Dropping the stream cancels it on the server.
    pub async fn read(&self, endpoint: &Endpoint) -> Result<BatchStream> {
        self.read_after(endpoint, 0).await
    }

    /// Like [`read`](Self::read); the request may start after the rank's last step.
    pub async fn read_from(&self, endpoint: &Endpoint, request: &StreamRequest) -> Result<BatchStream> {
        let first_step = EpochCursors::new(request, &StreamInfo::default()).first_step();
        self.read_after(endpoint, first_step).await
    }

    async fn read_after(&self, endpoint: &Endpoint, first_step: u64) -> Result<BatchStream> {
        let no_batches = endpoint.rank.as_ref().is_some_and(|rank| rank.steps <= first_step);
        // Any failure of a ring before its first batch means Flight, whose error is then the one to report.
        if let Some(ring) = &self.ring
            && let Ok(messages) = ring.open(&endpoint.ticket).await
        {
            return Ok(BatchStream::new(messages, &self.url, no_batches, self.checksums));
        }
        let ticket = Ticket { ticket: endpoint.ticket.clone() };
        let answer = self.begun(self.flight.clone().do_get(ticket).await).await?;
        Ok(BatchStream::new(answer.into_inner(), &self.url, no_batches, self.checksums))
    }

    async fn action(&self, name: &str, body: &impl Message) -> Result<Streaming<arrow_flight::Result>> {
        let action = Action { r#type: name.to_owned(), body: encode(body, Encoding::Protobuf).into() };
        let answer = self.begun(self.flight.clone().do_action(action).await).await?;
        Ok(answer.into_inner())
    }

    async fn flight_info(&self, descriptor: FlightDescriptor) -> Result<FlightInfo> {
        let answer = self.begun(self.flight.clone().get_flight_info(descriptor).await).await?;
        Ok(answer.into_inner())
    }

    pub(crate) fn flight(&self) -> Calls {
        self.flight.clone()
    }

    pub(crate) fn url(&self) -> &Arc<str> {
        &self.url
    }

    /// Converts the outcome of a call's beginning, and checks the protocol of the server. A TLS port closes a
    /// connection without TLS at the first call.
    pub(crate) async fn begun<T>(&self, outcome: std::result::Result<Response<T>, Status>) -> Result<Response<T>> {
        let error = match outcome {
            Ok(answer) => return server_version::check(answer.metadata(), &self.url).map(|()| answer),
            Err(status) => self.failed(status),
        };
        if self.may_be_tls
            && matches!(error, Error::Disconnected { .. })
            && let Some(mismatch) = transport::tls_port(&self.url).await
        {
            return Err(Error::Handshake { url: self.url.to_string(), mismatch });
        }
        Err(error)
    }

    fn failed(&self, status: Status) -> Error {
        Error::from_status(status, &self.url)
    }
}

fn table(info: FlightInfo) -> Result<Table> {
    let dataset: DatasetInfo = metadata("dataset metadata", &info.app_metadata)?;
    let endpoints = endpoints(&info)?;
    // An unreadable dataset has an error and no schema.
    let schema = if dataset.error.is_empty() { schema(info)? } else { Arc::new(Schema::empty()) };
    Ok(Table { info: dataset, schema, endpoints })
}

fn schema(info: FlightInfo) -> Result<SchemaRef> {
    info.try_decode_schema().map(Arc::new).map_err(Error::Schema)
}

fn endpoints(info: &FlightInfo) -> Result<Vec<Endpoint>> {
    info.endpoint.iter().map(endpoint).collect()
}

fn endpoint(endpoint: &FlightEndpoint) -> Result<Endpoint> {
    let ticket = endpoint.ticket.clone().ok_or(Error::Incomplete { call: "GetFlightInfo", missing: "ticket" })?;
    let rank = match endpoint.app_metadata.as_ref() {
        [] => None,
        bytes => Some(metadata("endpoint metadata", bytes)?),
    };
    let locations = endpoint.location.iter().map(|location| location.uri.clone()).collect();
    Ok(Endpoint { ticket: ticket.ticket, locations, rank })
}

fn metadata<M: Message>(what: &'static str, bytes: &[u8]) -> Result<M> {
    decode(bytes).map(|(message, _)| message).map_err(|source| Error::Message { what, source })
}
