//! Versions of client and server: headers of real calls, and servers of other versions.

use std::net::SocketAddr;

use arrow_flight::{Action, ActionType, Criteria, Empty, FlightDescriptor, flight_service_client::FlightServiceClient};
use forebay_client::{Client, Error, Reason};
use forebay_proto::protocol::{PROTOCOL, PROTOCOL_HEADER, VERSION, VERSION_HEADER};
use tonic::{
    Code, Request, Status,
    metadata::MetadataValue,
    transport::{Channel, Endpoint},
};

use crate::server::Server;

async fn channel(server: &Server) -> FlightServiceClient<Channel> {
    let address = server.url.replace("grpc://", "http://");
    FlightServiceClient::new(Endpoint::from_shared(address).unwrap().connect().await.unwrap())
}

fn of_protocol<T>(message: T, protocol: &'static str) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert(PROTOCOL_HEADER, MetadataValue::from_static(protocol));
    request.metadata_mut().insert(VERSION_HEADER, MetadataValue::from_static("99.1.0"));
    request
}

fn refused<T>(outcome: Result<T, Status>) -> Status {
    outcome.map(drop).unwrap_err()
}

#[tokio::test]
async fn every_response_has_the_servers_version() {
    let server = Server::start();
    let mut flight = channel(&server).await;
    // A client that sends no version is any client of Flight.
    let answer = flight.list_flights(Criteria::default()).await.unwrap();
    assert_eq!(answer.metadata().get(VERSION_HEADER).unwrap(), VERSION);
    assert_eq!(answer.metadata().get(PROTOCOL_HEADER).unwrap(), &*PROTOCOL.to_string());
    let status = refused(flight.get_flight_info(FlightDescriptor::new_path(vec!["none".into()])).await);
    assert_eq!(status.metadata().get(VERSION_HEADER).unwrap(), VERSION);
    let client = Client::connect(&server.url).await.unwrap();
    let found = client.server_version().await.unwrap();
    assert_eq!((found.version.as_deref(), found.protocol), (Some(VERSION), Some(PROTOCOL)));
    assert!(found.date.unwrap().ends_with("GMT"));
}

#[tokio::test]
async fn a_client_of_another_protocol_is_refused_in_every_call() {
    let server = Server::start();
    let mut flight = channel(&server).await;
    let action = Action { r#type: "plans".into(), body: "{}".into() };
    let statuses = [
        refused(flight.list_flights(of_protocol(Criteria::default(), "7")).await),
        refused(flight.list_actions(of_protocol(Empty {}, "7")).await),
        refused(flight.do_action(of_protocol(action, "7")).await),
        refused(flight.do_get(of_protocol(arrow_flight::Ticket::default(), "7")).await),
    ];
    for status in statuses {
        assert_eq!(status.code(), Code::FailedPrecondition);
        assert_eq!(Reason::split(status.message()).0, Reason::IncompatibleVersion);
        let expected =
            format!("this client, forebay 99.1.0, uses protocol 7, and this server, forebay-server {VERSION}");
        assert!(status.message().contains(&expected) && status.message().contains("upgrade the server"), "{status}");
    }
    let older = refused(flight.list_actions(of_protocol(Empty {}, "0")).await);
    assert!(older.message().contains("upgrade the client to version"), "{older}");
    let odd = refused(flight.list_actions(of_protocol(Empty {}, "new")).await);
    assert_eq!(odd.code(), Code::InvalidArgument, "{odd}");
    let types: Vec<ActionType> =
        futures::TryStreamExt::try_collect(flight.list_actions(of_protocol(Empty {}, "1")).await.unwrap().into_inner())
            .await
            .unwrap();
    assert!(types.iter().any(|one| one.r#type == "check_plan"));
}

#[tokio::test]
async fn a_server_of_an_older_protocol_is_an_error_that_names_both() {
    let (address, _server) = older_server("0").await;
    let client = Client::connect(&format!("grpc://{address}")).await.unwrap();
    let error = client.list().await.unwrap_err();
    assert!(matches!(&error, Error::IncompatibleVersion { protocol: 0, .. }), "{error:?}");
    assert_eq!(error.reason(), Reason::IncompatibleVersion);
    let text = error.to_string();
    assert!(
        text.contains("forebay-server 0.0.9") && text.contains(VERSION) && text.contains("upgrade the server"),
        "{text}"
    );
    // A newer server decides itself which clients it serves.
    let (address, _server) = older_server("7").await;
    let client = Client::connect(&format!("grpc://{address}")).await.unwrap();
    assert!(client.list().await.unwrap().is_empty());
}

/// A server that answers every call with no message, and says that it is of another version.
async fn older_server(protocol: &'static str) -> (SocketAddr, tokio::task::JoinHandle<()>) {
    use http_body_util::Empty as EmptyBody;
    use hyper::{Response, server::conn::http2, service::service_fn};
    use hyper_util::rt::{TokioExecutor, TokioIo};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let serve = async move {
        while let Ok((stream, _)) = listener.accept().await {
            let service = service_fn(move |_| async move {
                Response::builder()
                    .header("content-type", "application/grpc")
                    .header("grpc-status", "0")
                    .header(VERSION_HEADER, "0.0.9")
                    .header(PROTOCOL_HEADER, protocol)
                    .body(EmptyBody::<bytes::Bytes>::new())
            });
            let connection = http2::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service);
            tokio::spawn(connection);
        }
    };
    (address, tokio::spawn(serve))
}
