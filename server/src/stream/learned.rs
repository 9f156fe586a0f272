//! One pass of a fit: the questions of all chains → as few aggregates as they share, and the aggregates → answers.

use std::sync::Arc;

use arrow::{
    array::{Array, ArrayRef, AsArray, Float64Array, RecordBatch},
    compute::cast,
    datatypes::{DataType, Float64Type, Int64Type, Schema, UInt64Type},
};
use forebay_kernels::{Op, Prefix};
use forebay_proto::v1;

use super::StreamError;
use crate::{
    engine::{CountOrder, Engine, Job, Summary, ValueCounts, summary_schema},
    plan::{self, Answer, Question, Wanted},
};

/// The largest vocabulary text in all that one fitted plan may hold.
const VOCABULARY_BYTES_MAX: usize = 256 << 20;

/// The running aggregates of a pass.
pub(super) struct Pass {
    /// Distinct chains' prefixes; questions point at them.
    prefixes: Vec<Prefix>,
    summaries: Option<Job<Vec<Option<Summary>>>>,
    /// Which prefix each column of the summaries is.
    summarized: Vec<usize>,
    counts: Vec<Counting>,
    /// Where the answer to each question is.
    sources: Vec<AnswerSource>,
}

struct Counting {
    prefix: usize,
    as_number: bool,
    order: CountOrder,
    job: Job<ValueCounts>,
}

#[derive(Clone, Copy)]
enum AnswerSource {
    Summary(usize),
    Counts(usize),
}

/// A chunk's values for every aggregate of a pass.
pub(super) struct PassValues {
    summaries: Option<RecordBatch>,
    counts: Vec<RecordBatch>,
}

/// Walks through all passes with made-up answers, so that a plan that cannot be fitted is refused before data is read.
pub(super) fn rehearse(plan: &v1::Plan, schema: &Schema) -> Result<(), StreamError> {
    let mut plan = plan.clone();
    // Shape and names first: their errors name the field.
    match plan::output_specs(&plan, schema) {
        Err(plan::PlanError::NotFitted { .. }) | Ok(_) => {}
        Err(other) => return Err(other.into()),
    }
    loop {
        let questions = plan::questions(&plan)?;
        if questions.is_empty() {
            plan::compile(&plan, schema, false)?;
            return Ok(());
        }
        for question in &questions {
            let prefix = checked_prefix(question, schema)?;
            let is_text = is_text(prefix.data_type());
            let answer = match &question.wanted {
                Wanted::Mode if is_text => Answer::Text(String::new()),
                Wanted::Mean | Wanted::Median | Wanted::Mode => Answer::Number(0.0),
                Wanted::MeanAndDeviation | Wanted::Range => Answer::Pair(0.0, 1.0),
                Wanted::Quantiles(count) => Answer::Boundaries(vec![0.0; *count as usize - 1]),
                Wanted::Vocabulary { .. } => Answer::Values(v1::VocabValues::default()),
            };
            plan::learn(&mut plan, question, answer);
        }
    }
}

fn checked_prefix(question: &Question, schema: &Schema) -> Result<Prefix, StreamError> {
    if schema.index_of(&question.column).is_err() {
        let near =
            crate::error::near_names(&question.column, schema.fields().iter().map(|field| field.name().as_str()));
        return Err(plan::PlanError::UnknownColumn {
            path: question.path.clone(),
            column: question.column.clone(),
            near,
        }
        .into());
    }
    let prefix = Prefix::compile(&question.column, &question.prefix, schema).map_err(plan::PlanError::from)?;
    let takes_text = matches!(question.wanted, Wanted::Mode | Wanted::Vocabulary { .. });
    match prefix.data_type() {
        DataType::Utf8 if takes_text => Ok(prefix),
        data_type if data_type.is_numeric() => Ok(prefix),
        other => {
            let reason = format!("column \"{}\" is {other} here, and this must learn from numbers", question.column);
            Err(plan::PlanError::Field { path: question.path.clone(), reason }.into())
        }
    }
}

fn is_text(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Utf8)
}

// === impl Pass ===

impl Pass {
    /// Starts the aggregates that answer the questions.
    pub(super) fn new(engine: &Engine, schema: &Schema, questions: &[Question]) -> Result<Self, StreamError> {
        let mut keys: Vec<(String, Vec<Op>)> = Vec::new();
        let mut pass = Self {
            prefixes: Vec::new(),
            summaries: None,
            summarized: Vec::new(),
            counts: Vec::new(),
            sources: Vec::new(),
        };
        for question in questions {
            let known = keys.iter().position(|(column, ops)| *column == question.column && *ops == question.prefix);
            let prefix = if let Some(index) = known {
                index
            } else {
                keys.push((question.column.clone(), question.prefix.clone()));
                pass.prefixes.push(checked_prefix(question, schema)?);
                pass.prefixes.len() - 1
            };
            let source = match &question.wanted {
                Wanted::Mean | Wanted::MeanAndDeviation | Wanted::Range => {
                    AnswerSource::Summary(pass.summary_of(prefix))
                }
                Wanted::Median | Wanted::Quantiles(_) => pass.count_of(engine, prefix, true, CountOrder::ByValue)?,
                Wanted::Mode => {
                    let order = CountOrder::ByCount { min_count: 1, max_size: 1 };
                    pass.count_of(engine, prefix, false, order)?
                }
                Wanted::Vocabulary { min_count, max_size } => {
                    let order = CountOrder::ByCount { min_count: *min_count, max_size: *max_size };
                    pass.count_of(engine, prefix, false, order)?
                }
            };
            pass.sources.push(source);
        }
        if !pass.summarized.is_empty() {
            pass.summaries = Some(engine.summaries(pass.summarized.len())?);
        }
        Ok(pass)
    }

