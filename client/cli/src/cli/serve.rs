//! `forebay serve DIR`: a server over the datasets of a folder or a URL, and the lines of Python that read from it.
//!
//! Runs forebay-server as a child process: passes its log on, forwards signals, and ends with its exit code. The server
//! ends with this process, also when that is killed.

mod datasets;
mod snippet;

use std::{
    env,
    ffi::{OsStr, OsString},
    io::{self, IsTerminal},
    os::unix::process::ExitStatusExt,
    path::PathBuf,
    process::{ExitCode, ExitStatus, Stdio},
};

use clap::Args;
use forebay_client::{Client, Credentials, Table};
use rustix::process::{Pid, Signal as ProcessSignal, kill_process};
use serde_json::json;
use tokio::{
    io::{AsyncBufReadExt, BufReader, Lines},
    process::{Child, ChildStderr, Command},
    signal::unix::{Signal, SignalKind, signal},
};

use self::datasets::ServedDataset;
use super::{failure::Failure, message, output, programs};

/// What the server prints before its URL, and before that of its metrics page.
const LISTENING: &str = "listening on ";
const METRICS: &str = "metrics on ";

/// Serve the datasets of a folder on this machine, and print the lines of Python that read from it. Parquet or Arrow
/// files directly in the folder are one dataset; otherwise each folder in it is one. Files that are named as splits, such as
/// train-00000-of-00002.parquet, are a dataset for each split. Runs forebay-server
#[derive(Debug, Args)]
pub(crate) struct Serve {
    /// Folder of datasets, one Parquet file, or a URL such as hf://datasets/OWNER/NAME
    #[expect(clippy::doc_markdown, reason = "the text of --help")]
    #[arg(value_name = "DIR")]
    folder: PathBuf,

    /// Port of the server on this machine, 127.0.0.1; 0 picks a free one
    #[arg(long, env = "FOREBAY_PORT", value_name = "PORT", default_value_t = 8815)]
    port: u16,

    /// Further options of forebay-server, after --, such as -- --cache-bytes 4GiB; `forebay-server --help` lists them
    #[arg(value_name = "OPTIONS", last = true)]
    options: Vec<OsString>,
}

/// The running server, and what ends it.
struct ServerProcess {
    child: Child,
    log: Lines<BufReader<ChildStderr>>,
    signals: ForwardedSignals,
}

/// Signals that the server receives instead of this process.
struct ForwardedSignals {
    interrupt: Signal,
    terminate: Signal,
    hang_up: Signal,
}

/// Where the server listens.
#[derive(Debug, Default)]
struct Addresses {
    url: Option<String>,
    metrics: Option<String>,
}

impl Serve {
    pub(crate) async fn run(self, json: bool) -> Result<ExitCode, Failure> {
        let mut finder = Command::new(programs::server());
        for variable in ["CONFIG", "DATASET", "DATASET_SCHEMA", "INT96_UNIT", "VIEW"] {
            finder.env_remove(format!("FOREBAY_{variable}"));
        }
        finder.kill_on_drop(true);
        let datasets = datasets::find(&self.folder, finder).await?;
        let mut server = ServerProcess::start(self.command(&datasets))?;
        let mut addresses = Addresses::default();
        loop {
            tokio::select! {
                line = server.log.next_line() => match line {
                    Ok(Some(line)) => {
                        message::say(&line);
                        if addresses.read(&line) && let Some(url) = &addresses.url {
                            announce(url, addresses.metrics.as_deref(), json).await?;
                        }
                    }
                    // The server closes stderr when it ends.
                    Ok(None) | Err(_) => break,
                },
                signal = server.signals.next() => server.forward(signal),
            }
        }
        let status = loop {
            tokio::select! {
                status = server.child.wait() => break status.map_err(Failure::Wait)?,
                signal = server.signals.next() => server.forward(signal),
            }
        };
        Ok(exit_code(status))
    }

    fn command(&self, datasets: &[ServedDataset]) -> Command {
        let mut command = Command::new(programs::server());
        command.arg("--listen").arg(format!("127.0.0.1:{}", self.port)).arg("--exit-with-stdin");
        for dataset in datasets {
            command.arg("--dataset").arg(dataset.flag());
        }
        command.args(&self.options);
        // Variables and not flags, so that the further options can set them.
        let is_terminal = io::stderr().is_terminal();
        default_variable(&mut command, "FOREBAY_LOG_FORMAT", if is_terminal { "human" } else { "auto" });
        if self.port == 0 {
            default_variable(&mut command, "FOREBAY_METRICS_LISTEN", "127.0.0.1:0");
        }
        // The configuration of this program has other keys.
        command.env_remove("FOREBAY_CONFIG");
        // Its own process group: Ctrl-C reaches it once, through this process.
        command.stdin(Stdio::piped()).stderr(Stdio::piped()).process_group(0).kill_on_drop(true);
        command
    }
}

