//! What the operator says: flags, environment, TOML file → a checked `Config`.
//!
//! The struct of flags is the one table: it gives flag, `FOREBAY_…` variable, TOML key, default and help, and the
//! book's table is rendered from it (`tests/readme.rs`).

mod access;
mod datasets;

use std::{
    env,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use clap::Parser;

use crate::{
    auth::{PrincipalsFile, StreamLimits, Tls},
    catalog::{Location, LocationError},
    expr::OPERATORS_MAX,
    log::{self, LogFormat, LogSettings},
    plan::{OPS_MAX, PLAN_COLUMNS_MAX, RequestLimits},
    stream::DeviceName,
};

/// Forebay's server: streams Parquet datasets to training loops over Arrow Flight.
#[derive(Clone, Debug, Parser)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
#[command(name = "forebay-server", version, about, long_about = None)]
pub struct Flags {
    /// A dataset: a directory, a file or a glob of Parquet (optionally as file://), the same in a bucket
    /// (s3://bucket/…, gs://…, az://container/…), or one file on a web server (https://…/a.parquet). A store's
    /// credentials, region and endpoint come from the server's environment under their usual names, such as
    /// AWS_ACCESS_KEY_ID and AWS_ENDPOINT_URL. May be repeated; in the environment, one per line.
    #[expect(clippy::doc_markdown, reason = "the words of --help")]
    #[arg(long, env = "FOREBAY_DATASET", value_name = "NAME=URL", required = true, value_delimiter = '\n')]
    dataset: Vec<String>,

    /// Unit in which a dataset's INT96 timestamps are read: us (the default) holds every date from year 1 to 9999 and
    /// drops fractions of a microsecond; ns keeps them, and rejects row groups with dates outside 1677 to 2262. May be
    /// repeated.
    #[arg(long, env = "FOREBAY_INT96_UNIT", value_name = "NAME=UNIT", value_delimiter = '\n')]
    int96_unit: Vec<String>,

    /// Address of the Flight service: HOST:PORT (port 0 picks a free one) or unix:PATH. May be repeated.
    #[arg(
        long,
        env = "FOREBAY_LISTEN",
        value_name = "ADDRESS",
        default_value = "127.0.0.1:8815",
        value_delimiter = '\n'
    )]
    listen: Vec<String>,

    /// URL at which clients reach a replica of this server, including itself. The endpoints of a flight list them all
    /// in this order, so that clients resume at another one when a stream breaks. May be repeated.
    #[arg(long, env = "FOREBAY_ADVERTISE", value_name = "URL", value_delimiter = '\n')]
    advertise: Vec<String>,

    /// Address of /metrics, /healthz and /readyz over HTTP; off: none of them, and nothing is counted.
    #[arg(long, env = "FOREBAY_METRICS_LISTEN", value_name = "ADDRESS", default_value = "127.0.0.1:9815")]
    metrics_listen: String,

    /// Directory of state that survives a restart: fitted plans and row counts; fits spill there too [default: forebay
    /// under the user's state directory, which is ~/.local/state]
    #[arg(long, env = "FOREBAY_STATE", value_name = "DIR")]
    state: Option<String>,

    /// Seconds that running streams get after SIGTERM before they are cut.
    #[arg(long, env = "FOREBAY_DRAIN_SECONDS", value_name = "SECONDS", default_value_t = 30)]
    drain_seconds: u64,

    /// Seconds after which the server asks a client to open a new connection, which may lead to another replica; 0:
    /// never.
    #[arg(long, env = "FOREBAY_CONNECTION_AGE_SECONDS", value_name = "SECONDS", default_value_t = 0)]
    connection_age_seconds: u64,

    /// Seconds that streams on such a connection get before it is closed.
    #[arg(long, env = "FOREBAY_CONNECTION_GRACE_SECONDS", value_name = "SECONDS", default_value_t = 300)]
    connection_grace_seconds: u64,

    /// Idle seconds before a keepalive ping. A client that does not answer within 20 seconds is disconnected, and
    /// everything it holds is released; 0: never.
    #[arg(long, env = "FOREBAY_KEEPALIVE_SECONDS", value_name = "SECONDS", default_value_t = 60)]
    keepalive_seconds: u64,

    /// Bytes that all streams together may hold; 0: half of the machine's memory.
    #[arg(long, env = "FOREBAY_MEMORY_LIMIT_BYTES", value_name = "BYTES", default_value_t = 0)]
    memory_limit_bytes: u64,

    /// Bytes that the aggregates of fits may hold before they spill to disk.
    #[arg(long, env = "FOREBAY_FIT_MEMORY_BYTES", value_name = "BYTES", default_value_t = 1 << 30)]
    fit_memory_bytes: u64,

    /// Largest batch, in bytes.
    #[arg(long, env = "FOREBAY_BATCH_BYTES_MAX", value_name = "BYTES", default_value_t = 1 << 30,
          value_parser = clap::value_parser!(u64).range(1..=BATCH_BYTES_CEILING))]
    batch_bytes_max: u64,

    /// Threads that decode and compute; 0: one per core.
    #[arg(long, env = "FOREBAY_CPU_THREADS", value_name = "COUNT", default_value_t = 0,
          value_parser = clap::value_parser!(u32).range(0..=1024))]
    cpu_threads: u32,

    /// Device that computes features: cpu, or cuda:N for GPU number N. If the GPU cannot be used, or an output does not
    /// run on one, the server logs it and uses the CPU.
    #[arg(long, env = "FOREBAY_DEVICE", value_name = "DEVICE", default_value = "cpu")]
    device: String,

    /// What is logged on stderr: error, warn, info, debug or trace, or a filter in tracing's syntax.
    #[arg(long, env = "FOREBAY_LOG", value_name = "FILTER", default_value = "info")]
    log: String,

    /// Format of the log; auto: human-readable on a terminal, JSON otherwise.
    #[arg(long, env = "FOREBAY_LOG_FORMAT", value_name = "FORMAT", default_value = "auto")]
    log_format: LogFormat,

    /// An OpenTelemetry collector that receives a trace of every call over OTLP's gRPC, such as http://127.0.0.1:4317;
    /// a client's traceparent is continued. Service name, sampling and headers come from OpenTelemetry's own variables.
    #[expect(clippy::doc_markdown, reason = "the words of --help")]
    #[arg(long, env = "FOREBAY_OTLP_ENDPOINT", value_name = "URL")]
    otlp_endpoint: Option<String>,

    /// Enable gRPC server reflection, with which tools such as grpcurl list the calls.
    #[arg(long, env = "FOREBAY_REFLECTION")]
    reflection: bool,

    /// Certificate chain of the server, in PEM; TCP addresses of --listen then accept only TLS. Re-read when it
    /// changes, as are all files of keys and principals.
    #[arg(long, env = "FOREBAY_TLS_CERT", value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,

    /// Private key of --tls-cert, in PEM.
    #[arg(long, env = "FOREBAY_TLS_KEY", value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,

    /// Certificate authorities in PEM; clients must present a certificate issued by one of them (mutual TLS).
    #[arg(long, env = "FOREBAY_TLS_CLIENT_CA", value_name = "FILE", requires = "tls_cert")]
    tls_client_ca: Option<PathBuf>,

    /// Principals, in TOML: a table for each, such as [trainer], with token_sha256 (of its bearer tokens) or
    /// certificate (names of its client certificates), datasets (names, with * as a wildcard), and optionally
    /// streams_max and calls_per_second.
    #[expect(clippy::doc_markdown, reason = "the words of --help")]
    #[arg(long, env = "FOREBAY_PRINCIPALS", value_name = "FILE")]
    principals: Option<PathBuf>,

    /// Secret that signs tickets when callers are authenticated, at least 32 bytes; replicas share it [default: created
    /// at first use under --state]
    #[arg(long, env = "FOREBAY_TICKET_KEY", value_name = "FILE")]
    ticket_key: Option<PathBuf>,

    /// Seconds for which a signed ticket is valid.
    #[arg(long, env = "FOREBAY_TICKET_SECONDS", value_name = "SECONDS", default_value_t = 3600)]
    ticket_seconds: u64,

    /// Streams that may be open at once; further ones are refused immediately, with the time after which to retry.
    #[arg(long, env = "FOREBAY_STREAMS_MAX", value_name = "COUNT", default_value_t = 4096,
          value_parser = clap::value_parser!(u32).range(1..))]
    streams_max: u32,

    /// The same for the streams of one client: a principal, or an address if callers are not authenticated.
    #[arg(long, env = "FOREBAY_STREAMS_PER_CLIENT", value_name = "COUNT", default_value_t = 4096,
          value_parser = clap::value_parser!(u32).range(1..))]
    streams_per_client: u32,

    /// Seconds after which a stream whose client takes no batch releases its memory: it ends with the position to
    /// resume from.
    #[arg(long, env = "FOREBAY_STREAM_IDLE_SECONDS", value_name = "SECONDS", default_value_t = 21_600)]
    stream_idle_seconds: u64,

    /// Connections that may be open at once; calls on further ones are refused, with the time after which to retry.
    #[arg(long, env = "FOREBAY_CONNECTIONS_MAX", value_name = "COUNT", default_value_t = 16_384,
          value_parser = clap::value_parser!(u32).range(1..))]
    connections_max: u32,

    /// Seconds in which a client must complete the TLS handshake and the HTTP/2 preface, and in which the request of
    /// each of its calls must arrive.
    #[arg(long, env = "FOREBAY_HANDSHAKE_SECONDS", value_name = "SECONDS", default_value_t = 10,
          value_parser = clap::value_parser!(u64).range(1..=3600))]
    handshake_seconds: u64,

    /// Largest gRPC message that is accepted, in bytes, such as a batch of an exchange.
    #[arg(long, env = "FOREBAY_MESSAGE_BYTES_MAX", value_name = "BYTES", default_value_t = MESSAGE_BYTES_CEILING,
          value_parser = clap::value_parser!(u64).range(1024..=MESSAGE_BYTES_CEILING))]
    message_bytes_max: u64,

    /// Largest request including its plan, in bytes.
    #[arg(long, env = "FOREBAY_PLAN_BYTES_MAX", value_name = "BYTES", default_value_t = forebay_proto::JSON_BYTES_MAX as u64,
          value_parser = clap::value_parser!(u64).range(1..=forebay_proto::JSON_BYTES_MAX as u64))]
    plan_bytes_max: u64,

    /// Most columns of a plan's outputs, before ops widen them.
    #[arg(long, env = "FOREBAY_PLAN_COLUMNS_MAX", value_name = "COUNT", default_value_t = PLAN_COLUMNS_MAX as u64,
          value_parser = clap::value_parser!(u64).range(1..=PLAN_COLUMNS_MAX as u64))]
    plan_columns_max: u64,

    /// Most ops in the chain of a part of a plan.
    #[arg(long, env = "FOREBAY_PLAN_OPS_MAX", value_name = "COUNT", default_value_t = OPS_MAX as u64,
          value_parser = clap::value_parser!(u64).range(1..=OPS_MAX as u64))]
    plan_ops_max: u64,

    /// Most operators in an expression, which bounds its depth.
    #[arg(long, env = "FOREBAY_EXPRESSION_OPERATORS_MAX", value_name = "COUNT", default_value_t = OPERATORS_MAX as u64,
          value_parser = clap::value_parser!(u64).range(1..=OPERATORS_MAX as u64))]
    expression_operators_max: u64,

    /// Concurrent requests to each store behind a network; further ones wait.
    #[arg(long, env = "FOREBAY_STORAGE_REQUESTS_MAX", value_name = "COUNT", default_value_t = 256,
          value_parser = clap::value_parser!(u32).range(1..=65_536))]
    storage_requests_max: u32,

    /// Allow --metrics-listen on an address that other machines can reach: any client that reaches it can read names of
    /// datasets and how much they are used, without encryption.
    #[arg(long, env = "FOREBAY_METRICS_PUBLIC")]
    metrics_public: bool,

    /// Allow --listen and --metrics-listen on addresses that other machines can reach without TLS (--tls-cert) and
    /// without credentials (--principals or --tls-client-ca): any client that reaches the port can read every dataset,
    /// and anyone on the network can intercept it.
    #[arg(long, env = "FOREBAY_INSECURE_PUBLIC")]
    insecure_public: bool,

    /// Exit when standard input closes: for a parent process that owns this server.
    #[arg(long, env = "FOREBAY_EXIT_WITH_STDIN")]
    exit_with_stdin: bool,
}

