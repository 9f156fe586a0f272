//! Metrics of each open stream: rows and bytes sent, position, and time per stage.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use metrics::counter;
use serde::Serialize;

use super::{
    guards::StreamStatus,
    handles::handles,
    page::Page,
    stages::{Stage, StageTimes, StageTotals},
};

/// Streams with separate series; totals include all streams. A page of a thousand is about a megabyte.
const STREAMS_LISTED_MAX: usize = 1000;

/// Open streams, in the order of opening.
static OPEN: Mutex<BTreeMap<u64, Arc<Figures>>> = Mutex::new(BTreeMap::new());

/// Labels that identify a stream.
#[derive(Clone, Debug, Default)]
pub struct StreamLabels {
    /// Request id.
    pub stream: String,
    /// Name of the dataset.
    pub dataset: String,
    /// Epoch; empty for a raw table.
    pub epoch: String,
    /// Rank; empty for a raw table.
    pub rank: String,
}

/// An open stream. Updates `forebay_streams_active` and `forebay_streams_total`; a stream dropped before [`Self::end`]
/// was cancelled.
#[derive(Debug)]
pub struct StreamGuard {
    number: u64,
    figures: Arc<Figures>,
    status: StreamStatus,
}

/// An open stream, for the status page.
#[derive(Debug, Serialize)]
pub struct OpenStream {
    /// Its number since the start of the server.
    number: u64,
    stream: String,
    dataset: String,
    epoch: String,
    rank: String,
    rows: u64,
    bytes: u64,
    position: u64,
    open_seconds: f64,
    /// Seconds by stage.
    stages: BTreeMap<&'static str, f64>,
    /// What took most of its time: storage, CPU, functions, or the client; none before the first batch.
    bound_by: Option<&'static str>,
}

#[derive(Debug)]
struct Figures {
    names: StreamLabels,
    /// The same in Prometheus's text format, without braces.
    labels: String,
    requested: Instant,
    rows: AtomicU64,
    bytes: AtomicU64,
    position: AtomicU64,
    stages: StageTotals,
}

// === impl StreamGuard ===

impl StreamGuard {
    /// Registers a stream that was requested at the given time.
    pub fn open(labels: &StreamLabels, requested: Instant) -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        let mut written = labels.written();
        // Clients choose request ids: two open streams with the same id would be a duplicate series, for which
        // Prometheus rejects the whole page.
        if open.values().any(|figures| figures.labels == written) {
            written = StreamLabels { stream: format!("{}~{number}", labels.stream), ..labels.clone() }.written();
        }
        let figures = Arc::new(Figures {
            names: labels.clone(),
            labels: written,
            requested,
            rows: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            position: AtomicU64::new(0),
            stages: StageTotals::new(),
        });
        open.insert(number, Arc::clone(&figures));
        drop(open);
        handles().streams_active.increment(1.0);
        Self { number, figures, status: StreamStatus::Cancelled }
    }

    /// Records a batch that was sent: rows, bytes, the position after it, and the time per stage since the previous
    /// batch.
    pub fn batch(&self, rows: u64, bytes: u64, position: u64, times: &StageTimes) {
        self.figures.rows.fetch_add(rows, Ordering::Relaxed);
        self.figures.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.figures.position.store(position, Ordering::Relaxed);
        self.figures.stages.add(times);
    }

    /// Returns the seconds spent in a stage so far.
    pub fn seconds(&self, stage: Stage) -> f64 {
        self.figures.stages.seconds(stage)
    }

    /// Sets the outcome of the stream.
    pub fn end(&mut self, status: StreamStatus) {
        self.status = status;
    }
}

impl Drop for StreamGuard {
    fn drop(&mut self) {
        OPEN.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.number);
        handles().streams_active.decrement(1.0);
        counter!("forebay_streams_total", "status" => self.status.label()).increment(1);
    }
}

// === impl StreamLabels ===

impl StreamLabels {
    fn written(&self) -> String {
        let escaped = |value: &str| value.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n");
        let Self { stream, dataset, epoch, rank } = self;
        format!(
            "stream=\"{}\",dataset=\"{}\",epoch=\"{}\",rank=\"{}\"",
            escaped(stream),
            escaped(dataset),
            escaped(epoch),
            escaped(rank)
        )
    }
}

