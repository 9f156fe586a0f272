//! Statistics of groups of a pass: those of a prefix's values, for the rows with the same values in other columns.

use arrow::{
    array::{ArrayRef, RecordBatch, UInt64Array},
    compute::take,
    datatypes::DataType,
    error::ArrowError,
};
use forebay_engine::{Distribution, Engine, EngineError, Groups, Job, Summary, group_rows};
use forebay_kernels::Op;
use forebay_plan::{Answer, Question, Statistic};
use forebay_proto::{JSON_BYTES_MAX, v1};

use super::{
    answers::{nothing, of_distribution, of_summary, shares, vocabulary},
    inputs::learnable,
};
use crate::error::StreamError;

/// What is computed of each group. Statistics of the same groups share it, apart from quantiles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct GroupAggregate {
    /// The prefixes of the columns that tell groups apart.
    keys: Vec<usize>,
    /// The prefixes of the values; one of quantiles.
    values: Vec<usize>,
    /// Quantiles, or the mean, deviation and bounds.
    is_quantiles: bool,
}

/// An aggregate of groups, and the place of a question's values in it.
#[derive(Clone, Copy, Debug)]
pub(super) struct GroupSource {
    aggregate: usize,
    place: usize,
}

/// A running aggregate of groups.
#[derive(Debug)]
pub(super) enum GroupJob {
    Summaries(Job<Groups<Vec<Option<Summary>>>>),
    Quantiles(Job<Groups<Distribution>>),
}

/// The result of an aggregate of groups; none if there are more groups than a plan may have.
pub(super) type GroupResult = Option<FoundGroups>;

/// The groups that an aggregate found.
#[derive(Debug)]
pub(super) enum FoundGroups {
    Summaries(Groups<Vec<Option<Summary>>>),
    Quantiles(Groups<Distribution>),
}

/// The question of a column that tells groups apart, as far as its values matter.
pub(super) fn key_question(question: &Question, column: &str) -> Question {
    let mut key = question.clone();
    (key.column, key.prefix, key.first) = (column.to_owned(), Vec::new(), 0);
    (key.statistic, key.path) = (Statistic::Counts, format!("{}.by", question.path));
    key
}

/// Adds the aggregate of a statistic of a prefix's values by those of other prefixes, unless there is one.
pub(super) fn source_of(
    aggregates: &mut Vec<GroupAggregate>,
    (value, keys): (usize, Vec<usize>),
    statistic: &Statistic,
) -> GroupSource {
    let is_quantiles = matches!(statistic, Statistic::MedianAndQuartiles);
    let serves = |known: &GroupAggregate| {
        known.keys == keys && known.is_quantiles == is_quantiles && (!is_quantiles || known.values == [value])
    };
    let Some(aggregate) = aggregates.iter().position(serves) else {
        aggregates.push(GroupAggregate { keys, values: vec![value], is_quantiles });
        return GroupSource { aggregate: aggregates.len() - 1, place: 0 };
    };
    let values = &mut aggregates[aggregate].values;
    let place = values.iter().position(|known| *known == value).unwrap_or_else(|| {
        values.push(value);
        values.len() - 1
    });
    GroupSource { aggregate, place }
}

/// Answers a question about groups.
pub(super) fn of_groups(question: &Question, results: &[GroupResult], source: GroupSource) -> Result<Answer, String> {
    let Statistic::OfGroups { by, statistic } = &question.statistic else { return Err(nothing(question)) };
    let (column, by) = (&question.column, by.join(", "));
    let Some(found) = results.get(source.aggregate).and_then(Option::as_ref) else {
        return Err(format!("by {by} there are more groups than a plan has room for: use columns with fewer values"));
    };
    let mut of_one = question.clone();
    of_one.statistic = statistic.as_ref().clone();
    let (mut groups, mut shifts, mut divisors) = (Vec::new(), Vec::new(), Vec::new());
    for group in 0..found.count() {
        let Some(answer) = found.answer(&of_one, group, source.place)? else { continue };
        let Some((shift, divisor)) = scale(&answer, statistic) else { continue };
        groups.push(group as u64);
        shifts.push(shift);
        divisors.push(divisor);
    }
    if groups.is_empty() {
        return Err(format!(
            "column \"{column}\" has no value to learn from by {by}: in every passing row it or a column of by is null or NaN"
        ));
    }
    let groups = UInt64Array::from(groups);
    let keys = found.keys().iter().map(|keys| Ok(vocabulary(&take(keys.as_ref(), &groups, None)?)));
    let keys = keys.collect::<Result<_, ArrowError>>().map_err(|error| error.to_string())?;
    Ok(Answer::Scales(v1::Scales { keys, shifts, divisors }))
}

