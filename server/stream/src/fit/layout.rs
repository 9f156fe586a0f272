//! The layout of a pass: which values each aggregate takes, and which aggregate answers each question. Questions that need the same
//! values share an aggregate.

use std::sync::Arc;

use arrow::{
    array::{ArrayRef, RecordBatch},
    compute::concat,
    datatypes::{DataType, Schema},
};
use forebay_engine::{Engine, Keep, Merged, PartialShape, distribution_schema, summary_schema};
use forebay_kernels::Prefix;
use forebay_plan::{Answer, Question, Statistic};
use forebay_proto::JSON_BYTES_MAX;

use super::{
    answers::{of_counts, of_distribution, of_summary, of_target, shares},
    dry_run::checked_prefix,
    groups::{GroupAggregate, GroupJob, GroupResult, GroupSource, key_question, of_groups, source_of},
    inputs::{learnable, learned_type},
    targets::Target,
};
use crate::error::StreamError;

/// The aggregates of a pass, and the values that they take.
#[derive(Debug)]
pub(super) struct Layout {
    /// The distinct prefixes of the questions' chains.
    prefixes: Vec<Prefix>,
    /// The prefix of each column of the summaries.
    summaries: Vec<usize>,
    /// The prefixes whose distributions are needed, and the shares of rows at which.
    distributions: Vec<(usize, Vec<f64>)>,
    counts: Vec<Counted>,
    targets: Vec<(usize, Target)>,
    groups: Vec<GroupAggregate>,
    /// The aggregate that answers each question.
    sources: Vec<AnswerSource>,
}

/// The prefixes whose values are counted together, and which of the values are kept.
#[derive(Clone, Debug, PartialEq)]
struct Counted {
    prefixes: Vec<usize>,
    keep: Keep,
    /// The name of a vocabulary that several columns share; otherwise empty.
    shared: String,
}

#[derive(Clone, Copy, Debug)]
enum AnswerSource {
    Summary(usize),
    Distribution(usize),
    Counts(usize),
    Target(usize),
    Groups(GroupSource),
}

/// A block's values for every aggregate of a pass.
pub(crate) struct PassValues {
    pub(super) summaries: Option<RecordBatch>,
    pub(super) distributions: Vec<RecordBatch>,
    pub(super) counts: Vec<RecordBatch>,
    pub(super) targets: Vec<RecordBatch>,
    pub(super) groups: Vec<RecordBatch>,
}

/// Whether one prefix serves both: counting keeps all digits of decimals, arithmetic does not.
fn is_of_same_values(one: &Question, other: &Question) -> bool {
    let is_counted = |question: &Question| question.statistic.is_counted();
    one.column == other.column && one.prefix == other.prefix && is_counted(one) == is_counted(other)
}

// === impl Layout ===

impl Layout {
    /// The layout that answers the questions.
    pub(super) fn new(schema: &Schema, questions: &[Question]) -> Result<Self, StreamError> {
        let mut known: Vec<Question> = Vec::new();
        let mut layout = Self {
            prefixes: Vec::new(),
            summaries: Vec::new(),
            distributions: Vec::new(),
            counts: Vec::new(),
            targets: Vec::new(),
            groups: Vec::new(),
            sources: Vec::new(),
        };
        for question in questions {
            let mut prefix_of = |question: &Question| {
                if let Some(index) = known.iter().position(|known| is_of_same_values(known, question)) {
                    return Ok(index);
                }
                known.push(question.clone());
                layout.prefixes.push(checked_prefix(question, schema)?);
                Ok::<_, StreamError>(layout.prefixes.len() - 1)
            };
            let prefix = prefix_of(question)?;
            let keys = question.statistic.by().iter().map(|column| prefix_of(&key_question(question, column)));
            let keys = keys.collect::<Result<_, _>>()?;
            let source = layout.source_of(prefix, keys, &question.statistic);
            layout.sources.push(source);
        }
        Ok(layout)
    }

    /// The types and limits of the aggregates.
    pub(super) fn shape(&self) -> PartialShape {
        let kind = |prefix: usize| self.kind(prefix);
        PartialShape {
            summaries: self.summaries.iter().map(|prefix| kind(*prefix)).collect(),
            quantiles: self.distributions.iter().map(|(prefix, shares)| (kind(*prefix), shares.clone())).collect(),
            counts: self.counts.iter().map(|counted| (kind(counted.prefixes[0]), counted.keep)).collect(),
            targets: self.targets.iter().map(|(prefix, target)| (kind(*prefix), target.parts())).collect(),
        }
    }

    /// Starts the aggregates of groups.
    pub(super) fn start_groups(&self, engine: &Engine) -> Result<Vec<GroupJob>, StreamError> {
        self.groups.iter().map(|group| Ok(group.start(engine, |prefix| self.kind(prefix))?)).collect()
    }

    /// The type of the values of a prefix, as aggregates take them.
    fn kind(&self, prefix: usize) -> DataType {
        learned_type(self.prefixes[prefix].data_type())
    }

    /// The columns that the questions read.
    pub(super) fn columns(&self) -> impl Iterator<Item = &str> {
        let labels = self.targets.iter().flat_map(|(_, target)| target.columns());
        self.prefixes.iter().flat_map(Prefix::columns).map(String::as_str).chain(labels)
    }