/// The number of open streams, and the first of them, at most `listed_max`.
pub fn open_streams(listed_max: usize) -> (usize, Vec<OpenStream>) {
    let open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    let (count, first) = (open.len(), open.iter().take(listed_max));
    let first: Vec<(u64, Arc<Figures>)> = first.map(|(number, figures)| (*number, Arc::clone(figures))).collect();
    drop(open);
    (count, first.into_iter().map(|(number, figures)| figures.status(number)).collect())
}

// === impl Figures ===

impl Figures {
    fn status(&self, number: u64) -> OpenStream {
        let StreamLabels { stream, dataset, epoch, rank } = self.names.clone();
        let seconds = |stage: Stage| self.stages.seconds(stage);
        let cpu = [Stage::Queue, Stage::Decode, Stage::Transform, Stage::Assemble].map(seconds).iter().sum();
        let causes = [
            ("storage", seconds(Stage::Fetch)),
            ("CPU", cpu),
            ("functions", seconds(Stage::Udf)),
            ("the client", seconds(Stage::SendWait)),
        ];
        let most = causes.into_iter().max_by(|(_, one), (_, other)| one.total_cmp(other));
        OpenStream {
            number,
            stream,
            dataset,
            epoch,
            rank,
            rows: self.rows.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
            position: self.position.load(Ordering::Relaxed),
            open_seconds: self.requested.elapsed().as_secs_f64(),
            stages: Stage::ALL.map(|stage| (stage.label(), seconds(stage))).into(),
            bound_by: most.filter(|(_, seconds)| *seconds > 0.0).map(|(cause, _)| cause),
        }
    }
}

/// Writes the series of every open stream.
pub(super) fn render(page: &mut Page) {
    let open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    let listed: Vec<Arc<Figures>> = open.values().take(STREAMS_LISTED_MAX).map(Arc::clone).collect();
    drop(open);
    let mut each = |name: &str, value: fn(&Figures) -> f64| {
        page.head(name);
        for figures in &listed {
            page.series(name, &figures.labels, value(figures));
        }
    };
    each("forebay_stream_rows_total", |figures| figures.rows.load(Ordering::Relaxed) as f64);
    each("forebay_stream_bytes_total", |figures| figures.bytes.load(Ordering::Relaxed) as f64);
    each("forebay_stream_position", |figures| figures.position.load(Ordering::Relaxed) as f64);
    each("forebay_stream_open_seconds", |figures| figures.requested.elapsed().as_secs_f64());
    page.head("forebay_stream_stage_seconds_total");
    for figures in &listed {
        for stage in Stage::ALL {
            let labels = format!("{},stage=\"{}\"", figures.labels, stage.label());
            page.series("forebay_stream_stage_seconds_total", &labels, figures.stages.seconds(stage));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped() {
        let labels = StreamLabels { dataset: "a\"} 1\nb\\".to_owned(), ..StreamLabels::default() };
        assert_eq!(labels.written(), r#"stream="",dataset="a\"} 1\nb\\",epoch="",rank="""#);
    }

    #[test]
    fn a_stream_is_listed_while_it_is_open() {
        let labels = StreamLabels { stream: "listed-while-open".to_owned(), ..StreamLabels::default() };
        let guard = StreamGuard::open(&labels, Instant::now());
        guard.batch(8, 64, 16, &StageTimes::default());
        let page = || {
            let mut page = Page::default();
            render(&mut page);
            page.into_text()
        };
        assert!(
            page().contains(
                "forebay_stream_rows_total{stream=\"listed-while-open\",dataset=\"\",epoch=\"\",rank=\"\"} 8\n"
            )
        );
        // A second stream with the same id gets a separate series.
        let second = StreamGuard::open(&labels, Instant::now());
        assert_eq!(page().matches("forebay_stream_rows_total{stream=\"listed-while-open").count(), 2);
        assert_eq!(page().matches("forebay_stream_rows_total{stream=\"listed-while-open\"").count(), 1);
        drop((guard, second));
        assert!(!page().contains("listed-while-open"));
    }
}
