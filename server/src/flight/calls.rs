//! Which code answers a call: `DoGet` goes out through `wire`, every other call through tonic.

use std::convert::Infallible;

use arrow_flight::{Ticket, flight_service_server::FlightServiceServer};
use hyper::{Request, Response, body::Incoming};
use tonic::{Status, Streaming, body::Body, codec::BufferSettings, codegen::Service as _};
use tonic_prost::ProstDecoder;

use super::{Service, wire};

/// The largest gRPC message that is taken in. What is larger than a message of ours may be is refused in our own words.
pub(super) const REQUEST_BYTES_MAX: usize = 2 * forebay_proto::JSON_BYTES_MAX;

const DO_GET: &str = "/arrow.flight.protocol.FlightService/DoGet";

/// Answers the calls of one connection. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Calls {
    service: Service,
    flight: FlightServiceServer<Service>,
}

impl Calls {
    pub(super) fn new(service: Service) -> Self {
        let flight = FlightServiceServer::new(service.clone())
            .max_decoding_message_size(REQUEST_BYTES_MAX)
            .max_encoding_message_size(usize::MAX);
        Self { service, flight }
    }

    pub(super) async fn answer(mut self, request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
        if request.uri().path() != DO_GET {
            return self.flight.call(request).await;
        }
        let answered = match read_ticket(request.into_body()).await {
            Ok(ticket) => self.service.messages(&ticket).await,
            Err(status) => Err(status),
        };
        Ok(answered.map_or_else(Status::into_http, wire::response))
    }
}

/// The one message of the request.
async fn read_ticket(body: Incoming) -> Result<Ticket, Status> {
    let mut messages = Streaming::new_request(
        ProstDecoder::<Ticket>::new(BufferSettings::default()),
        body,
        None,
        Some(REQUEST_BYTES_MAX),
    );
    messages.message().await?.ok_or_else(|| Status::invalid_argument("DoGet: the call carries no Ticket"))
}
