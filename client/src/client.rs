//! The calls: one method each, from a request to what the server answers, decoded.

use std::sync::Arc;

use arrow::datatypes::{Schema, SchemaRef};
use arrow_flight::flight_service_client::FlightServiceClient;
use arrow_flight::{Action, Criteria, FlightDescriptor, FlightEndpoint, FlightInfo, Ticket};
use bytes::Bytes;
use forebay_proto::v1::{
    BatchHeader, DatasetInfo, Explain, FitProgress, FitRequest, FitResult, FitUpdate, Plan, RankInfo, Replay,
    ReplayRequest, ShowRequest, StreamInfo, StreamRequest, fit_update,
};
use forebay_proto::{Encoding, Message, decode, encode};
use futures::{StreamExt, TryStreamExt};
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Channel;
use tonic::{Status, Streaming};

use crate::credentials::Bearer;
use crate::cursor::Places;
use crate::transport::Link;
use crate::{Batch, BatchStream, Credentials, Error, Result, address};

/// The calls, each with the client's token.
pub(crate) type Calls = FlightServiceClient<InterceptedService<Channel, Bearer>>;

/// A connection to one server. Clones share it; a rank that wants a connection of its own connects again, so that its
/// stream shares no flow control with another's.
#[derive(Clone, Debug)]
pub struct Client {
    url: Arc<str>,
    flight: Calls,
    checksums: bool,
}

/// A dataset as stored.
#[derive(Clone, Debug)]
pub struct Table {
    /// What the server says of it; `error` is not empty when it cannot be read.
    pub info: DatasetInfo,
    /// The stored columns; empty when the dataset cannot be read.
    pub schema: SchemaRef,
    /// Where its rows are read, in file order.
    pub endpoints: Vec<Endpoint>,
}

/// One epoch of a dataset under a plan.
#[derive(Clone, Debug)]
pub struct Epoch {
    /// Its snapshot, its plan and its size.
    pub info: StreamInfo,
    /// The columns of every batch.
    pub schema: SchemaRef,
    /// One a rank, in rank order.
    pub endpoints: Vec<Endpoint>,
}

/// Where a stream of batches is read.
#[derive(Clone, Debug, Default)]
pub struct Endpoint {
    /// What to hand to the server.
    pub ticket: Bytes,
    /// URLs of the servers that take the ticket; empty: the one that made it.
    pub locations: Vec<String>,
    /// The rank's share of the epoch; none for a raw table.
    pub rank: Option<RankInfo>,
}

impl Client {
    /// Connects to `grpc://HOST:PORT`, `grpc+tls://HOST:PORT` or `grpc+unix://PATH`.
    pub async fn connect(url: &str) -> Result<Self> {
        Self::connect_with(url, &Credentials::default()).await
    }

    /// The same for a server that asks who calls.
    pub async fn connect_with(url: &str, credentials: &Credentials) -> Result<Self> {
        Self::connect_by(&Link::of(credentials.clone()), url).await
    }

    pub(crate) async fn connect_by(link: &Link, url: &str) -> Result<Self> {
        let endpoint = address::endpoint(url, &link.credentials)?;
        let channel =
            link.connect(&endpoint).await.map_err(|source| Error::Unreachable { url: url.to_owned(), source })?;
        // A batch is as large as the request made it; the server bounds it, not the transport.
        let flight = FlightServiceClient::with_interceptor(channel, link.credentials.bearer())
            .max_decoding_message_size(usize::MAX)
            .max_encoding_message_size(usize::MAX);
        Ok(Self { url: url.into(), flight, checksums: true })
    }

    /// The same connection, whose batches are taken without a look at their checksums: to measure what that look costs.
    #[must_use]
    pub fn without_checksums(self) -> Self {
        Self { checksums: false, ..self }
    }

    /// Every dataset of the server, those that cannot be read with their `error`.
    pub async fn list(&self) -> Result<Vec<Table>> {
        let answer =
            self.flight.clone().list_flights(Criteria::default()).await.map_err(|status| self.failed(status))?;
        let flights = answer.into_inner().map_err(|status| self.failed(status));
        flights.and_then(|flight| async move { table(flight) }).try_collect().await
    }

    /// One dataset as stored.
    pub async fn table_info(&self, name: &str) -> Result<Table> {
        let descriptor = FlightDescriptor::new_path(vec![name.to_owned()]);
        table(self.flight_info(descriptor).await?)
    }

    /// One epoch of a dataset under a plan: its columns, its size and one endpoint a rank.
    pub async fn stream_info(&self, request: &StreamRequest) -> Result<Epoch> {
        let command = encode(request, Encoding::Protobuf);
        let info = self.flight_info(FlightDescriptor::new_cmd(command)).await?;
        Ok(Epoch {
            info: metadata("the stream's metadata", &info.app_metadata)?,
            endpoints: endpoints(&info)?,
            schema: schema(info)?,
        })
    }

    /// Learns what a plan leaves open (means, bounds, vocabularies) from a dataset, and stores the result on the
    /// server.
    pub async fn fit(&self, dataset: &str, plan: Plan, mut progress: impl FnMut(&FitProgress)) -> Result<FitResult> {
        let request = FitRequest { dataset: dataset.to_owned(), plan: Some(plan) };
        let mut updates = self.action("fit", &request).await?;
        while let Some(update) = updates.next().await {
            let update = update.map_err(|status| self.failed(status))?;
            match metadata::<FitUpdate>("the fit's update", &update.body)?.update {
                Some(fit_update::Update::Progress(done)) => progress(&done),
                Some(fit_update::Update::Result(result)) => return Ok(result),
                None => {}
            }
        }
        Err(Error::Incomplete { call: "fit", missing: "result" })
    }

