//! `forebay load DATASET`: many streams at once, as fast as they come or on a schedule, and the figures of what came.

use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io};

use clap::{ArgAction, Args};
use forebay_client::StreamRequest;
use indicatif::{ProgressBar, ProgressStyle};

use super::failure::Failure;
use super::session::Session;
use super::stream_options::StreamOptions;
use super::{load_text, output};
use crate::load::{self, Pace, Progress, Report, RunEnd, Settings};

/// The most streams of a run, over all clients: each holds a task, and each client a connection.
const STREAMS_MAX: usize = 10_000;

/// A week.
const SECONDS_MAX: f64 = 7.0 * 24.0 * 3600.0;

/// Beyond this a timer cannot tell one batch's time from the next one's: its steps are a millisecond.
const RATE_MAX: f64 = 1000.0;

/// The least rate: a batch a day.
const RATE_MIN: f64 = 1.0 / (24.0 * 3600.0);

/// Parts of the progress bar.
const BAR_PARTS: u64 = 1000;

/// Reads with many streams at once, checks every batch, and reports throughput, latencies, fairness and the client's
/// CPU time. Stream i of all reads rank i mod the world size. Ctrl-C ends the run and reports what was measured
#[derive(Debug, Args)]
pub(crate) struct Load {
    /// Name of the dataset on the server
    dataset: String,

    #[command(flatten)]
    stream: StreamOptions,

    /// Clients, each with a connection of its own
    #[arg(long, env = "FOREBAY_CLIENTS", value_name = "N", default_value_t = 1)]
    clients: usize,

    /// Streams of each client, all read at once; clients times streams are at most 10000
    #[arg(long, env = "FOREBAY_STREAMS", value_name = "M", default_value_t = 1)]
    streams: usize,

    /// Epochs that each stream reads, from --epoch on [default: 1]
    #[arg(long, env = "FOREBAY_EPOCHS", value_name = "K", conflicts_with = "duration")]
    epochs: Option<u64>,

    /// Seconds behind the warm-up after which the run is over; epochs follow each other until then
    #[arg(long, env = "FOREBAY_DURATION", value_name = "SECONDS", value_parser = seconds, allow_negative_numbers = true)]
    duration: Option<Duration>,

    /// Seconds from the start that are not counted
    #[arg(long, env = "FOREBAY_WARM_UP", value_name = "SECONDS", value_parser = warm_up, allow_negative_numbers = true, default_value = "0")]
    warm_up: Duration,

    /// Open loop: each stream asks for a batch at this rate, and a latency counts from when the batch was due; else the
    /// next batch is asked for once the last one has come
    #[arg(long, env = "FOREBAY_RATE", value_name = "BATCHES_PER_SECOND", value_parser = rate, allow_negative_numbers = true)]
    rate: Option<Duration>,

    /// Whether the bodies are held against their checksums; the headers' order is always checked
    #[arg(long, env = "FOREBAY_VERIFY", value_name = "BOOL", action = ArgAction::Set, default_value_t = true, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    verify: bool,

    /// Draws throughput over time and the distribution of the latencies
    #[arg(long, env = "FOREBAY_PLOT", value_name = "FILE.svg", value_parser = svg_path)]
    plot: Option<PathBuf>,
}

impl Load {
    /// Checks what one option alone does not tell, before anything is connected.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        if !self.stream.names_plan() {
            return usage("forebay load needs a plan: give --plan FILE or --plan-id ID".to_owned());
        }
        let streams = self.clients.checked_mul(self.streams);
        if !streams.is_some_and(|streams| (1..=STREAMS_MAX).contains(&streams)) {
            return usage(format!(
                "--clients {} × --streams {}: each is at least 1, and their product at most {STREAMS_MAX}",
                self.clients, self.streams
            ));
        }
        if self.epochs == Some(0) {
            return usage("--epochs 0: a stream reads one epoch at least".to_owned());
        }
        Ok(())
    }

    pub(crate) async fn run(self, session: &Session) -> Result<(), Failure> {
        if let Some(path) = &self.plot {
            // Not at the end of a long run.
            check_folder(path).map_err(|source| Failure::WriteFile { path: path.clone(), source })?;
        }
        let settings = self.settings()?;
        allow_connections();
        // Drawn on stderr, and only when that is a terminal.
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
        let mut troubles = outcome.troubles;
        // Damage before what merely failed.
        troubles.sort_by_key(|trouble| !trouble.is_damage());
        let failed = troubles.len();
        if let Some(trouble) = troubles.into_iter().next() {
            return Err(Failure::Load { failed, streams: report.streams.len(), source: Box::new(trouble) });
        }
        if report.batches == 0 && !report.was_interrupted {
            return Err(Failure::Unmeasured);
        }
        Ok(())
    }

    /// Reads the plan's file.
    fn settings(&self) -> Result<Settings, Failure> {
        let request: StreamRequest = self.stream.request(&self.dataset)?;
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
        _ => Err(format!("seconds as a number above 0 and up to {SECONDS_MAX}, such as 30 or 0.5")),
    }
}

fn warm_up(text: &str) -> Result<Duration, String> {
    match text.parse() {
        Ok(seconds) if (0.0..=SECONDS_MAX).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err(format!("seconds as a number from 0 to {SECONDS_MAX}, such as 5 or 0.5")),
    }
}

/// The time between two batches.
fn rate(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(rate) if (RATE_MIN..=RATE_MAX).contains(&rate) => Ok(Duration::from_secs_f64(1.0 / rate)),
        _ => Err(format!(
            "batches a second of each stream as a number above 0 (a batch a day at least) and up to {RATE_MAX}"
        )),
    }
}

fn svg_path(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    match path.extension() {
        Some(extension) if extension.eq_ignore_ascii_case("svg") => Ok(path),
        _ => Err("the plot is SVG: name a file that ends in .svg".to_owned()),
    }
}

fn check_folder(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if fs::metadata(folder)?.is_dir() { Ok(()) } else { Err(io::ErrorKind::NotADirectory.into()) }
}

/// Many shells let a program open 1024 files unless it asks for what it may have. Where it may have no more, connecting
/// says so.
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
