//! The log on stderr, and traces if a collector is configured.
//!
//! Only this module installs subscribers of `tracing`'s spans and events; other modules just emit them.

mod plain_lines;
#[cfg(feature = "otlp")]
mod traces;
#[cfg(not(feature = "otlp"))]
mod untraced;

use std::{
    env,
    io::{self, IsTerminal},
    panic,
    time::Duration,
};

use clap::ValueEnum;
use tracing::{Metadata, Subscriber};
use tracing_appender::non_blocking::{NonBlocking, WorkerGuard};
use tracing_subscriber::{
    EnvFilter, Layer,
    filter::{FilterExt, LevelFilter, ParseError, filter_fn},
    fmt,
    layer::{Filter, SubscriberExt},
    registry::LookupSpan,
    util::SubscriberInitExt,
};

use plain_lines::PlainLines;
#[cfg(feature = "otlp")]
use traces::Traces;
#[cfg(feature = "otlp")]
pub use traces::{TraceError, check_endpoint, failed, join};
#[cfg(not(feature = "otlp"))]
use untraced::Traces;
#[cfg(not(feature = "otlp"))]
pub use untraced::{TraceError, check_endpoint, failed, join};

/// Target of the spans within a call. They appear in traces only; lines of the log carry the span of their call.
pub const PARTS: &str = "forebay_server::parts";

/// Target of the access log: one event for each call, at its end.
pub const ACCESS: &str = "forebay::access";

/// Prefix of the targets of the server's own spans and events.
const OWN: &str = "forebay";

/// The filter of the level `debug`: the server's own events. Those of libraries at that level, such as HTTP/2 frames,
/// would hide them: they appear at `trace`, or if their targets are named.
const DEBUG: &str = "info,forebay=debug";

/// Time limit for sending the last traces at exit.
const FLUSH_TIME: Duration = Duration::from_secs(2);

/// Format of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// Human-readable on a terminal, JSON otherwise.
    Auto,
    /// Human-readable.
    Human,
    /// One JSON object per line.
    Json,
}

/// Settings of the log and of traces.
#[derive(Clone, Debug)]
pub struct LogSettings {
    /// Filter of log lines, in tracing's syntax.
    pub filter: String,
    /// Format of log lines.
    pub format: LogFormat,
    /// URL of the collector that receives traces over OTLP; none: no traces.
    pub collector: Option<String>,
}

/// The reason why the log cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The filter is invalid.
    #[error("--log: {0}")]
    Filter(#[from] ParseError),
    /// Traces cannot be sent.
    #[error("--otlp-endpoint: {0}")]
    Traces(#[from] TraceError),
}

/// Flushes pending log lines and traces when dropped.
#[derive(Debug)]
pub struct LogGuard {
    traces: Option<Traces>,
    _lines: WorkerGuard,
}

/// Validates a filter of log lines.
pub fn check_filter(filter: &str) -> Result<(), ParseError> {
    lines_filter(filter).map(drop)
}

/// Parses a filter of log lines: a level, or tracing's syntax.
fn lines_filter(filter: &str) -> Result<EnvFilter, ParseError> {
    let is_debug = filter.trim().parse().is_ok_and(|level: LevelFilter| level == LevelFilter::DEBUG);
    EnvFilter::try_new(if is_debug { DEBUG } else { filter })
}

/// Starts the log. One thread writes lines and another sends traces, so a slow reader delays no call: lines beyond a
/// backlog of 100,000, and spans beyond 2,000, are dropped.
///
/// Must be called within a Tokio runtime, which sends the traces.
pub fn start(settings: &LogSettings) -> Result<LogGuard, LogError> {
    let filter = lines_filter(&settings.filter)?;
    let traces = settings.collector.as_deref().map(Traces::start).transpose()?;
    let (writer, lines) = tracing_appender::non_blocking(io::stderr());
    // A job that panics returns an error to its caller; the log has the location of the panic. Its text may quote rows.
    panic::set_hook(Box::new(|panicked| {
        let location = panicked.location().map(ToString::to_string);
        tracing::error!(location, "a job panicked");
        tracing::debug!(%panicked, "a job panicked");
    }));
    let shown = shown(filter);
    let traced = traces.as_ref().map(|traces| traces.layer().with_filter(traced()));
    let subscriber =
        tracing_subscriber::registry().with(traced).with(lines_of(settings.format, writer).with_filter(shown));
    // A second server in one process (tests) keeps the first one's log.
    let _ = subscriber.try_init();
    Ok(LogGuard { traces, _lines: lines })
}

/// What the log shows. Filters declare their most verbose level, so that spans of libraries beyond it cost nothing:
/// HTTP/2 has one per frame.
fn shown<S>(filter: EnvFilter) -> impl Filter<S> {
    filter.and(filter_fn(|metadata| metadata.target() != PARTS).with_max_level_hint(LevelFilter::TRACE))
}

/// What traces have.
fn traced<S>() -> impl Filter<S> {
    filter_fn(is_traced).with_max_level_hint(LevelFilter::INFO)
}

fn lines_of<S: Subscriber + for<'a> LookupSpan<'a>>(
    format: LogFormat,
    writer: NonBlocking,
) -> Box<dyn Layer<S> + Send + Sync> {
    let is_terminal = io::stderr().is_terminal();
    let is_plain = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let has_colors = is_terminal && !is_plain;
    let lines = fmt::layer().with_writer(PlainLines::new(writer, has_colors)).with_ansi(has_colors);
    match format {
        LogFormat::Auto if is_terminal => lines.boxed(),
        LogFormat::Human => lines.boxed(),
        LogFormat::Auto | LogFormat::Json => lines.json().with_span_list(false).boxed(),
    }
}

/// Returns whether a span or event goes to traces: those of the server, but none of libraries, which include the
/// exporter.
fn is_traced(metadata: &Metadata<'_>) -> bool {
    metadata.target().starts_with(OWN) && *metadata.level() <= tracing::Level::INFO
}

impl Drop for LogGuard {
    fn drop(&mut self) {
        if let Some(traces) = &self.traces {
            traces.end(FLUSH_TIME);
        }
    }
}

#[cfg(test)]
mod tests {
    use tracing_subscriber::Registry;

    use super::*;

    #[test]
    fn filters_declare_their_most_verbose_level() {
        for (text, level) in [("info", LevelFilter::INFO), ("warn", LevelFilter::WARN), ("debug", LevelFilter::DEBUG)] {
            let shown = shown::<Registry>(lines_filter(text).unwrap());
            assert_eq!(shown.max_level_hint(), Some(level), "{text}");
        }
        assert_eq!(traced::<Registry>().max_level_hint(), Some(LevelFilter::INFO));
    }
}
