//! The partial rows of some row groups, for a fit in another process.

use std::{
    ops::{ControlFlow, Range},
    sync::{Arc, Mutex, PoisonError},
};

use arrow::{array::RecordBatch, datatypes::Schema};
use forebay_catalog::{CatalogError, SentSnapshot, Snapshot, Stores};
use forebay_engine::PartialRows;
use forebay_plan::{PlanError, Question, Tables};
use forebay_runtime::{metrics::StageTimes, state::short_digest};
use forebay_scan::ScanError;
use prost::Message;

use super::{
    elsewhere::PassMessage,
    layout::{Layout, PassValues},
};
use crate::{
    ahead::{Ahead, AheadSender},
    computations::Progress,
    counts::recent::SharedResults,
    environment::{Environment, StreamParts},
    error::StreamError,
    prepare::functions::with_functions,
    row_pass::{self, PassSink},
    rows::{
        drive::RowSink,
        expressions::{Expressions, RowsOf},
        prefilter::NextRows,
    },
};

/// Passes and snapshots that stay open: those used longest ago are dropped.
const OPEN_MAX: usize = 8;

/// Batches of partial rows that wait for their reader.
const BATCHES_QUEUED: usize = 2;

/// The partial rows of some row groups.
pub type PartialTask = Ahead<RecordBatch>;

/// Computes partial rows of fits that other processes run.
#[derive(Debug)]
pub struct FitWorker {
    environment: Arc<Environment>,
    stores: Mutex<Stores>,
    snapshots: SharedResults<Arc<Snapshot>>,
    passes: SharedResults<Arc<OpenPass>>,
}

/// A pass whose files are open.
#[derive(Debug)]
struct OpenPass {
    snapshot: Arc<Snapshot>,
    expressions: Arc<Expressions>,
    /// What the chains of the questions read.
    schema: Schema,
    questions: Vec<Question>,
}

/// Computes partial rows, and sends them.
struct PartialSink {
    layout: Layout,
    rows: PartialRows,
    sender: AheadSender<RecordBatch>,
}

/// A file that another process has pinned and this one cannot read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreadPin {
    /// The file and the reason.
    pub reason: String,
    /// Whether it is not the pinned file: replaced, or removed.
    pub is_change: bool,
}

// === impl FitWorker ===

impl FitWorker {
    /// A worker on these parts of a server, which reads files through `stores`.
    pub fn new(parts: StreamParts, stores: Stores) -> Self {
        let environment = Arc::new(Environment::new(parts));
        Self {
            environment,
            stores: Mutex::new(stores),
            snapshots: SharedResults::new(OPEN_MAX),
            passes: SharedResults::new(OPEN_MAX),
        }
    }

    /// Starts to compute the partial rows of row groups of a pass, by their indices in its snapshot.
    pub fn start(self: &Arc<Self>, message: Arc<[u8]>, groups: Range<usize>) -> PartialTask {
        let worker = Arc::clone(self);
        PartialTask::start(BATCHES_QUEUED, |sender| async move { worker.compute(&message, groups, sender).await })
    }

    async fn compute(
        &self,
        message: &[u8],
        groups: Range<usize>,
        sender: AheadSender<RecordBatch>,
    ) -> Result<(), StreamError> {
        let cell = self.passes.of(&short_digest(&[message]));
        let pass = cell.get_or_try_init(async || self.open(message).await.map(Arc::new)).await?;
        let layout = Layout::new(&pass.schema, &pass.questions)?;
        let columns = layout.columns().map(str::to_owned).collect();
        let rows = PartialRows::new(layout.shape());
        let sink = PartialSink { layout, rows, sender: sender.clone() };
        let (environment, mut progress) = (&self.environment, Progress::unreported());
        let OpenPass { snapshot, expressions, .. } = pass.as_ref();
        let sink = row_pass::run(environment, (snapshot, expressions), columns, groups, sink, &mut progress).await?;
        // Fails if the reader is gone, which needs no rows.
        let _ = sender.send(Ok(sink.rows.finish()?)).await;
        Ok(())
    }