    /// Computes the aggregates' inputs from passing rows: run it on the CPU pool.
    pub(super) fn values(&self, rows: &RecordBatch) -> Result<PassValues, StreamError> {
        let evaluated: Result<Vec<ArrayRef>, _> = self.prefixes.iter().map(|prefix| prefix.evaluate(rows)).collect();
        let evaluated = evaluated?;
        let summaries = if self.summaries.is_empty() {
            None
        } else {
            let columns: Result<Vec<ArrayRef>, StreamError> =
                self.summaries.iter().map(|prefix| learnable(&evaluated[*prefix])).collect();
            let columns = columns?;
            let types: Vec<DataType> = columns.iter().map(|column| column.data_type().clone()).collect();
            Some(RecordBatch::try_new(summary_schema(&types), columns)?)
        };
        let mut distributions = Vec::with_capacity(self.distributions.len());
        for (prefix, _) in &self.distributions {
            let values = learnable(&evaluated[*prefix])?;
            distributions.push(RecordBatch::try_new(distribution_schema(values.data_type()), vec![values])?);
        }
        let mut counts = Vec::with_capacity(self.counts.len());
        for counted in &self.counts {
            let values = counted.prefixes.iter().map(|prefix| learnable(&evaluated[*prefix]));
            let values = joined(&values.collect::<Result<Vec<_>, _>>()?)?;
            counts.push(RecordBatch::try_from_iter_with_nullable([("value", values, true)])?);
        }
        let mut targets = Vec::with_capacity(self.targets.len());
        for (prefix, target) in &self.targets {
            targets.push(target.batch(learnable(&evaluated[*prefix])?, rows)?);
        }
        let groups = self.groups.iter().map(|group| group.batch(&evaluated)).collect::<Result<_, _>>()?;
        Ok(PassValues { summaries, distributions, counts, targets, groups })
    }

    /// The answers to the layout's questions.
    pub(super) fn answers(
        &self,
        questions: &[Question],
        merged: &Merged,
        groups: &[GroupResult],
    ) -> Result<Vec<Answer>, StreamError> {
        let Merged { summaries, distributions, counts, targets } = merged;
        let answer = |(question, source): (&Question, &AnswerSource)| {
            let answer = match source {
                AnswerSource::Summary(index) => of_summary(question, summaries.get(*index).copied().flatten()),
                AnswerSource::Distribution(index) => of_distribution(question, distributions[*index].as_ref()),
                AnswerSource::Counts(index) => of_counts(question, counts[*index].as_ref()),
                AnswerSource::Target(index) => of_target(question, targets[*index].as_ref()),
                AnswerSource::Groups(source) => of_groups(question, groups, *source),
            };
            answer.map_err(|reason| StreamError::Unlearnable { path: question.path.clone(), reason })
        };
        questions.iter().zip(&self.sources).map(answer).collect()
    }

    /// The aggregate that answers a question about the values of a prefix, of groups by those of the keys' prefixes.
    fn source_of(&mut self, prefix: usize, keys: Vec<usize>, statistic: &Statistic) -> AnswerSource {
        let mut counted = |min_count, max_size, shared: &str| {
            let keep = Keep { min_count, max_size, text_bytes_max: JSON_BYTES_MAX };
            let known = self.counts.iter().position(|known| !shared.is_empty() && known.shared == shared);
            if let Some(index) = known {
                self.counts[index].prefixes.push(prefix);
                return AnswerSource::Counts(index);
            }
            let (prefixes, shared) = (vec![prefix], shared.to_owned());
            AnswerSource::Counts(index_of(&mut self.counts, Counted { prefixes, keep, shared }))
        };
        match statistic {
            Statistic::Mean | Statistic::MeanAndDeviation | Statistic::Range | Statistic::MaxAbs => {
                AnswerSource::Summary(index_of(&mut self.summaries, prefix))
            }
            Statistic::Median | Statistic::MedianAndQuartiles | Statistic::Quantiles(_) => {
                let known = self.distributions.iter().position(|(known, _)| *known == prefix);
                let index = known.unwrap_or_else(|| {
                    self.distributions.push((prefix, Vec::new()));
                    self.distributions.len() - 1
                });
                self.distributions[index].1.extend(shares(statistic));
                AnswerSource::Distribution(index)
            }
            Statistic::Mode => counted(1, 1, ""),
            Statistic::Counts => counted(1, 0, ""),
            Statistic::Vocabulary { min_count, max_size, shared } => counted(*min_count, *max_size, shared),
            Statistic::OfGroups { statistic, .. } => {
                AnswerSource::Groups(source_of(&mut self.groups, (prefix, keys), statistic))
            }
            Statistic::TargetMean { label, folds, seed, .. } => {
                let target = Target { label: label.clone(), folds: *folds, seed: *seed };
                AnswerSource::Target(index_of(&mut self.targets, (prefix, target)))
            }
        }
    }
}

/// The values of several arrays of one type, one array after another.
fn joined(arrays: &[ArrayRef]) -> Result<ArrayRef, StreamError> {
    match arrays {
        [array] => Ok(Arc::clone(array)),
        _ => Ok(concat(&arrays.iter().map(AsRef::as_ref).collect::<Vec<_>>())?),
    }
}

/// The index of an item, which is added if it is new.
fn index_of<T: PartialEq>(items: &mut Vec<T>, item: T) -> usize {
    let known = items.iter().position(|known| *known == item);
    known.unwrap_or_else(|| {
        items.push(item);
        items.len() - 1
    })
}