/// The shift and the divisor that a scaler of all rows would have.
fn scale(answer: &Answer, statistic: &Statistic) -> Option<(f64, f64)> {
    let Answer::Pair(first, second) = *answer else { return None };
    let op = match statistic {
        Statistic::Range => Op::MinMax { min: first, max: second },
        Statistic::MedianAndQuartiles => Op::Robust { center: first, scale: second },
        _ => Op::Standardize { mean: first, std: second },
    };
    op.shift_and_divisor()
}

// === impl GroupAggregate ===

impl GroupAggregate {
    /// The rows of a block, given the values of its prefixes.
    pub(super) fn batch(&self, evaluated: &[ArrayRef]) -> Result<RecordBatch, StreamError> {
        let columns = |prefixes: &[usize]| prefixes.iter().map(|prefix| learnable(&evaluated[*prefix])).collect();
        let (keys, values): (Result<_, StreamError>, Result<_, StreamError>) =
            (columns(&self.keys), columns(&self.values));
        Ok(group_rows(keys?, values?, usize::from(self.is_quantiles))?)
    }

    /// Starts it, given the types of the prefixes.
    pub(super) fn start(&self, engine: &Engine, kind: impl Fn(usize) -> DataType) -> Result<GroupJob, EngineError> {
        let types = |prefixes: &[usize]| prefixes.iter().map(|prefix| kind(*prefix)).collect::<Vec<_>>();
        let (keys, values) = (types(&self.keys), types(&self.values));
        if self.is_quantiles {
            let shares = shares(&Statistic::MedianAndQuartiles);
            return engine.group_quantiles(&keys, &values[0], &shares, JSON_BYTES_MAX).map(GroupJob::Quantiles);
        }
        engine.group_summaries(&keys, &values, JSON_BYTES_MAX).map(GroupJob::Summaries)
    }
}

// === impl GroupJob ===

impl GroupJob {
    pub(super) async fn push(&self, rows: RecordBatch) -> bool {
        match self {
            Self::Summaries(job) => job.push(rows).await,
            Self::Quantiles(job) => job.push(rows).await,
        }
    }

    pub(super) async fn finish(self) -> Result<FoundGroups, EngineError> {
        match self {
            Self::Summaries(job) => job.finish().await.map(FoundGroups::Summaries),
            Self::Quantiles(job) => job.finish().await.map(FoundGroups::Quantiles),
        }
    }
}

// === impl FoundGroups ===

impl FoundGroups {
    fn count(&self) -> usize {
        match self {
            Self::Summaries(groups) => groups.statistics.len(),
            Self::Quantiles(groups) => groups.statistics.len(),
        }
    }

    fn keys(&self) -> &[ArrayRef] {
        match self {
            Self::Summaries(groups) => &groups.keys,
            Self::Quantiles(groups) => &groups.keys,
        }
    }

    /// The answer for the rows of a group; none if they have no value.
    fn answer(&self, question: &Question, group: usize, place: usize) -> Result<Option<Answer>, String> {
        match self {
            Self::Summaries(groups) => {
                let summary = groups.statistics[group].get(place).copied().flatten();
                summary.map(|summary| of_summary(question, Some(summary))).transpose()
            }
            Self::Quantiles(groups) => of_distribution(question, groups.statistics.get(group)).map(Some),
        }
    }
}