fn default_variable(command: &mut Command, name: &str, value: &str) {
    if env::var_os(name).is_none_or(|value| value.is_empty()) {
        command.env(name, value);
    }
}

// === impl ServerProcess ===

impl ServerProcess {
    fn start(mut command: Command) -> Result<Self, Failure> {
        let signals = ForwardedSignals::new().map_err(Failure::Signals)?;
        let program = PathBuf::from(command.as_std().get_program());
        let mut child = command.spawn().map_err(|source| match source.kind() {
            io::ErrorKind::NotFound if program.as_os_str() == OsStr::new(programs::SERVER) => {
                Failure::NotInstalled(programs::SERVER)
            }
            _ => Failure::Program { program, source },
        })?;
        let log = child.stderr.take().ok_or(Failure::Incomplete("log"))?;
        Ok(Self { child, log: BufReader::new(log).lines(), signals })
    }

    fn forward(&self, signal: ProcessSignal) {
        let id = self.child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        if let Some(id) = id {
            // Fails if it has just ended.
            let _ = kill_process(id, signal);
        }
    }
}

// === impl ForwardedSignals ===

impl ForwardedSignals {
    fn new() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    /// Waits for a signal, and returns the one to forward.
    async fn next(&mut self) -> ProcessSignal {
        tokio::select! {
            _ = self.interrupt.recv() => ProcessSignal::INT,
            _ = self.terminate.recv() => ProcessSignal::TERM,
            // A closed terminal ends the server; without one, the signal makes it read its configuration again.
            _ = self.hang_up.recv() => {
                if io::stderr().is_terminal() { ProcessSignal::TERM } else { ProcessSignal::HUP }
            }
        }
    }
}

// === impl Addresses ===

impl Addresses {
    /// Reads an address from a line of the log. Returns whether this line completes them: the metrics page is the last.
    fn read(&mut self, line: &str) -> bool {
        if let Some(url) = line.strip_prefix(LISTENING) {
            self.url.get_or_insert_with(|| url.trim().to_owned());
            return false;
        }
        let is_last = self.metrics.is_none() && line.starts_with(METRICS);
        if is_last {
            self.metrics = line.strip_prefix(METRICS).map(|url| url.trim().to_owned());
        }
        is_last
    }
}

/// Prints what is served and how to read it. A server that does not answer says why in its log.
async fn announce(url: &str, metrics: Option<&str>, json: bool) -> Result<(), Failure> {
    let Ok(tables) = tables(url).await else { return Ok(()) };
    if json {
        let datasets: Vec<serde_json::Value> = tables
            .iter()
            .map(|table| json!({"name": table.info.name, "rows": table.info.rows, "error": table.info.error}))
            .collect();
        let line = json!({"url": url, "metrics": metrics, "datasets": datasets});
        return output::write(&format!("{line}\n"));
    }
    let datasets: String = tables.iter().map(snippet::dataset).collect();
    let readable = tables.iter().find(|table| table.info.error.is_empty());
    let lines = readable.map(|table| format!("\nread it with Python:\n\n{}\n", snippet::of(url, table)));
    output::write(&(datasets + &lines.unwrap_or_default()))
}

async fn tables(url: &str) -> Result<Vec<Table>, Failure> {
    Ok(Client::connect_with(url, &Credentials::default()).await?.list().await?)
}

/// The server's exit code; that of a shell if a signal ended it.
fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_metrics_page_completes_the_addresses() {
        let mut addresses = Addresses::default();
        assert!(!addresses.read("{\"message\": \"listening on nothing\"}"));
        assert!(!addresses.read("listening on grpc://127.0.0.1:8815"));
        assert!(!addresses.read("listening on grpc+unix:///run/forebay.sock"));
        assert!(addresses.read("metrics on http://127.0.0.1:9815/metrics"));
        assert!(!addresses.read("metrics on http://127.0.0.1:9815/metrics"), "only once");
        assert_eq!(addresses.url.as_deref(), Some("grpc://127.0.0.1:8815"));
        assert_eq!(addresses.metrics.as_deref(), Some("http://127.0.0.1:9815/metrics"));
    }

    #[test]
    fn exit_codes_are_those_of_a_shell() {
        let of = |raw| format!("{:?}", exit_code(ExitStatus::from_raw(raw)));
        assert_eq!(of(0), format!("{:?}", ExitCode::SUCCESS));
        assert_eq!(of(2 << 8), format!("{:?}", ExitCode::from(2)));
        assert_eq!(of(9), format!("{:?}", ExitCode::from(137)));
    }
}
