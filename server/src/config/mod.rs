//! Command line, environment and TOML file → a validated `Config`.
//!
//! [`Flags`] is the single definition of every option: flag, `FOREBAY_…` variable, TOML key, default and help. The
//! table in the book is generated from it (`tests/readme.rs`).

mod access;
mod address;
mod datasets;
mod error;
mod flags;
mod machine;
mod state;
mod tokenizers;
mod udfs;
mod views;

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

pub use address::Listen;
pub use datasets::{int96_units, pinned_schemas};
pub use error::{ConfigError, ConfigProblems};
pub use flags::{Flags, Verb};
pub use state::{StateKind, StatePlace};

use forebay_catalog::{Location, ViewDefinition};
use forebay_columns::{tokenizers::NamedTokenizer, udf::UdfSocket};
use forebay_plan::RequestLimits;
use forebay_runtime::{
    log::{self, LogSettings},
    state::Retention,
};
use forebay_settings::ByteSize;
use forebay_stream::DeviceName;

use crate::auth::{PrincipalsFile, StreamLimits, Tls};
use address::{METRICS_PUBLIC, listen, replica, tcp};
use error::wrong;

const DAY_SECONDS: u64 = 86_400;

/// The validated configuration.
#[derive(Debug)]
pub struct Config {
    /// Datasets by name, with their locations.
    pub datasets: Vec<(String, Location)>,
    /// Views, each after those that it reads.
    pub views: Vec<ViewDefinition>,
    /// Addresses of the Flight service.
    pub listen: Vec<Listen>,
    /// URLs of every replica.
    pub advertise: Vec<String>,
    /// Address of the metrics service; none: no metrics.
    pub metrics_listen: Option<SocketAddr>,
    /// State and scratch data.
    pub state: StatePlace,
    /// How much state is kept.
    pub retention: Retention,
    /// Time that running streams get after SIGTERM.
    pub drain: Duration,
    /// Age after which a connection is closed gracefully (HTTP/2 GOAWAY); zero: never.
    pub connection_age: Duration,
    /// Time that streams on such a connection get before it is closed.
    pub connection_grace: Duration,
    /// Idle time before a keepalive ping; zero: never.
    pub keepalive: Duration,
    /// Memory budget of all streams.
    pub memory_limit_bytes: u64,
    /// Memory of finished rows; 0: no cache.
    pub cache_bytes: u64,
    /// Directory of finished rows, and its most bytes; none: they are only in memory.
    pub cache_dir: Option<(PathBuf, u64)>,
    /// Memory of the aggregates of fits before they spill.
    pub fit_memory_bytes: usize,
    /// Memory of the SQL of one view.
    pub view_memory_bytes: u64,
    /// Largest batch.
    pub batch_bytes_max: u64,
    /// Groups of a grouped request.
    pub groups_max: usize,
    /// Threads of the CPU pool; 0: one per core.
    pub cpu_threads: usize,
    /// Device that computes features.
    pub device: DeviceName,
    /// Log and traces.
    pub log: LogSettings,
    /// Whether gRPC server reflection is enabled.
    pub reflection: bool,
    /// Whether the server exits when its standard input closes.
    pub exit_with_stdin: bool,
    /// TLS of the TCP listeners; none: plaintext.
    pub tls: Option<Tls>,
    /// Principals that may call; none: any client.
    pub principals: Option<PrincipalsFile>,
    /// Secret that signs tickets; none: one under `--state`.
    pub ticket_secret: Option<Vec<u8>>,
    /// Time for which a ticket is valid.
    pub ticket_lifetime: Duration,
    /// Limits of open streams.
    pub streams: StreamLimits,
    /// Time after which a stream whose client takes no batch releases its memory until it does.
    pub stream_pause: Duration,
    /// Time after which such a stream ends.
    pub stream_idle: Duration,
    /// Limit of open connections.
    pub connections_max: usize,
    /// Limit of open connections from one address.
    pub connections_per_address: usize,
    /// Bytes of a received gRPC message.
    pub message_bytes_max: usize,
    /// Time in which a client must complete its handshake and make an authenticated call, and a request must arrive.
    pub handshake: Duration,
    /// Limits of requests.
    pub requests: RequestLimits,
    /// Python functions.
    pub udfs: Vec<UdfSocket>,
    /// Time after which a call of one fails.
    pub udf_timeout: Duration,
    /// Tokenizers.
    pub tokenizers: Vec<NamedTokenizer>,
}

