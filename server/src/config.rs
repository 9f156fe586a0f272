//! What the operator says: flags, environment, TOML file → a checked `Config`.
//!
//! The struct of flags is the one table: it gives flag, `FOREBAY_…` variable, TOML key, default and help, and the
//! README's table is rendered from it (`tests/readme.rs`).

use std::{
    env,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use clap::Parser;

use crate::{
    catalog::{Location, LocationError, Stores},
    log::{self, LogFormat, LogSettings},
    stream::DeviceName,
};

/// Forebay's server: streams Parquet datasets to training loops over Arrow Flight.
#[derive(Clone, Debug, Parser)]
#[command(name = "forebay-server", version, about, long_about = None)]
pub struct Flags {
    /// A dataset: a directory, a file or a glob of Parquet (or file:// before one), the same in a bucket
    /// (s3://bucket/…, gs://…, az://container/…), or one file of a web server (https://…/a.parquet). A store's
    /// credentials, region and endpoint come from this process's environment in their usual names, such as
    /// AWS_ACCESS_KEY_ID and AWS_ENDPOINT_URL. May be repeated; in the environment, one a line.
    #[expect(clippy::doc_markdown, reason = "the words of --help")]
    #[arg(long, env = "FOREBAY_DATASET", value_name = "NAME=URL", required = true, value_delimiter = '\n')]
    dataset: Vec<String>,

    /// Address of the Flight service: HOST:PORT (port 0 picks a free one) or unix:PATH. May be repeated.
    #[arg(
        long,
        env = "FOREBAY_LISTEN",
        value_name = "ADDRESS",
        default_value = "127.0.0.1:8815",
        value_delimiter = '\n'
    )]
    listen: Vec<String>,

    /// URL at which clients reach a replica of this server, itself included: the endpoints of a flight name them all, in
    /// this order, so that clients go on at another one where a stream breaks. May be repeated.
    #[arg(long, env = "FOREBAY_ADVERTISE", value_name = "URL", value_delimiter = '\n')]
    advertise: Vec<String>,

    /// Address of /metrics, /healthz and /readyz over HTTP; off: none of them, and nothing is counted.
    #[arg(long, env = "FOREBAY_METRICS_LISTEN", value_name = "ADDRESS", default_value = "127.0.0.1:9815")]
    metrics_listen: String,

    /// Directory of what must survive a restart: fitted plans, row counts; fits spill there too
    /// [default: forebay under the user's state directory, which is ~/.local/state]
    #[arg(long, env = "FOREBAY_STATE", value_name = "DIR")]
    state: Option<String>,

    /// Seconds that running streams get after SIGTERM before they are cut.
    #[arg(long, env = "FOREBAY_DRAIN_SECONDS", value_name = "SECONDS", default_value_t = 30)]
    drain_seconds: u64,

    /// Seconds after which a client is asked to open a new connection, which may lead to another replica; 0: never.
    #[arg(long, env = "FOREBAY_CONNECTION_AGE_SECONDS", value_name = "SECONDS", default_value_t = 0)]
    connection_age_seconds: u64,

    /// Seconds that streams on such a connection get before it is closed.
    #[arg(long, env = "FOREBAY_CONNECTION_GRACE_SECONDS", value_name = "SECONDS", default_value_t = 300)]
    connection_grace_seconds: u64,

    /// Seconds without a word from a client after which it is asked whether it is still there; one that does not answer within 20
    /// seconds is given up, with all that it holds; 0: never.
    #[arg(long, env = "FOREBAY_KEEPALIVE_SECONDS", value_name = "SECONDS", default_value_t = 60)]
    keepalive_seconds: u64,

    /// Bytes that all streams together may hold; 0: half of the machine's memory.
    #[arg(long, env = "FOREBAY_MEMORY_LIMIT_BYTES", value_name = "BYTES", default_value_t = 0)]
    memory_limit_bytes: u64,

    /// Bytes that the aggregates of fits may hold before they spill to disk.
    #[arg(long, env = "FOREBAY_FIT_MEMORY_BYTES", value_name = "BYTES", default_value_t = 1 << 30)]
    fit_memory_bytes: u64,

    /// The largest batch that is made, in bytes.
    #[arg(long, env = "FOREBAY_BATCH_BYTES_MAX", value_name = "BYTES", default_value_t = 1 << 30,
          value_parser = clap::value_parser!(u64).range(1..=BATCH_BYTES_CEILING))]
    batch_bytes_max: u64,

    /// Threads that decode and compute; 0: one a core.
    #[arg(long, env = "FOREBAY_CPU_THREADS", value_name = "COUNT", default_value_t = 0,
          value_parser = clap::value_parser!(u32).range(0..=1024))]
    cpu_threads: u32,

    /// Where features are computed: cpu, or cuda:N for the GPU of that number. A GPU that cannot be used, and outputs that do not
    /// run on one, are told in the log, and the CPU computes.
    #[arg(long, env = "FOREBAY_DEVICE", value_name = "DEVICE", default_value = "cpu")]
    device: String,

    /// What is logged on stderr: error, warn, info, debug or trace, or a filter of tracing's.
    #[arg(long, env = "FOREBAY_LOG", value_name = "FILTER", default_value = "info")]
    log: String,

    /// How it is logged; auto: human on a terminal, JSON otherwise.
    #[arg(long, env = "FOREBAY_LOG_FORMAT", value_name = "FORMAT", default_value = "auto")]
    log_format: LogFormat,

    /// An OpenTelemetry collector that gets a trace of every call, over OTLP's gRPC, such as http://127.0.0.1:4317; clients that
    /// send a traceparent get theirs. Names, sampling and headers are taken from OpenTelemetry's own variables.
    #[expect(clippy::doc_markdown, reason = "the words of --help")]
    #[arg(long, env = "FOREBAY_OTLP_ENDPOINT", value_name = "URL")]
    otlp_endpoint: Option<String>,

    /// Answer gRPC server reflection, by which tools such as grpcurl find the calls.
    #[arg(long, env = "FOREBAY_REFLECTION")]
    reflection: bool,

    /// Allow --listen and --metrics-listen on addresses that other machines reach. There is neither encryption nor
    /// authentication in this version: whoever reaches the port reads every dataset.
    #[arg(long, env = "FOREBAY_INSECURE_NETWORK")]
    insecure_network: bool,

    /// End when standard input closes: for a parent process that owns this server.
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

