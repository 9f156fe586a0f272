//! What mixtures share: patterns, and the snapshots that their digests identify.

use std::sync::Arc;

use forebay_plan::{MixtureFields, PlanError, SourcePattern};

use super::{mixed::PreparedMixture, ordered::Ordered};
use crate::{counts::recent::Recent, environment::Environment, error::StreamError};

/// Patterns that are kept: those of the epochs that run. Each takes at most 5 MB.
const PATTERNS_MAX: usize = 4;

/// Mixtures whose snapshots are remembered, so that an epoch resumes after files were added.
const DIGESTS_MAX: usize = 64;

/// Patterns and digests of mixtures.
#[derive(Debug)]
pub(crate) struct MixtureCache {
    patterns: Recent<PatternKey, SourcePattern>,
    /// The digest of a mixture and those of its sources.
    digests: Recent<String, Vec<String>>,
}

/// What a pattern depends on.
type PatternKey = (Vec<u64>, Option<u64>);

// === impl MixtureCache ===

impl Default for MixtureCache {
    fn default() -> Self {
        Self { patterns: Recent::new(PATTERNS_MAX), digests: Recent::new(DIGESTS_MAX) }
    }
}

impl MixtureCache {
    /// The pattern of a mixture; `lanes` are those of a shuffled one.
    pub(crate) async fn pattern(
        &self,
        environment: &Environment,
        requested: &Arc<MixtureFields>,
        lanes: Option<u64>,
    ) -> Result<SourcePattern, StreamError> {
        let key = (requested.weights().key(), lanes);
        if let Some(known) = self.patterns.find(&key) {
            return Ok(known);
        }
        let requested = Arc::clone(requested);
        let pattern = environment.cpu.run(move || requested.weights().pattern(lanes)).await??;
        self.patterns.remember(key, pattern.clone());
        Ok(pattern)
    }

    /// The snapshots that a digest of a mixture identifies; none if it is not known.
    pub(crate) fn snapshots(&self, digest: &str) -> Option<Vec<String>> {
        self.digests.find(&digest.to_owned())
    }

    /// Checks that a prepared mixture has the required snapshots, and remembers them.
    pub(crate) fn check(&self, mixture: &PreparedMixture, required: Option<&str>) -> Result<(), StreamError> {
        if let Some(requested) = required.filter(|digest| *digest != mixture.snapshot_digest()) {
            let (present, requested) = (mixture.snapshot_digest().to_owned(), requested.chars().take(64).collect());
            return Err(StreamError::SourcesChanged { present, requested });
        }
        let digests = mixture.sources.iter().map(|source| source.snapshot_digest().to_owned()).collect();
        self.digests.remember(mixture.snapshot_digest().to_owned(), digests);
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