/// The configuration, checked.
#[derive(Debug)]
pub struct Config {
    /// Names and places.
    pub datasets: Vec<(String, Location)>,
    /// Where Flight is served.
    pub listen: Vec<Listen>,
    /// URLs of every replica.
    pub advertise: Vec<String>,
    /// Where metrics are served, if anywhere.
    pub metrics_listen: Option<SocketAddr>,
    /// The state directory.
    pub state: PathBuf,
    /// Time for running streams after SIGTERM.
    pub drain: Duration,
    /// The age at which connections are asked to go; zero: none.
    pub connection_age: Duration,
    /// Time for streams on such connections.
    pub connection_grace: Duration,
    /// The time without a word from a client after which it is asked; zero: never.
    pub keepalive: Duration,
    /// The memory budget of streams.
    pub memory_limit_bytes: u64,
    /// The memory of fits.
    pub fit_memory_bytes: usize,
    /// The largest batch.
    pub batch_bytes_max: u64,
    /// Threads of the CPU pool; 0: one a core.
    pub cpu_threads: usize,
    /// Where features are computed.
    pub device: DeviceName,
    /// What is logged and traced.
    pub log: LogSettings,
    /// Whether tools may ask for the calls.
    pub reflection: bool,
    /// Whether the server ends with its standard input.
    pub exit_with_stdin: bool,
    /// What TCP listeners speak.
    pub tls: Option<Tls>,
    /// Who may call.
    pub principals: Option<PrincipalsFile>,
    /// What signs tickets; none: a secret of the state directory.
    pub ticket_secret: Option<Vec<u8>>,
    /// How long tickets may be used.
    pub ticket_lifetime: Duration,
    /// Streams that may be open.
    pub streams: StreamLimits,
    /// After so long without a client that takes something a stream gives back its memory.
    pub stream_idle: Duration,
    /// Connections that may be open.
    pub connections_max: usize,
    /// What a request may be.
    pub requests: RequestLimits,
}

