//! What mixtures share: patterns, and the snapshots that their digests identify.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
};

use crate::{
    plan::{MixtureFields, PlanError, SourcePattern},
    stream::{environment::Environment, error::StreamError, resolve::prepared::PreparedMixture},
};

/// Patterns that are kept: those of the epochs that run. Each takes at most 5 MB.
const PATTERNS_MAX: usize = 4;

/// Mixtures whose snapshots are remembered, so that an epoch resumes after files were added.
const DIGESTS_MAX: usize = 64;

/// Patterns and digests of mixtures.
#[derive(Debug, Default)]
pub(crate) struct MixtureCache {
    patterns: Mutex<VecDeque<(PatternKey, SourcePattern)>>,
    /// The digest of a mixture and those of its sources.
    digests: Mutex<VecDeque<(String, Vec<String>)>>,
}

/// What a pattern depends on.
type PatternKey = (Vec<u64>, Option<u64>);

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

    /// The snapshots that a digest of a mixture identifies; none if it is not known.
    pub(crate) fn snapshots(&self, digest: &str) -> Option<Vec<String>> {
        find(&self.digests, &digest.to_owned())
    }

    /// Checks that a prepared mixture has the required snapshots, and remembers them.
    pub(crate) fn check(&self, mixture: &PreparedMixture, required: Option<&str>) -> Result<(), StreamError> {
        if let Some(requested) = required.filter(|digest| *digest != mixture.digest()) {
            let (present, requested) = (mixture.digest().to_owned(), requested.chars().take(64).collect());
            return Err(StreamError::SourcesChanged { present, requested });
        }
        let digests = mixture.sources.iter().map(|source| source.snapshot_digest().to_owned()).collect();
        remember(&self.digests, mixture.digest().to_owned(), digests, DIGESTS_MAX);
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
