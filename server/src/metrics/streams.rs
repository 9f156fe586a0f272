//! The streams that are open, one by one: what each has sent, where it is, and where its time went.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use metrics::counter;

use super::{
    guards::StreamStatus,
    handles::handles,
    page::Page,
    stages::{Stage, StageTimes, StageTotals},
};

/// Streams that are told of one by one; the metrics of all count those above it too. A page of a thousand has a megabyte.
const STREAMS_TOLD_MAX: usize = 1000;

/// The open streams, in the order in which they were opened.
static OPEN: Mutex<BTreeMap<u64, Arc<Figures>>> = Mutex::new(BTreeMap::new());

/// What tells a stream from others.
#[derive(Clone, Debug, Default)]
pub struct StreamLabels {
    /// The id of its request.
    pub stream: String,
    /// The dataset.
    pub dataset: String,
    /// The epoch; empty for a raw table.
    pub epoch: String,
    /// The rank; empty for a raw table.
    pub rank: String,
}

/// An open stream. Keeps `forebay_streams_active` and `forebay_streams_total` right however it ends: one that is dropped
/// before it says otherwise was cancelled.
#[derive(Debug)]
pub struct StreamGuard {
    number: u64,
    figures: Arc<Figures>,
    status: StreamStatus,
}

#[derive(Debug)]
struct Figures {
    /// The labels as they are written, without braces.
    labels: String,
    asked: Instant,
    rows: AtomicU64,
    bytes: AtomicU64,
    position: AtomicU64,
    stages: StageTotals,
}

// === impl StreamGuard ===

impl StreamGuard {
    /// A stream has opened that was asked for at this time.
    pub fn open(labels: &StreamLabels, asked: Instant) -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        let mut written = labels.written();
        // Clients name their calls as they like: two open streams of one name would be one series twice, and a page with
        // that is refused as a whole.
        if open.values().any(|figures| figures.labels == written) {
            written = StreamLabels { stream: format!("{}~{number}", labels.stream), ..labels.clone() }.written();
        }
        let figures = Arc::new(Figures {
            labels: written,
            asked,
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

    /// A batch was handed to the wire: its rows and bytes, the position behind it, and where the time since the batch
    /// before went.
    pub fn batch(&self, rows: u64, bytes: u64, position: u64, times: &StageTimes) {
        self.figures.rows.fetch_add(rows, Ordering::Relaxed);
        self.figures.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.figures.position.store(position, Ordering::Relaxed);
        self.figures.stages.add(times);
    }

    /// Seconds of a stage so far.
    pub fn seconds(&self, stage: Stage) -> f64 {
        self.figures.stages.seconds(stage)
    }

    /// Says how the stream ends.
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

/// Writes the series of every open stream.
pub(super) fn render(page: &mut Page) {
    let open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    let told: Vec<Arc<Figures>> = open.values().take(STREAMS_TOLD_MAX).map(Arc::clone).collect();
    drop(open);
    let mut each = |name: &str, value: fn(&Figures) -> f64| {
        page.head(name);
        for figures in &told {
            page.series(name, &figures.labels, value(figures));
        }
    };
    each("forebay_stream_rows_total", |figures| figures.rows.load(Ordering::Relaxed) as f64);
    each("forebay_stream_bytes_total", |figures| figures.bytes.load(Ordering::Relaxed) as f64);
    each("forebay_stream_position", |figures| figures.position.load(Ordering::Relaxed) as f64);
    each("forebay_stream_open_seconds", |figures| figures.asked.elapsed().as_secs_f64());
    page.head("forebay_stream_stage_seconds_total");
    for figures in &told {
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
    fn labels_cannot_break_out_of_their_quotes() {
        let labels = StreamLabels { dataset: "a\"} 1\nb\\".to_owned(), ..StreamLabels::default() };
        assert_eq!(labels.written(), r#"stream="",dataset="a\"} 1\nb\\",epoch="",rank="""#);
    }

    #[test]
    fn a_stream_is_told_of_while_it_is_open() {
        let labels = StreamLabels { stream: "told-while-open".to_owned(), ..StreamLabels::default() };
        let guard = StreamGuard::open(&labels, Instant::now());
        guard.batch(8, 64, 16, &StageTimes::default());
        let told = || {
            let mut page = Page::default();
            render(&mut page);
            page.into_text()
        };
        assert!(
            told().contains(
                "forebay_stream_rows_total{stream=\"told-while-open\",dataset=\"\",epoch=\"\",rank=\"\"} 8\n"
            )
        );
        // A second stream of the same name has a series of its own.
        let second = StreamGuard::open(&labels, Instant::now());
        assert_eq!(told().matches("forebay_stream_rows_total{stream=\"told-while-open").count(), 2);
        assert_eq!(told().matches("forebay_stream_rows_total{stream=\"told-while-open\"").count(), 1);
        drop((guard, second));
        assert!(!told().contains("told-while-open"));
    }
}