impl Flags {
    /// Returns the directory of finished rows, if one is set.
    pub fn cache_dir(&self) -> Option<&Path> {
        self.cache_dir.as_deref()
    }

    /// Returns the valid datasets, and the problems of the others.
    pub fn datasets(&self) -> (Vec<(String, Location)>, ConfigProblems) {
        datasets::open(self)
    }

    /// Returns the valid views over these datasets, and the problems of the others.
    pub fn views(&self, datasets: &[(String, Location)]) -> (Vec<ViewDefinition>, ConfigProblems) {
        let names: Vec<&str> = datasets.iter().map(|(name, _)| name.as_str()).collect();
        views::open(self, &names)
    }

    /// Returns the place of the state, which may not exist.
    pub fn state(&self) -> Result<StatePlace, ConfigError> {
        state::place(self)
    }

    /// Validates every option, and opens the files that the options name.
    pub fn check(self) -> Result<Config, ConfigProblems> {
        let (datasets, mut problems) = self.datasets();
        let (views, invalid) = self.views(&datasets);
        problems.all(invalid.or(()));
        let memory_limit_bytes = self.memory_limit();
        problems.one(check_cache(self.cache_bytes, memory_limit_bytes, machine::memory_bytes()));
        problems.one(check_cache_dir(self.cache_dir(), self.cache_bytes));
        let view_memory_bytes = problems.one(views::memory_bytes(&self, memory_limit_bytes));
        problems.one(log::check_filter(&self.log).map_err(|source| wrong("log", &self.log, source.to_string())));
        problems.one(check_collector(self.otlp_endpoint.as_deref()));
        let (udfs, access) = (problems.all(udfs::open(&self.udf)), problems.all(access::open(&self)));
        let tokenizers = problems.all(tokenizers::open(&self.tokenizer));
        let (listen_public, metrics_public) =
            (access::is_secure(&self) || self.insecure_public, self.metrics_public || self.insecure_public);
        let listen = problems.each(self.listen.iter().map(|value| listen(value, listen_public)));
        let advertise = problems.each(self.advertise.iter().cloned().map(replica));
        let metrics_listen = problems.one(metrics_address(&self.metrics_listen, metrics_public));
        let (state, device) = (problems.one(self.state()), problems.one(device(&self.device)));
        let (
            Some(access),
            Some(metrics_listen),
            Some(state),
            Some(device),
            Some(view_memory_bytes),
            Some(udfs),
            Some(tokenizers),
            true,
        ) = (access, metrics_listen, state, device, view_memory_bytes, udfs, tokenizers, problems.is_empty())
        else {
            return Err(problems);
        };
        Ok(Config {
            datasets,
            views,
            listen,
            advertise,
            metrics_listen,
            state,
            retention: self.retention(),
            requests: self.request_limits(),
            connections_per_address: self.connections_per_address(),
            drain: Duration::from_secs(self.drain_seconds),
            connection_age: Duration::from_secs(self.connection_age_seconds),
            connection_grace: Duration::from_secs(self.connection_grace_seconds),
            keepalive: Duration::from_secs(self.keepalive_seconds),
            memory_limit_bytes,
            cache_bytes: self.cache_bytes.0,
            cache_dir: self.cache_dir.map(|directory| (directory, self.cache_dir_bytes.0)),
            fit_memory_bytes: usize::try_from(self.fit_memory_bytes.0).unwrap_or(usize::MAX),
            view_memory_bytes,
            batch_bytes_max: self.batch_bytes_max.0,
            groups_max: self.groups_max as usize,
            cpu_threads: self.cpu_threads as usize,
            device,
            log: LogSettings { filter: self.log, format: self.log_format, collector: self.otlp_endpoint },
            reflection: self.reflection,
            exit_with_stdin: self.exit_with_stdin,
            tls: access.tls,
            principals: access.principals,
            ticket_secret: access.ticket_secret,
            ticket_lifetime: Duration::from_secs(self.ticket_seconds),
            streams: StreamLimits { per_client: self.streams_per_client as usize, total: self.streams_max as usize },
            stream_pause: Duration::from_secs(self.stream_pause_seconds),
            stream_idle: Duration::from_secs(self.stream_idle_seconds),
            connections_max: self.connections_max as usize,
            message_bytes_max: self.message_bytes_max.0 as usize,
            handshake: Duration::from_secs(self.handshake_seconds),
            udfs,
            udf_timeout: Duration::from_secs(self.udf_timeout_seconds),
            tokenizers,
        })
    }

