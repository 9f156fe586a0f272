//! `/metrics`, `/healthz` and `/readyz` over plain HTTP.
//!
//! A scrape that stalls holds one connection, for a bounded time, and nothing that streams need.

use std::{convert::Infallible, io, net::SocketAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use http_body_util::Full;
use hyper::{Method, Request, Response, StatusCode, body::Incoming, header, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::{net::TcpListener, sync::Semaphore, task::JoinSet, time};

use crate::{
    metrics,
    shutdown::{Phase, ShutdownWatch},
};

/// Connections that are open at once; further ones wait to be accepted.
const CONNECTIONS_MAX: usize = 64;

/// A connection's life.
const CONNECTION_TIME: Duration = Duration::from_secs(30);

/// The time in which a request's head must arrive.
const HEAD_TIME: Duration = Duration::from_secs(5);

/// The bound address of the metrics service.
#[derive(Debug)]
pub struct MetricsListener(TcpListener);

impl MetricsListener {
    /// Binds an address; port 0 picks a free one.
    pub async fn bind(address: SocketAddr) -> io::Result<Self> {
        TcpListener::bind(address).await.map(Self)
    }

    /// The URL to scrape.
    pub fn url(&self) -> String {
        self.0
            .local_addr()
            .map_or_else(|_| "http://?/metrics".to_owned(), |address| format!("http://{address}/metrics"))
    }

    /// Serves until it is dropped.
    pub async fn serve(self, handle: PrometheusHandle, shutdown: ShutdownWatch) -> Infallible {
        let permits = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        let mut connections = JoinSet::new();
        loop {
            // The semaphore is never closed.
            let permit = Arc::clone(&permits).acquire_owned().await;
            while connections.try_join_next().is_some() {}
            let Ok((stream, _)) = self.0.accept().await else {
                // Out of descriptors, most likely: let some close.
                time::sleep(Duration::from_millis(50)).await;
                continue;
            };
            let (handle, shutdown) = (handle.clone(), shutdown.clone());
            connections.spawn(async move {
                let service = service_fn(move |request| {
                    let response = answer(&request, &handle, &shutdown);
                    async move { Ok::<_, Infallible>(response) }
                });
                let connection = http1::Builder::new()
                    .timer(TokioTimer::new())
                    .header_read_timeout(HEAD_TIME)
                    .serve_connection(TokioIo::new(stream), service);
                // A client that breaks off is its own affair.
                let _ = time::timeout(CONNECTION_TIME, connection).await;
                drop(permit);
            });
        }
    }
}

fn answer(request: &Request<Incoming>, handle: &PrometheusHandle, shutdown: &ShutdownWatch) -> Response<Full<Bytes>> {
    let serving = shutdown.phase() == Phase::Serving;
    let (status, content_type, body) = match (request.method(), request.uri().path()) {
        (&Method::GET | &Method::HEAD, "/metrics") => {
            (StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", metrics::render(handle))
        }
        (&Method::GET | &Method::HEAD, "/healthz") => (StatusCode::OK, "text/plain", "alive\n".to_owned()),
        (&Method::GET | &Method::HEAD, "/readyz") if serving => (StatusCode::OK, "text/plain", "ready\n".to_owned()),
        (&Method::GET | &Method::HEAD, "/readyz") => {
            (StatusCode::SERVICE_UNAVAILABLE, "text/plain", "draining: takes no new streams\n".to_owned())
        }
        (&Method::GET | &Method::HEAD, _) => {
            (StatusCode::NOT_FOUND, "text/plain", "there is /metrics, /healthz and /readyz\n".to_owned())
        }
        _ => (StatusCode::METHOD_NOT_ALLOWED, "text/plain", "GET only\n".to_owned()),
    };
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static(content_type));
    response
}