    /// The columns that the questions are about.
    pub(super) fn columns(&self) -> impl Iterator<Item = &str> {
        self.prefixes.iter().flat_map(Prefix::columns).map(String::as_str)
    }

    /// What the aggregates get of a batch of passing rows; run it on the CPU pool.
    pub(super) fn values(&self, rows: &RecordBatch) -> Result<PassValues, StreamError> {
        let evaluated: Result<Vec<ArrayRef>, _> = self.prefixes.iter().map(|prefix| prefix.evaluate(rows)).collect();
        let evaluated = evaluated?;
        let summaries = if self.summarized.is_empty() {
            None
        } else {
            let columns: Result<Vec<ArrayRef>, StreamError> =
                self.summarized.iter().map(|prefix| numbers(&evaluated[*prefix])).collect();
            Some(RecordBatch::try_new(summary_schema(self.summarized.len()), columns?)?)
        };
        let mut counts = Vec::with_capacity(self.counts.len());
        for counting in &self.counts {
            let values = &evaluated[counting.prefix];
            let values = if counting.as_number || values.data_type().is_floating() {
                numbers(values)?
            } else {
                Arc::clone(values)
            };
            counts.push(RecordBatch::try_from_iter_with_nullable([("value", values, true)])?);
        }
        Ok(PassValues { summaries, counts })
    }

    /// Hands a chunk's values to the aggregates.
    pub(super) async fn push(&self, values: PassValues) {
        if let (Some(job), Some(batch)) = (&self.summaries, values.summaries) {
            job.push(batch).await;
        }
        for (counting, batch) in self.counts.iter().zip(values.counts) {
            counting.job.push(batch).await;
        }
    }

    /// Ends the input and waits for the answers, in the order of the questions.
    pub(super) async fn answers(self, questions: &[Question]) -> Result<Vec<Answer>, StreamError> {
        let summaries = match self.summaries {
            Some(job) => job.finish().await?,
            None => Vec::new(),
        };
        let mut counted = Vec::with_capacity(self.counts.len());
        for counting in self.counts {
            counted.push(counting.job.finish().await?);
        }
        let mut answers = Vec::with_capacity(questions.len());
        for (question, source) in questions.iter().zip(&self.sources) {
            let answer = match source {
                AnswerSource::Summary(index) => of_summary(question, summaries.get(*index).copied().flatten()),
                AnswerSource::Counts(index) => of_counts(question, &counted[*index]),
            };
            answers.push(answer.map_err(|reason| StreamError::Unlearnable { path: question.path.clone(), reason })?);
        }
        Ok(answers)
    }

    fn summary_of(&mut self, prefix: usize) -> usize {
        self.summarized.iter().position(|known| *known == prefix).unwrap_or_else(|| {
            self.summarized.push(prefix);
            self.summarized.len() - 1
        })
    }

    fn count_of(
        &mut self,
        engine: &Engine,
        prefix: usize,
        as_number: bool,
        order: CountOrder,
    ) -> Result<AnswerSource, StreamError> {
        let same = |known: &Counting| known.prefix == prefix && known.as_number == as_number && known.order == order;
        if let Some(index) = self.counts.iter().position(same) {
            return Ok(AnswerSource::Counts(index));
        }
        let data_type = self.prefixes[prefix].data_type();
        let counted = if as_number || data_type.is_floating() { &DataType::Float64 } else { data_type };
        let job = engine.value_counts(counted, order)?;
        self.counts.push(Counting { prefix, as_number, order, job });
        Ok(AnswerSource::Counts(self.counts.len() - 1))
    }
}

/// Values as float64, with NaN made null (it is a missing value to a fit, as in scikit-learn) and −0 made 0.
fn numbers(values: &ArrayRef) -> Result<ArrayRef, StreamError> {
    let cast = cast(values, &DataType::Float64)?;
    let numbers = cast.as_primitive::<Float64Type>();
    if !numbers.values().iter().any(|value| value.is_nan() || (*value == 0.0 && value.is_sign_negative())) {
        return Ok(cast);
    }
    let cleaned = numbers.iter().map(|value| value.filter(|value| !value.is_nan()).map(|value| value + 0.0));
    Ok(Arc::new(cleaned.collect::<Float64Array>()))
}

