//! The sources of a mixture, prepared one by one, and the order of their rows.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
};

use forebay_order::{MixedRows, Mixture, Strides};
use forebay_proto::v1;

use crate::{
    plan::{MixtureFields, PlanError, SourcePattern},
    state::short_digest,
    stream::{environment::Environment, error::StreamError, resolve::prepare::Prepared},
};

/// Patterns that are kept: those of the epochs that run. Each takes at most 5 MB.
const PATTERNS_MAX: usize = 4;

/// Mixtures whose snapshots are remembered, so that an epoch resumes after files were added.
const DIGESTS_MAX: usize = 64;

/// A mixture, ready for any rank to read.
#[derive(Debug)]
pub(crate) struct PreparedMixture {
    pub(crate) sources: Vec<Prepared>,
    pub(crate) order: Mixture,
    /// The positions of each lane; none in file order.
    pub(crate) strides: Option<Arc<Strides>>,
    /// The source whose columns are nullable wherever another one's are.
    pub(crate) widest: usize,
    digest: String,
    plan_id: String,
}

/// Patterns and digests of mixtures.
#[derive(Debug, Default)]
pub(crate) struct MixtureCache {
    patterns: Mutex<VecDeque<(PatternKey, SourcePattern)>>,
    /// The digest of a mixture and those of its sources.
    digests: Mutex<VecDeque<(String, Vec<String>)>>,
}

/// What a pattern depends on.
type PatternKey = (Vec<u64>, Option<u64>);

// === impl PreparedMixture ===

impl PreparedMixture {
    /// Puts prepared sources in an order.
    pub(crate) fn new(
        requested: &MixtureFields,
        sources: Vec<Prepared>,
        pattern: SourcePattern,
    ) -> Result<Self, StreamError> {
        let rows = sources.iter().zip(&requested.sources);
        let rows = rows.map(|(source, fields)| MixedRows { rows: source.epoch.row_count(), repeats: fields.repeats });
        let rows: Vec<MixedRows> = rows.collect();
        if let Some(index) = rows.iter().position(|source| source.rows == 0) {
            return Err(StreamError::NoSourceRows { index, dataset: sources[index].request.dataset.clone() });
        }
        check_different(&sources)?;
        let widest = widest(&sources)?;
        let SourcePattern { pattern, strides } = pattern;
        let counts = pattern.counts().to_vec();
        let order = Mixture::new(pattern, rows.clone())
            .ok_or_else(|| PlanError::field("sources", "every source repeats, so the epoch has no end"))?;
        let digest = mixture_digest(sources.iter().map(Prepared::snapshot_digest));
        let parts = sources.iter().zip(counts).zip(&rows).flat_map(|((source, count), rows)| {
            [source.request.dataset.clone(), source.plan_id().to_owned(), count.to_string(), rows.repeats.to_string()]
        });
        let parts: Vec<String> = parts.flat_map(|part| [part, "\n".to_owned()]).collect();
        let mut bytes: Vec<&[u8]> = vec![b"forebay mixture plans 1\n"];
        bytes.extend(parts.iter().map(String::as_bytes));
        Ok(Self { plan_id: short_digest(&bytes), sources, order, strides, widest, digest })
    }

    /// The digest of the sources' snapshots.
    pub(crate) fn digest(&self) -> &str {
        &self.digest
    }

    /// The digest of the sources' plans, weights and repeats.
    pub(crate) fn plan_id(&self) -> &str {
        &self.plan_id
    }

    /// What the mixture has of each source.
    pub(crate) fn infos(&self) -> Vec<v1::SourceInfo> {
        let pattern = self.order.pattern();
        let info = |(index, source): (usize, &Prepared)| {
            let MixedRows { rows, repeats } = self.order.sources()[index];
            let epoch_rows = self.order.rows_of(index);
            v1::SourceInfo {
                dataset: source.request.dataset.clone(),
                snapshot: source.snapshot_digest().to_owned(),
                plan_id: source.plan_id().to_owned(),
                share: pattern.counts()[index] as f64 / pattern.denominator() as f64,
                repeat: repeats,
                rows,
                epoch_rows,
                epochs: epoch_rows as f64 / rows as f64,
            }
        };
        self.sources.iter().enumerate().map(info).collect()
    }

    /// The request's sources, pinned to their snapshots, for tickets.
    pub(crate) fn ticket_sources(&self, sources: Vec<v1::MixtureSource>) -> Vec<v1::MixtureSource> {
        let pinned = |(message, source): (v1::MixtureSource, &Prepared)| {
            let (plan, plan_id) = source.ticket_plan(message.plan, message.plan_id);
            v1::MixtureSource { snapshot: source.snapshot_digest().to_owned(), plan, plan_id, ..message }
        };
        sources.into_iter().zip(&self.sources).map(pinned).collect()
    }
}

// === impl MixtureCache ===

impl MixtureCache {
    /// The pattern of a mixture; `lanes` are those of a shuffled one.
    pub(crate) async fn pattern(
        &self,
        environment: &Environment,
        requested: &Arc<MixtureFields>,
        lanes: Option<u64>,
    ) -> Result<SourcePattern, StreamError> {
        let key = (requested.weights().key(), lanes);
        if let Some(known) = find(&self.patterns, &key) {
            return Ok(known);
        }
        let requested = Arc::clone(requested);
        let pattern = environment.cpu.run(move || requested.weights().pattern(lanes)).await??;
        remember(&self.patterns, key, pattern.clone(), PATTERNS_MAX);
        Ok(pattern)
    }