/// An address to listen on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    /// TCP.
    Tcp(SocketAddr),
    /// A Unix socket.
    Unix(PathBuf),
}

/// The configuration is wrong.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A value is not allowed.
    #[error("--{flag} {value:?}: {reason}")]
    Value {
        /// The flag.
        flag: &'static str,
        /// What was given.
        value: String,
        /// What is wrong and what is allowed.
        reason: String,
    },
    /// A dataset's place is wrong.
    #[error("--dataset: {0}")]
    Location(#[from] LocationError),
}

/// Arrow's and gRPC's lengths allow a little less than 2 GiB in every client.
const BATCH_BYTES_CEILING: u64 = 2_000_000_000;

/// The largest gRPC message of a client.
const MESSAGE_BYTES_CEILING: u64 = 2 * forebay_proto::JSON_BYTES_MAX as u64;

impl Flags {
    /// Checks every value against what it means.
    pub fn check(self) -> Result<Config, ConfigError> {
        let datasets = datasets::open(&self)?;
        log::check_filter(&self.log).map_err(|source| wrong("log", &self.log, source.to_string()))?;
        if let Some(url) = &self.otlp_endpoint {
            log::check_endpoint(url).map_err(|source| wrong("otlp-endpoint", url, source.to_string()))?;
        }
        let access = access::open(&self)?;
        let is_safe = access.tls.is_some() && access.asks_who_calls();
        let (listen_public, metrics_public) =
            (is_safe || self.insecure_public, self.metrics_public || self.insecure_public);
        let listen = |value: &String| listen(value, listen_public);
        let listen: Result<Vec<Listen>, ConfigError> = self.listen.iter().map(listen).collect();
        let advertise: Result<Vec<String>, ConfigError> = self.advertise.into_iter().map(replica).collect();
        Ok(Config {
            datasets,
            listen: listen?,
            advertise: advertise?,
            metrics_listen: match self.metrics_listen.as_str() {
                "off" => None,
                address => Some(tcp("metrics-listen", address, metrics_public, METRICS_PUBLIC)?),
            },
            state: state(self.state.as_deref())?,
            drain: Duration::from_secs(self.drain_seconds),
            connection_age: Duration::from_secs(self.connection_age_seconds),
            connection_grace: Duration::from_secs(self.connection_grace_seconds),
            keepalive: Duration::from_secs(self.keepalive_seconds),
            memory_limit_bytes: if self.memory_limit_bytes == 0 {
                machine_bytes() / 2
            } else {
                self.memory_limit_bytes
            },
            fit_memory_bytes: usize::try_from(self.fit_memory_bytes).unwrap_or(usize::MAX),
            batch_bytes_max: self.batch_bytes_max,
            cpu_threads: self.cpu_threads as usize,
            device: device(&self.device)?,
            log: LogSettings { filter: self.log, format: self.log_format, collector: self.otlp_endpoint },
            reflection: self.reflection,
            exit_with_stdin: self.exit_with_stdin,
            tls: access.tls,
            principals: access.principals,
            ticket_secret: access.ticket_secret,
            ticket_lifetime: Duration::from_secs(self.ticket_seconds),
            streams: StreamLimits { per_client: self.streams_per_client as usize, in_all: self.streams_max as usize },
            stream_idle: Duration::from_secs(self.stream_idle_seconds),
            connections_max: self.connections_max as usize,
            requests: RequestLimits {
                message_bytes_max: self.message_bytes_max as usize,
                arrival: Duration::from_secs(self.handshake_seconds),
                plan_bytes_max: self.plan_bytes_max as usize,
                plan_columns_max: self.plan_columns_max as usize,
                plan_ops_max: self.plan_ops_max as usize,
                expression_operators_max: self.expression_operators_max as usize,
            },
        })
    }
}

