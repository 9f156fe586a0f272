//! The rows of a plan: what decides which ones pass, and how they are read to be counted.

use std::sync::Arc;

use forebay_catalog::Snapshot;
use forebay_plan::Sample;
use forebay_runtime::state::{parts_digest, short_digest};

use crate::{
    environment::Environment,
    error::StreamError,
    rows::{expressions::Expressions, pruning::pruned_scan, scan::RowScan},
};

/// Row groups that are counted at once.
pub(crate) const COUNTED_AT_ONCE: usize = 4;

/// Changes when the same filter may pass other rows of the same snapshot.
const VERSION: &[u8] = b"forebay counts 2";

/// The rows of a snapshot that pass the filter of a plan.
#[derive(Clone, Copy)]
pub(crate) struct FilteredRows<'a> {
    pub environment: &'a Arc<Environment>,
    pub snapshot: &'a Arc<Snapshot>,
    /// The filter's text.
    pub filter: &'a str,
    pub expressions: &'a Arc<Expressions>,
}

impl FilteredRows<'_> {
    /// The id of what is counted of the rows: of the snapshot, the rows and these parts.
    pub(crate) fn key_of(&self, parts: &[&[u8]]) -> String {
        let rows = self.key();
        let parts: Vec<&[u8]> = [rows.as_bytes()].into_iter().chain(parts.iter().copied()).collect();
        format!("{}-{}", self.snapshot.state(), parts_digest(&parts))
    }

    /// The id of their number.
    pub(crate) fn key(&self) -> String {
        let Self { snapshot, filter, expressions, .. } = self;
        let sample = expressions.sample.map(Sample::key);
        let mut parts: Vec<&[u8]> = vec![VERSION];
        if let Some(sample) = &sample {
            parts.extend([b"sample".as_slice(), sample]);
        }
        if !expressions.filter_joins.is_empty() {
            parts.extend([b"join".as_slice(), &expressions.filter_joins]);
        }
        parts.push(filter.as_bytes());
        format!("{}-{}", snapshot.state(), short_digest(&parts))
    }

    /// Prepares to read these columns of them; with the row groups that may have some.
    pub(crate) async fn scan(&self, columns: Vec<String>) -> Result<(RowScan, Vec<usize>), StreamError> {
        pruned_scan(self.environment, self.snapshot, self.expressions, columns).await
    }
}
