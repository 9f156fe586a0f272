//! The descriptors of Flight that reflection returns match the messages of arrow-flight.

#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

use arrow_flight::{
    Action, ActionType, Criteria, FlightData, FlightDescriptor, FlightEndpoint, FlightInfo, HandshakeRequest,
    HandshakeResponse, Location, PollInfo, PutResult, SchemaResult, Ticket,
};
use prost::Message;
use prost_reflect::{DescriptorPool, DynamicMessage, ReflectMessage};

/// Checks a message of arrow-flight with its descriptor: every field is known, set, and round-trips.
fn assert_matches(name: &str, message: &impl Message) {
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
fn messages_match() {
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
    assert_matches("HandshakeRequest", &HandshakeRequest { protocol_version: 1, payload: bytes() });
    assert_matches("HandshakeResponse", &HandshakeResponse { protocol_version: 1, payload: bytes() });
    assert_matches("Criteria", &Criteria { expression: bytes() });
    assert_matches("ActionType", &ActionType { r#type: "a".into(), description: "b".into() });
    assert_matches("Action", &Action { r#type: "a".into(), body: bytes() });
    assert_matches("Result", &arrow_flight::Result { body: bytes() });
    assert_matches("SchemaResult", &SchemaResult { schema: bytes() });
    assert_matches("PutResult", &PutResult { app_metadata: bytes() });
    assert_matches("FlightDescriptor", &descriptor);
    assert_matches("Ticket", &ticket);
    assert_matches("Location", &location);
    assert_matches("FlightEndpoint", &endpoint);
    assert_matches("FlightInfo", &info);
    assert_matches("PollInfo", &poll);
    assert_matches("FlightData", &data);
}

#[test]
fn calls_match() {
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
