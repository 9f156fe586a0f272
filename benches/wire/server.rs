//! Serves prepared batches: over Flight with Forebay's response body on TCP (`direct`) or on a Unix socket (`unix`), or
//! with arrow-flight's stock encoder and tonic (`stock`); through a ring (`ring`); or as plain bytes on a socket (`raw`).
//! Prints its address and serves until stdin closes.
//!
//! Arguments: the kind, columns, rows, and the bytes that may wait for a socket (`direct` only). A ticket is the number
//! of batches to send, in decimal; on a raw socket it is a little-endian integer of eight bytes.

use std::{convert::Infallible, env, error::Error, io, process, sync::Arc};

use arrow::{
    array::{FixedSizeListArray, Float32Array, RecordBatch},
    datatypes::{DataType, Field, Schema},
};
use arrow_flight::{
    Action, ActionType, Criteria, Empty, FlightData, FlightDescriptor, FlightInfo, HandshakeRequest, HandshakeResponse,
    PollInfo, PutResult, SchemaResult, Ticket,
    encode::FlightDataEncoderBuilder,
    error::FlightError,
    flight_service_server::{FlightService, FlightServiceServer},
};
use forebay_proto::{Encoding, v1};
use forebay_runtime::{budget::Budget, shutdown::Shutdown};
use forebay_server::{
    auth::Peer,
    flight::{ConnectionSettings, Encoder, Message, response, serve_connections, serve_prepared, tune},
};
use futures::{StreamExt, stream::BoxStream};
use http_body_util::BodyExt;
use hyper::{Request, Response, body::Incoming};
use prost::Message as _;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream, UnixListener},
};
use tonic::{Status, Streaming, transport::server::TcpIncoming};

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Number of distinct batches, sent in turn: more than a core's caches hold.
const BATCHES: usize = 16;

/// Bytes before the message in a gRPC request.
const PREFIX_BYTES: usize = 5;

type Batches = Arc<Vec<RecordBatch>>;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    if arguments == ["--version"] {
        println!("wire_server {}", env!("CARGO_PKG_VERSION"));
        return Ok(());
    }
    let [kind, columns, rows, sending] = arguments.as_slice() else {
        return Err("direct|unix|ring|stock|raw COLUMNS ROWS SENDING_BYTES".into());
    };
    let (columns, rows, sending): (usize, usize, usize) = (columns.parse()?, rows.parse()?, sending.parse()?);
    let batches = (0..BATCHES).map(|number| matrix(columns, rows, number)).collect::<Result<Vec<_>, _>>()?;
    let batches = Arc::new(batches);
    if let "unix" | "ring" = kind.as_str() {
        return on_unix_socket(kind, batches, sending).await;
    }
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("{}", listener.local_addr()?);
    let serving = match kind.as_str() {
        "direct" => tokio::spawn(direct(listener, batches, sending)),
        "stock" => tokio::spawn(stock(listener, batches)),
        "raw" => tokio::spawn(raw(listener, columns * rows * size_of::<f32>())),
        other => return Err(format!("there is no kind \"{other}\"").into()),
    };
    tokio::io::stdin().read_to_end(&mut Vec::new()).await?;
    serving.abort();
    Ok(())
}

async fn on_unix_socket(kind: &str, batches: Batches, sending: usize) -> Result<(), Box<dyn Error>> {
    let path = env::temp_dir().join(format!("forebay-wire-{}", process::id()));
    let listener = UnixListener::bind(&path)?;
    println!("{}", path.display());
    let serving = match kind {
        "unix" => tokio::spawn(direct_unix(listener, batches, sending)),
        _ => tokio::spawn(ring(listener, batches)),
    };
    tokio::io::stdin().read_to_end(&mut Vec::new()).await?;
    serving.abort();
    Ok(std::fs::remove_file(&path)?)
}

