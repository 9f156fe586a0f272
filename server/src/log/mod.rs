//! What the server tells of itself beside numbers: lines on stderr, and traces, where they are asked for.
//!
//! The only room that knows who listens to `tracing`'s spans and events; all others just make them.

mod traces;

use std::{
    io::{self, IsTerminal},
    panic,
    time::Duration,
};

use clap::ValueEnum;
use tracing::{Metadata, Subscriber};
use tracing_appender::non_blocking::{NonBlocking, WorkerGuard};
use tracing_subscriber::{
    EnvFilter, Layer,
    filter::{FilterExt, ParseError, filter_fn},
    fmt,
    layer::SubscriberExt,
    registry::LookupSpan,
    util::SubscriberInitExt,
};

use traces::Traces;
pub use traces::{TraceError, check_endpoint, failed, join};

/// The target of spans that traces alone show: what a call is made of. Lines of the log are told by their call.
pub const PARTS: &str = "forebay_server::parts";

/// What begins the target of every span and event of the server's own.
const OWN: &str = "forebay_server";

/// The time in which a collector of traces takes the last ones.
const FAREWELL: Duration = Duration::from_secs(2);

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// Human on a terminal, JSON otherwise.
    Auto,
    /// For people.
    Human,
    /// One JSON object a line.
    Json,
}

/// What is told, and to whom.
#[derive(Clone, Debug)]
pub struct LogSettings {
    /// Which lines: a filter of tracing's.
    pub filter: String,
    /// How they look.
    pub format: LogFormat,
    /// The collector that gets traces, over OTLP.
    pub collector: Option<String>,
}

/// Why nothing can be told.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The filter is wrong.
    #[error("--log: {0}")]
    Filter(#[from] ParseError),
    /// Traces cannot be sent.
    #[error("--otlp-endpoint: {0}")]
    Traces(#[from] TraceError),
}

/// Dropping it tells what is left to be told.
#[derive(Debug)]
pub struct LogGuard {
    traces: Option<Traces>,
    _lines: WorkerGuard,
}

/// Checks a filter of lines.
pub fn check_filter(filter: &str) -> Result<(), ParseError> {
    EnvFilter::try_new(filter).map(drop)
}

/// Starts the log. Its lines are written by a thread of their own, and traces are sent by another: whoever takes them
/// slowly holds up nobody, and loses lines where a hundred thousand wait, and spans where two thousand do.
///
/// Call it inside a runtime, which sends the traces.
pub fn start(settings: &LogSettings) -> Result<LogGuard, LogError> {
    let filter = EnvFilter::try_new(&settings.filter)?;
    let traces = settings.collector.as_deref().map(Traces::start).transpose()?;
    let (writer, lines) = tracing_appender::non_blocking(io::stderr());
    // Jobs that panic end with an error of their own; where they did is one line of the log like any other.
    panic::set_hook(Box::new(|panicked| tracing::error!(%panicked, "a job panicked")));
    let shown = filter.and(filter_fn(|metadata| metadata.target() != PARTS));
    let told = traces.as_ref().map(|traces| traces.layer().with_filter(filter_fn(is_traced)));
    let subscriber =
        tracing_subscriber::registry().with(told).with(lines_of(settings.format, writer).with_filter(shown));
    // A second server in one process (tests) keeps the first one's log.
    let _ = subscriber.try_init();
    Ok(LogGuard { traces, _lines: lines })
}

fn lines_of<S: Subscriber + for<'a> LookupSpan<'a>>(
    format: LogFormat,
    writer: NonBlocking,
) -> Box<dyn Layer<S> + Send + Sync> {
    let is_terminal = io::stderr().is_terminal();
    let lines = fmt::layer().with_writer(writer).with_ansi(is_terminal);
    match format {
        LogFormat::Auto if is_terminal => lines.boxed(),
        LogFormat::Human => lines.boxed(),
        LogFormat::Auto | LogFormat::Json => lines.json().with_span_list(false).boxed(),
    }
}

/// Calls, what they are made of, and what is said meanwhile; never what libraries say, the one that sends traces among
/// them.
fn is_traced(metadata: &Metadata<'_>) -> bool {
    metadata.target().starts_with(OWN) && *metadata.level() <= tracing::Level::INFO
}

impl Drop for LogGuard {
    fn drop(&mut self) {
        if let Some(traces) = &self.traces {
            traces.end(FAREWELL);
        }
    }
}
