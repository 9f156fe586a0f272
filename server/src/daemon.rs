//! The server's life: open what it needs, say that it is ready, serve, drain, end.

use std::{
    convert::Infallible,
    future,
    io::{self, Write},
    sync::Arc,
    time::Duration,
};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::{
    io::AsyncReadExt,
    signal::unix::{SignalKind, signal},
    time,
};

use crate::{
    auth::{Admission, Auth, TicketKey, random_secret},
    budget::Budget,
    catalog::{Catalog, Dataset},
    config::{Config, Listen},
    cpu_pool::CpuPool,
    engine::{Engine, EngineError},
    flight::{self, Access, BindError, Listener, ReflectionError, ServeSettings, Service},
    log::{self, LogError},
    metrics,
    metrics_http::MetricsListener,
    plan::Limits,
    shutdown::{Phase, Shutdown},
    state::{State, StateError},
    stream::{Device, Streams},
};

/// The file of the state directory that holds the secret of tickets.
const TICKET_SECRET: &str = "ticket-key";

/// Time for cut streams to put their last word on the wire.
const FAREWELL: Duration = Duration::from_secs(2);

/// Time for the connections that are left to be closed.
const CLOSING: Duration = Duration::from_secs(1);

/// Before the server says that it is ready: footers of 100,000 files are read in less.
const OPEN_WAIT_MAX: Duration = Duration::from_secs(30);

/// For a store that has not said by then what files there are, nobody waits longer: it is asked for 35 s and more.
const ANSWER_WAIT_MAX: Duration = Duration::from_secs(10);

