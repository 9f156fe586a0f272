//! Converts the results of a pass's aggregates to answers.

use arrow::{
    array::{Array, ArrayRef, AsArray},
    datatypes::{DataType, Decimal128Type, Decimal256Type, Float64Type, Int64Type, UInt64Type, i256},
};
use forebay_engine::{Distribution, LabelSum, Summary, TargetSums, ValueCounts};
use forebay_kernels::ExactDecimal;
use forebay_plan::{Answer, Question, Statistic};
use forebay_proto::v1;

/// The share of rows below the median, and those below the quartiles.
const MEDIAN: f64 = 0.5;
const QUARTILES: [f64; 2] = [0.25, 0.75];

/// Answers a question about the mean, deviation or bounds.
pub(crate) fn of_summary(question: &Question, summary: Option<Summary>) -> Result<Answer, String> {
    let summary = summary.ok_or_else(|| nothing(question))?;
    let learned = match question.statistic {
        Statistic::Mean => Answer::Number(summary.mean),
        Statistic::Range => {
            let (min, max) = (summary.min, summary.max);
            if (max - min).is_infinite() && min.is_finite() && max.is_finite() {
                return Err(too_far(question, "its smallest and its largest value", min, max));
            }
            Answer::Pair(min, max)
        }
        Statistic::MaxAbs => Answer::Number(summary.min.abs().max(summary.max.abs())),
        _ => Answer::Pair(summary.mean, summary.deviation),
    };
    finite(question, learned)
}

/// The error of finite values whose distance is infinite.
fn too_far(question: &Question, which: &str, least: f64, most: f64) -> String {
    format!(
        "column \"{}\": the distance between {which}, {least:e} and {most:e}, exceeds the range of float64: scale the column \
         down (derive), or clip it",
        question.column
    )
}

fn finite(question: &Question, learned: Answer) -> Result<Answer, String> {
    let is_finite = match &learned {
        Answer::Number(value) => value.is_finite(),
        Answer::Pair(first, second) => first.is_finite() && second.is_finite(),
        Answer::Boundaries(boundaries) => boundaries.iter().all(|boundary| boundary.is_finite()),
        Answer::Integer(_)
        | Answer::Unsigned(_)
        | Answer::Decimal(_)
        | Answer::WholeBoundaries(_)
        | Answer::Text(_)
        | Answer::Values(_)
        | Answer::Scales(_)
        | Answer::Counts(..) => true,
        Answer::Means(_, means) => means.iter().all(|mean| mean.is_finite()),
    };
    if is_finite {
        return Ok(learned);
    }
    Err(format!("column \"{}\" has infinite values: clip them, or filter them out", question.column))
}

/// The shares of rows at which a statistic needs the quantiles.
pub(super) fn shares(statistic: &Statistic) -> Vec<f64> {
    match statistic {
        Statistic::Quantiles(count) => (1..*count).map(|k| f64::from(k) / f64::from(*count)).collect(),
        Statistic::MedianAndQuartiles => QUARTILES.into_iter().chain([MEDIAN]).collect(),
        _ => vec![MEDIAN],
    }
}

/// Answers a question about the median or quantiles.
pub(crate) fn of_distribution(question: &Question, spread: Option<&Distribution>) -> Result<Answer, String> {
    let spread = spread.ok_or_else(|| nothing(question))?;
    let learned = match question.statistic {
        Statistic::Quantiles(_) => {
            let shares = shares(&question.statistic);
            spread.whole_quantiles(shares.iter().copied()).map_or_else(
                || Answer::Boundaries(shares.iter().map(|share| spread.quantile(*share)).collect()),
                Answer::WholeBoundaries,
            )
        }
        Statistic::MedianAndQuartiles => {
            let [low, high] = QUARTILES.map(|share| spread.quantile(share));
            if (high - low).is_infinite() && low.is_finite() && high.is_finite() {
                return Err(too_far(question, "its quartiles", low, high));
            }
            Answer::Pair(spread.quantile(MEDIAN), high - low)
        }
        _ => spread.whole_median().map_or_else(|| Answer::Number(spread.quantile(MEDIAN)), whole),
    };
    if !spread.is_infinite() && finite(question, learned.clone()).is_err() {
        return Err(format!(
            "column \"{}\": its quantiles exceed the range of float64: scale the column down (derive), or clip it",
            question.column
        ));
    }
    finite(question, learned)
}

/// The answer for an integer.
fn whole(value: i128) -> Answer {
    let unsigned = || u64::try_from(value).map_or(Answer::Number(value as f64), Answer::Unsigned);
    i64::try_from(value).map_or_else(|_| unsigned(), Answer::Integer)
}

