//! The status page, `/metrics`, `/healthz` and `/readyz` over plain HTTP.
//!
//! A stalled scrape holds one connection for a bounded time, and nothing that streams need. Scrapes that arrive while a
//! page is rendered share the next page, so ten thousand concurrent scrapes cost little more than a few. Connections that
//! send no request give way to those that do, so probes are answered however many are held open.

mod places;
mod status;

use std::{
    convert::Infallible,
    io,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use forebay_runtime::{
    cpu_pool::{CpuPool, THREAD_NAME},
    metrics::{self, PoolFigures, Pools},
    shutdown::{Phase, ShutdownWatch},
};
use forebay_stream::Streams;
use http_body_util::Full;
use hyper::{Method, Request, Response, StatusCode, body::Incoming, header, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::{
    net::{TcpListener, TcpSocket},
    runtime::Handle,
    sync::Mutex,
    task::{JoinError, JoinSet, spawn_blocking},
    time,
};

use places::Places;
use status::StatusSource;

/// Limit of open connections; for a further one, another is closed.
const CONNECTIONS_MAX: usize = 1024;

/// Connections that may wait to be accepted; `net.core.somaxconn` may allow fewer.
const BACKLOG: u32 = 4096;

/// Wait after a failed accept, as when no file descriptor is free.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Lifetime of a connection.
const CONNECTION_TIME: Duration = Duration::from_secs(30);

/// Time limit for the head of a request.
const HEAD_TIME: Duration = Duration::from_secs(5);

/// What a page of this address may load and run.
const CONTENT_POLICY: &str = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'; \
                              img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The bound address of the metrics service.
#[derive(Debug)]
pub struct MetricsListener(TcpListener);

/// Sources of a page.
#[derive(Clone, Debug)]
struct Sources {
    prometheus: PrometheusHandle,
    cpu: CpuPool,
    shutdown: ShutdownWatch,
    status: StatusSource,
}

/// Renders pages, one at a time.
#[derive(Debug)]
struct Pages {
    sources: Sources,
    /// The last page, and the time at which its rendering started.
    last: Mutex<Option<(Instant, Bytes)>>,
}

impl MetricsListener {
    /// Binds an address; port 0 picks a free one.
    pub fn bind(address: SocketAddr) -> io::Result<Self> {
        let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        // A restarted server can bind its port while old connections are in TIME_WAIT.
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        socket.listen(BACKLOG).map(Self)
    }

    /// Returns the URL to scrape.
    pub fn url(&self) -> String {
        self.0
            .local_addr()
            .map_or_else(|_| "http://?/metrics".to_owned(), |address| format!("http://{address}/metrics"))
    }

    /// Serves until the future is dropped.
    pub async fn serve(
        self,
        prometheus: PrometheusHandle,
        streams: Arc<Streams>,
        cpu: CpuPool,
        shutdown: ShutdownWatch,
    ) -> Infallible {
        let sources = Sources { prometheus, cpu, shutdown, status: StatusSource::new(streams) };
        let pages = Arc::new(Pages { sources, last: Mutex::default() });
        let places = Places::new(CONNECTIONS_MAX);
        let mut connections = JoinSet::new();
        loop {
            while connections.try_join_next().is_some() {}
            let Ok((stream, _)) = self.0.accept().await else {
                // Most likely out of descriptors: one of this address may be needed here, too.
                places.close_one();
                time::sleep(ACCEPT_PAUSE).await;
                continue;
            };
            let (pages, place) = (Arc::clone(&pages), places.take());
            connections.spawn(async move {
                let service = service_fn(async |request| {
                    let _answering = place.answering();
                    Ok::<_, Infallible>(answer(&request, &pages).await)
                });
                let connection = http1::Builder::new()
                    .timer(TokioTimer::new())
                    .header_read_timeout(HEAD_TIME)
                    .serve_connection(TokioIo::new(stream), service);
                // An error means that the client disconnected or timed out.
                tokio::select! {
                    // A request that has arrived is answered before another one gets its place.
                    biased;
                    _ = time::timeout(CONNECTION_TIME, connection) => {}
                    () = place.is_taken() => {}
                }
            });
        }
    }
}

impl Sources {
    fn page(&self) -> String {
        let is_ready = self.shutdown.phase() == Phase::Serving;
        let runtime = Handle::current().metrics();
        let pools = Pools {
            is_ready,
            cpu: PoolFigures {
                threads: self.cpu.threads(),
                waiting: self.cpu.waiting(),
                longest_wait: self.cpu.longest_wait(),
            },
            cpu_thread_name: THREAD_NAME,
            runtime: PoolFigures {
                threads: runtime.num_workers(),
                waiting: runtime.global_queue_depth(),
                longest_wait: Duration::ZERO,
            },
            tasks: runtime.num_alive_tasks(),
            runtime_busy: (0..runtime.num_workers()).map(|worker| runtime.worker_total_busy_duration(worker)).sum(),
        };
        metrics::render(&self.prometheus, &pools)
    }
}

impl Pages {
    /// Returns a page whose rendering started after this call.
    async fn next(&self) -> Result<Bytes, JoinError> {
        let called = Instant::now();
        let mut last = self.last.lock().await;
        match &*last {
            Some((started, page)) if *started > called => Ok(page.clone()),
            _ => {
                let (started, sources) = (Instant::now(), self.sources.clone());
                // A page of thousands of streams takes milliseconds: too long for an I/O thread.
                let page = Bytes::from(spawn_blocking(move || sources.page()).await?);
                *last = Some((started, page.clone()));
                Ok(page)
            }
        }
    }
}

async fn answer(request: &Request<Incoming>, pages: &Pages) -> Response<Full<Bytes>> {
    let is_serving = pages.sources.shutdown.phase() == Phase::Serving;
    let text = |text: &'static str| Bytes::from_static(text.as_bytes());
    let (status, content_type, body) = match (request.method(), request.uri().path()) {
        (&Method::GET | &Method::HEAD, "/metrics") => match pages.next().await {
            Ok(page) => (StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", page),
            Err(_) => (StatusCode::INTERNAL_SERVER_ERROR, "text/plain", text("cannot render the page\n")),
        },
        (&Method::GET | &Method::HEAD, "/") => (StatusCode::OK, "text/html; charset=utf-8", text(status::PAGE)),
        (&Method::GET | &Method::HEAD, "/status.json") => {
            (StatusCode::OK, "application/json", pages.sources.status.json(is_serving).into())
        }
        (&Method::GET | &Method::HEAD, "/healthz") => (StatusCode::OK, "text/plain", text("alive\n")),
        (&Method::GET | &Method::HEAD, "/readyz") if is_serving => (StatusCode::OK, "text/plain", text("ready\n")),
        (&Method::GET | &Method::HEAD, "/readyz") => {
            (StatusCode::SERVICE_UNAVAILABLE, "text/plain", text("draining: no new streams\n"))
        }
        (&Method::GET | &Method::HEAD, _) => (
            StatusCode::NOT_FOUND,
            "text/plain",
            text("not found: expected /, /status.json, /metrics, /healthz or /readyz\n"),
        ),
        _ => (StatusCode::METHOD_NOT_ALLOWED, "text/plain", text("GET only\n")),
    };
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CONTENT_TYPE, content_type),
        (header::CACHE_CONTROL, "no-store"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        // The page runs its own script and style, and reads from this address only.
        (header::CONTENT_SECURITY_POLICY, CONTENT_POLICY),
    ] {
        headers.insert(name, header::HeaderValue::from_static(value));
    }
    response
}
