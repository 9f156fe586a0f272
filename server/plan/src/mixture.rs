//! The sources of a request for a mixture: the field `sources`.

use std::sync::Arc;

use forebay_order::{Pattern, SOURCES_MAX, Strides, WeightProblem, exact, quantize};
use forebay_proto::v1;

use super::{
    error::PlanError,
    source::{Source, check_plan},
};

/// The sources of a mixture, checked one by one.
#[derive(Clone, Debug)]
pub struct MixtureFields {
    /// The sources.
    pub sources: Vec<SourceFields>,
    weights: Weights,
}

/// The checked fields of one source.
#[derive(Clone, Debug)]
pub struct SourceFields {
    /// Name of the dataset.
    pub dataset: String,
    /// The plan.
    pub source: Source,
    /// Digest of the required snapshot; none: the current one.
    pub snapshot: Option<String>,
    /// Whether the source begins again after its last row.
    pub repeats: bool,
}

/// How the rows are divided among the sources.
#[derive(Clone, Debug, PartialEq)]
pub enum Weights {
    /// In proportion to these weights.
    Shares(Vec<f64>),
    /// So many rows of each source in a batch.
    RowsPerBatch(Vec<u64>),
}

/// The assignment of positions to sources.
#[derive(Clone, Debug)]
pub struct SourcePattern {
    /// The source of each position.
    pub pattern: Arc<Pattern>,
    /// The positions of each lane; none in file order.
    pub strides: Option<Arc<Strides>>,
}

impl MixtureFields {
    /// The sources of a request's fields; none if it has none.
    pub fn check(message: &v1::StreamRequest, batch_size: u64) -> Result<Option<Self>, PlanError> {
        let given = &message.sources;
        if given.is_empty() {
            return Ok(None);
        }
        if !message.dataset.is_empty() {
            let reason = format!(
                "\"{}\" cannot be combined with sources: a mixture has the datasets of its sources",
                message.dataset.escape_debug()
            );
            return Err(PlanError::field("dataset", reason));
        }
        if !message.group_by.is_empty() {
            let reason =
                "cannot be combined with sources: group the rows of one dataset, or mix datasets without groups";
            return Err(PlanError::field("group_by", reason));
        }
        if given.len() > SOURCES_MAX {
            let reason = format!(
                "{} sources exceed the {SOURCES_MAX} that a mixture may have: put files that share a weight into one \
                 dataset",
                given.len()
            );
            return Err(PlanError::field("sources", reason));
        }
        let common = Source::check((message.plan.as_ref(), &message.plan_id), message.history.as_ref(), "")?;
        if let Some(Source::Inline(plan)) = &common {
            check_plan(plan)?;
        }
        let sources = given.iter().enumerate();
        let sources = sources
            .map(|(index, source)| SourceFields::check(source, index, common.as_ref(), message.history.as_ref()));
        Ok(Some(Self { sources: sources.collect::<Result<_, _>>()?, weights: weights(given, batch_size)? }))
    }

    /// How the rows are divided among the sources.
    pub fn weights(&self) -> &Weights {
        &self.weights
    }

    /// Checks that the mixture ends.
    fn check_end(given: &[v1::MixtureSource]) -> Result<(), PlanError> {
        if given.iter().all(|source| source.repeat) {
            let reason = "every source repeats, so the epoch has no end: leave repeat out for the source that ends it";
            return Err(PlanError::field("sources", reason));
        }
        Ok(())
    }
}

impl SourceFields {
    fn check(
        source: &v1::MixtureSource,
        index: usize,
        common: Option<&Source>,
        history: Option<&v1::History>,
    ) -> Result<Self, PlanError> {
        let path = |field: &str| format!("sources[{index}].{field}");
        if source.dataset.is_empty() {
            return Err(PlanError::field(path("dataset"), "missing: expected the name of a dataset on this server"));
        }
        let own = Source::check((source.plan.as_ref(), &source.plan_id), history, &path(""))?;
        if let Some(Source::Inline(plan)) = &own {
            check_plan(plan).map_err(|error| error.within(&path("")))?;
        }
        let plan = own.or_else(|| common.cloned()).ok_or_else(|| {
            let reason = "missing: expected a plan or plan_id, of the source or of the request";
            PlanError::field(path("plan"), reason)
        })?;
        Ok(Self {
            dataset: source.dataset.clone(),
            source: plan,
            snapshot: Some(source.snapshot.clone()).filter(|digest| !digest.is_empty()),
            repeats: source.repeat,
        })
    }
}

