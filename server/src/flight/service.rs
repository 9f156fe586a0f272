//! The Flight service of tonic: each method makes the call's context and delegates to its module in `rpc`.

use std::sync::Arc;

use arrow_flight::{
    Action, ActionType, Criteria, Empty, FlightData, FlightDescriptor, FlightInfo, HandshakeRequest, HandshakeResponse,
    PollInfo, PutResult, SchemaResult, Ticket, flight_service_server::FlightService,
};
use forebay_plan::RequestLimits;
use forebay_runtime::{cpu_pool::CpuPool, shutdown::ShutdownWatch};
use forebay_stream::Streams;
use futures::{StreamExt, TryStreamExt, stream, stream::BoxStream};
use tonic::{Request, Response, Status, Streaming};

use super::{
    access::Access,
    call_memory::CallBudget,
    context::{CallContext, Resources},
    limits::MessageLimits,
    rpc::{do_action, do_exchange, do_get, get_flight_info, get_schema, list_flights, unimplemented},
};

/// The Flight calls over the server's streams. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Service {
    resources: Resources,
}

type ResponseStream<T> = BoxStream<'static, Result<T, Status>>;

impl Service {
    /// A service that any caller may use, with the default limits.
    pub fn new(streams: Arc<Streams>, cpu: CpuPool, shutdown: ShutdownWatch, replicas: Vec<String>) -> Self {
        let resources = Resources {
            calls: CallBudget::new(streams.budget()),
            streams,
            cpu,
            shutdown,
            replicas: Arc::new(replicas),
            access: Access::default(),
            limits: RequestLimits::default(),
            message_limits: MessageLimits::default(),
        };
        Self { resources }
    }

    /// The service with access rules.
    #[must_use]
    pub fn with_access(self, access: Access) -> Self {
        Self { resources: Resources { access, ..self.resources } }
    }

    /// The service with limits.
    #[must_use]
    pub fn with_limits(self, limits: RequestLimits, message_limits: MessageLimits) -> Self {
        Self { resources: Resources { limits, message_limits, ..self.resources } }
    }

    /// Whether calls need credentials.
    pub(super) fn requires_credentials(&self) -> bool {
        self.resources.access.requires_credentials()
    }

    pub(super) fn resources(&self) -> &Resources {
        &self.resources
    }
}

#[tonic::async_trait]
impl FlightService for Service {
    type HandshakeStream = ResponseStream<HandshakeResponse>;
    type ListFlightsStream = ResponseStream<FlightInfo>;
    type DoGetStream = ResponseStream<FlightData>;
    type DoPutStream = ResponseStream<PutResult>;
    type DoActionStream = ResponseStream<arrow_flight::Result>;
    type ListActionsStream = ResponseStream<ActionType>;
    type DoExchangeStream = ResponseStream<FlightData>;

    async fn list_flights(&self, request: Request<Criteria>) -> Result<Response<Self::ListFlightsStream>, Status> {
        let context = CallContext::of(&self.resources, &request)?;
        Ok(Response::new(list_flights::infos(context).boxed()))
    }

    async fn get_flight_info(&self, request: Request<FlightDescriptor>) -> Result<Response<FlightInfo>, Status> {
        let context = CallContext::of(&self.resources, &request)?;
        get_flight_info::info(&context, request.into_inner()).await.map(Response::new)
    }

    async fn get_schema(&self, request: Request<FlightDescriptor>) -> Result<Response<SchemaResult>, Status> {
        let context = CallContext::of(&self.resources, &request)?;
        get_schema::schema(&context, request.get_ref()).await.map(Response::new)
    }

    /// Copies each body. The router answers `DoGet` with the same messages, uncopied.
    async fn do_get(&self, request: Request<Ticket>) -> Result<Response<Self::DoGetStream>, Status> {
        let context = CallContext::of(&self.resources, &request)?;
        let messages = do_get::messages(&context, request.get_ref()).await?;
        Ok(Response::new(messages.map_ok(FlightData::from).boxed()))
    }

    async fn do_action(&self, request: Request<Action>) -> Result<Response<Self::DoActionStream>, Status> {
        let context = CallContext::of(&self.resources, &request)?;
        do_action::results(&context, request.get_ref()).await.map(Response::new)
    }

    async fn list_actions(&self, _request: Request<Empty>) -> Result<Response<Self::ListActionsStream>, Status> {
        Ok(Response::new(stream::iter(do_action::types().into_iter().map(Ok)).boxed()))
    }

    async fn do_exchange(
        &self,
        request: Request<Streaming<FlightData>>,
    ) -> Result<Response<Self::DoExchangeStream>, Status> {
        let context = CallContext::of(&self.resources, &request)?;
        let outputs = do_exchange::outputs(context, request.into_inner())?;
        Ok(Response::new(outputs.boxed()))
    }

    async fn poll_flight_info(&self, _request: Request<FlightDescriptor>) -> Result<Response<PollInfo>, Status> {
        Err(unimplemented::poll_flight_info())
    }

    async fn handshake(
        &self,
        _request: Request<Streaming<HandshakeRequest>>,
    ) -> Result<Response<Self::HandshakeStream>, Status> {
        Err(unimplemented::handshake())
    }

    async fn do_put(&self, _request: Request<Streaming<FlightData>>) -> Result<Response<Self::DoPutStream>, Status> {
        Err(unimplemented::do_put())
    }
}
