//! Answers a call: authenticates the caller, sends `DoGet` through the uncopied body and every other call through
//! tonic.

use std::{convert::Infallible, fmt::Display, sync::Arc};

use arrow_flight::{Ticket, flight_service_server::FlightServiceServer};
use bytes::Bytes;
use forebay_proto::v1::Reason;
use forebay_runtime::{log, metrics};
use hyper::{HeaderMap, Request, Response, body::Body as RequestBody};
use tonic::{Code, Status, Streaming, body::Body, codec::BufferSettings, codegen::Service as _, codegen::StdError};
use tonic_health::{pb::health_server::HealthServer, server::HealthService};
use tonic_prost::ProstDecoder;
use tracing::Instrument;

use super::{
    answer_body::{AnswerBody, ReadingTime},
    first_call::FirstCall,
    received_body::ReceivedBody,
    reflection::Reflection,
};
use crate::{
    auth::{Caller, Peer},
    flight::{
        access_log::AccessEntry,
        call::{Call, code_name, name_of},
        client_protocol,
        context::{CallContext, Resources},
        rpc::do_get::{self, Messages},
        service::Service,
        status, wire,
    },
};

pub(super) const DO_GET: &str = "/arrow.flight.protocol.FlightService/DoGet";

/// The refusal of a call while the server drains.
const DRAINING: &str = "draining: resume at another replica, or here after its restart";

/// Calls whose client may wait between the messages of its request.
const STREAMING: [&str; 3] = [DO_EXCHANGE, "DoPut", "Handshake"];

const DO_EXCHANGE: &str = "DoExchange";

/// The field of an exchange's messages, `FlightData`, that holds a descriptor.
const DESCRIPTOR: u64 = 1;

/// Calls that answer with one message.
const UNARY: [&str; 3] = ["GetFlightInfo", "GetSchema", "PollFlightInfo"];

/// The body of a request: hyper's, or one in memory.
pub trait CallBody: RequestBody<Data = Bytes, Error: Into<StdError> + Display + Send> + Unpin + Send + 'static {}

impl<B> CallBody for B where
    B: RequestBody<Data = Bytes, Error: Into<StdError> + Display + Send> + Unpin + Send + 'static
{
}

/// Answers the calls of one connection. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Router {
    resources: Resources,
    flight: FlightServiceServer<Service>,
    health: HealthServer<HealthService>,
    reflection: Option<Reflection>,
}

impl Router {
    /// Routes Flight calls to `service`, health checks to `health`, and reflection calls to `reflection`.
    pub fn new(service: Service, health: HealthServer<HealthService>, reflection: Option<Reflection>) -> Self {
        let resources = service.resources().clone();
        let flight = FlightServiceServer::new(service)
            .max_decoding_message_size(resources.message_limits.bytes_max)
            .max_encoding_message_size(usize::MAX);
        Self { resources, flight, health, reflection }
    }

