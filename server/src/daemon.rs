//! The server's life: open what it needs, say that it is ready, serve, drain, end.

use std::{
    io::{self, IsTerminal, Write},
    panic,
    sync::Arc,
    time::Duration,
};

use tokio::{
    io::AsyncReadExt,
    signal::unix::{SignalKind, signal},
    time,
};
use tracing_subscriber::EnvFilter;

use crate::{
    budget::Budget,
    catalog::Catalog,
    config::{Config, Listen, LogFormat},
    engine::{Engine, EngineError},
    flight::{self, BindError, Listener, Service},
    http::MetricsListener,
    metrics,
    plan::Limits,
    runtime::CpuPool,
    shutdown::{Phase, Shutdown},
    state::{State, StateError},
    stream::{Device, Streams},
};

/// Time for cut streams to put their last word on the wire.
const FAREWELL: Duration = Duration::from_secs(2);

/// Before the server says that it is ready: footers of 100,000 files are read in less.
const OPEN_WAIT_MAX: Duration = Duration::from_secs(30);

/// Why the server did not start, or stopped.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// The log filter is wrong.
    #[error("--log: {0}")]
    Log(#[from] tracing_subscriber::filter::ParseError),
    /// The CPU pool could not be made.
    #[error("cannot start the CPU threads: {0}")]
    Threads(#[from] rayon::ThreadPoolBuildError),
    /// The metrics recorder could not be installed.
    #[error("metrics: {0}")]
    Metrics(#[from] metrics_exporter_prometheus::BuildError),
    /// The state directory does not work.
    #[error("--state: {0}")]
    State(#[from] StateError),
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
    /// Signals cannot be received.
    #[error("signals: {0}")]
    Signals(io::Error),
}

/// Runs the server until it is told to end.
pub async fn run(config: Config) -> Result<(), DaemonError> {
    start_log(&config)?;
    let prometheus = metrics::install()?;
    let cpu = CpuPool::new(config.cpu_threads)?;
    let state = State::open(&config.state)?;
    let engine = Engine::new(config.fit_memory_bytes, &state)?;
    let budget = Budget::new(config.memory_limit_bytes);
    let limits = Limits { batch_bytes_max: config.batch_bytes_max };
    let catalog = Catalog::new(config.datasets, &cpu);
    let device = Device::open(config.device);
    let streams = Arc::new(Streams::new(catalog, engine, cpu.clone(), budget, state, limits, device));
    let (shutdown, watch) = Shutdown::new();

    let metrics_listener = MetricsListener::bind(config.metrics_listen)
        .await
        .map_err(|source| DaemonError::MetricsListen { address: config.metrics_listen.to_string(), source })?;
    let mut listeners = Vec::with_capacity(config.listen.len());
    for address in &config.listen {
        listeners.push(match address {
            Listen::Tcp(address) => Listener::tcp(*address).await?,
            Listen::Unix(path) => Listener::unix(path)?,
        });
    }
    let ending = Ending::prepare(config.exit_with_stdin)?;
    open_datasets(&streams).await;
    for listener in &listeners {
        say(&format!("listening on {}", listener.url()));
    }
    say(&format!("metrics on {}", metrics_listener.url()));

    let service = Service::new(streams, cpu, watch.clone(), config.advertise);
    tokio::select! {
        () = flight::serve(service, listeners, watch.clone()) => {}
        () = ending.drain(&shutdown, config.drain) => {}
        never = metrics_listener.serve(prometheus, watch) => match never {},
    }
    tracing::info!("ended");
    Ok(())
}

/// Opens every dataset, so that the first request does not wait and a wrong path is seen at once; one that cannot be
/// opened is tried again when it is asked for.
///
/// A store that does not answer holds nobody up for long.
async fn open_datasets(streams: &Arc<Streams>) {
    let open = futures::future::join_all(streams.catalog().datasets().map(async |dataset| {
        if let Err(error) = dataset.present().await {
            tracing::warn!(dataset = dataset.name(), %error, "dataset cannot be read now");
        }
    }));
    if time::timeout(OPEN_WAIT_MAX, open).await.is_err() {
        tracing::warn!("some datasets take long to open: they are opened when they are asked for");
    }
}

/// One line on stderr. Nobody may be reading it any more, and that is no reason to end.
pub fn say(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
}

fn start_log(config: &Config) -> Result<(), DaemonError> {
    let filter = EnvFilter::try_new(&config.log)?;
    let json = match config.log_format {
        LogFormat::Auto => !io::stderr().is_terminal(),
        LogFormat::Human => false,
        LogFormat::Json => true,
    };
    let log =
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr).with_ansi(io::stderr().is_terminal());
    // Jobs that panic end with an error of their own; where they did is one line of the log like any other.
    panic::set_hook(Box::new(|panicked| tracing::error!(%panicked, "a job panicked")));
    // A second server in one process (tests) keeps the first one's log.
    let _ = if json { log.json().try_init() } else { log.try_init() };
    Ok(())
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
    }
}

async fn stdin_closed() {
    let mut stdin = tokio::io::stdin();
    let mut buffer = [0; 1024];
    while stdin.read(&mut buffer).await.is_ok_and(|count| count > 0) {}
}