    /// The memory budget: by default half of the machine's memory.
    fn memory_limit(&self) -> u64 {
        match self.memory_limit_bytes.0 {
            0 => machine::memory_bytes() / 2,
            bytes => bytes,
        }
    }

    fn retention(&self) -> Retention {
        Retention {
            plan_bytes: self.state_plan_bytes.0,
            inline_plan_bytes: self.state_inline_bytes.0,
            result_bytes: self.state_result_bytes.0,
            unused: Duration::from_secs(self.state_unused_days * DAY_SECONDS),
        }
    }

    /// The limit of an address: by default a share of all connections.
    fn connections_per_address(&self) -> usize {
        match self.connections_per_address {
            0 => (self.connections_max - self.connections_max / 8) as usize,
            count => count as usize,
        }
    }

    fn request_limits(&self) -> RequestLimits {
        RequestLimits {
            plan_bytes_max: self.plan_bytes_max.0 as usize,
            plan_columns_max: self.plan_columns_max as usize,
            plan_ops_max: self.plan_ops_max as usize,
            expression_operators_max: self.expression_operators_max as usize,
            plan_operators_max: self.plan_operators_max as usize,
        }
    }
}

fn check_collector(url: Option<&str>) -> Result<(), ConfigError> {
    let check = |url| log::check_endpoint(url).map_err(|source| wrong("otlp-endpoint", url, source.to_string()));
    url.map_or(Ok(()), check)
}

/// The address of the metrics; none if they are off.
fn metrics_address(value: &str, public: bool) -> Result<Option<SocketAddr>, ConfigError> {
    if value == "off" {
        return Ok(None);
    }
    tcp("metrics-listen", value, public, METRICS_PUBLIC).map(Some)
}

/// Rejects a cache that does not fit the machine beside the memory budget.
fn check_cache(cache: ByteSize, memory_limit_bytes: u64, machine_bytes: u64) -> Result<(), ConfigError> {
    let both = cache.0.saturating_add(memory_limit_bytes);
    if cache.0 == 0 || both <= machine_bytes {
        return Ok(());
    }
    let (limit, machine) = (ByteSize(memory_limit_bytes), ByteSize(machine_bytes));
    let reason = format!(
        "with the {limit} of --memory-limit-bytes, it exceeds the {machine} of this machine: lower one of them"
    );
    Err(wrong("cache-bytes", &cache.to_string(), reason))
}

/// Rejects a directory of finished rows without memory for them.
fn check_cache_dir(directory: Option<&Path>, cache: ByteSize) -> Result<(), ConfigError> {
    match directory {
        Some(directory) if cache.0 == 0 => {
            let reason = "requires --cache-bytes: rows pass through memory, such as 1GiB of it";
            Err(wrong("cache-dir", &directory.display().to_string(), reason))
        }
        _ => Ok(()),
    }
}

fn device(value: &str) -> Result<DeviceName, ConfigError> {
    if value == "cpu" {
        return Ok(DeviceName::Cpu);
    }
    let number = value.strip_prefix("cuda:").and_then(|number| number.parse().ok());
    number
        .map(DeviceName::Cuda)
        .ok_or_else(|| wrong("device", value, "expected cpu, or cuda: and the number of a GPU, such as cuda:0"))
}

#[cfg(test)]
mod tests;
