//! What reflection tells of Flight's messages is what arrow-flight reads and writes.

#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use arrow_flight::{
    Action, ActionType, Criteria, FlightData, FlightDescriptor, FlightEndpoint, FlightInfo, HandshakeRequest,
    HandshakeResponse, Location, PollInfo, PutResult, SchemaResult, Ticket,
};
use prost::Message;
use prost_reflect::{DescriptorPool, DynamicMessage, ReflectMessage};

/// Reads a message of arrow-flight's by its descriptor: every field must be known, set, and written back as it was.
fn agrees(name: &str, message: &impl Message) {
    let pool = DescriptorPool::decode(forebay_proto::FLIGHT_DESCRIPTORS).unwrap();
    let descriptor = pool.get_message_by_name(&format!("arrow.flight.protocol.{name}")).unwrap();
    let bytes = message.encode_to_vec();
    let read = DynamicMessage::decode(descriptor, bytes.as_slice()).unwrap();
    assert_known(&read);
    for field in read.descriptor().fields() {
        assert!(read.has_field(&field), "{name}.{} is not set", field.name());
    }
    assert_eq!(read.encode_to_vec(), bytes, "{name}");
}

fn assert_known(message: &DynamicMessage) {
    assert_eq!(message.unknown_fields().count(), 0, "{}", message.descriptor().full_name());
    for (_, value) in message.fields() {
        let values = match value.as_list() {
            Some(values) => values,
            None => std::slice::from_ref(value),
        };
        values.iter().filter_map(prost_reflect::Value::as_message).for_each(assert_known);
    }
}

#[test]
fn every_message_is_read_and_written_alike() {
    let bytes = || vec![1, 2, 3].into();
    let descriptor = FlightDescriptor { r#type: 2, cmd: bytes(), path: vec!["a".into(), "b".into()] };
    let ticket = Ticket { ticket: bytes() };
    let location = Location { uri: "grpc://a".into() };
    let time = prost_types::Timestamp { seconds: 5, nanos: 6 };
    let endpoint = FlightEndpoint {
        ticket: Some(ticket.clone()),
        location: vec![location.clone()],
        expiration_time: Some(time),
        app_metadata: bytes(),
    };
    let info = FlightInfo {
        schema: bytes(),
        flight_descriptor: Some(descriptor.clone()),
        endpoint: vec![endpoint.clone()],
        total_records: 7,
        total_bytes: -1,
        ordered: true,
        app_metadata: bytes(),
    };
    let poll = PollInfo {
        info: Some(info.clone()),
        flight_descriptor: Some(descriptor.clone()),
        progress: Some(0.5),
        expiration_time: Some(time),
    };
    let data = FlightData {
        flight_descriptor: Some(descriptor.clone()),
        data_header: bytes(),
        app_metadata: bytes(),
        data_body: bytes(),
    };
    agrees("HandshakeRequest", &HandshakeRequest { protocol_version: 1, payload: bytes() });
    agrees("HandshakeResponse", &HandshakeResponse { protocol_version: 1, payload: bytes() });
    agrees("Criteria", &Criteria { expression: bytes() });
    agrees("ActionType", &ActionType { r#type: "a".into(), description: "b".into() });
    agrees("Action", &Action { r#type: "a".into(), body: bytes() });
    agrees("Result", &arrow_flight::Result { body: bytes() });
    agrees("SchemaResult", &SchemaResult { schema: bytes() });
    agrees("PutResult", &PutResult { app_metadata: bytes() });
    agrees("FlightDescriptor", &descriptor);
    agrees("Ticket", &ticket);
    agrees("Location", &location);
    agrees("FlightEndpoint", &endpoint);
    agrees("FlightInfo", &info);
    agrees("PollInfo", &poll);
    agrees("FlightData", &data);
}

#[test]
fn every_call_takes_and_returns_what_arrow_flight_does() {
    let pool = DescriptorPool::decode(forebay_proto::FLIGHT_DESCRIPTORS).unwrap();
    let service = pool.get_service_by_name("arrow.flight.protocol.FlightService").unwrap();
    let calls: Vec<String> = service
        .methods()
        .map(|call| {
            let side = |streams: bool, message: &str| format!("{}{message}", if streams { "stream " } else { "" });
            let input = side(call.is_client_streaming(), call.input().name());
            let output = side(call.is_server_streaming(), call.output().name());
            format!("{}({input}) -> {output}", call.name())
        })
        .collect();
    // As in arrow-flight's FlightService.
    let expected = [
        "Handshake(stream HandshakeRequest) -> stream HandshakeResponse",
        "ListFlights(Criteria) -> stream FlightInfo",
        "GetFlightInfo(FlightDescriptor) -> FlightInfo",
        "PollFlightInfo(FlightDescriptor) -> PollInfo",
        "GetSchema(FlightDescriptor) -> SchemaResult",
        "DoGet(Ticket) -> stream FlightData",
        "DoPut(stream FlightData) -> stream PutResult",
        "DoExchange(stream FlightData) -> stream FlightData",
        "DoAction(Action) -> stream Result",
        "ListActions(Empty) -> stream ActionType",
    ];
    assert_eq!(calls, expected);
}