fn of_summary(question: &Question, summary: Option<Summary>) -> Result<Answer, String> {
    let summary = summary.ok_or_else(|| nothing(question))?;
    let learned = match question.wanted {
        Wanted::Mean => Answer::Number(summary.mean),
        Wanted::Range => Answer::Pair(summary.min, summary.max),
        _ => Answer::Pair(summary.mean, summary.deviation),
    };
    finite(question, learned)
}

fn finite(question: &Question, learned: Answer) -> Result<Answer, String> {
    let is_finite = match &learned {
        Answer::Number(value) => value.is_finite(),
        Answer::Pair(first, second) => first.is_finite() && second.is_finite(),
        Answer::Boundaries(boundaries) => boundaries.iter().all(|boundary| boundary.is_finite()),
        Answer::Integer(_) | Answer::Text(_) | Answer::Values(_) => true,
    };
    if is_finite {
        return Ok(learned);
    }
    Err(format!("column \"{}\" has infinite values: clip them first, or filter them out", question.column))
}

fn of_counts(question: &Question, counts: &ValueCounts) -> Result<Answer, String> {
    let learned = match question.wanted {
        Wanted::Median => quantile_edges(counts, &[0.5])
            .and_then(|edges| edges.first().copied())
            .map(Answer::Number)
            .ok_or_else(|| nothing(question)),
        Wanted::Quantiles(count) => {
            let shares: Vec<f64> = (1..count).map(|k| f64::from(k) / f64::from(count)).collect();
            quantile_edges(counts, &shares).map(Answer::Boundaries).ok_or_else(|| nothing(question))
        }
        Wanted::Mode => mode(counts).ok_or_else(|| nothing(question)),
        _ => Ok(Answer::Values(vocabulary(question, counts)?)),
    };
    finite(question, learned?)
}

fn nothing(question: &Question) -> String {
    format!("column \"{}\" has no value to learn from: every row that passes is null or NaN", question.column)
}

fn mode(counts: &ValueCounts) -> Option<Answer> {
    let (values, _) = counts.batches.iter().find(|(values, _)| !values.is_empty())?;
    if let Some(texts) = values.as_string_opt::<i32>() {
        return Some(Answer::Text(texts.value(0).to_owned()));
    }
    if let Some(integers) = values.as_primitive_opt::<Int64Type>() {
        return Some(Answer::Integer(integers.value(0)));
    }
    if let Some(integers) = values.as_primitive_opt::<UInt64Type>() {
        let value = integers.value(0);
        return Some(i64::try_from(value).map_or(Answer::Number(value as f64), Answer::Integer));
    }
    Some(Answer::Number(values.as_primitive_opt::<Float64Type>()?.value(0)))
}

fn vocabulary(question: &Question, counts: &ValueCounts) -> Result<v1::VocabValues, String> {
    let mut vocabulary = v1::VocabValues::default();
    let mut bytes = 0_usize;
    for (values, _) in &counts.batches {
        bytes += values.get_array_memory_size();
        if bytes > VOCABULARY_BYTES_MAX {
            let column = &question.column;
            return Err(format!(
                "the vocabulary of column \"{column}\" is too large: set max_size or min_count, or use hash_bucket"
            ));
        }
        if let Some(texts) = values.as_string_opt::<i32>() {
            vocabulary.strings.extend(texts.iter().flatten().map(str::to_owned));
        } else if let Some(integers) = values.as_primitive_opt::<Int64Type>() {
            vocabulary.integers.extend(integers.values());
        } else if let Some(integers) = values.as_primitive_opt::<UInt64Type>() {
            vocabulary.unsigned.extend(integers.values());
        } else if let Some(numbers) = values.as_primitive_opt::<Float64Type>() {
            vocabulary.floats.extend(numbers.values());
        }
    }
    Ok(vocabulary)
}

/// The values at these shares of the sorted rows, linear between neighbours: what numpy.quantile gives.
fn quantile_edges(counts: &ValueCounts, shares: &[f64]) -> Option<Vec<f64>> {
    let mut values = Vec::new();
    let mut ends = Vec::new();
    let mut sum = 0_u64;
    for (batch, counts) in &counts.batches {
        for (value, count) in batch.as_primitive_opt::<Float64Type>()?.values().iter().zip(counts) {
            sum += count;
            values.push(*value);
            ends.push(sum);
        }
    }
    let last = sum.checked_sub(1)?;
    let row = |index: u64| values[ends.partition_point(|end| *end <= index)];
    let edge = |share: f64| {
        let place = share * last as f64;
        let below = (place.floor() as u64).min(last);
        let (a, b, t) = (row(below), row((below + 1).min(last)), place - place.floor());
        if t <= 0.0 || a >= b {
            // Also where a neighbour is infinite.
            return a;
        }
        // numpy's own form, which is exact at both ends.
        if t >= 0.5 { b - (b - a) * (1.0 - t) } else { a + (b - a) * t }
    };
    Some(shares.iter().map(|share| edge(*share)).collect())
}
