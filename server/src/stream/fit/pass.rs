//! One pass of a fit: questions that need the same values share an aggregate, and every row goes to all aggregates.

use std::sync::Arc;

use arrow::{
    array::{Array, ArrayRef, AsArray, Float64Array, RecordBatch},
    compute::cast,
    datatypes::{DataType, Float64Type, Schema},
};
use forebay_kernels::{Op, Prefix};
use forebay_proto::JSON_BYTES_MAX;
use futures::{FutureExt, future};

use super::{
    answers::{of_counts, of_distribution, of_summary},
    dry_run::checked_prefix,
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
}

/// A chunk's values for every aggregate of a pass.
pub(crate) struct PassValues {
    summaries: Option<RecordBatch>,
    distributions: Vec<RecordBatch>,
    counts: Vec<RecordBatch>,
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
        self.prefixes.iter().flat_map(Prefix::columns).map(String::as_str)
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
        Ok(PassValues { summaries, distributions, counts })
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
        // `of_counts` reports a too large vocabulary with its column.
        let counted = self.counts.into_iter().map(|counted_prefix| {
            counted_prefix.job.finish().map(|counted| match counted {
                Err(EngineError::TooManyValues { .. }) => Ok(None),
                counted => counted.map(Some),
            })
        });
        // The first error cancels the other jobs.
        let (summaries, distributions, counted) =
            future::try_join3(summaries, distributions, future::try_join_all(counted)).await?;
        let mut answers = Vec::with_capacity(questions.len());
        for (question, source) in questions.iter().zip(&self.sources) {
            let answer = match source {
                AnswerSource::Summary(index) => of_summary(question, summaries.get(*index).copied().flatten()),
                AnswerSource::Distribution(index) => of_distribution(question, distributions[*index].as_ref()),
                AnswerSource::Counts(index) => of_counts(question, counted[*index].as_ref()),
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
}

/// The type of an aggregate's input: text, integers and decimals unchanged, other numbers as float64.
fn learned_type(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Utf8 | DataType::Int64 | DataType::UInt64 | DataType::Decimal128(..) | DataType::Decimal256(..) => {
            data_type.clone()
        }
        _ => DataType::Float64,
    }
}

/// Casts values to the type of an aggregate's input.
fn learnable(values: &ArrayRef) -> Result<ArrayRef, StreamError> {
    if learned_type(values.data_type()) == *values.data_type() && !values.data_type().is_floating() {
        return Ok(Arc::clone(values));
    }
    numbers(values)
}

/// Casts values to float64; NaN becomes null (fits treat it as missing, like scikit-learn) and −0 becomes 0.
fn numbers(values: &ArrayRef) -> Result<ArrayRef, StreamError> {
    let cast = cast(values, &DataType::Float64)?;
    let numbers = cast.as_primitive::<Float64Type>();
    if !numbers.values().iter().any(|value| value.is_nan() || (*value == 0.0 && value.is_sign_negative())) {
        return Ok(cast);
    }
    let cleaned = numbers.iter().map(|value| value.filter(|value| !value.is_nan()).map(|value| value + 0.0));
    Ok(Arc::new(cleaned.collect::<Float64Array>()))
}
