//! Calls that go through the server's router: gRPC frames in, the bytes that clients receive out.

use arrow_flight::{Action, FlightData, FlightDescriptor, FlightInfo, SchemaResult, Ticket};
use bytes::{BufMut, Bytes, BytesMut};
use forebay_proto::{Encoding, Message, v1};
use http_body_util::Full;
use tonic::{
    Code, Status, Streaming,
    codec::BufferSettings,
    codegen::http::{Request, StatusCode, header::CONTENT_TYPE},
};
use tonic_prost::ProstDecoder;

use crate::server::Server;

/// Messages of a response that are read before it is dropped, so that dropping a stream early is covered too.
const MESSAGES_MAX: usize = 64;

impl Server {
    /// `GetFlightInfo`.
    pub(crate) fn info(&self, descriptor: &FlightDescriptor) -> Result<FlightInfo, Status> {
        self.call("GetFlightInfo", framed(descriptor)).map(first)
    }

    /// `GetFlightInfo` of an epoch.
    pub(crate) fn stream_info(&self, request: &v1::StreamRequest) -> Result<FlightInfo, Status> {
        self.info(&FlightDescriptor::new_cmd(forebay_proto::encode(request, Encoding::Protobuf)))
    }

    /// `GetSchema`.
    pub(crate) fn schema(&self, descriptor: &FlightDescriptor) -> Result<SchemaResult, Status> {
        self.call("GetSchema", framed(descriptor)).map(first)
    }

    /// `DoGet`.
    pub(crate) fn get(&self, ticket: &Ticket) -> Result<Vec<FlightData>, Status> {
        self.call("DoGet", framed(ticket))
    }

    /// `DoGet` of the first and the last endpoint.
    pub(crate) fn get_first_and_last(&self, info: &FlightInfo) {
        let last = info.endpoint.last().filter(|_| info.endpoint.len() > 1);
        for endpoint in info.endpoint.first().into_iter().chain(last) {
            // The invariants of an error have been checked.
            let _ = self.get(&endpoint.ticket.clone().unwrap_or_default());
        }
    }

    /// `DoAction`.
    pub(crate) fn act(&self, action: &Action) -> Result<Vec<arrow_flight::Result>, Status> {
        self.call("DoAction", framed(action))
    }

    /// `DoAction` with a message as body.
    pub(crate) fn act_on<M: Message>(&self, name: &str, body: &M) -> Result<Vec<arrow_flight::Result>, Status> {
        self.act(&Action::new(name, forebay_proto::encode(body, Encoding::Protobuf)))
    }

    /// `DoExchange` of the frames of a request.
    pub(crate) fn exchange(&self, frames: Bytes) -> Result<Vec<FlightData>, Status> {
        self.call("DoExchange", frames)
    }

    /// Makes a call with the bytes of its request, and decodes the messages of the response.
    fn call<M: prost::Message + Default + Send + 'static>(
        &self,
        method: &str,
        request: Bytes,
    ) -> Result<Vec<M>, Status> {
        let request = Request::post(format!("/arrow.flight.protocol.FlightService/{method}"))
            .header(CONTENT_TYPE, "application/grpc")
            .body(Full::new(request))
            .expect("a valid request");
        let router = self.router().clone();
        self.run(async move {
            let Ok(response) = router.answer(request).await;
            let status = Status::from_header_map(response.headers());
            if let Some(status) = status.filter(|status| status.code() != Code::Ok) {
                return Err(status);
            }
            let decoder = ProstDecoder::<M>::new(BufferSettings::default());
            let body = response.into_body();
            let mut received = Streaming::new_response(decoder, body, StatusCode::OK, None, Some(usize::MAX));
            let mut messages = Vec::new();
            while messages.len() < MESSAGES_MAX
                && let Some(message) = received.message().await?
            {
                messages.push(message);
            }
            Ok(messages)
        })
    }
}

/// A message as gRPC frames it: a flag, its length, its bytes.
fn framed(message: &impl prost::Message) -> Bytes {
    let mut frame = BytesMut::new();
    frame.put_u8(0);
    frame.put_u32(u32::try_from(message.encoded_len()).expect("a message of less than 4 GiB"));
    message.encode(&mut frame).expect("a growing buffer");
    frame.freeze()
}

/// The one message of a unary response.
fn first<M>(messages: Vec<M>) -> M {
    messages.into_iter().next().expect("a unary response without its message")
}

#[cfg(test)]
mod tests {
    use arrow_flight::FlightDescriptor;

    use crate::server::with_tables;

    #[test]
    fn reads_a_table_through_the_router() {
        with_tables(|server| {
            let info = server.info(&FlightDescriptor::new_path(vec!["t".to_owned()])).unwrap();
            let messages = server.get(info.endpoint[0].ticket.as_ref().unwrap()).unwrap();
            // A schema, then at least a batch of each row group.
            assert!(messages.len() > 4, "{}", messages.len());
            assert!(messages[0].data_body.is_empty());
            assert!(messages[1..].iter().all(|message| !message.data_body.is_empty()));
        });
    }
}
