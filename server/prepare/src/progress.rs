//! Progress of a run: counters, and a line on a terminal.

use std::{
    io::{self, IsTerminal, Write},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use indicatif::{HumanBytes, HumanCount, ProgressBar, ProgressStyle};

/// Time between two updates of the line.
const UPDATE: Duration = Duration::from_millis(200);

/// Counters of a run.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    rows: AtomicU64,
    bytes: AtomicU64,
}

// === impl Progress ===

impl Progress {
    /// Counts a row group that was written.
    pub(crate) fn add(&self, rows: u64, bytes: u64) {
        self.rows.fetch_add(rows, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Shows the counters on stderr: a line in every interval or, without one, a line that is updated on a terminal.
    /// Never completes.
    pub(crate) async fn show(self: &Arc<Self>, interval: Duration, spilled_bytes: impl Fn() -> u64) {
        if !interval.is_zero() {
            return self.print(interval, spilled_bytes).await;
        }
        if !io::stderr().is_terminal() {
            return std::future::pending().await;
        }
        let line = ProgressBar::new_spinner();
        line.set_style(ProgressStyle::default_spinner());
        let _removed = RemovedLine(&line);
        let mut ticks = tokio::time::interval(UPDATE);
        loop {
            ticks.tick().await;
            line.set_message(self.text(spilled_bytes()));
            line.tick();
        }
    }

    async fn print(&self, interval: Duration, spilled_bytes: impl Fn() -> u64) {
        loop {
            tokio::time::sleep(interval).await;
            // A closed stderr is no reason to stop.
            let _ = writeln!(io::stderr(), "progress: {}", self.text(spilled_bytes()));
        }
    }

    fn text(&self, spilled_bytes: u64) -> String {
        let (rows, bytes) = (self.rows.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed));
        let spilled = match spilled_bytes {
            0 => String::new(),
            bytes => format!(", {} spilled", HumanBytes(bytes)),
        };
        format!("{} rows, {} written{spilled}", HumanCount(rows), HumanBytes(bytes))
    }
}

/// Clears the line when dropped.
struct RemovedLine<'a>(&'a ProgressBar);

impl Drop for RemovedLine<'_> {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
