//! The calls that targets make, each to its end or to as many answers as are looked at.

use arrow_flight::{
    Action, FlightData, FlightDescriptor, FlightInfo, Ticket, flight_service_server::FlightService as _,
};
use forebay_proto::{Encoding, Message, v1};
use futures::{Stream, StreamExt};
use tonic::{Request, Status};

use crate::server::Server;

/// Answers of a stream that are taken before it is dropped: how one ends that nobody reads to its end is looked at, too.
const ANSWERS_MAX: usize = 64;

impl Server {
    /// `GetFlightInfo`.
    pub(crate) fn info(&self, descriptor: FlightDescriptor) -> Result<FlightInfo, Status> {
        let call = self.service().get_flight_info(Request::new(descriptor));
        self.hold(async { Ok(call.await?.into_inner()) })
    }

    /// `GetFlightInfo` of an epoch.
    pub(crate) fn stream_info(&self, request: &v1::StreamRequest) -> Result<FlightInfo, Status> {
        self.info(FlightDescriptor::new_cmd(forebay_proto::encode(request, Encoding::Protobuf)))
    }

    /// `GetSchema`.
    pub(crate) fn schema(&self, descriptor: FlightDescriptor) -> Result<(), Status> {
        let call = self.service().get_schema(Request::new(descriptor));
        self.hold(async { call.await.map(drop) })
    }

    /// `DoGet`.
    pub(crate) fn get(&self, ticket: Ticket) -> Result<Vec<FlightData>, Status> {
        let call = self.service().do_get(Request::new(ticket));
        self.hold(async { taken(call.await?.into_inner()).await })
    }

    /// `DoGet` of the first and the last endpoint.
    pub(crate) fn get_ends(&self, info: &FlightInfo) {
        let last = info.endpoint.last().filter(|_| info.endpoint.len() > 1);
        for endpoint in info.endpoint.first().into_iter().chain(last) {
            // How it fails has been looked at.
            let _ = self.get(endpoint.ticket.clone().unwrap_or_default());
        }
    }

    /// `DoAction`.
    pub(crate) fn act(&self, action: Action) -> Result<Vec<arrow_flight::Result>, Status> {
        let call = self.service().do_action(Request::new(action));
        self.hold(async { taken(call.await?.into_inner()).await })
    }

    /// The action of this name with a message for its body.
    pub(crate) fn act_on<M: Message>(&self, name: &str, body: &M) -> Result<Vec<arrow_flight::Result>, Status> {
        self.act(Action::new(name, forebay_proto::encode(body, Encoding::Protobuf)))
    }
}

/// The answers of a stream, or its error.
pub(crate) async fn taken<T>(mut answers: impl Stream<Item = Result<T, Status>> + Unpin) -> Result<Vec<T>, Status> {
    let mut taken = Vec::new();
    while taken.len() < ANSWERS_MAX
        && let Some(answer) = answers.next().await
    {
        taken.push(answer?);
    }
    Ok(taken)
}