    /// The result of a fit as the server keeps it.
    pub async fn show(&self, plan_id: &str) -> Result<FitResult> {
        let mut answers = self.action("show", &ShowRequest { plan_id: plan_id.to_owned() }).await?;
        match answers.next().await {
            Some(answer) => metadata("the fitted plan", &answer.map_err(|status| self.failed(status))?.body),
            None => Err(Error::Incomplete { call: "show", missing: "result" }),
        }
    }

    /// What an epoch costs, by arithmetic and footers alone. Without a dataset, and with assumed rows and bytes of a
    /// row, it is arithmetic alone.
    pub async fn explain(&self, request: &StreamRequest) -> Result<Explain> {
        let mut answers = self.action("explain", request).await?;
        match answers.next().await {
            Some(answer) => metadata("the explanation", &answer.map_err(|status| self.failed(status))?.body),
            None => Err(Error::Incomplete { call: "explain", missing: "result" }),
        }
    }

    /// Where the rows of one batch lie, in the batch's order.
    pub async fn replay(&self, request: &ReplayRequest) -> Result<Replay> {
        let mut answers = self.action("replay", request).await?;
        let mut whole: Option<Replay> = None;
        while let Some(answer) = answers.next().await {
            let part: Replay = metadata("the replay", &answer.map_err(|status| self.failed(status))?.body)?;
            match &mut whole {
                None => whole = Some(part),
                Some(whole) => whole.rows.extend(part.rows),
            }
        }
        whole.ok_or(Error::Incomplete { call: "replay", missing: "result" })
    }

    /// The batch of a replay itself, byte for byte as it was sent.
    pub async fn replayed(&self, replay: &Replay) -> Result<Batch> {
        let endpoint = Endpoint { ticket: replay.ticket.clone().into(), ..Endpoint::default() };
        let mut batches = self.read(&endpoint).await?;
        let batch = batches.try_next().await?.ok_or(Error::Incomplete { call: "DoGet", missing: "batch" })?;
        // The ticket is for this step alone: of an earlier one than the epoch's last, the stream may well end behind
        // it.
        match batches.try_next().await {
            Ok(None) | Err(Error::Truncated { .. }) => {}
            Ok(Some(_)) => return Err(Error::Incomplete { call: "DoGet", missing: "end behind the batch" }),
            Err(error) => return Err(error),
        }
        let expected = replay.header.unwrap_or_default();
        // What is no property of the rows is not compared.
        let BatchHeader { checksum, stage_seconds, .. } = expected;
        if (BatchHeader { checksum, stage_seconds, ..batch.header }) != expected {
            return Err(Error::Incomplete { call: "DoGet", missing: "batch with the header of the replay" });
        }
        Ok(batch)
    }

    /// Reads the batches of an endpoint, each checked against its header. Dropping the stream ends it on the server.
    pub async fn read(&self, endpoint: &Endpoint) -> Result<BatchStream> {
        self.read_behind(endpoint, 0).await
    }

    /// As [`read`](Self::read), for the endpoint of a request that may begin behind the rank's last step.
    pub async fn read_from(&self, endpoint: &Endpoint, request: &StreamRequest) -> Result<BatchStream> {
        let first_step = Places::new(request, &StreamInfo::default()).first_step();
        self.read_behind(endpoint, first_step).await
    }

    async fn read_behind(&self, endpoint: &Endpoint, first_step: u64) -> Result<BatchStream> {
        let ticket = Ticket { ticket: endpoint.ticket.clone() };
        let answer = self.flight.clone().do_get(ticket).await.map_err(|status| self.failed(status))?;
        let no_batches = endpoint.rank.as_ref().is_some_and(|rank| rank.steps <= first_step);
        Ok(BatchStream::new(answer.into_inner(), &self.url, no_batches, self.checksums))
    }

    async fn action(&self, name: &str, body: &impl Message) -> Result<Streaming<arrow_flight::Result>> {
        let action = Action { r#type: name.to_owned(), body: encode(body, Encoding::Protobuf).into() };
        let answer = self.flight.clone().do_action(action).await.map_err(|status| self.failed(status))?;
        Ok(answer.into_inner())
    }

    async fn flight_info(&self, descriptor: FlightDescriptor) -> Result<FlightInfo> {
        let answer = self.flight.clone().get_flight_info(descriptor).await.map_err(|status| self.failed(status))?;
        Ok(answer.into_inner())
    }

    pub(crate) fn flight(&self) -> Calls {
        self.flight.clone()
    }

    pub(crate) fn url(&self) -> &Arc<str> {
        &self.url
    }

    fn failed(&self, status: Status) -> Error {
        Error::from_status(status, &self.url)
    }
}

fn table(info: FlightInfo) -> Result<Table> {
    let dataset: DatasetInfo = metadata("the dataset's metadata", &info.app_metadata)?;
    let endpoints = endpoints(&info)?;
    // An unreadable dataset is listed with its error and has no schema.
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
        bytes => Some(metadata("the endpoint's metadata", bytes)?),
    };
    let locations = endpoint.location.iter().map(|location| location.uri.clone()).collect();
    Ok(Endpoint { ticket: ticket.ticket, locations, rank })
}

fn metadata<M: Message>(what: &'static str, bytes: &[u8]) -> Result<M> {
    decode(bytes).map(|(message, _)| message).map_err(|source| Error::Message { what, source })
}
