//! `forebay load DATASET`: reads concurrent streams, as fast as possible or on a schedule, and reports measurements.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use clap::{ArgAction, Args};
use forebay_client::StreamRequest;
use indicatif::{ProgressBar, ProgressStyle};

use super::{failure::Failure, load_text, output, session::Session, stream_options::StreamOptions};
use crate::load::{self, Pace, Progress, Report, RunEnd, Settings};

/// Maximum number of streams of a run: each needs a task, and each client a connection.
const STREAMS_MAX: usize = 10_000;

/// One week.
const SECONDS_MAX: f64 = 7.0 * 24.0 * 3600.0;

/// Maximum rate, given a timer step of 1 ms.
const RATE_MAX: f64 = 1000.0;

/// Minimum rate: one batch per day.
const RATE_MIN: f64 = 1.0 / (24.0 * 3600.0);

/// Parts of the progress bar.
const BAR_PARTS: u64 = 1000;

/// Generate load: read concurrent streams, verify every batch, and report throughput, latencies, fairness and the
/// client's CPU time. Stream i reads rank i mod the world size. Ctrl-C ends the run and prints the report
#[derive(Debug, Args)]
pub(crate) struct Load {
    /// Name of the dataset on the server
    #[arg(required_unless_present = "sources")]
    dataset: Option<String>,

    #[command(flatten)]
    stream: StreamOptions,

    /// Number of clients, each with its own connection
    #[arg(long, env = "FOREBAY_CLIENTS", value_name = "N", default_value_t = 1)]
    clients: usize,

    /// Concurrent streams per client; clients times streams is at most 10000
    #[arg(long, env = "FOREBAY_STREAMS", value_name = "M", default_value_t = 1)]
    streams: usize,

    /// Number of epochs per stream, starting at --epoch [default: 1]
    #[arg(long, env = "FOREBAY_EPOCHS", value_name = "K", conflicts_with = "duration")]
    epochs: Option<u64>,

    /// Seconds after the warm-up until the run ends; streams read consecutive epochs
    #[arg(long, env = "FOREBAY_DURATION", value_name = "SECONDS", value_parser = seconds, allow_negative_numbers = true)]
    duration: Option<Duration>,

    /// Seconds at the start that are not measured
    #[arg(long, env = "FOREBAY_WARM_UP", value_name = "SECONDS", value_parser = warm_up, allow_negative_numbers = true, default_value = "0")]
    warm_up: Duration,

    /// Open loop: each stream requests batches at this rate, and latencies start when a batch is scheduled. Default:
    /// closed loop, which requests the next batch when the last one has arrived
    #[arg(long, env = "FOREBAY_RATE", value_name = "BATCHES_PER_SECOND", value_parser = rate, allow_negative_numbers = true)]
    rate: Option<Duration>,

    /// Whether to verify checksums; headers are always verified
    #[arg(long, env = "FOREBAY_VERIFY", value_name = "BOOL", action = ArgAction::Set, default_value_t = true, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    verify: bool,

    /// Plot throughput over time and the distribution of latencies to this file
    #[arg(long, env = "FOREBAY_PLOT", value_name = "FILE.svg", value_parser = svg_path)]
    plot: Option<PathBuf>,
}