    /// The snapshots that a digest of a mixture stands for; none if it is not known.
    pub(crate) fn snapshots(&self, digest: &str) -> Option<Vec<String>> {
        find(&self.digests, &digest.to_owned())
    }

    /// Checks that a prepared mixture has the required snapshots, and remembers them.
    pub(crate) fn check(&self, mixture: &PreparedMixture, required: Option<&str>) -> Result<(), StreamError> {
        if let Some(requested) = required.filter(|digest| *digest != mixture.digest) {
            let (present, requested) = (mixture.digest.clone(), requested.chars().take(64).collect());
            return Err(StreamError::SourcesChanged { present, requested });
        }
        let digests = mixture.sources.iter().map(|source| source.snapshot_digest().to_owned()).collect();
        remember(&self.digests, mixture.digest.clone(), digests, DIGESTS_MAX);
        Ok(())
    }
}

/// Names the source that cannot be read.
pub(crate) fn of_source(error: StreamError, index: usize, dataset: &str) -> StreamError {
    let dataset = dataset.to_owned();
    match error {
        StreamError::Plan(PlanError::NotFitted { path, op }) => {
            StreamError::SourceNotFitted { index, dataset, path, op }
        }
        source => StreamError::Source { index, dataset, source: Box::new(source) },
    }
}

fn find<K: PartialEq, T: Clone>(entries: &Mutex<VecDeque<(K, T)>>, key: &K) -> Option<T> {
    let entries = entries.lock().unwrap_or_else(PoisonError::into_inner);
    entries.iter().find(|(known, _)| known == key).map(|(_, found)| found.clone())
}

fn remember<K: PartialEq, T>(entries: &Mutex<VecDeque<(K, T)>>, key: K, value: T, entries_max: usize) {
    let mut entries = entries.lock().unwrap_or_else(PoisonError::into_inner);
    entries.retain(|(known, _)| *known != key);
    entries.push_front((key, value));
    entries.truncate(entries_max);
}

/// Checks that no two sources have the same rows and outputs.
fn check_different(sources: &[Prepared]) -> Result<(), StreamError> {
    let key = |source: &Prepared| (source.request.dataset.clone(), source.plan_id().to_owned());
    for (index, source) in sources.iter().enumerate() {
        if let Some(first) = sources[..index].iter().position(|earlier| key(earlier) == key(source)) {
            let reason = format!(
                "\"{}\" is also sources[{first}], with the same plan: give one source the weight of both, or another plan",
                source.request.dataset
            );
            return Err(PlanError::field(format!("sources[{index}].dataset"), reason).into());
        }
    }
    Ok(())
}

/// Checks that all sources have the same outputs. Returns the source whose columns are nullable wherever another's are.
fn widest(sources: &[Prepared]) -> Result<usize, StreamError> {
    let first = sources[0].schema();
    let nullable = |source: &Prepared| source.schema().fields().iter().filter(|field| field.is_nullable()).count();
    let widest = (0..sources.len()).max_by_key(|index| nullable(&sources[*index])).unwrap_or(0);
    let wide = sources[widest].schema();
    for (index, source) in sources.iter().enumerate().skip(1) {
        let differs = |what: String| {
            let (here, there) = (&source.request.dataset, &sources[0].request.dataset);
            let reason = format!(
                "{what}, so the rows of \"{here}\" and \"{there}\" do not fit one batch: give both plans the same \
                 outputs"
            );
            StreamError::from(PlanError::field(format!("sources[{index}].plan"), reason))
        };
        let schema = source.schema();
        if schema.fields().len() != first.fields().len() {
            let counts = (schema.fields().len(), first.fields().len());
            return Err(differs(format!("{} outputs here and {} in sources[0]", counts.0, counts.1)));
        }
        for (field, other) in schema.fields().iter().zip(first.fields()) {
            if field.name() != other.name() {
                return Err(differs(format!("output \"{}\" is \"{}\" in sources[0]", field.name(), other.name())));
            }
            if field.data_type() != other.data_type() || field.metadata().get(DTYPE) != other.metadata().get(DTYPE) {
                let types = (field.data_type(), other.data_type());
                return Err(differs(format!(
                    "output \"{}\" is {} here and {} in sources[0]",
                    field.name(),
                    types.0,
                    types.1
                )));
            }
        }
        if let Some((field, _)) =
            schema.fields().iter().zip(wide.fields()).find(|(field, wide)| field.is_nullable() && !wide.is_nullable())
        {
            return Err(differs(format!("output \"{}\" may be null here and another one elsewhere", field.name())));
        }
    }
    Ok(widest)
}

/// The key of an output's dtype in the metadata of its field, where Arrow has no type for it.
const DTYPE: &str = "forebay.dtype";

fn mixture_digest<'a>(digests: impl Iterator<Item = &'a str>) -> String {
    let parts: Vec<&[u8]> = [b"forebay mixture 1".as_slice()]
        .into_iter()
        .chain(digests.flat_map(|digest| [b"\n", digest.as_bytes()]))
        .collect();
    short_digest(&parts)
}
