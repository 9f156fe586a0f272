//! One pass of a fit in this process: every row goes to all aggregates of its layout, which run as jobs of the engine.

use arrow::datatypes::Schema;
use forebay_engine::{Distribution, Engine, EngineError, Job, Merged, Summary, TargetSums, ValueCounts};
use forebay_kernels::Op;
use forebay_plan::{Answer, Question, Statistic};
use forebay_proto::JSON_BYTES_MAX;
use futures::{FutureExt, future};

use super::{
    groups::GroupJob,
    layout::{Layout, PassValues},
};
use crate::error::StreamError;

/// Questions that one pass answers: each may need an aggregate with memory.
const QUESTIONS_A_PASS_MAX: usize = 64;

/// The running aggregates of a pass.
pub(crate) struct Pass {
    layout: Layout,
    summaries: Option<Job<Vec<Option<Summary>>>>,
    distributions: Vec<Job<Option<Distribution>>>,
    counts: Vec<Job<ValueCounts>>,
    targets: Vec<Job<TargetSums>>,
    groups: Vec<GroupJob>,
}

/// Keeps the first questions that one pass has room for; later passes answer the others.
pub(crate) fn truncate_to_one_pass(questions: &mut Vec<Question>, engine: &Engine) {
    truncate(questions);
    let room = engine.distributions_max();
    let mut spread: Vec<(String, Vec<Op>, Vec<String>)> = Vec::new();
    questions.retain(|question| {
        if !needs_distribution(&question.statistic) {
            return true;
        }
        let by = question.statistic.by().to_vec();
        let distribution = (question.column.clone(), question.prefix.clone(), by);
        let is_known = spread.contains(&distribution);
        let is_kept = is_known || spread.len() < room;
        if is_kept && !is_known {
            spread.push(distribution);
        }
        is_kept
    });
}

/// Keeps the first questions, with all of a shared vocabulary.
pub(super) fn truncate(questions: &mut Vec<Question>) {
    let shared = |index: usize| questions.get(index).and_then(|question| question.statistic.shared());
    let mut end = QUESTIONS_A_PASS_MAX;
    while shared(end).is_some() && shared(end) == shared(end - 1) {
        end += 1;
    }
    questions.truncate(end);
}

fn needs_distribution(statistic: &Statistic) -> bool {
    match statistic {
        Statistic::Median | Statistic::MedianAndQuartiles | Statistic::Quantiles(_) => true,
        Statistic::OfGroups { statistic, .. } => needs_distribution(statistic),
        _ => false,
    }
}

// === impl Pass ===

impl Pass {
    /// Starts the aggregates that answer the questions.
    pub(crate) fn new(engine: &Engine, schema: &Schema, questions: &[Question]) -> Result<Self, StreamError> {
        let layout = Layout::new(schema, questions)?;
        let shape = layout.shape();
        let summaries = (!shape.summaries.is_empty()).then(|| engine.summaries(&shape.summaries)).transpose()?;
        let distributions = shape.quantiles.iter().map(|(data_type, _)| engine.distribution(data_type)).collect();
        let counts = shape.counts.iter().map(|(data_type, keep)| engine.value_counts(data_type, *keep));
        let targets =
            shape.targets.iter().map(|(data_type, parts)| engine.target_sums(data_type, *parts, JSON_BYTES_MAX));
        let (counts, targets) = (counts.collect::<Result<_, _>>()?, targets.collect::<Result<_, _>>()?);
        let groups = layout.start_groups(engine)?;
        Ok(Self { layout, summaries, distributions, counts, targets, groups })
    }

    /// Which values the aggregates take.
    pub(super) fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Pushes a block's values to the aggregates. False if one of them failed: the pass ends.
    pub(crate) async fn push(&self, values: PassValues) -> bool {
        let mut is_running = true;
        if let (Some(job), Some(batch)) = (&self.summaries, values.summaries) {
            is_running &= job.push(batch).await;
        }
        for (job, batch) in self.distributions.iter().zip(values.distributions) {
            is_running &= job.push(batch).await;
        }
        for (job, batch) in self.counts.iter().zip(values.counts) {
            is_running &= job.push(batch).await;
        }
        for (job, batch) in self.targets.iter().zip(values.targets) {
            is_running &= job.push(batch).await;
        }
        for (job, batch) in self.groups.iter().zip(values.groups) {
            is_running &= job.push(batch).await;
        }
        is_running
    }

    /// Ends the input and waits for the answers, in the order of the questions.
    pub(crate) async fn answers(self, questions: &[Question]) -> Result<Vec<Answer>, StreamError> {
        let summaries = match self.summaries {
            Some(job) => job.finish().boxed(),
            None => future::ready(Ok(Vec::new())).boxed(),
        };
        let distributions = future::try_join_all(self.distributions.into_iter().map(Job::finish));
        let counts = self.counts.into_iter().map(|job| job.finish().map(if_not_too_many));
        let targets = self.targets.into_iter().map(|job| job.finish().map(if_not_too_many));
        // The first error cancels the other jobs.
        let groups = self.groups.into_iter().map(|job| job.finish().map(if_not_too_many));
        let counted = future::try_join(future::try_join_all(counts), future::try_join_all(targets));
        let (summaries, distributions, (counts, targets), groups) =
            future::try_join4(summaries, distributions, counted, future::try_join_all(groups)).await?;
        self.layout.answers(questions, &Merged { summaries, distributions, counts, targets }, &groups)
    }
}

/// The result of a job; none if a plan cannot hold its values, which the question's answer reports.
fn if_not_too_many<T>(result: Result<T, EngineError>) -> Result<Option<T>, EngineError> {
    match result {
        Err(EngineError::TooManyValues { .. }) => Ok(None),
        result => result.map(Some),
    }
}