    async fn open(&self, message: &[u8]) -> Result<OpenPass, StreamError> {
        let message = PassMessage::read(message).map_err(|reason| PlanError::field("plan", reason))?;
        let (sample, count) = (message.sample(), message.questions as usize);
        let sent = message.snapshot.unwrap_or_default();
        let key = short_digest(&[&sent.encode_to_vec()]);
        let cell = self.snapshots.of(&key);
        let snapshot = cell.get_or_try_init(async || self.open_snapshot(sent).await.map(Arc::new)).await?;
        let snapshot = Arc::clone(snapshot);
        let (plan, functions) = with_functions(&self.environment, message.plan.unwrap_or_default()).await?;
        let stored = Arc::clone(snapshot.wide_schema());
        // On the CPU pool, whose stacks are deep enough for expressions.
        let compiled = self.environment.cpu.run(move || {
            let tables = Tables::default();
            let source = RowsOf::sample(sample);
            let expressions = Arc::new(Expressions::compile(&plan, &stored, (&tables, &functions), source)?);
            let schema = forebay_plan::chain_schema(&plan, &expressions.chain_schema)?;
            let mut questions = forebay_plan::questions(&plan, &tables)?;
            questions.truncate(count);
            Ok::<_, StreamError>((expressions, schema, questions))
        });
        let (expressions, schema, questions) = compiled.await??;
        Ok(OpenPass { snapshot, expressions, schema, questions })
    }

    async fn open_snapshot(&self, sent: SentSnapshot) -> Result<Snapshot, StreamError> {
        let store = self.stores.lock().unwrap_or_else(PoisonError::into_inner).at(sent.store());
        Ok(sent.open(store, &self.environment.cpu).await?)
    }
}

// === impl PartialSink ===

impl PassSink for PartialSink {
    const PURPOSE: &'static str = "fit";

    const BLOCKS_QUEUED: u64 = BATCHES_QUEUED as u64 + 1;
}

impl RowSink<NextRows> for PartialSink {
    type Output = RecordBatch;

    fn add(&mut self, rows: NextRows, _: &mut StageTimes) -> Result<Option<RecordBatch>, StreamError> {
        // A fit with groups has no pass elsewhere.
        let PassValues { summaries, distributions, counts, targets, groups: _ } =
            self.layout.values(&rows.passing.rows)?;
        if let Some(columns) = summaries {
            self.rows.add_summaries(&columns)?;
        }
        for (index, values) in distributions.iter().enumerate() {
            self.rows.add_quantiles(index, values)?;
        }
        for (index, values) in counts.iter().enumerate() {
            self.rows.add_counts(index, values)?;
        }
        for (index, rows) in targets.iter().enumerate() {
            self.rows.add_targets(index, rows)?;
        }
        Ok(Some(self.rows.take()?))
    }

    async fn take(&mut self, values: RecordBatch, _: &mut StageTimes) -> Result<ControlFlow<()>, StreamError> {
        let is_taken = values.num_rows() == 0 || self.sender.send(Ok(values)).await.is_ok();
        Ok(if is_taken { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
    }
}

// === impl UnreadPin ===

impl UnreadPin {
    /// The file of an error of a worker, if the error is about one.
    pub fn of(error: &StreamError) -> Option<Self> {
        let (reason, is_change) = match error {
            StreamError::Catalog(CatalogError::Storage { source, .. })
            | StreamError::Scan(ScanError::Storage { source, .. }) => (source.to_string(), source.is_change()),
            StreamError::Catalog(CatalogError::Empty { reason, .. }) => (reason.clone(), true),
            StreamError::Scan(ScanError::Changed { file, .. }) => {
                (format!("{file} was replaced, truncated or deleted"), true)
            }
            _ => return None,
        };
        Some(Self { reason, is_change })
    }
}
