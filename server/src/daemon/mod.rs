//! Lifecycle of the server: open resources, report readiness, serve, reload, drain, exit.

mod check;
mod opening;
mod reload;
mod splits;
mod state;

use std::{
    convert::Infallible,
    future,
    io::{self, Write},
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use forebay_cache::{CacheDirError, DiskTier, RowCache};
use forebay_catalog::{
    CatalogError, LocationError,
    view::{ViewLimits, Views},
};
use forebay_columns::{tokenizers::Tokenizers, udf::Udfs};
use forebay_engine::{Engine, EngineError};
use forebay_plan::Limits;
use forebay_runtime::{
    budget::Budget,
    cpu_pool::CpuPool,
    log::{self, LogError},
    metrics,
    shutdown::Shutdown,
    state::{State, StateError, is_configuration},
};
use forebay_settings::Values;
use forebay_stream::{Device, StreamParts, Streams};
use futures::{FutureExt, future::LocalBoxFuture};
use rustix::{
    fs::{Mode, chmod},
    process::{Resource, Rlimit, getrlimit, setrlimit, umask},
};
use tokio::{
    io::AsyncReadExt,
    signal::unix::{SignalKind, signal},
    task::spawn_blocking,
    time,
};

use crate::{
    auth::{Admission, Auth, PrincipalsFile, TicketKey, Tls, random_secret},
    config::{Config, Listen},
    flight::{self, Access, BindError, Listener, MessageLimits, ReflectionError, ServeSettings, Service},
    gauges,
    metrics_http::MetricsListener,
};

pub use check::{Findings, check};
use reload::Reloader;
pub use splits::splits;

/// Name of the ticket secret in the state.
const TICKET_SECRET: &str = "ticket-key";

/// Time for the remaining connections to close.
const CLOSE_TIME: Duration = Duration::from_secs(1);

/// Time between two looks for state that was not used for days.
const UNUSED_PAUSE: Duration = Duration::from_mins(15);

/// The cause of a shutdown without a grace period.
const STDIN_CLOSED: &str = "standard input closed";

/// The reason why the server did not start, or stopped.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// The log or traces cannot be started.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The CPU pool cannot be created.
    #[error("cannot start the CPU threads: {0}")]
    Threads(#[source] io::Error),
    /// The metrics recorder cannot be installed.
    #[error("metrics: {0}")]
    Metrics(#[from] metrics_exporter_prometheus::BuildError),
    /// The state cannot be used.
    #[error("--state: {0}")]
    State(#[from] StateError),
    /// The directory of finished rows cannot be used.
    #[error("--cache-dir {0}")]
    CacheDir(#[from] CacheDirError),
    /// The system provides no random numbers for a ticket key.
    #[error("cannot create a ticket key: the system provides no random numbers")]
    Random,
    /// The engine of fits cannot be created.
    #[error("fit engine: {0}")]
    Engine(#[from] EngineError),
    /// The metrics address cannot be bound.
    #[error("cannot listen on --metrics-listen {address}: {source}")]
    MetricsListen {
        /// The address.
        address: String,
        /// The cause.
        source: io::Error,
    },
    /// A Flight address cannot be bound.
    #[error(transparent)]
    Listen(#[from] BindError),
    /// The descriptors of gRPC reflection are invalid.
    #[error("--reflection: {0}")]
    Reflection(#[from] ReflectionError),
    /// The local path of a dataset does not exist.
    #[error("--dataset: {0}")]
    Dataset(#[from] LocationError),
    /// Views cannot be run.
    #[error("--view: {0}")]
    View(#[from] CatalogError),
    /// Signals cannot be received.
    #[error("signals: {0}")]
    Signals(io::Error),
}

impl DaemonError {
    /// Whether the configuration is wrong, as opposed to the machine.
    pub fn is_configuration(&self) -> bool {
        match self {
            Self::Dataset(_) | Self::View(_) | Self::CacheDir(_) => true,
            Self::State(error) => error.is_refused() || error.is_configuration(),
            Self::MetricsListen { source, .. } => is_configuration(source.kind()),
            _ => false,
        }
    }
}

/// Runs the server until it receives SIGTERM or SIGINT, or its standard input closes. `values` are the settings of the
/// configuration, which SIGHUP reloads.
///
/// The future is boxed so that it is compiled with this crate and not a second time with the program that awaits it.
pub fn run(config: Config, values: Values) -> LocalBoxFuture<'static, Result<(), DaemonError>> {
    run_until_signalled(config, values).boxed_local()
}

async fn run_until_signalled(config: Config, values: Values) -> Result<(), DaemonError> {
    // Spilled rows and results of views, which libraries and other programs write, are readable by this user only.
    let umask_before = umask(Mode::RWXG | Mode::RWXO);
    let _log = log::start(&config.log)?;
    let limits = limits(&config);
    // From here on the signal does not end the process.
    let hangups = signal(SignalKind::hangup()).map_err(DaemonError::Signals)?;
    raise_descriptor_limit();
    // Without a metrics service nothing is recorded.
    let prometheus = config.metrics_listen.map(|_| metrics::install()).transpose()?;
    let cpu = CpuPool::new(config.cpu_threads).map_err(DaemonError::Threads)?;
    let state = state::open(&config.state, &cpu).await?.with_retention(config.retention);
    let budget = Budget::new(config.memory_limit_bytes);
    let engine = Engine::new(config.fit_memory_bytes, &budget, &state)?;
    let tls = config.tls.map(Arc::new);
    let secret = (config.ticket_secret, config.ticket_lifetime);
    let auth = open_auth(config.principals, tls.as_deref(), secret, &state).await?;
    let access = Access::new(auth.clone(), Admission::new(config.streams));
    let (shutdown, watch) = Shutdown::new();
    let view_limits = ViewLimits { memory_bytes: config.view_memory_bytes, cpu_threads: config.cpu_threads };
    let views = Arc::new(Views::new(&state, view_limits, budget.clone(), watch.clone()));
    let catalog = opening::catalog(config.datasets, config.views, &views, &cpu).await?;
    let device = Device::open(config.device);
    let disk = open_disk_tier(config.cache_dir).await?;
    let cache = RowCache::new(config.cache_bytes).with_disk(disk);
    let udfs = Udfs::new(config.udfs, config.udf_timeout, cpu.clone());
    let (tokenizers, of_pool, of_state) = (Tokenizers::new(config.tokenizers), cpu.clone(), state.clone());
    let parts =
        StreamParts { catalog, engine, cpu: of_pool, budget, cache, state: of_state, limits, device, udfs, tokenizers };
    let streams = Arc::new(Streams::new(parts));

    let metrics_listener = config.metrics_listen.map(bind_metrics).transpose()?;
    let listeners = bind(&config.listen, tls.as_ref(), umask_before)?;
    let signals = ShutdownSignals::listen(config.exit_with_stdin)?;
    streams.catalog().check_paths()?;
    opening::open(streams.catalog().datasets()).await;
    announce(&listeners, metrics_listener.as_ref());

    let certificates = tls.clone();
    let reloader = Reloader { streams: Arc::clone(&streams), views, cpu: cpu.clone(), auth, tls, values };
    let (shown, tidied) = (Arc::clone(&streams), Arc::clone(&streams));
    let service = Service::new(streams, cpu.clone(), watch.clone(), config.advertise);
    let message_limits =
        MessageLimits { bytes_max: config.message_bytes_max, arrival: config.handshake, idle: config.stream_idle };
    let service = service.with_access(access).with_limits(config.requests, message_limits);
    let settings = ServeSettings {
        connection_age: config.connection_age,
        connection_grace: config.connection_grace,
        keepalive: config.keepalive,
        handshake: config.handshake,
        connections_max: config.connections_max,
        connections_per_address: config.connections_per_address,
        reflection: config.reflection,
    };
    let pages = async || -> Infallible {
        let (Some(listener), Some(prometheus)) = (metrics_listener, prometheus) else { return future::pending().await };
        let gauges = gauges::refresh(state, certificates);
        let serving = listener.serve(prometheus, shown, cpu, watch.clone());
        tokio::select! { never = serving => never, never = gauges => never }
    };
    tokio::select! {
        served = flight::serve(service, listeners, settings, watch.clone()) => served?,
        () = signals.drain(&shutdown, config.drain) => {}
        never = pages() => match never {},
        never = remove_unused(tidied) => match never {},
        never = reloader.serve(hangups) => match never {},
    }
    // Calls that were cut have a line in the log, too.
    let _ = time::timeout(CLOSE_TIME, shutdown.idle()).await;
    tracing::info!("ended");
    Ok(())
}

fn limits(config: &Config) -> Limits {
    Limits {
        batch_bytes_max: config.batch_bytes_max,
        pause_max: config.stream_pause,
        idle_max: config.stream_idle,
        groups_max: config.groups_max,
    }
}

fn bind_metrics(address: SocketAddr) -> Result<MetricsListener, DaemonError> {
    MetricsListener::bind(address).map_err(|source| DaemonError::MetricsListen { address: address.to_string(), source })
}

/// Prints the addresses of the server.
fn announce(listeners: &[Listener], metrics: Option<&MetricsListener>) {
    for listener in listeners {
        say(&listener.announcement());
    }
    if let Some(listener) = metrics {
        say(&format!("metrics on {}", listener.url()));
    }
}

/// Opens the disk tier of the cache, whose files may be many.
async fn open_disk_tier(setting: Option<(PathBuf, u64)>) -> Result<Option<Arc<DiskTier>>, DaemonError> {
    let Some((directory, bytes)) = setting else { return Ok(None) };
    let opened = spawn_blocking(move || DiskTier::open(&directory, bytes)).await;
    opened.map_err(|ended| DaemonError::Threads(io::Error::other(ended)))?.map(Some).map_err(DaemonError::from)
}

/// Binds the addresses of the Flight service, and the ring of each Unix socket.
/// Who may connect to those depends on the file mode creation mask with which the server was started.
fn bind(addresses: &[Listen], tls: Option<&Arc<Tls>>, umask: Mode) -> Result<Vec<Listener>, BindError> {
    let mut listeners = Vec::new();
    for address in addresses {
        match address {
            Listen::Tcp(address) => listeners.push(Listener::tcp(*address, tls.cloned())?),
            Listen::Unix(path) => {
                listeners.push(Listener::unix(path)?);
                open_to(path, umask);
                // Its path may be too long where the socket's is not.
                #[cfg(target_os = "linux")]
                match Listener::ring(path) {
                    Ok(ring) => {
                        listeners.push(ring);
                        open_to(&path.with_added_extension("ring"), umask);
                    }
                    Err(error) => tracing::warn!(%error, "no ring: clients on this machine use Flight"),
                }
            }
        }
    }
    Ok(listeners)
}

/// Gives a socket the permissions of a file that is created with this mask.
fn open_to(socket: &Path, umask: Mode) {
    let mode = (Mode::RWXU | Mode::RWXG | Mode::RWXO).difference(umask);
    if let Err(error) = chmod(socket, mode) {
        tracing::warn!(socket = %socket.display(), %error, "only this user can connect to the socket");
    }
}

/// Removes what was not used for a time, now and then, until the future is dropped.
async fn remove_unused(streams: Arc<Streams>) -> Infallible {
    loop {
        time::sleep(UNUSED_PAUSE).await;
        streams.remove_unused().await;
    }
}

/// The callers that the server knows. Without authentication nothing is signed, so the state needs no key.
async fn open_auth(
    principals: Option<PrincipalsFile>,
    tls: Option<&Tls>,
    (secret, lifetime): (Option<Vec<u8>>, Duration),
    state: &State,
) -> Result<Auth, DaemonError> {
    let checks_certificates = tls.is_some_and(Tls::checks_clients);
    if principals.is_none() && !checks_certificates {
        return Ok(Auth::off());
    }
    Ok(Auth::new(principals, checks_certificates, ticket_key(secret, lifetime, state).await?))
}

/// Returns the key that signs tickets: the operator's, or the one of the state, which replicas may share.
async fn ticket_key(secret: Option<Vec<u8>>, lifetime: Duration, state: &State) -> Result<TicketKey, DaemonError> {
    let secret = match secret {
        Some(secret) => secret,
        None => state.secret(TICKET_SECRET, &random_secret().ok_or(DaemonError::Random)?).await?,
    };
    Ok(TicketKey::new(&secret, lifetime))
}

/// Raises the soft limit of open files to the hard limit. Every client and every open file takes a descriptor, and the
/// soft limit, 1,024 on most machines, exists for programs that use `select`.
fn raise_descriptor_limit() {
    let limits = getrlimit(Resource::Nofile);
    let raised = setrlimit(Resource::Nofile, Rlimit { current: limits.maximum, maximum: limits.maximum });
    if let Err(error) = raised {
        tracing::debug!(%error, "cannot raise the limit of open files");
    }
}

/// Writes a line to stderr; a closed stderr is no reason to exit.
pub fn say(line: &str) {
    let _ = writeln!(io::stderr(), "{}", forebay_proto::plain_text(line, &['\n']));
}

/// The events that end the server.
struct ShutdownSignals {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
    exit_with_stdin: bool,
}

impl ShutdownSignals {
    fn listen(exit_with_stdin: bool) -> Result<Self, DaemonError> {
        Ok(Self {
            terminate: signal(SignalKind::terminate()).map_err(DaemonError::Signals)?,
            interrupt: signal(SignalKind::interrupt()).map_err(DaemonError::Signals)?,
            exit_with_stdin,
        })
    }

    /// Waits for an event, then takes the server through its phases. Returns when remaining connections have had their
    /// time to close.
    async fn drain(mut self, shutdown: &Shutdown, grace: Duration) {
        let cause = tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
            () = stdin_closed(), if self.exit_with_stdin => STDIN_CLOSED,
        };
        tracing::info!(cause, drain_seconds = grace.as_secs(), "draining: no new streams");
        let grace = if cause == STDIN_CLOSED { Duration::ZERO } else { grace };
        let cut = async {
            tokio::select! {
                () = time::sleep(grace) => {}
                // A second signal ends the drain.
                _ = self.terminate.recv() => {}
                _ = self.interrupt.recv() => {}
            }
        };
        shutdown.drain(cut).await;
        time::sleep(CLOSE_TIME).await;
    }
}

async fn stdin_closed() {
    let mut stdin = tokio::io::stdin();
    let mut buffer = [0; 1024];
    while stdin.read(&mut buffer).await.is_ok_and(|count| count > 0) {}
}