fn wrong(flag: &'static str, value: &str, reason: impl Into<String>) -> ConfigError {
    ConfigError::Value { flag, value: value.to_owned(), reason: reason.into() }
}

fn device(value: &str) -> Result<DeviceName, ConfigError> {
    if value == "cpu" {
        return Ok(DeviceName::Cpu);
    }
    let number = value.strip_prefix("cuda:").and_then(|number| number.parse().ok());
    number
        .map(DeviceName::Cuda)
        .ok_or_else(|| wrong("device", value, "cpu, or cuda: and the number of a GPU, such as cuda:0"))
}

/// What an address that other machines reach needs.
const LISTEN_PUBLIC: &str = "TLS (--tls-cert and --tls-key) and credentials (--principals or --tls-client-ca); listen on 127.0.0.1, or \
                             say --insecure-public if whoever reaches it may read every dataset";
const METRICS_PUBLIC: &str =
    "--metrics-public or --insecure-public, as whoever reaches it reads names of datasets and how much they are used";

fn listen(value: &str, is_allowed: bool) -> Result<Listen, ConfigError> {
    match value.strip_prefix("unix:") {
        Some("") => Err(wrong("listen", value, "a path must follow unix:")),
        Some(path) => {
            let path = path.strip_prefix("//").unwrap_or(path);
            let absolute = std::path::absolute(path).map_err(|source| wrong("listen", value, source.to_string()))?;
            Ok(Listen::Unix(absolute))
        }
        None => tcp("listen", value, is_allowed, LISTEN_PUBLIC).map(Listen::Tcp),
    }
}

