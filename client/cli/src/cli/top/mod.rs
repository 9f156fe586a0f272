//! `forebay top`: live view of servers and their open streams, from their metrics.

mod bar;
mod cells;
mod grid;
mod live;
mod screen;
mod text;
mod view;

use std::{
    fmt::Write as _,
    io::{self, IsTerminal},
    time::Duration,
};

use clap::Args;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::{failure::Failure, output};
use crate::top::{Snapshot, Target, Watch};

/// Maximum number of servers, all of which can send a page at once.
const SERVERS_MAX: usize = 100;

/// Minimum interval; a page costs a server some milliseconds.
const INTERVAL_SECONDS_MIN: f64 = 0.1;
const INTERVAL_SECONDS_MAX: f64 = 3600.0;

/// Monitor servers from their metrics: streams, rates, stage times and limits. On a terminal, q quits and ? lists the
/// keys
#[derive(Debug, Args)]
pub(crate) struct Top {
    /// Metrics pages: http://HOST:PORT/metrics, or HOST:PORT; several are separated by spaces or commas
    #[arg(
        value_name = "URL",
        env = "FOREBAY_METRICS",
        value_delimiter = ',',
        default_value = "http://127.0.0.1:9815/metrics"
    )]
    servers: Vec<Target>,

    /// Seconds between polls of a server
    #[arg(long, env = "FOREBAY_INTERVAL", value_name = "SECONDS", value_parser = interval, allow_negative_numbers = true, default_value = "1")]
    interval: Duration,

    /// Poll twice, one interval apart, print the result and exit; without --once, --json prints a line per interval
    #[arg(long, env = "FOREBAY_ONCE")]
    once: bool,
}

impl Top {
    pub(crate) async fn run(&self, is_json: bool) -> Result<(), Failure> {
        if self.servers.len() > SERVERS_MAX {
            return Err(Failure::Usage(format!("{} servers: at most {SERVERS_MAX} are supported", self.servers.len())));
        }
        let is_live = !self.once && !is_json;
        if is_live && !io::stdout().is_terminal() {
            return Err(Failure::Usage(
                "the live view of forebay top requires a terminal: pass --once for a table, --once --json or --json for scripts"
                    .to_owned(),
            ));
        }
        let mut end = EndSignals::new().map_err(Failure::Signals)?;
        let watch = Watch::new(self.servers.clone(), self.interval);
        let work = async {
            match (self.once, is_json) {
                (true, _) => once(watch, is_json).await,
                (false, true) => lines(watch).await,
                (false, false) => live::run(watch, self.interval).await,
            }
        };
        // An interrupt is a normal exit, as in `forebay load`. Dropping the view restores the terminal.
        tokio::select! {
            outcome = work => outcome,
            () = end.recv() => Ok(()),
        }
    }
}

/// Prints the result of two polls.
async fn once(mut watch: Watch, is_json: bool) -> Result<(), Failure> {
    watch.measure().await;
    let snapshot = watch.snapshot();
    output::write(&if is_json { json(&snapshot, true)? } else { text::tables(&snapshot) })?;
    if snapshot.servers.iter().any(|server| server.up) { Ok(()) } else { Err(Failure::NoneAnswered) }
}

/// Prints a line of JSON per interval.
async fn lines(mut watch: Watch) -> Result<(), Failure> {
    // The first poll has no rates.
    watch.round().await;
    loop {
        watch.round().await;
        output::write(&json(&watch.snapshot(), false)?)?;
    }
}

/// Formats JSON without control characters: names are untrusted and may be printed on a terminal.
fn json(snapshot: &Snapshot, is_pretty: bool) -> Result<String, Failure> {
    let write = if is_pretty { serde_json::to_string_pretty } else { serde_json::to_string };
    let text = write(snapshot).map_err(Failure::Json)?;
    let mut safe = String::with_capacity(text.len() + 1);
    for letter in text.chars() {
        match letter {
            // Between values; within strings it is escaped already.
            '\n' => safe.push('\n'),
            // All unsafe characters have at most four hexadecimal digits.
            letter if cells::is_unsafe(letter) => {
                // Writing to a String cannot fail.
                let _ = write!(safe, "\\u{:04x}", u32::from(letter));
            }
            letter => safe.push(letter),
        }
    }
    safe.push('\n');
    Ok(safe)
}

/// Signals that end this program.
struct EndSignals {
    signals: [Signal; 3],
}

impl EndSignals {
    fn new() -> io::Result<Self> {
        let [interrupt, terminate, hang_up] =
            [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()].map(signal);
        Ok(Self { signals: [interrupt?, terminate?, hang_up?] })
    }

    async fn recv(&mut self) {
        let [interrupt, terminate, hang_up] = &mut self.signals;
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hang_up.recv() => {}
        }
    }
}

fn interval(text: &str) -> Result<Duration, String> {
    match text.parse() {
        Ok(seconds) if (INTERVAL_SECONDS_MIN..=INTERVAL_SECONDS_MAX).contains(&seconds) => {
            Ok(Duration::from_secs_f64(seconds))
        }
        _ => Err(format!("expected seconds from {INTERVAL_SECONDS_MIN} to {INTERVAL_SECONDS_MAX}, such as 1 or 0.5")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::StreamFigures;

    #[test]
    fn json_escapes_hostile_names() {
        let hostile = "a\u{1b}[2J\u{9b}31m\u{7f}\n\u{202e}\"é";
        let stream = StreamFigures { dataset: hostile.to_owned(), ..StreamFigures::default() };
        let snapshot = Snapshot { streams: vec![stream], ..Snapshot::default() };
        for is_pretty in [false, true] {
            let text = json(&snapshot, is_pretty).unwrap();
            assert!(!text.contains(|letter| letter != '\n' && cells::is_unsafe(letter)), "{text:?}");
            let read: serde_json::Value = serde_json::from_str(&text).unwrap();
            assert_eq!(read["streams"][0]["dataset"], hostile);
        }
        assert_eq!(json(&snapshot, false).unwrap().lines().count(), 1);
    }

    #[test]
    fn an_interval_is_bounded() {
        assert_eq!(interval("0.5"), Ok(Duration::from_millis(500)));
        for text in ["0", "-1", "NaN", "inf", "1e9", "", "1s"] {
            assert!(interval(text).unwrap_err().contains("from 0.1 to 3600"), "{text}");
        }
    }
}
