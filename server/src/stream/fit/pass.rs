//! One pass of a fit: questions that need the same values share an aggregate, and every row goes to all aggregates.

use arrow::{
    array::{ArrayRef, RecordBatch},
    datatypes::{DataType, Schema},
};
use forebay_kernels::{Op, Prefix};
use forebay_proto::JSON_BYTES_MAX;
use futures::{FutureExt, future};

use super::{
    answers::{of_counts, of_distribution, of_summary, of_target},
    dry_run::checked_prefix,
    inputs::{learnable, learned_type},
    targets::{PrefixTarget, Target},
};
use crate::{
    engine::{Distribution, Engine, EngineError, Job, Keep, Summary, ValueCounts, distribution_schema, summary_schema},
    plan::{Answer, Question, Statistic},
    stream::error::StreamError,
};

/// Questions that one pass answers: each may need an aggregate with memory and a thread.
const QUESTIONS_A_PASS_MAX: usize = 64;

/// The running aggregates of a pass.
pub(crate) struct Pass {
    /// The distinct prefixes of the questions' chains.
    prefixes: Vec<Prefix>,
    summaries: Option<Job<Vec<Option<Summary>>>>,
    /// The prefix of each column of the summaries.
    summarized: Vec<usize>,
    distributions: Vec<PrefixDistribution>,
    counts: Vec<PrefixCounts>,
    targets: Vec<PrefixTarget>,
    /// The aggregate that answers each question.
    sources: Vec<AnswerSource>,
}

struct PrefixDistribution {
    prefix: usize,
    job: Job<Option<Distribution>>,
}

struct PrefixCounts {
    prefix: usize,
    keep: Keep,
    job: Job<ValueCounts>,
}

#[derive(Clone, Copy)]
enum AnswerSource {
    Summary(usize),
    Distribution(usize),
    Counts(usize),
    Target(usize),
}

/// A chunk's values for every aggregate of a pass.
pub(crate) struct PassValues {
    summaries: Option<RecordBatch>,
    distributions: Vec<RecordBatch>,
    counts: Vec<RecordBatch>,
    targets: Vec<RecordBatch>,
}

/// Keeps the first questions that one pass has room for; later passes answer the others.
pub(crate) fn truncate_to_one_pass(questions: &mut Vec<Question>, engine: &Engine) {
    questions.truncate(QUESTIONS_A_PASS_MAX);
    let room = engine.distributions_max();
    let mut spread: Vec<(String, Vec<Op>)> = Vec::new();
    questions.retain(|question| {
        let is_known = spread.iter().any(|(column, ops)| *column == question.column && *ops == question.prefix);
        if is_known || !needs_distribution(&question.statistic) {
            return true;
        }
        if spread.len() < room {
            spread.push((question.column.clone(), question.prefix.clone()));
            return true;
        }
        false
    });
}

fn needs_distribution(statistic: &Statistic) -> bool {
    matches!(statistic, Statistic::Median | Statistic::MedianAndQuartiles | Statistic::Quantiles(_))
}

/// Whether one prefix serves both: counting keeps all digits of decimals, arithmetic does not.
fn is_of_same_values(one: &Question, other: &Question) -> bool {
    let is_counted = |question: &Question| question.statistic.is_counted();
    one.column == other.column && one.prefix == other.prefix && is_counted(one) == is_counted(other)
}

// === impl Pass ===

