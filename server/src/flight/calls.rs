//! Which code answers a call: `DoGet` goes out through `wire`, every other call through tonic.

use std::convert::Infallible;

use arrow_flight::{Ticket, flight_service_server::FlightServiceServer};
use hyper::{Request, Response, body::Incoming};
use tonic::{Status, Streaming, body::Body, codec::BufferSettings, codegen::Service as _};
use tonic_health::{pb::health_server::HealthServer, server::HealthService};
use tonic_prost::ProstDecoder;
use tracing::Instrument;

use super::{
    Service,
    call::{Call, code_name},
    reflection::Reflection,
    wire,
};
use crate::{log, metrics};

/// The largest gRPC message that is taken in. What is larger than a message of ours may be is refused in our own words.
pub(super) const REQUEST_BYTES_MAX: usize = 2 * forebay_proto::JSON_BYTES_MAX;

const HEALTH: &str = "/grpc.health.v1.Health/";

const DO_GET: &str = "/arrow.flight.protocol.FlightService/DoGet";

/// Answers the calls of one connection. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Calls {
    service: Service,
    flight: FlightServiceServer<Service>,
    health: HealthServer<HealthService>,
    reflection: Option<Reflection>,
}

impl Calls {
    /// `health` answers gRPC's health checks, `reflection` what tools ask about the calls.
    pub fn new(service: Service, health: HealthServer<HealthService>, reflection: Option<Reflection>) -> Self {
        let flight = FlightServiceServer::new(service.clone())
            .max_decoding_message_size(REQUEST_BYTES_MAX)
            .max_encoding_message_size(usize::MAX);
        Self { service, flight, health, reflection }
    }

    /// Answers one call.
    pub async fn answer(self, request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
        let call = Call::of(&request);
        let mut response = self.route(request, &call).instrument(call.span.clone()).await?;
        let code = code_name(&response);
        metrics::request(call.method, code);
        if code != "OK" {
            log::failed(&call.span, code);
        }
        call.sign(&mut response);
        Ok(response)
    }

    async fn route(mut self, request: Request<Incoming>, call: &Call) -> Result<Response<Body>, Infallible> {
        match request.uri().path() {
            DO_GET => {
                let answered = match read_ticket(request.into_body()).await {
                    Ok(ticket) => self.service.messages(&ticket, call).await,
                    Err(status) => Err(status),
                };
                Ok(answered.map_or_else(|status| call.error(&status).into_http(), wire::response))
            }
            path if path.starts_with(HEALTH) => self.health.call(request).await,
            path => match self.reflection.as_ref().and_then(|reflection| reflection.of(path)) {
                Some(answers) => answers(request).await,
                None => self.flight.call(request).await,
            },
        }
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