/// Answers a question about the mode or vocabulary; `counts` is none if there are more values than a plan may have.
pub(crate) fn of_counts(question: &Question, counts: Option<&ValueCounts>) -> Result<Answer, String> {
    let Some(counts) = counts else {
        let column = &question.column;
        let advice = match question.statistic {
            Statistic::Counts => "map its values to fewer with hash_bucket before this op",
            _ => "set max_size or min_count, or use hash_bucket",
        };
        return Err(format!("the vocabulary of column \"{column}\" is too large: {advice}"));
    };
    let learned = match question.statistic {
        Statistic::Mode => mode(counts).ok_or_else(|| nothing(question))?,
        Statistic::Counts => Answer::Counts(vocabulary(&counts.values), counts.counts.clone()),
        _ => Answer::Values(vocabulary(&counts.values)),
    };
    finite(question, learned)
}

/// Answers a question about the means of a label; `sums` is none if there are more values than a plan may have.
pub(crate) fn of_target(question: &Question, sums: Option<&TargetSums>) -> Result<Answer, String> {
    let Statistic::TargetMean { label, folds, smoothing, .. } = &question.statistic else {
        return Err(nothing(question));
    };
    let Some(sums) = sums else {
        let column = &question.column;
        return Err(format!(
            "column \"{column}\" has too many values: map them to fewer with hash_bucket before this op"
        ));
    };
    let of_folds: Vec<LabelSum> = (0..sums.of_null.len())
        .map(|fold| sums.of_values.iter().fold(sums.of_null[fold], |sum, of_value| sum.plus(of_value[fold])))
        .collect();
    let Some(mean) = LabelSum::without(&of_folds, None).mean() else {
        return Err(format!("label \"{label}\" has no value: every passing row is null or NaN"));
    };
    // Each fold is left out in turn, and then none.
    let left_out = || (0..*folds as usize).map(Some).chain([None]);
    let priors: Vec<f64> = left_out().map(|fold| LabelSum::without(&of_folds, fold).mean().unwrap_or(mean)).collect();
    let mut means = priors.clone();
    for of_value in &sums.of_values {
        means.extend(left_out().zip(&priors).map(|(fold, prior)| {
            let kept = LabelSum::without(of_value, fold);
            let count = kept.count as f64 + smoothing;
            if count == 0.0 { *prior } else { (kept.sum + smoothing * prior) / count }
        }));
    }
    let answer = Answer::Means(vocabulary(&sums.values), means);
    finite(question, answer)
        .map_err(|_| format!("label \"{label}\" has infinite values: clip them, or filter them out"))
}

pub(super) fn nothing(question: &Question) -> String {
    format!("column \"{}\" has no value to learn from: every passing row is null or NaN", question.column)
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
        return Some(whole(integers.value(0).into()));
    }
    if let Some(decimal) = decimals(values).and_then(|mut decimals| decimals.next()) {
        return Some(decimal_mode(decimal));
    }
    Some(Answer::Number(values.as_primitive_opt::<Float64Type>()?.value(0)))
}

/// A decimal as a double if that has the same digits, else as an integer if it is one, else as text.
fn decimal_mode(decimal: ExactDecimal) -> Answer {
    let (number, text) = (decimal.double(), decimal.text());
    if ExactDecimal::of_double(number).is_some_and(|read| read.text() == text) {
        return Answer::Number(number);
    }
    let integer = decimal.integer().filter(|integer| (i64::MIN.into()..=u64::MAX.into()).contains(integer));
    integer.map_or(Answer::Decimal(text), whole)
}

/// The values of a decimal array; none for other types.
fn decimals(values: &ArrayRef) -> Option<Box<dyn Iterator<Item = ExactDecimal> + '_>> {
    match values.data_type() {
        DataType::Decimal128(_, scale) => {
            let unscaled = values.as_primitive_opt::<Decimal128Type>()?.values().iter();
            Some(Box::new(unscaled.map(|value| ExactDecimal::new(i256::from_i128(*value), *scale))))
        }
        DataType::Decimal256(_, scale) => {
            let unscaled = values.as_primitive_opt::<Decimal256Type>()?.values().iter();
            Some(Box::new(unscaled.map(|value| ExactDecimal::new(*value, *scale))))
        }
        _ => None,
    }
}

pub(super) fn vocabulary(values: &ArrayRef) -> v1::VocabValues {
    let mut vocabulary = v1::VocabValues::default();
    if let Some(texts) = values.as_string_opt::<i32>() {
        vocabulary.strings.extend(texts.iter().flatten().map(str::to_owned));
    } else if let Some(integers) = values.as_primitive_opt::<Int64Type>() {
        vocabulary.integers.extend(integers.values());
    } else if let Some(integers) = values.as_primitive_opt::<UInt64Type>() {
        vocabulary.unsigned.extend(integers.values());
    } else if let Some(numbers) = values.as_primitive_opt::<Float64Type>() {
        vocabulary.floats.extend(numbers.values());
    } else if let Some(decimals) = decimals(values) {
        vocabulary.decimals.extend(decimals.map(ExactDecimal::text));
    }
    vocabulary
}