impl Load {
    /// Checks combinations of options, before connecting.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        if !self.stream.names_plan() {
            return usage("forebay load requires a plan: pass --plan FILE or --plan-id ID".to_owned());
        }
        let streams = self.clients.checked_mul(self.streams);
        if !streams.is_some_and(|streams| (1..=STREAMS_MAX).contains(&streams)) {
            return usage(format!(
                "--clients {} × --streams {}: each must be at least 1, and their product at most {STREAMS_MAX}",
                self.clients, self.streams
            ));
        }
        if self.epochs == Some(0) {
            return usage("--epochs 0: must be at least 1".to_owned());
        }
        Ok(())
    }

    pub(crate) async fn run(self, session: &Session) -> Result<(), Failure> {
        if let Some(path) = &self.plot {
            // Fails now rather than at the end of a long run.
            check_folder(path).map_err(|source| Failure::WriteFile { path: path.clone(), source })?;
        }
        let settings = self.settings()?;
        allow_connections();
        // Drawn on stderr if that is a terminal.
        let bar = ProgressBar::new(BAR_PARTS).with_style(style());
        let outcome =
            load::run(&settings, (&session.server, &session.credentials), |progress| draw(&bar, progress)).await;
        bar.finish_and_clear();
        let outcome = outcome?;
        let report = Report::new(&settings, &outcome);
        let text = if session.json { json(&report)? } else { load_text::table(&settings, &report) };
        output::write(&text)?;
        if let Some(path) = &self.plot {
            let svg = load::svg(&report).map_err(Failure::Plot)?;
            fs::write(path, svg).map_err(|source| Failure::WriteFile { path: path.clone(), source })?;
        }
        let mut failures = outcome.failures;
        // Report corruption before other failures.
        failures.sort_by_key(|failure| !failure.is_corruption());
        let failed = failures.len();
        if let Some(failure) = failures.into_iter().next() {
            return Err(Failure::Load { failed, streams: report.streams.len(), source: Box::new(failure) });
        }
        if report.batches == 0 && !report.was_interrupted {
            return Err(Failure::Unmeasured);
        }
        Ok(())
    }

    /// Returns the run's settings; reads the plan's file.
    fn settings(&self) -> Result<Settings, Failure> {
        let request: StreamRequest = self.stream.request(self.dataset.as_deref().unwrap_or_default())?;
        Ok(Settings {
            clients: self.clients,
            streams: self.streams,
            request,
            end: self.duration.map_or(RunEnd::Epochs(self.epochs.unwrap_or(1)), RunEnd::Duration),
            warm_up: self.warm_up,
            pace: self.rate.map_or(Pace::Closed, |interval| Pace::Open { interval }),
            verify: self.verify,
        })
    }
}

fn usage(message: String) -> Result<(), Failure> {
    Err(Failure::Usage(message))
}

fn seconds(text: &str) -> Result<Duration, String> {
    match text.parse() {
        Ok(seconds) if seconds > 0.0 && seconds <= SECONDS_MAX => Ok(Duration::from_secs_f64(seconds)),
        _ => Err(format!("expected seconds, above 0 and at most {SECONDS_MAX}, such as 30 or 0.5")),
    }
}

fn warm_up(text: &str) -> Result<Duration, String> {
    match text.parse() {
        Ok(seconds) if (0.0..=SECONDS_MAX).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err(format!("expected seconds, from 0 to {SECONDS_MAX}, such as 5 or 0.5")),
    }
}

/// Parses a rate into the time between batches.
fn rate(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(rate) if (RATE_MIN..=RATE_MAX).contains(&rate) => Ok(Duration::from_secs_f64(1.0 / rate)),
        _ => Err(format!(
            "expected batches per second and stream, above 0 (at least one per day) and at most {RATE_MAX}"
        )),
    }
}

fn svg_path(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    match path.extension() {
        Some(extension) if extension.eq_ignore_ascii_case("svg") => Ok(path),
        _ => Err("expected a file name ending in .svg".to_owned()),
    }
}

fn check_folder(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if fs::metadata(folder)?.is_dir() { Ok(()) } else { Err(io::ErrorKind::NotADirectory.into()) }
}

/// Raises the soft limit of open files, often 1024, to the hard limit. If that is too low, connecting fails with an
/// error.
fn allow_connections() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

fn style() -> ProgressStyle {
    ProgressStyle::with_template("{wide_bar} {percent} %, {msg}").unwrap_or_else(|_| ProgressStyle::default_bar())
}

fn draw(bar: &ProgressBar, progress: Progress) {
    bar.set_position((progress.fraction * BAR_PARTS as f64) as u64);
    bar.set_message(if progress.is_warm_up {
        "warming up".to_owned()
    } else {
        let rows = output::count(progress.rows_per_second.round() as u64);
        format!("{rows} rows/s, {}/s", output::decimal_bytes(progress.bytes_per_second.round() as u64))
    });
}

fn json(report: &Report) -> Result<String, Failure> {
    serde_json::to_string_pretty(report).map(|text| text + "\n").map_err(Failure::Json)
}