    /// Answers one call.
    pub async fn answer(self, request: Request<impl CallBody>) -> Result<Response<Body>, Infallible> {
        let call = Call::of(&request);
        let peer = request.extensions().get::<Arc<Peer>>().map(Arc::clone).unwrap_or_default();
        let mut entry = AccessEntry::begin(call.clone(), &peer, self.resources.shutdown.clone());
        let limit = self.resources.message_limits.bytes_max;
        let mut response = self.admit(request, &call, &peer, &mut entry).instrument(call.span.clone()).await?;
        // tonic reports a message that is too long as OUT_OF_RANGE; this server returns that code nowhere else.
        if code_name(&response) == "OUT_OF_RANGE" {
            response = call.error(&too_large(limit)).into_http();
        }
        if code_name(&response) == "INTERNAL" && is_malformed_request(&response) {
            response = call.error(&status::refusal(Reason::InvalidRequest, "malformed request message")).into_http();
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
        call.add_id(&mut response);
        client_protocol::announce(&mut response);
        Ok(entry.until_end_of(response))
    }

    /// The messages of a `DoGet` that did not arrive over HTTP/2, under the same rules.
    pub(super) async fn get(
        &self,
        headers: &HeaderMap,
        ticket: &Ticket,
        call: &Call,
        peer: &Peer,
        entry: &mut AccessEntry,
    ) -> Result<Messages, Status> {
        let opening = async {
            let context = self.context(headers, call, peer, entry)?;
            context.memory.arrived(ticket.ticket.len() as u64)?;
            let opened = entry.tenant().scope(do_get::messages(&context, ticket)).await;
            context.memory.release();
            opened.map_err(|status| call.error(&status))
        };
        let opened = opening.instrument(call.span.clone()).await;
        let code = opened.as_ref().map_or_else(|status| name_of(status.code()), |_| name_of(Code::Ok));
        metrics::request(call.method, code);
        if opened.is_err() {
            log::failed(&call.span, code);
        }
        opened
    }

    pub(super) fn resources(&self) -> &Resources {
        &self.resources
    }

    /// Authenticates the caller and registers the call. Health checks need no credentials, because probes have none,
    /// and are answered until the server ends.
    async fn admit(
        mut self,
        mut request: Request<impl CallBody>,
        call: &Call,
        peer: &Peer,
        entry: &mut AccessEntry,
    ) -> Result<Response<Body>, Infallible> {
        if call.is_health_check {
            call.note(|facts| facts.set_caller(&Caller::anyone()));
            let (limits, memory) = (self.resources.message_limits, self.resources.calls.unauthenticated_request());
            return self.health.call(request.map(|body| ReceivedBody::whole(body, &limits, memory).small())).await;
        }
        match self.context(request.headers(), call, peer, entry) {
            Ok(context) => {
                if let Some(first) = request.extensions().get::<FirstCall>() {
                    first.arrived();
                }
                // The message may outlive its handler, in the task of a fit.
                entry.keep(context.memory.clone());
                request.extensions_mut().insert(context.caller.clone());
                request.extensions_mut().insert(call.clone());
                request.extensions_mut().insert(context.memory.clone());
                entry.tenant().scope(self.route(request, context)).await
            }
            Err(refused) => Ok(refused.into_http()),
        }
    }

    /// The context of a call whose caller is authenticated, and which a drain waits for.
    fn context(
        &self,
        headers: &HeaderMap,
        call: &Call,
        peer: &Peer,
        entry: &mut AccessEntry,
    ) -> Result<CallContext, Status> {
        let caller = self.resources.access.caller(headers, peer);
        call.note(|facts| match &caller {
            Ok(caller) => facts.set_caller(caller),
            Err(refused) => refused.principal().into_iter().for_each(|name| facts.set_principal(name)),
        });
        let caller = caller.map_err(|refused| call.error(&status::of_refusal(&refused)))?;
        entry.set_tenant(caller.tenant());
        client_protocol::check(headers).map_err(|refused| call.error(&refused))?;
        if !entry.register() {
            return Err(call.error(&status::refusal(Reason::ShuttingDown, DRAINING)));
        }
        let memory = self.resources.calls.request();
        Ok(CallContext { resources: self.resources.clone(), caller, call: call.clone(), memory })
    }

    async fn route(
        mut self,
        request: Request<impl CallBody>,
        context: CallContext,
    ) -> Result<Response<Body>, Infallible> {
        let (limits, memory) = (self.resources.message_limits, context.memory.clone());
        let (path, call) = (request.uri().path(), context.call.clone());
        if path == DO_GET {
            let body = ReceivedBody::whole(request.into_body(), &limits, memory);
            let messages = match read_ticket(body, limits.bytes_max).await {
                Ok(ticket) => do_get::messages(&context, &ticket).await,
                Err(status) => Err(status),
            };
            // The stream does not use the ticket's message.
            context.memory.release();
            return Ok(messages.map_or_else(|status| context.call.error(&status).into_http(), wire::response));
        }
        if let Some(handler) = self.reflection.as_ref().and_then(|reflection| reflection.handler(path)) {
            let received = |body| ReceivedBody::stream(body, &limits, memory, None).small();
            return handler(request.map(|body| Body::new(received(body)))).await;
        }
        let response = if STREAMING.contains(&call.method) {
            let nested = (call.method == DO_EXCHANGE).then_some(DESCRIPTOR);
            self.flight.call(request.map(|body| ReceivedBody::stream(body, &limits, memory, nested))).await
        } else {
            self.flight.call(request.map(|body| ReceivedBody::whole(body, &limits, memory))).await
        };
        let reading = match call.method {
            // The exchange reserves its outputs, and reads no more of its client before they are sent.
            DO_EXCHANGE => None,
            method if UNARY.contains(&method) => Some(ReadingTime::Rate(limits.arrival)),
            _ => Some(ReadingTime::Idle(limits.idle)),
        };
        let calls = self.resources.calls;
        response.map(|response| response.map(|body| Body::new(AnswerBody::new(body, call, calls, reading))))
    }
}

/// The one message of the request.
async fn read_ticket(body: ReceivedBody<impl CallBody>, bytes_max: usize) -> Result<Ticket, Status> {
    let decoder = ProstDecoder::<Ticket>::new(BufferSettings::default());
    let mut messages = Streaming::new_request(decoder, body, None, Some(bytes_max));
    let ticket = messages.message().await.map_err(|status| match status.code() {
        // tonic's code for a malformed message, which is the client's fault.
        Code::Internal => status::refusal(
            Reason::InvalidRequest,
            &format!("DoGet: malformed request, expected a Ticket: {}", status.message()),
        ),
        _ => status,
    })?;
    ticket.ok_or_else(|| status::refusal(Reason::InvalidRequest, "DoGet: the request has no Ticket"))
}

/// Whether tonic reports malformed bytes of the client. Its code, INTERNAL, would mean a bug of this server, whose own errors
/// name their reason.
fn is_malformed_request(response: &Response<Body>) -> bool {
    let status = Status::from_header_map(response.headers());
    status.is_some_and(|status| Reason::split(status.message()).0 == Reason::Unspecified)
}

pub(super) fn too_large(bytes_max: usize) -> Status {
    status::refusal(Reason::Limit, &format!("the message exceeds {bytes_max} bytes (--message-bytes-max)"))
}