/// The longest dataset name.
const NAME_BYTES_MAX: usize = 128;

impl Flags {
    /// Checks every value against what it means.
    pub fn check(self) -> Result<Config, ConfigError> {
        let mut datasets: Vec<(String, Location)> = Vec::new();
        let mut stores = Stores::default();
        for value in self.dataset.iter().map(|value| value.trim()).filter(|value| !value.is_empty()) {
            let (name, location) = dataset(value, &mut stores)?;
            if datasets.iter().any(|(known, _)| *known == name) {
                return Err(wrong("dataset", value, format!("the name \"{name}\" is given twice")));
            }
            datasets.push((name, location));
        }
        if datasets.is_empty() {
            return Err(wrong("dataset", "", "at least one NAME=URL is needed"));
        }
        log::check_filter(&self.log).map_err(|source| wrong("log", &self.log, source.to_string()))?;
        if let Some(url) = &self.otlp_endpoint {
            log::check_endpoint(url).map_err(|source| wrong("otlp-endpoint", url, source.to_string()))?;
        }
        let network = self.insecure_network;
        let listen: Result<Vec<Listen>, ConfigError> = self.listen.iter().map(|value| listen(value, network)).collect();
        let advertise: Result<Vec<String>, ConfigError> = self.advertise.into_iter().map(replica).collect();
        Ok(Config {
            datasets,
            listen: listen?,
            advertise: advertise?,
            metrics_listen: match self.metrics_listen.as_str() {
                "off" => None,
                address => Some(tcp("metrics-listen", address, network)?),
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

fn dataset(value: &str, stores: &mut Stores) -> Result<(String, Location), ConfigError> {
    let allowed = "NAME=URL, such as flights=data/flights";
    let (name, url) = value.split_once('=').ok_or_else(|| wrong("dataset", value, allowed))?;
    let named = !name.is_empty()
        && name.len() <= NAME_BYTES_MAX
        && !name.contains(['/', '\\'])
        && !name.contains(char::is_control);
    if !named {
        let reason = format!("a name is 1 to {NAME_BYTES_MAX} bytes without slashes; {allowed}");
        return Err(wrong("dataset", value, reason));
    }
    Ok((name.to_owned(), Location::parse(name, url, stores)?))
}

fn listen(value: &str, network: bool) -> Result<Listen, ConfigError> {
    match value.strip_prefix("unix:") {
        Some("") => Err(wrong("listen", value, "a path must follow unix:")),
        Some(path) => {
            let path = path.strip_prefix("//").unwrap_or(path);
            let absolute = std::path::absolute(path).map_err(|source| wrong("listen", value, source.to_string()))?;
            Ok(Listen::Unix(absolute))
        }
        None => tcp("listen", value, network).map(Listen::Tcp),
    }
}

fn replica(value: String) -> Result<String, ConfigError> {
    let schemes = ["grpc", "grpc+tcp", "grpc+tls", "grpc+unix"];
    match value.split_once("://") {
        Some((scheme, place)) if schemes.contains(&scheme) && !place.is_empty() => Ok(value),
        _ => Err(wrong("advertise", &value, "a URL as clients use it, such as grpc://replica-1:8815")),
    }
}

fn tcp(flag: &'static str, value: &str, network: bool) -> Result<SocketAddr, ConfigError> {
    let text = value.strip_prefix("localhost:").map_or_else(|| value.to_owned(), |port| format!("127.0.0.1:{port}"));
    let allowed = "an address and a port, such as 127.0.0.1:8815, [::1]:8815 or unix:PATH";
    let address: SocketAddr = text.parse().map_err(|_| wrong(flag, value, allowed))?;
    if !address.ip().is_loopback() && !network {
        let reason = "other machines reach this address, and this version has neither encryption nor authentication; \
                      listen on 127.0.0.1, or say --insecure-network if the network itself is trusted";
        return Err(wrong(flag, value, reason));
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
mod tests {
    use super::*;

    fn check(arguments: &[&str]) -> Result<Config, String> {
        let arguments = ["forebay-server"].iter().chain(arguments);
        let flags = Flags::try_parse_from(arguments).map_err(|error| error.to_string())?;
        flags.check().map_err(|error| error.to_string())
    }

    #[test]
    fn good_flags_are_a_config() {
        let config = check(&[
            "--dataset",
            "a=/tmp",
            "--dataset",
            "b=/tmp/*.parquet",
            "--listen",
            "unix:/tmp/s",
            "--listen",
            "localhost:0",
        ])
        .unwrap();
        assert_eq!(config.datasets.len(), 2);
        assert_eq!(config.listen, [Listen::Unix("/tmp/s".into()), Listen::Tcp("127.0.0.1:0".parse().unwrap())]);
        assert!(config.memory_limit_bytes > 0);
        assert_eq!(config.device, DeviceName::Cpu);
        assert_eq!(check(&["--dataset", "a=/tmp", "--device", "cuda:12"]).unwrap().device, DeviceName::Cuda(12));
    }

    #[test]
    fn wrong_flags_say_what_is_allowed() {
        for (arguments, words) in [
            (&[][..], "--dataset"),
            (&["--dataset", "a"], "NAME=URL"),
            (&["--dataset", "=x"], "a name is"),
            (&["--dataset", "a/b=x"], "a name is"),
            (&["--dataset", "a=x", "--dataset", "a=y"], "twice"),
            (&["--dataset", "a=ftp://b/c"], "s3://bucket"),
            (&["--dataset", "a=x", "--listen", "here"], "127.0.0.1:8815"),
            (&["--dataset", "a=x", "--advertise", "replica:8815"], "grpc://replica-1:8815"),
            (&["--dataset", "a=x", "--listen", "0.0.0.0:1"], "--insecure-network"),
            (&["--dataset", "a=x", "--metrics-listen", "[::]:1"], "--insecure-network"),
            (&["--dataset", "a=x", "--state", "s3://b"], "local directory"),
            (&["--dataset", "a=x", "--batch-bytes-max", "0"], "batch-bytes-max"),
            (&["--dataset", "a=x", "--device", "cuda"], "cuda:0"),
            (&["--dataset", "a=x", "--device", "cuda:-1"], "cuda:0"),
        ] {
            let error = check(arguments).unwrap_err();
            assert!(error.contains(words), "{arguments:?}: {error}");
        }
    }
}