/// The weights of all sources, or their rows per batch.
fn weights(given: &[v1::MixtureSource], batch_size: u64) -> Result<Weights, PlanError> {
    let path = |index: usize, field: &str| format!("sources[{index}].{field}");
    MixtureFields::check_end(given)?;
    for (index, source) in given.iter().enumerate() {
        if source.weight.is_some() && source.rows_per_batch.is_some() {
            return Err(PlanError::field(
                path(index, "rows_per_batch"),
                "send either weight or rows_per_batch, not both",
            ));
        }
        if source.rows_per_batch.is_some() != given[0].rows_per_batch.is_some() {
            let reason = "all sources need rows_per_batch, or none: give the others their rows, or use weights";
            return Err(PlanError::field(path(index, "rows_per_batch"), reason));
        }
        if source.weight.is_none() && source.rows_per_batch.is_none() {
            let reason = "missing: expected the source's share of the rows, such as 0.3";
            return Err(PlanError::field(path(index, "weight"), reason));
        }
    }
    if given[0].rows_per_batch.is_none() {
        return Ok(Weights::Shares(given.iter().map(|source| source.weight.unwrap_or(0.0)).collect()));
    }
    let rows: Vec<u64> = given.iter().map(|source| source.rows_per_batch.unwrap_or(0)).collect();
    let sum = rows.iter().fold(0_u64, |sum, rows| sum.saturating_add(*rows));
    if sum != batch_size {
        let reason = format!("the rows_per_batch of the sources add up to {sum}, and batch_size is {batch_size}");
        return Err(PlanError::field("sources", reason));
    }
    Ok(Weights::RowsPerBatch(rows))
}

// === impl Weights ===

impl Weights {
    /// Computes the pattern; `lanes` are those of a shuffled mixture. Takes some milliseconds.
    pub fn pattern(&self, lanes: Option<u64>) -> Result<SourcePattern, PlanError> {
        let (counts, field) = match self {
            Self::Shares(weights) => (quantize(weights), "weight"),
            Self::RowsPerBatch(rows) => (exact(rows), "rows_per_batch"),
        };
        let counts = counts.map_err(|problem| self.error(problem, field))?;
        let pattern = Arc::new(Pattern::new(&counts, lanes.is_some()));
        let strides = lanes.map(|lanes| Arc::new(Strides::new(&pattern, lanes)));
        Ok(SourcePattern { pattern, strides })
    }

    /// Numbers that identify the weights.
    pub fn key(&self) -> Vec<u64> {
        match self {
            Self::Shares(weights) => weights.iter().map(|weight| weight.to_bits()).chain([0]).collect(),
            Self::RowsPerBatch(rows) => rows.iter().copied().chain([1]).collect(),
        }
    }

    fn text(&self, index: usize) -> String {
        match self {
            Self::Shares(weights) => weights[index].to_string(),
            Self::RowsPerBatch(rows) => rows[index].to_string(),
        }
    }

    fn error(&self, problem: WeightProblem, field: &str) -> PlanError {
        let path = |index: usize| format!("sources[{index}].{field}");
        match problem {
            WeightProblem::NotPositive(index) => {
                let number = self.text(index);
                PlanError::field(path(index), format!("{number} is not a share: expected a finite number above 0"))
            }
            WeightProblem::TooSmall(index) => {
                let number = self.text(index);
                let reason = format!(
                    "{number} is less than 1/{} of the sum of the weights: raise it, or leave the source out",
                    forebay_order::DENOMINATOR_MAX
                );
                PlanError::field(path(index), reason)
            }
            WeightProblem::Sum => PlanError::field("sources", "the sum of the weights is not finite: scale them down"),
            WeightProblem::Counts => {
                let reason = format!(
                    "the rows_per_batch in lowest terms add up to more than {}: use rounder numbers, or weights",
                    forebay_order::DENOMINATOR_MAX
                );
                PlanError::field("sources", reason)
            }
        }
    }
}