impl Pass {
    /// Starts the aggregates that answer the questions.
    pub(crate) fn new(engine: &Engine, schema: &Schema, questions: &[Question]) -> Result<Self, StreamError> {
        let mut keys: Vec<&Question> = Vec::new();
        let mut pass = Self {
            prefixes: Vec::new(),
            summaries: None,
            summarized: Vec::new(),
            distributions: Vec::new(),
            counts: Vec::new(),
            targets: Vec::new(),
            sources: Vec::new(),
        };
        for question in questions {
            let known = keys.iter().position(|known| is_of_same_values(known, question));
            let prefix = if let Some(index) = known {
                index
            } else {
                keys.push(question);
                pass.prefixes.push(checked_prefix(question, schema)?);
                pass.prefixes.len() - 1
            };
            let keep = |min_count, max_size| Keep { min_count, max_size, text_bytes_max: JSON_BYTES_MAX };
            let source = match &question.statistic {
                Statistic::Mean | Statistic::MeanAndDeviation | Statistic::Range | Statistic::MaxAbs => {
                    pass.summary_of(prefix)
                }
                Statistic::Median | Statistic::MedianAndQuartiles | Statistic::Quantiles(_) => {
                    pass.distribution_of(engine, prefix)
                }
                Statistic::Mode => pass.count_of(engine, prefix, keep(1, 1))?,
                Statistic::Counts => pass.count_of(engine, prefix, keep(1, 0))?,
                Statistic::TargetMean { label, folds, seed, .. } => {
                    let target = Target { label: label.clone(), folds: *folds, seed: *seed };
                    pass.target_of(engine, prefix, target)?
                }
                Statistic::Vocabulary { min_count, max_size } => {
                    pass.count_of(engine, prefix, keep(*min_count, *max_size))?
                }
            };
            pass.sources.push(source);
        }
        if !pass.summarized.is_empty() {
            pass.summaries = Some(engine.summaries(&pass.summarized_types())?);
        }
        Ok(pass)
    }

    /// The columns that the questions read.
    pub(crate) fn columns(&self) -> impl Iterator<Item = &str> {
        let labels = self.targets.iter().flat_map(|target| target.target.columns());
        self.prefixes.iter().flat_map(Prefix::columns).map(String::as_str).chain(labels)
    }

    /// Computes the aggregates' inputs from passing rows: run it on the CPU pool.
    pub(crate) fn values(&self, rows: &RecordBatch) -> Result<PassValues, StreamError> {
        let evaluated: Result<Vec<ArrayRef>, _> = self.prefixes.iter().map(|prefix| prefix.evaluate(rows)).collect();
        let evaluated = evaluated?;
        let summaries = if self.summarized.is_empty() {
            None
        } else {
            let columns: Result<Vec<ArrayRef>, StreamError> =
                self.summarized.iter().map(|prefix| learnable(&evaluated[*prefix])).collect();
            Some(RecordBatch::try_new(summary_schema(&self.summarized_types()), columns?)?)
        };
        let mut distributions = Vec::with_capacity(self.distributions.len());
        for distribution in &self.distributions {
            let values = learnable(&evaluated[distribution.prefix])?;
            distributions.push(RecordBatch::try_new(distribution_schema(values.data_type()), vec![values])?);
        }
        let mut counts = Vec::with_capacity(self.counts.len());
        for counted_prefix in &self.counts {
            let values = learnable(&evaluated[counted_prefix.prefix])?;
            counts.push(RecordBatch::try_from_iter_with_nullable([("value", values, true)])?);
        }
        let mut targets = Vec::with_capacity(self.targets.len());
        for prefix_target in &self.targets {
            targets.push(prefix_target.target.batch(learnable(&evaluated[prefix_target.prefix])?, rows)?);
        }
        Ok(PassValues { summaries, distributions, counts, targets })
    }

    /// Pushes a chunk's values to the aggregates. False if one of them failed: the pass ends.
    pub(crate) async fn push(&self, values: PassValues) -> bool {
        let mut is_running = true;
        if let (Some(job), Some(batch)) = (&self.summaries, values.summaries) {
            is_running &= job.push(batch).await;
        }
        for (distribution, batch) in self.distributions.iter().zip(values.distributions) {
            is_running &= distribution.job.push(batch).await;
        }
        for (counted_prefix, batch) in self.counts.iter().zip(values.counts) {
            is_running &= counted_prefix.job.push(batch).await;
        }
        for (prefix_target, batch) in self.targets.iter().zip(values.targets) {
            is_running &= prefix_target.job.push(batch).await;
        }
        is_running
    }

