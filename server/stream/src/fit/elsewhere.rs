//! Passes of a fit in other processes: each computes the partial rows of some row groups, and this one merges them.
//!
//! This module sends no message itself: a [`PassRunner`] does.

use std::{error::Error, fmt};

use arrow::array::RecordBatch;
use forebay_catalog::{SentSnapshot, Snapshot};
use forebay_engine::Engine;
use forebay_plan::{Answer, PlanError, Question, Sample};
use forebay_proto::{JSON_BYTES_MAX, v1};
use futures::{TryStreamExt, future::BoxFuture, stream::BoxStream};
use prost::Message;

use super::layout::Layout;
use crate::{computations::Progress, error::StreamError, rows::expressions::Expressions};

/// The version of messages and partial rows: both ends of a pass are of one program version.
const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " pass 3");

/// Runs passes of fits in other processes.
pub trait PassRunner: fmt::Debug + Send + Sync {
    /// Runs a pass. Returns its partial rows, of which those of the same aggregate, value and part are added up.
    fn run(&self, pass: RemotePass) -> BoxFuture<'static, Result<PartialStream, RunnerError>>;
}

/// Partial rows of a pass.
pub type PartialStream = BoxStream<'static, Result<RecordBatch, RunnerError>>;

/// Why a pass did not run.
pub type RunnerError = Box<dyn Error + Send + Sync>;

/// A pass that other processes run.
#[derive(Clone, Debug)]
pub struct RemotePass {
    /// What a [`FitWorker`](super::FitWorker) needs.
    pub message: Vec<u8>,
    /// The rows of each row group.
    pub group_rows: Vec<u64>,
    /// Whether partial rows must be sorted by aggregate and value.
    pub is_sorted: bool,
    /// Aggregates that need no values with fewer rows, and the least number of rows.
    pub least_rows: Vec<(u32, u64)>,
}

/// What another process needs to compute the partial rows of a pass.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct PassMessage {
    #[prost(string, tag = "1")]
    version: String,
    #[prost(message, optional, tag = "2")]
    pub snapshot: Option<SentSnapshot>,
    /// The outputs with questions, and what their rows need.
    #[prost(message, optional, tag = "3")]
    pub plan: Option<v1::Plan>,
    /// The number of questions.
    #[prost(uint64, tag = "4")]
    pub questions: u64,
    /// The key of the sample; empty: all rows.
    #[prost(bytes = "vec", tag = "5")]
    sample: Vec<u8>,
}

/// Rejects a plan whose rows need more than the files of the dataset.
pub(super) fn check(plan: &v1::Plan) -> Result<(), StreamError> {
    let reason = |what: &str| {
        format!("a fit on a cluster has no {what}: prepare the column with SQL, or fit with --engine embedded")
    };
    if let Some((path, _)) = forebay_plan::lookups(plan)?.into_iter().next() {
        return Err(PlanError::field(path, reason("tables of other datasets")).into());
    }
    if let Some((_, path)) = forebay_plan::udf_calls(plan)?.into_iter().next() {
        return Err(PlanError::field(path, reason("Python functions")).into());
    }
    if let Some(path) = forebay_plan::groups_path(plan) {
        return Err(PlanError::field(path, reason("statistics of groups")).into());
    }
    if let Some(path) = forebay_plan::history_path(plan) {
        return Err(PlanError::field(path, reason("rows before those of its part")).into());
    }
    Ok(())
}

/// Runs a pass, and returns the answers in the order of the questions.
pub(super) async fn answers(
    runner: &dyn PassRunner,
    engine: &Engine,
    (snapshot, expressions): (&Snapshot, &Expressions),
    plan: &v1::Plan,
    questions: &[Question],
    progress: &mut Progress,
) -> Result<Vec<Answer>, StreamError> {
    let layout = Layout::new(&forebay_plan::chain_schema(plan, &expressions.chain_schema)?, questions)?;
    let shape = layout.shape();
    let message = PassMessage {
        version: VERSION.to_owned(),
        snapshot: Some(SentSnapshot::new(snapshot)?),
        plan: Some(with_questions(plan, questions)),
        questions: questions.len() as u64,
        sample: expressions.sample.map_or_else(Vec::new, |sample| sample.key().to_vec()),
    };
    let pass = RemotePass {
        message: message.encode_to_vec(),
        group_rows: snapshot.row_counts().to_vec(),
        is_sorted: shape.is_sorted(),
        least_rows: shape.least_rows(),
    };
    progress.begin_pass(snapshot.row_count());
    let mut partial = runner.run(pass).await.map_err(StreamError::Elsewhere)?;
    progress.add_rows(snapshot.row_count());
    let mut merge = engine.merge(shape, JSON_BYTES_MAX);
    while let Some(rows) = partial.try_next().await.map_err(StreamError::Elsewhere)? {
        merge.push(&rows)?;
    }
    layout.answers(questions, &merge.finish()?, &[])
}

/// The plan without the outputs that have no questions. The others have the same questions in the same order, unless ops of several
/// outputs wait for each other: then no output is left out.
fn with_questions(plan: &v1::Plan, questions: &[Question]) -> v1::Plan {
    let mut plan = plan.clone();
    if forebay_plan::shares_vocabularies(&plan) {
        return plan;
    }
    let mut index = 0..;
    plan.outputs.retain(|_| {
        let output = index.next();
        questions.iter().any(|question| Some(question.output()) == output)
    });
    plan
}

// === impl PassMessage ===

impl PassMessage {
    /// Reads a message of the same version.
    pub(super) fn read(bytes: &[u8]) -> Result<Self, String> {
        let message = Self::decode(bytes).map_err(|error| format!("a pass cannot be read: {error}"))?;
        if message.version != VERSION {
            return Err(format!("the pass is of version {}, and this process of version {VERSION}", message.version));
        }
        Ok(message)
    }

    /// The rows that are read; `None`: all.
    pub(super) fn sample(&self) -> Option<Sample> {
        <[u8; 16]>::try_from(self.sample.as_slice()).ok().map(Sample::of_key)
    }
}