/// Why the server did not start, or stopped.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// Nothing can be logged or traced.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The CPU pool could not be made.
    #[error("cannot start the CPU threads: {0}")]
    Threads(#[from] rayon::ThreadPoolBuildError),
    /// The metrics recorder could not be installed.
    #[error("metrics: {0}")]
    Metrics(#[from] metrics_exporter_prometheus::BuildError),
    /// The state directory does not work.
    #[error("--state: {0}")]
    State(#[from] StateError),
    /// The machine gives no random numbers, and tickets are to be signed.
    #[error("a key for tickets needs random numbers, and this machine gives none")]
    Random,
    /// The engine could not be made.
    #[error("the fit engine: {0}")]
    Engine(#[from] EngineError),
    /// The metrics address cannot be bound.
    #[error("cannot listen on --metrics-listen {address}: {source}")]
    MetricsListen {
        /// The address.
        address: String,
        /// Why.
        source: io::Error,
    },
    /// A Flight address cannot be bound.
    #[error(transparent)]
    Listen(#[from] BindError),
    /// What gRPC reflection tells is broken.
    #[error("--reflection: {0}")]
    Reflection(#[from] ReflectionError),
    /// Signals cannot be received.
    #[error("signals: {0}")]
    Signals(io::Error),
}

/// Runs the server until it is told to end.
pub async fn run(config: Config) -> Result<(), DaemonError> {
    let _log = log::start(&config.log)?;
    raise_descriptor_limit();
    // Where nobody can ask for numbers, none are kept.
    let prometheus = config.metrics_listen.map(|_| metrics::install()).transpose()?;
    let cpu = CpuPool::new(config.cpu_threads)?;
    let state = State::open(&config.state)?;
    let engine = Engine::new(config.fit_memory_bytes, &state)?;
    let budget = Budget::new(config.memory_limit_bytes);
    let tls = config.tls.map(Arc::new);
    let checks_certificates = tls.as_ref().is_some_and(|tls| tls.checks_clients());
    // Where nobody is asked who they are, nothing is signed, and the state directory need not hold a key.
    let auth = if config.principals.is_some() || checks_certificates {
        let key = ticket_key(config.ticket_secret, config.ticket_lifetime, &state)?;
        Auth::new(config.principals, checks_certificates, key)
    } else {
        Auth::off()
    };
    let access = Access::new(auth, Admission::new(config.streams));
    let limits = Limits { batch_bytes_max: config.batch_bytes_max, idle_max: config.stream_idle };
    let catalog = Catalog::new(config.datasets, &cpu);
    let device = Device::open(config.device);
    let streams = Arc::new(Streams::new(catalog, engine, cpu.clone(), budget, state, limits, device));
    let (shutdown, watch) = Shutdown::new();

    let metrics_listener = match config.metrics_listen {
        None => None,
        Some(address) => {
            let bound = MetricsListener::bind(address).await;
            Some(bound.map_err(|source| DaemonError::MetricsListen { address: address.to_string(), source })?)
        }
    };
    let mut listeners = Vec::with_capacity(config.listen.len());
    for address in &config.listen {
        listeners.push(match address {
            Listen::Tcp(address) => Listener::tcp(*address, tls.clone())?,
            Listen::Unix(path) => Listener::unix(path)?,
        });
    }
    let ending = Ending::prepare(config.exit_with_stdin)?;
    open_datasets(&streams).await;
    for listener in &listeners {
        say(&format!("listening on {}", listener.url()));
    }
    if let Some(listener) = &metrics_listener {
        say(&format!("metrics on {}", listener.url()));
    }

    let service = Service::new(streams, cpu.clone(), watch.clone(), config.advertise);
    let service = service.with_rules(access, config.requests);
    let settings = ServeSettings {
        connection_age: config.connection_age,
        connection_grace: config.connection_grace,
        keepalive: config.keepalive,
        handshake: config.requests.arrival,
        connections_max: config.connections_max,
        reflection: config.reflection,
    };
    let pages = async || -> Infallible {
        match (metrics_listener, prometheus) {
            (Some(listener), Some(prometheus)) => listener.serve(prometheus, cpu, watch.clone()).await,
            _ => future::pending().await,
        }
    };
    tokio::select! {
        served = flight::serve(service, listeners, settings, watch.clone()) => served?,
        () = ending.drain(&shutdown, config.drain) => {}
        never = pages() => match never {},
    }
    tracing::info!("ended");
    Ok(())
}

/// What signs tickets: the operator's secret, or one that all who share the state directory share.
fn ticket_key(secret: Option<Vec<u8>>, lifetime: Duration, state: &State) -> Result<TicketKey, DaemonError> {
    let secret = match secret {
        Some(secret) => secret,
        None => state.secret(TICKET_SECRET, &random_secret().ok_or(DaemonError::Random)?)?,
    };
    Ok(TicketKey::new(&secret, lifetime))
}

/// Opens every dataset, so that the first request does not wait and a wrong path is seen at once; one that cannot be
/// opened is tried again when it is asked for.
///
/// A store that does not answer holds nobody up for long.
async fn open_datasets(streams: &Arc<Streams>) {
    let open = async |dataset: &Arc<Dataset>| {
        if let Err(error) = dataset.present().await {
            tracing::warn!(dataset = dataset.name(), %error, "dataset cannot be read now");
        }
    };
    let too_long = async |dataset: &Arc<Dataset>| {
        time::sleep(ANSWER_WAIT_MAX).await;
        if dataset.has_answered() {
            time::sleep(OPEN_WAIT_MAX.saturating_sub(ANSWER_WAIT_MAX)).await;
        }
    };
    let opened = streams.catalog().datasets().map(async |dataset| {
        tokio::select! {
            () = open(dataset) => {}
            () = too_long(dataset) => {
                tracing::warn!(dataset = dataset.name(), "dataset takes long to open: it is opened when it is asked for");
            }
        }
    });
    futures::future::join_all(opened).await;
}

/// Every client is a descriptor, and so is every file that is read: the soft limit, 1,024 on most machines, is for
/// programs that cannot take more.
fn raise_descriptor_limit() {
    let limits = getrlimit(Resource::Nofile);
    let raised = setrlimit(Resource::Nofile, Rlimit { current: limits.maximum, maximum: limits.maximum });
    if let Err(error) = raised {
        tracing::debug!(%error, "the limit of open files stays as it is");
    }
}

/// One line on stderr. Nobody may be reading it any more, and that is no reason to end.
pub fn say(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// What tells the server to end.
struct Ending {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
    exit_with_stdin: bool,
}

impl Ending {
    fn prepare(exit_with_stdin: bool) -> Result<Self, DaemonError> {
        Ok(Self {
            terminate: signal(SignalKind::terminate()).map_err(DaemonError::Signals)?,
            interrupt: signal(SignalKind::interrupt()).map_err(DaemonError::Signals)?,
            exit_with_stdin,
        })
    }

    /// Waits for the word, then leads the server through its phases. Returns when it is time to stop waiting for
    /// connections that do not close.
    async fn drain(mut self, shutdown: &Shutdown, grace: Duration) {
        let why = tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
            () = stdin_closed(), if self.exit_with_stdin => "standard input closed",
        };
        tracing::info!(why, drain_seconds = grace.as_secs(), "draining: no new streams");
        shutdown.enter(Phase::Draining);
        tokio::select! {
            () = time::sleep(if why == "standard input closed" { Duration::ZERO } else { grace }) => {}
            // Said twice: do not wait.
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
        shutdown.enter(Phase::Ended);
        time::sleep(FAREWELL).await;
        shutdown.enter(Phase::Closed);
        time::sleep(CLOSING).await;
    }
}

async fn stdin_closed() {
    let mut stdin = tokio::io::stdin();
    let mut buffer = [0; 1024];
    while stdin.read(&mut buffer).await.is_ok_and(|count| count > 0) {}
}