fn replica(value: String) -> Result<String, ConfigError> {
    let schemes = ["grpc", "grpc+tcp", "grpc+tls", "grpc+unix"];
    match value.split_once("://") {
        Some((scheme, place)) if schemes.contains(&scheme) && !place.is_empty() => Ok(value),
        _ => Err(wrong("advertise", &value, "a URL as clients use it, such as grpc://replica-1:8815")),
    }
}

fn tcp(flag: &'static str, value: &str, is_allowed: bool, needed: &str) -> Result<SocketAddr, ConfigError> {
    let text = value.strip_prefix("localhost:").map_or_else(|| value.to_owned(), |port| format!("127.0.0.1:{port}"));
    let allowed = "an address and a port, such as 127.0.0.1:8815, [::1]:8815 or unix:PATH";
    let address: SocketAddr = text.parse().map_err(|_| wrong(flag, value, allowed))?;
    if !address.ip().to_canonical().is_loopback() && !is_allowed {
        return Err(wrong(flag, value, format!("other machines reach this address, which needs {needed}")));
    }
    Ok(address)
}

fn state(value: Option<&str>) -> Result<PathBuf, ConfigError> {
    if let Some(text) = value {
        return match text.split_once("://") {
            None => Ok(PathBuf::from(text)),
            Some(("file", path)) => Ok(PathBuf::from(path)),
            Some((scheme, _)) => {
                Err(wrong("state", text, format!("this version keeps state in a local directory, not on {scheme}://")))
            }
        };
    }
    let set = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let home = || set("HOME").map(|home| home.join(".local").join("state"));
    set("XDG_STATE_HOME")
        .or_else(home)
        .map(|base| base.join("forebay"))
        .ok_or_else(|| wrong("state", "", "neither XDG_STATE_HOME nor HOME is set: name a directory"))
}

/// The memory that this process may have: the machine's, or its control group's where that is less.
fn machine_bytes() -> u64 {
    /// Taken where nothing tells.
    const UNKNOWN: u64 = 4 << 30;
    let line = |text: String| {
        let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:").map(str::to_owned))?;
        line.trim().trim_end_matches("kB").trim().parse::<u64>().ok()
    };
    let machine = std::fs::read_to_string("/proc/meminfo").ok().and_then(line).map(|kib| kib * 1024);
    let group = std::fs::read_to_string(Path::new("/sys/fs/cgroup/memory.max"));
    let group = group.ok().and_then(|text| text.trim().parse::<u64>().ok());
    machine.into_iter().chain(group).min().unwrap_or(UNKNOWN)
}

#[cfg(test)]
mod tests;
