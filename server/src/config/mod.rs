//! What the operator says: flags, environment, TOML file → a checked `Config`.
//!
//! The struct of flags is the one table: it gives flag, `FOREBAY_…` variable, TOML key, default and help, and the
//! book's table is rendered from it (`tests/readme.rs`).

mod access;
mod address;
mod datasets;
mod error;
mod flags;

use std::{
    env,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

pub use address::Listen;
pub use error::ConfigError;
pub use flags::Flags;

use crate::{
    auth::{PrincipalsFile, StreamLimits, Tls},
    catalog::Location,
    log::{self, LogSettings},
    plan::RequestLimits,
    stream::DeviceName,
};
use address::{METRICS_PUBLIC, listen, replica, tcp};
use error::wrong;

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

fn device(value: &str) -> Result<DeviceName, ConfigError> {
    if value == "cpu" {
        return Ok(DeviceName::Cpu);
    }
    let number = value.strip_prefix("cuda:").and_then(|number| number.parse().ok());
    number
        .map(DeviceName::Cuda)
        .ok_or_else(|| wrong("device", value, "cpu, or cuda: and the number of a GPU, such as cuda:0"))
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