    /// Ends the input and waits for the answers, in the order of the questions.
    pub(crate) async fn answers(self, questions: &[Question]) -> Result<Vec<Answer>, StreamError> {
        let summaries = match self.summaries {
            Some(job) => job.finish().boxed(),
            None => future::ready(Ok(Vec::new())).boxed(),
        };
        let distributions =
            future::try_join_all(self.distributions.into_iter().map(|distribution| distribution.job.finish()));
        let counted = self.counts.into_iter().map(|counted_prefix| counted_prefix.job.finish().map(if_not_too_many));
        let targets = self.targets.into_iter().map(|prefix_target| prefix_target.job.finish().map(if_not_too_many));
        // The first error cancels the other jobs.
        let counted = future::try_join(future::try_join_all(counted), future::try_join_all(targets));
        let (summaries, distributions, (counted, targets)) =
            future::try_join3(summaries, distributions, counted).await?;
        let mut answers = Vec::with_capacity(questions.len());
        for (question, source) in questions.iter().zip(&self.sources) {
            let answer = match source {
                AnswerSource::Summary(index) => of_summary(question, summaries.get(*index).copied().flatten()),
                AnswerSource::Distribution(index) => of_distribution(question, distributions[*index].as_ref()),
                AnswerSource::Counts(index) => of_counts(question, counted[*index].as_ref()),
                AnswerSource::Target(index) => of_target(question, targets[*index].as_ref()),
            };
            answers.push(answer.map_err(|reason| StreamError::Unlearnable { path: question.path.clone(), reason })?);
        }
        Ok(answers)
    }

    fn summary_of(&mut self, prefix: usize) -> AnswerSource {
        let known = self.summarized.iter().position(|known| *known == prefix);
        AnswerSource::Summary(known.unwrap_or_else(|| {
            self.summarized.push(prefix);
            self.summarized.len() - 1
        }))
    }

    fn summarized_types(&self) -> Vec<DataType> {
        self.summarized.iter().map(|prefix| learned_type(self.prefixes[*prefix].data_type())).collect()
    }

    fn distribution_of(&mut self, engine: &Engine, prefix: usize) -> AnswerSource {
        let known = self.distributions.iter().position(|known| known.prefix == prefix);
        AnswerSource::Distribution(known.unwrap_or_else(|| {
            let job = engine.distribution(&learned_type(self.prefixes[prefix].data_type()));
            self.distributions.push(PrefixDistribution { prefix, job });
            self.distributions.len() - 1
        }))
    }

    fn count_of(&mut self, engine: &Engine, prefix: usize, keep: Keep) -> Result<AnswerSource, StreamError> {
        let known = self.counts.iter().position(|known| known.prefix == prefix && known.keep == keep);
        if let Some(index) = known {
            return Ok(AnswerSource::Counts(index));
        }
        let job = engine.value_counts(&learned_type(self.prefixes[prefix].data_type()), keep)?;
        self.counts.push(PrefixCounts { prefix, keep, job });
        Ok(AnswerSource::Counts(self.counts.len() - 1))
    }

    fn target_of(&mut self, engine: &Engine, prefix: usize, target: Target) -> Result<AnswerSource, StreamError> {
        let known = self.targets.iter().position(|known| known.prefix == prefix && known.target == target);
        if let Some(index) = known {
            return Ok(AnswerSource::Target(index));
        }
        let job = target.start(engine, &learned_type(self.prefixes[prefix].data_type()))?;
        self.targets.push(PrefixTarget { prefix, target, job });
        Ok(AnswerSource::Target(self.targets.len() - 1))
    }
}

/// The result of a job; none if a plan cannot hold its values, which the question's answer reports.
fn if_not_too_many<T>(result: Result<T, EngineError>) -> Result<Option<T>, EngineError> {
    match result {
        Err(EngineError::TooManyValues { .. }) => Ok(None),
        result => result.map(Some),
    }
}
