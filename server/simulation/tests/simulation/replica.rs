//! A machine with a `forebay-server`: the server's modules from the connection down, over a simulated network and a
//! simulated bucket, through the phases of `daemon`.

use std::{
    cell::{Cell, RefCell},
    future,
    path::PathBuf,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use forebay_cache::RowCache;
use forebay_catalog::{Catalog, Location, Stores};
use forebay_columns::{tokenizers::Tokenizers, udf::Udfs};
use forebay_engine::Engine;
use forebay_plan::Limits;
use forebay_runtime::{budget::Budget, cpu_pool::CpuPool, shutdown::Shutdown, state::State};
use forebay_server::{
    auth::Peer,
    flight::{ConnectionSettings, Router, Service, lingering, serve_connections},
};
use forebay_stream::{Device, StreamParts, Streams};
use futures::FutureExt;
use hyper::{
    Request,
    body::Incoming,
    header::{DATE, HeaderValue},
};
use object_store::{BackoffConfig, RetryConfig};
use tokio::{sync::Notify, time};
use tonic_health::{
    pb::health_server::HealthServer,
    server::{HealthReporter, HealthService},
};
use turmoil::net::TcpListener;

use crate::{
    bucket::{BUCKET, Bucket},
    dataset,
    journal::Journal,
    wire::{Wire, Wires},
};

/// The port of every replica.
pub(crate) const PORT: u16 = 8815;

const MEMORY_BYTES: u64 = 256 << 20;

/// Finished rows that a replica keeps: those of some row groups.
const CACHE_BYTES: u64 = 64 << 10;

/// Send buffer of a connection. The server's default of 4 MiB would hold a whole stream.
const SENDING_BYTES: usize = 4096;

/// The daemon's settings.
const OPEN_WAIT_MAX: Duration = Duration::from_secs(10);
const KEEPALIVE: Duration = Duration::from_mins(1);

/// Attempts of a request to the bucket, with a constant pause, as the real pauses are random.
const STORE_TRIES_MAX: usize = 4;
const STORE_PAUSE: Duration = Duration::from_millis(100);

/// A machine.
#[derive(Debug)]
pub(crate) struct Replica {
    /// Its index.
    pub(crate) number: usize,
    /// Whether its server runs; otherwise no process listens on the machine.
    pub(crate) is_up: Cell<bool>,
    /// The open connections.
    pub(crate) wires: RefCell<Wires>,
    /// The drain time of running streams.
    pub(crate) grace: Cell<Duration>,
    terminate: Notify,
    portion_bytes: usize,
    state: PathBuf,
    bucket: Arc<Bucket>,
    journal: Arc<Journal>,
    urls: Vec<String>,
    calls: Arc<AtomicU64>,
}

impl Replica {
    /// A machine with a state directory, whose server advertises all replicas.
    pub(crate) fn new(
        number: usize,
        portion_bytes: usize,
        state: PathBuf,
        bucket: &Arc<Bucket>,
        journal: &Arc<Journal>,
        urls: Vec<String>,
    ) -> Rc<Self> {
        Rc::new(Self {
            number,
            is_up: Cell::new(true),
            wires: RefCell::default(),
            grace: Cell::new(Duration::ZERO),
            terminate: Notify::new(),
            portion_bytes,
            state,
            bucket: Arc::clone(bucket),
            journal: Arc::clone(journal),
            urls,
            calls: Arc::default(),
        })
    }

    /// Its name in the network.
    pub(crate) fn name(&self) -> String {
        name(self.number)
    }

    /// SIGTERM.
    pub(crate) fn terminate(&self) {
        self.terminate.notify_one();
    }

    /// Runs the processes of the machine.
    pub(crate) async fn run(self: Rc<Self>) -> turmoil::Result {
        // Discards a signal to a previous process on this machine.
        let _ = self.terminate.notified().now_or_never();
        if self.is_up.get() {
            self.serve().await?;
            self.journal.note(format_args!("{} has ended", self.name()));
        }
        // The machine continues without a server.
        future::pending().await
    }

    async fn serve(&self) -> turmoil::Result {
        let cpu = CpuPool::inline();
        let streams = self.streams(&cpu)?;
        let (shutdown, watch) = Shutdown::new();
        let datasets = streams.catalog().datasets();
        let opening = datasets.iter().map(|dataset| time::timeout(OPEN_WAIT_MAX, dataset.present()));
        futures::future::join_all(opening).await;

        let service = Service::new(streams, cpu, watch.clone(), self.urls.clone());
        let health = HealthServer::new(HealthService::from_health_reporter(HealthReporter::new()));
        let calls = Router::new(service, health, None);
        let (name, count) = (self.name(), Arc::clone(&self.calls));
        let answer = move |mut call: Request<Incoming>| {
            // Request ids and dates must not differ between runs.
            let id = format!("{name}-{}", count.fetch_add(1, Ordering::Relaxed));
            call.headers_mut().insert("x-request-id", HeaderValue::from_str(&id).unwrap());
            let calls = calls.clone();
            async move {
                let mut response = calls.answer(call).await?;
                response.headers_mut().insert(DATE, HeaderValue::from_static("Thu, 01 Jan 2026 00:00:00 GMT"));
                Ok(response)
            }
        };
        let listener = TcpListener::bind(("0.0.0.0", PORT)).await?;
        self.journal.note(format_args!("{} serves", self.name()));
        let accept = async move || {
            let (stream, peer) = listener.accept().await?;
            self.journal.note(format_args!("{} accepts {peer}", self.name()));
            let stream = lingering(Wire::new(stream, self.portion_bytes, &mut self.wires.borrow_mut()));
            let opened = future::ready(Ok((stream, Peer { address: Some(peer), certificate: None })));
            Ok((Some(peer.ip()), opened))
        };
        let settings =
            ConnectionSettings { sending_bytes: SENDING_BYTES, keepalive: KEEPALIVE, ..ConnectionSettings::default() };
        tokio::select! {
            biased;
            () = serve_connections(answer, accept, settings, &watch) => {}
            () = self.drain(&shutdown) => {}
        }
        Ok(())
    }

    fn streams(&self, cpu: &CpuPool) -> Result<Arc<Streams>, Box<dyn std::error::Error>> {
        let state = State::open(&self.state, &self.state, cpu)?;
        let backoff = BackoffConfig { init_backoff: STORE_PAUSE, max_backoff: STORE_PAUSE, base: 2.0 };
        let retry = RetryConfig { backoff, max_retries: STORE_TRIES_MAX - 1, retry_timeout: Duration::MAX };
        let mut stores = Stores::with_connector(Arc::new(self.bucket.gateway(self.number)), retry);
        let url = format!("s3://{BUCKET}/{}/", dataset::NAME);
        let location = Location::parse(dataset::NAME, &url, &mut stores)?;
        let catalog = Catalog::new([(dataset::NAME.to_owned(), location)], cpu);
        let limits = Limits {
            batch_bytes_max: MEMORY_BYTES,
            pause_max: Duration::ZERO,
            idle_max: Duration::ZERO,
            groups_max: 1000,
        };
        let budget = Budget::new(MEMORY_BYTES);
        let engine = Engine::new(MEMORY_BYTES as usize, &budget, &state)?;
        let (cpu, cache) = (cpu.clone(), RowCache::new(CACHE_BYTES));
        let (device, udfs) = (Device::Cpu, Udfs::new(Vec::new(), Duration::ZERO, cpu.clone()));
        let tokenizers = Tokenizers::new(Vec::new());
        let parts = StreamParts { catalog, engine, cpu, budget, cache, state, limits, device, udfs, tokenizers };
        Ok(Arc::new(Streams::new(parts)))
    }

    /// The shutdown phases of the daemon.
    async fn drain(&self, shutdown: &Shutdown) {
        self.terminate.notified().await;
        self.journal.note(format_args!("{} drains", self.name()));
        shutdown.drain(time::sleep(self.grace.get())).await;
    }
}

/// A replica's name in the network.
pub(crate) fn name(number: usize) -> String {
    format!("replica-{number}")
}

/// Its URL.
pub(crate) fn url(number: usize) -> String {
    format!("grpc://{}:{PORT}", name(number))
}