/// A batch of one matrix.
fn matrix(columns: usize, rows: usize, number: usize) -> Result<RecordBatch, Box<dyn Error>> {
    let values: Float32Array = (0..columns * rows).map(|index| (index + number) as f32).collect();
    let field = Arc::new(Field::new("item", DataType::Float32, false));
    let lists = FixedSizeListArray::try_new(field, i32::try_from(columns)?, Arc::new(values), None)?;
    let schema = Schema::new(vec![Field::new("x", arrow::array::Array::data_type(&lists).clone(), false)]);
    Ok(RecordBatch::try_new(Arc::new(schema), vec![Arc::new(lists)])?)
}

fn count_of(ticket: &Ticket) -> Result<usize, Status> {
    let count = std::str::from_utf8(&ticket.ticket).ok().and_then(|text| text.parse().ok());
    count.ok_or_else(|| Status::invalid_argument("the ticket is a number of batches"))
}

// === Forebay's body ===

async fn direct(listener: TcpListener, batches: Batches, sending: usize) -> io::Result<()> {
    let (_shutdown, watch) = Shutdown::new();
    let accept = async move || {
        let (stream, peer) = listener.accept().await?;
        tune(&stream, peer);
        Ok((Some(peer.ip()), std::future::ready(Ok((stream, Peer::default())))))
    };
    let settings = ConnectionSettings { sending_bytes: sending, ..ConnectionSettings::default() };
    serve_connections(move |call| answer(call, Arc::clone(&batches)), accept, settings, &watch).await;
    Ok(())
}

async fn answer(call: Request<Incoming>, batches: Batches) -> Result<Response<tonic::body::Body>, Infallible> {
    Ok(encoded(call, batches).await.unwrap_or_else(Status::into_http))
}

async fn encoded(call: Request<Incoming>, batches: Batches) -> Result<Response<tonic::body::Body>, Status> {
    let internal = |error: &dyn Error| Status::internal(error.to_string());
    let request = call.into_body().collect().await.map_err(|error| internal(&error))?.to_bytes();
    let ticket = Ticket::decode(request.get(PREFIX_BYTES..).unwrap_or_default()).map_err(|error| internal(&error))?;
    messages(&ticket, batches).map(response)
}

/// The schema and as many batches as the ticket says.
fn messages(ticket: &Ticket, batches: Batches) -> Result<BoxStream<'static, Result<Message, Status>>, Status> {
    let internal = |error: &dyn Error| Status::internal(error.to_string());
    let count = count_of(ticket)?;
    let schema = batches[0].schema();
    let mut encoder = Encoder::new(&schema, Encoding::Json).map_err(|error| internal(&error))?;
    let first = futures::stream::iter([Ok(Encoder::schema(&schema))]);
    let rest = futures::stream::iter(0..count).flat_map(move |number| {
        let header = v1::BatchHeader { step: number as u64, ..v1::BatchHeader::default() };
        let encoded = encoder.batch(&batches[number % batches.len()], header);
        let encoded = encoded.map_err(|error| Status::internal(error.to_string()));
        futures::stream::iter(encoded.map_or_else(|error| vec![Err(error)], |sent| sent.into_iter().map(Ok).collect()))
    });
    Ok(first.chain(rest).boxed())
}

async fn direct_unix(listener: UnixListener, batches: Batches, sending: usize) -> io::Result<()> {
    let (_shutdown, watch) = Shutdown::new();
    let accept = async move || Ok((None, std::future::ready(Ok((listener.accept().await?.0, Peer::default())))));
    let settings = ConnectionSettings { sending_bytes: sending, ..ConnectionSettings::default() };
    serve_connections(move |call| answer(call, Arc::clone(&batches)), accept, settings, &watch).await;
    Ok(())
}

// === The ring ===

async fn ring(listener: UnixListener, batches: Batches) -> io::Result<()> {
    let (_shutdown, watch) = Shutdown::new();
    let budget = Budget::new(u64::MAX);
    loop {
        let (stream, _) = listener.accept().await?;
        let (batches, budget, watch) = (Arc::clone(&batches), budget.clone(), watch.clone());
        tokio::spawn(async move { serve_prepared(stream, &budget, watch, |ticket| messages(ticket, batches)).await });
    }
}

// === arrow-flight's encoder ===

