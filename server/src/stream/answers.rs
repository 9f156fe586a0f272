//! What the aggregates of a pass came to → answers to the questions.

use arrow::{
    array::{Array, AsArray},
    datatypes::{Float64Type, Int64Type, UInt64Type},
};
use forebay_proto::v1;

use crate::{
    engine::{Distribution, Summary, ValueCounts},
    plan::{Answer, Question, Wanted},
};

/// A question about mean, deviation or bounds.
pub(super) fn of_summary(question: &Question, summary: Option<Summary>) -> Result<Answer, String> {
    let summary = summary.ok_or_else(|| nothing(question))?;
    let learned = match question.wanted {
        Wanted::Mean => Answer::Number(summary.mean),
        Wanted::Range => Answer::Pair(summary.min, summary.max),
        Wanted::MaxAbs => Answer::Number(summary.min.abs().max(summary.max.abs())),
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

/// A question about medians and quantiles.
pub(super) fn of_distribution(question: &Question, spread: Option<&Distribution>) -> Result<Answer, String> {
    let spread = spread.ok_or_else(|| nothing(question))?;
    let learned = match question.wanted {
        Wanted::Quantiles(count) => {
            Answer::Boundaries((1..count).map(|k| spread.quantile(f64::from(k) / f64::from(count))).collect())
        }
        Wanted::MedianAndQuartiles => Answer::Pair(spread.quantile(0.5), spread.quantile(0.75) - spread.quantile(0.25)),
        _ => Answer::Number(spread.quantile(0.5)),
    };
    finite(question, learned)
}

/// A question about modes and vocabularies; `None` where there were more values than a plan may hold.
pub(super) fn of_counts(question: &Question, counts: Option<&ValueCounts>) -> Result<Answer, String> {
    let Some(counts) = counts else {
        let column = &question.column;
        return Err(format!(
            "the vocabulary of column \"{column}\" is too large: set max_size or min_count, or use hash_bucket"
        ));
    };
    let learned = match question.wanted {
        Wanted::Mode => mode(counts).ok_or_else(|| nothing(question))?,
        _ => Answer::Values(vocabulary(counts)),
    };
    finite(question, learned)
}

fn nothing(question: &Question) -> String {
    format!("column \"{}\" has no value to learn from: every row that passes is null or NaN", question.column)
}

fn mode(counts: &ValueCounts) -> Option<Answer> {
    let values = &counts.values;
    if values.is_empty() {
        return None;
    }
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

fn vocabulary(counts: &ValueCounts) -> v1::VocabValues {
    let mut vocabulary = v1::VocabValues::default();
    let values = &counts.values;
    if let Some(texts) = values.as_string_opt::<i32>() {
        vocabulary.strings.extend(texts.iter().flatten().map(str::to_owned));
    } else if let Some(integers) = values.as_primitive_opt::<Int64Type>() {
        vocabulary.integers.extend(integers.values());
    } else if let Some(integers) = values.as_primitive_opt::<UInt64Type>() {
        vocabulary.unsigned.extend(integers.values());
    } else if let Some(numbers) = values.as_primitive_opt::<Float64Type>() {
        vocabulary.floats.extend(numbers.values());
    }
    vocabulary
}
