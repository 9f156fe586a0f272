//! Which code answers a call: `DoGet` goes out through `wire`, every other call through tonic.

use std::{convert::Infallible, sync::Arc};

use arrow_flight::{Ticket, flight_service_server::FlightServiceServer};
use hyper::{Request, Response, body::Incoming};
use tonic::{Code, Status, Streaming, body::Body, codec::BufferSettings, codegen::Service as _};
use tonic_health::{pb::health_server::HealthServer, server::HealthService};
use tonic_prost::ProstDecoder;
use tracing::Instrument;

use super::{reflection::Reflection, request_timeout::RequestTimeout};
use crate::{
    auth::{Caller, Peer},
    flight::{
        call::{Call, code_name},
        service::Service,
        status, wire,
    },
    log, metrics,
};

const HEALTH: &str = "/grpc.health.v1.Health/";

const DO_GET: &str = "/arrow.flight.protocol.FlightService/DoGet";

/// Calls whose client may go on sending for as long as it likes.
const STREAMING: [&str; 3] = ["DoExchange", "DoPut", "Handshake"];

/// Answers the calls of one connection. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Router {
    service: Service,
    flight: FlightServiceServer<Service>,
    health: HealthServer<HealthService>,
    reflection: Option<Reflection>,
}

impl Router {
    /// `health` answers gRPC's health checks, `reflection` what tools ask about the calls.
    pub fn new(service: Service, health: HealthServer<HealthService>, reflection: Option<Reflection>) -> Self {
        let flight = FlightServiceServer::new(service.clone())
            .max_decoding_message_size(service.limits().message_bytes_max)
            .max_encoding_message_size(usize::MAX);
        Self { service, flight, health, reflection }
    }

    /// Answers one call.
    pub async fn answer(self, request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
        let call = Call::of(&request);
        let limit = self.service.limits().message_bytes_max;
        let mut response = self.admit(request, &call).instrument(call.span.clone()).await?;
        // tonic's word for a message that is too long; ours for nothing.
        if code_name(&response) == "OUT_OF_RANGE" {
            response = call.error(&too_large(limit)).into_http();
        }
        if code_name(&response) == "INTERNAL" && is_about_bytes(&response) {
            response = call.error(&Status::invalid_argument("what came is no message of this call")).into_http();
        }
        let code = code_name(&response);
        if code != "OK"
            && let Some(status) = Status::from_header_map(response.headers())
        {
            response = status::reworded(&status, str::to_owned).into_http();
        }
        metrics::request(call.method, code);
        if code != "OK" {
            log::failed(&call.span, code);
        }
        call.sign(&mut response);
        Ok(response)
    }

    /// Answers whom the service knows. Whether it is healthy may be asked by anybody: probes have no credentials.
    async fn admit(mut self, mut request: Request<Incoming>, call: &Call) -> Result<Response<Body>, Infallible> {
        if request.uri().path().starts_with(HEALTH) {
            return self.health.call(request).await;
        }
        let peer = request.extensions().get::<Arc<Peer>>().map(Arc::clone).unwrap_or_default();
        match self.service.access().caller(request.headers(), &peer) {
            Ok(caller) => {
                request.extensions_mut().insert(caller.clone());
                self.route(request, &caller, call).await
            }
            Err(status) => Ok(call.error(&status).into_http()),
        }
    }

    async fn route(
        mut self,
        request: Request<Incoming>,
        caller: &Caller,
        call: &Call,
    ) -> Result<Response<Body>, Infallible> {
        let limits = *self.service.limits();
        let path = request.uri().path();
        if path == DO_GET {
            let body = RequestTimeout::new(request.into_body(), limits.arrival);
            let answered = match read_ticket(body, limits.message_bytes_max).await {
                Ok(ticket) => self.service.messages(&ticket, caller, call).await,
                Err(status) => Err(status),
            };
            return Ok(answered.map_or_else(|status| call.error(&status).into_http(), wire::response));
        }
        if let Some(answers) = self.reflection.as_ref().and_then(|reflection| reflection.of(path)) {
            return answers(request).await;
        }
        if STREAMING.contains(&call.method) {
            return self.flight.call(request).await;
        }
        self.flight.call(request.map(|body| RequestTimeout::new(body, limits.arrival))).await
    }
}

/// The one message of the request.
async fn read_ticket(body: RequestTimeout, bytes_max: usize) -> Result<Ticket, Status> {
    let decoder = ProstDecoder::<Ticket>::new(BufferSettings::default());
    let mut messages = Streaming::new_request(decoder, body, None, Some(bytes_max));
    let ticket = messages.message().await.map_err(|status| match status.code() {
        // tonic's word for bytes that are no message: the client's mistake, and no bug of ours.
        Code::Internal => {
            status::of_words(Code::InvalidArgument, &format!("DoGet: what came is no Ticket: {}", status.message()))
        }
        _ => status,
    })?;
    ticket.ok_or_else(|| Status::invalid_argument("DoGet: the call carries no Ticket"))
}

/// Whether tonic answers so because a client's bytes are no message: INTERNAL would say that it is our bug.
fn is_about_bytes(response: &Response<Body>) -> bool {
    const WORDS: [&str; 4] = [
        "failed to decode Protobuf message",
        "protocol error",
        "Unexpected EOF decoding stream",
        "Missing request message",
    ];
    let told = Status::from_header_map(response.headers());
    told.is_some_and(|status| WORDS.iter().any(|words| status.message().starts_with(words)))
}

fn too_large(bytes_max: usize) -> Status {
    Status::resource_exhausted(format!("a message of more than {bytes_max} bytes is not taken (--message-bytes-max)"))
}
