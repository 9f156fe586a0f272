//! Passing rows of each row group: counted once for a snapshot and a filter.

use std::{ops::Range, sync::Arc};

use forebay_catalog::Snapshot;
use forebay_plan::Sample;
use forebay_runtime::{metrics::StageTimes, state::Kind};
use futures::{StreamExt, TryStreamExt};
use prost::Message;

use super::{
    filtered_rows::{COUNTED_AT_ONCE, FilteredRows},
    store::{Results, Storable},
};
use crate::{
    error::StreamError,
    rows::{drive::RowSink, pass::each, prefilter::NextRows},
};

/// Counts in memory; further ones are read from the state directory again.
const CACHED_MAX: usize = 64;

/// Counts in the state directory.
pub(crate) const KEPT_MAX: usize = 4096;

/// Numbers of each row group by snapshot and plan.
#[derive(Debug)]
pub(crate) struct RowCounts(Results<Counts>);

/// A number of each row group.
#[derive(Debug)]
struct Counts(Arc<Vec<u64>>);

/// What counts must fit: a row group has no more passing rows than rows.
struct CountLimits {
    snapshot: Arc<Snapshot>,
    has_limits: bool,
}

#[derive(Clone, PartialEq, Message)]
struct StoredCounts {
    #[prost(uint64, repeated, tag = "1")]
    counts: Vec<u64>,
}

/// Counts passing rows.
#[derive(Default)]
struct Counter(u64);

impl Default for RowCounts {
    fn default() -> Self {
        Self(Results::new(Kind::RowCounts, CACHED_MAX, KEPT_MAX))
    }
}

impl RowCounts {
    /// Passing rows of each row group.
    ///
    /// Without a filter the footers have the counts, and those of a sample need only the numbers of the rows; with a
    /// filter, its columns are read from the row groups that statistics do not rule out.
    pub(crate) async fn passing(&self, rows: FilteredRows<'_>) -> Result<Arc<Vec<u64>>, StreamError> {
        let FilteredRows { snapshot, expressions, .. } = rows;
        if expressions.filter.is_none() && expressions.sample.is_none() {
            return Ok(Arc::clone(snapshot.row_counts()));
        }
        let count = async || match (expressions.sample, &expressions.filter) {
            (Some(sample), None) => count_sample(rows, sample).await,
            _ => count_filtered(rows).await,
        };
        self.get(rows, &rows.key(), true, count).await
    }

    /// The counts of units that rows are made into, of which a row group may have any number.
    pub(crate) async fn of_units(
        &self,
        rows: FilteredRows<'_>,
        key: &str,
        count: impl AsyncFnOnce() -> Result<Vec<u64>, StreamError>,
    ) -> Result<Arc<Vec<u64>>, StreamError> {
        self.get(rows, key, false, count).await
    }

    async fn get(
        &self,
        rows: FilteredRows<'_>,
        key: &str,
        has_limits: bool,
        count: impl AsyncFnOnce() -> Result<Vec<u64>, StreamError>,
    ) -> Result<Arc<Vec<u64>>, StreamError> {
        let limits = CountLimits { snapshot: Arc::clone(rows.snapshot), has_limits };
        let count = async || Ok(Counts(Arc::new(count().await?)));
        Ok(Arc::clone(&self.0.get(rows.environment, key, limits, count).await?.0))
    }
}

/// Counts the sampled rows of each row group from their numbers alone.
async fn count_sample(rows: FilteredRows<'_>, sample: Sample) -> Result<Vec<u64>, StreamError> {
    let groups: Vec<Range<u64>> = rows.snapshot.row_groups().iter().map(|group| group.rows.clone()).collect();
    let counts = groups.into_iter().map(|of_group| rows.environment.cpu.run(move || sample.count(of_group)));
    Ok(futures::stream::iter(counts).buffered(COUNTED_AT_ONCE).try_collect().await?)
}

async fn count_filtered(rows: FilteredRows<'_>) -> Result<Vec<u64>, StreamError> {
    let (scan, row_groups) = rows.scan(Vec::new()).await?;
    let mut counts = vec![0; rows.snapshot.row_groups().len()];
    let mut counted = std::pin::pin!(each(&scan, row_groups, COUNTED_AT_ONCE, |_| Counter::default()));
    while let Some((row_group, Counter(count))) = counted.try_next().await? {
        counts[row_group] = count;
    }
    Ok(counts)
}

// === impl Counts, Counter ===

impl Storable for Counts {
    type Stored = StoredCounts;
    type Context = CountLimits;

    fn store(&self, _: &CountLimits) -> StoredCounts {
        StoredCounts { counts: self.0.to_vec() }
    }

    fn restore(StoredCounts { counts }: StoredCounts, limits: &CountLimits) -> Option<Self> {
        let groups = limits.snapshot.row_groups();
        let fits = counts.iter().zip(groups).all(|(count, group)| *count <= group.rows.end - group.rows.start);
        (counts.len() == groups.len() && (fits || !limits.has_limits)).then(|| Self(Arc::new(counts)))
    }
}

impl RowSink<NextRows> for Counter {
    type Output = ();

    fn add(&mut self, rows: NextRows, _: &mut StageTimes) -> Result<Option<()>, StreamError> {
        self.0 += rows.passing.rows.num_rows() as u64;
        Ok(Some(()))
    }
}
