//! gRPC health service, as called by load balancers and probes.

use std::{sync::Arc, time::Duration};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::time::timeout;
use tonic::{Code, transport::Endpoint};
use tonic_health::pb::{HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient};

use crate::{data, server::Server};

const FLIGHT: &str = "arrow.flight.protocol.FlightService";

#[tokio::test]
async fn reports_serving_until_the_server_drains() {
    let folder = Arc::new(TempDir::new().unwrap());
    data::write(&folder.path().join("numbers"));
    let arguments = ["--state", "state", "--listen", "127.0.0.1:0", "--drain-seconds", "600"];
    let server = Server::over(folder, &["numbers"], &arguments);
    let address = server.url.replace("grpc://", "http://");
    let channel = Endpoint::from_shared(address).unwrap().connect().await.unwrap();
    let mut client = HealthClient::new(channel);
    let request = |service: &str| HealthCheckRequest { service: service.to_owned() };
    for service in ["", FLIGHT] {
        let status = client.check(request(service)).await.unwrap().into_inner().status();
        assert_eq!(status, ServingStatus::Serving, "{service:?}");
    }
    assert_eq!(client.check(request("no.such.Service")).await.unwrap_err().code(), Code::NotFound);

    let mut watched = client.watch(request(FLIGHT)).await.unwrap().into_inner();
    assert_eq!(watched.message().await.unwrap().unwrap().status(), ServingStatus::Serving);
    kill_process(Pid::from_raw(server.id().cast_signed()).unwrap(), Signal::TERM).unwrap();
    assert_eq!(watched.message().await.unwrap().unwrap().status(), ServingStatus::NotServing);
    // A watch ends at once and does not delay the drain, which may take ten minutes.
    let ended = timeout(Duration::from_mins(1), watched.message()).await;
    assert!(ended.unwrap().unwrap().is_none());
    server.wait_for_end(Duration::from_mins(1)).await;
}