struct Stock(Batches);

async fn stock(listener: TcpListener, batches: Batches) -> io::Result<()> {
    let service = FlightServiceServer::new(Stock(batches)).max_encoding_message_size(usize::MAX);
    let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
    let served = tonic::transport::Server::builder().add_service(service).serve_with_incoming(incoming).await;
    served.map_err(io::Error::other)
}

type Answers<T> = BoxStream<'static, Result<T, Status>>;

#[tonic::async_trait]
impl FlightService for Stock {
    type HandshakeStream = Answers<HandshakeResponse>;
    type ListFlightsStream = Answers<FlightInfo>;
    type DoGetStream = Answers<FlightData>;
    type DoPutStream = Answers<PutResult>;
    type DoActionStream = Answers<arrow_flight::Result>;
    type ListActionsStream = Answers<ActionType>;
    type DoExchangeStream = Answers<FlightData>;

    async fn do_get(&self, call: tonic::Request<Ticket>) -> Result<tonic::Response<Self::DoGetStream>, Status> {
        let (count, batches) = (count_of(call.get_ref())?, Arc::clone(&self.0));
        let schema = batches[0].schema();
        let batches = (0..count).map(move |number| Ok::<_, FlightError>(batches[number % batches.len()].clone()));
        let messages = FlightDataEncoderBuilder::new()
            .with_schema(schema)
            // One message per batch, as in Forebay.
            .with_max_flight_data_size(usize::MAX)
            .build(futures::stream::iter(batches));
        Ok(tonic::Response::new(messages.map(|message| message.map_err(Status::from)).boxed()))
    }

    async fn handshake(
        &self,
        _: tonic::Request<Streaming<HandshakeRequest>>,
    ) -> Result<tonic::Response<Self::HandshakeStream>, Status> {
        Err(only_do_get())
    }

    async fn list_flights(
        &self,
        _: tonic::Request<Criteria>,
    ) -> Result<tonic::Response<Self::ListFlightsStream>, Status> {
        Err(only_do_get())
    }

    async fn get_flight_info(
        &self,
        _: tonic::Request<FlightDescriptor>,
    ) -> Result<tonic::Response<FlightInfo>, Status> {
        Err(only_do_get())
    }

    async fn poll_flight_info(&self, _: tonic::Request<FlightDescriptor>) -> Result<tonic::Response<PollInfo>, Status> {
        Err(only_do_get())
    }

    async fn get_schema(&self, _: tonic::Request<FlightDescriptor>) -> Result<tonic::Response<SchemaResult>, Status> {
        Err(only_do_get())
    }

    async fn do_put(
        &self,
        _: tonic::Request<Streaming<FlightData>>,
    ) -> Result<tonic::Response<Self::DoPutStream>, Status> {
        Err(only_do_get())
    }

    async fn do_exchange(
        &self,
        _: tonic::Request<Streaming<FlightData>>,
    ) -> Result<tonic::Response<Self::DoExchangeStream>, Status> {
        Err(only_do_get())
    }

    async fn do_action(&self, _: tonic::Request<Action>) -> Result<tonic::Response<Self::DoActionStream>, Status> {
        Err(only_do_get())
    }

    async fn list_actions(&self, _: tonic::Request<Empty>) -> Result<tonic::Response<Self::ListActionsStream>, Status> {
        Err(only_do_get())
    }
}

fn only_do_get() -> Status {
    Status::unimplemented("this benchmark server only implements DoGet")
}

// === A raw socket ===

async fn raw(listener: TcpListener, batch_bytes: usize) -> io::Result<()> {
    loop {
        let (stream, _) = listener.accept().await?;
        tokio::spawn(write(stream, batch_bytes));
    }
}

async fn write(mut stream: TcpStream, batch_bytes: usize) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let batches: Vec<Vec<u8>> = (0..BATCHES).map(|number| vec![number as u8; batch_bytes]).collect();
    let count = stream.read_u64_le().await?;
    for number in 0..count as usize {
        stream.write_all(&batches[number % BATCHES]).await?;
    }
    stream.shutdown().await
}
