//! Passing rows of each row group: counted once for a snapshot and a filter, then kept in memory and under
//! `--state`.

use std::{ops::Range, sync::Arc};

use arrow::array::UInt64Array;
use futures::{StreamExt, TryStreamExt};

use crate::{
    catalog::{RowGroup, Snapshot},
    expr::ColumnStatistics,
    plan::{ROW_ID, Sample},
    scan,
    state::{Kind, State, short_digest},
    stream::{
        decode::decode,
        environment::Environment,
        error::StreamError,
        resolve::{expressions::Expressions, recent::SharedResults, rows::Rows},
    },
};

/// Row groups that are counted at once.
pub(super) const COUNTED_AT_ONCE: usize = 4;

/// Counts in memory; further ones are read from the state directory again.
const COUNTS_CACHED_MAX: usize = 64;

/// Counts in the state directory; those that were used longest ago are removed.
pub(super) const COUNTS_KEPT_MAX: usize = 4096;

/// Counts by snapshot and filter.
#[derive(Debug)]
pub(crate) struct RowCounts(SharedResults<Arc<Vec<u64>>>);

impl Default for RowCounts {
    fn default() -> Self {
        Self(SharedResults::new(COUNTS_CACHED_MAX))
    }
}

/// Changes when the same filter may pass other rows of the same snapshot.
const COUNTS_VERSION: &[u8] = b"forebay counts 2";

/// Counts in the state directory. The digest detects damage, which would silently shift every row.
#[derive(Debug, serde::Deserialize, serde::Serialize)]
struct StoredCounts {
    counts: Vec<u64>,
    digest: String,
}

impl RowCounts {
    /// Passing rows of each row group.
    ///
    /// Without a filter the footers have the counts, and those of a sample need only the numbers of the rows; with a
    /// filter, its columns are read from the row groups that statistics do not rule out.
    pub(crate) async fn passing(
        &self,
        environment: &Environment,
        snapshot: &Arc<Snapshot>,
        filter_text: &str,
        expressions: &Arc<Expressions>,
    ) -> Result<Arc<Vec<u64>>, StreamError> {
        if expressions.filter.is_none() && expressions.sample.is_none() {
            return Ok(Arc::clone(snapshot.row_counts()));
        }
        let key = count_key(snapshot, filter_text, expressions);
        let fits = |(count, group): (&u64, &RowGroup)| *count <= group.rows.end - group.rows.start;
        self.kept(environment, snapshot, &key, fits, async || match (expressions.sample, &expressions.filter) {
            (Some(sample), None) => count_sample(environment, snapshot, sample).await,
            _ => count_filtered(environment, snapshot, expressions).await,
        })
        .await
    }

    /// The counts that are kept under a key, one per row group, or those that `count` returns. Concurrent ranks share one
    /// count. Stored ones that do not fit their row groups are counted again.
    pub(super) async fn kept(
        &self,
        environment: &Environment,
        snapshot: &Snapshot,
        key: &str,
        fits: impl Fn((&u64, &RowGroup)) -> bool,
        count: impl AsyncFnOnce() -> Result<Vec<u64>, StreamError>,
    ) -> Result<Arc<Vec<u64>>, StreamError> {
        let counted = async || {
            if let Some(stored) = load(&environment.state, key, snapshot.row_groups(), fits).await {
                return Ok(stored);
            }
            let counts = count().await?;
            store(&environment.state, key, &counts).await;
            Ok(Arc::new(counts))
        };
        let cell = self.0.of(key);
        cell.get_or_try_init(counted).await.map(Arc::clone)
    }
}

/// Prepares to read these columns: the rows to compute, and for each row group whether statistics leave room for a
/// passing row. Runs on the CPU pool, whose stacks are deep enough for expressions.
pub(crate) async fn rows_and_groups(
    environment: &Environment,
    snapshot: &Arc<Snapshot>,
    expressions: &Arc<Expressions>,
    columns: Vec<String>,
) -> Result<(Arc<Rows>, Vec<bool>), StreamError> {
    let (snapshot, expressions) = (Arc::clone(snapshot), Arc::clone(expressions));
    let prepared = environment.cpu.run(move || {
        let rows = Rows::new(&snapshot, &expressions, columns.iter().map(String::as_str), false)?;
        Ok((Arc::new(rows), may_pass(&snapshot, &expressions)))
    });
    prepared.await?
}

/// Counts the sampled rows of each row group from their numbers alone.
async fn count_sample(
    environment: &Environment,
    snapshot: &Arc<Snapshot>,
    sample: Sample,
) -> Result<Vec<u64>, StreamError> {
    let groups: Vec<Range<u64>> = snapshot.row_groups().iter().map(|group| group.rows.clone()).collect();
    let counts = groups.into_iter().map(|rows| environment.cpu.run(move || sample.count(rows)));
    Ok(futures::stream::iter(counts).buffered(COUNTED_AT_ONCE).try_collect().await?)
}

async fn count_filtered(
    environment: &Environment,
    snapshot: &Arc<Snapshot>,
    expressions: &Arc<Expressions>,
) -> Result<Vec<u64>, StreamError> {
    let (rows, may_pass) = rows_and_groups(environment, snapshot, expressions, Vec::new()).await?;
    let counts = futures::stream::iter(may_pass.into_iter().enumerate().map(|(index, may_pass)| {
        let rows = Arc::clone(&rows);
        async move {
            if !may_pass {
                return Ok(0);
            }
            count_row_group(environment, snapshot, &snapshot.row_groups()[index], rows).await
        }
    }));
    counts.buffered(COUNTED_AT_ONCE).try_collect().await
}

async fn count_row_group(
    environment: &Environment,
    snapshot: &Snapshot,
    row_group: &RowGroup,
    rows: Arc<Rows>,
) -> Result<u64, StreamError> {
    let Environment { cpu, budget, .. } = environment;
    let mut reader = scan::open(snapshot, row_group, &rows.projection, cpu, budget).await?;
    let (mut sum, mut next_row) = (0, row_group.rows.start);
    loop {
        let counting = Arc::clone(&rows);
        let step = move || {
            let counted = match reader.next_chunk() {
                Ok(Some(chunk)) => counting.count(&chunk, next_row).map(|count| Some((count, chunk.num_rows() as u64))),
                Ok(None) => Ok(None),
                Err(source) => Err(source.into()),
            };
            (reader, counted)
        };
        let counted;
        (reader, counted) = decode(cpu, snapshot, row_group, rows.projection.schema(), step).await?;
        match counted? {
            Some((count, row_count)) => {
                sum += count;
                next_row += row_count;
            }
            None => return Ok(sum),
        }
    }
}

/// Reads stored counts; none where they are missing, damaged or of other row groups, so that they are counted again.
async fn load(
    state: &State,
    key: &str,
    row_groups: &[RowGroup],
    fits: impl Fn((&u64, &RowGroup)) -> bool,
) -> Option<Arc<Vec<u64>>> {
    let bytes = state.read(Kind::RowCounts, key).await.ok()??;
    state.mark_used(Kind::RowCounts, key).await;
    let StoredCounts { counts, digest } = serde_json::from_slice(&bytes).ok()?;
    if digest != counts_digest(key, &counts) {
        return None;
    }
    let is_valid = counts.len() == row_groups.len() && counts.iter().zip(row_groups).all(fits);
    is_valid.then(|| Arc::new(counts))
}

async fn store(state: &State, key: &str, counts: &[u64]) {
    let stored = StoredCounts { digest: counts_digest(key, counts), counts: counts.to_vec() };
    // Numbers and a string always have a JSON form.
    let bytes = serde_json::to_vec(&stored).unwrap_or_default();
    if let Err(error) = state.write(Kind::RowCounts, key, bytes).await {
        tracing::warn!(%error, "cannot store row counts; a restart counts them again");
    }
    state.trim(Kind::RowCounts, COUNTS_KEPT_MAX).await;
}

fn counts_digest(key: &str, counts: &[u64]) -> String {
    let bytes: Vec<u8> = counts.iter().flat_map(|count| count.to_le_bytes()).collect();
    short_digest(&[key.as_bytes(), &bytes])
}

/// Whether statistics leave room for a passing row, for each row group.
pub(super) fn may_pass(snapshot: &Snapshot, expressions: &Expressions) -> Vec<bool> {
    let mut may_pass = match &expressions.filter {
        Some(filter) => {
            let mut statistics = scan::statistics(snapshot, filter.columns());
            if filter.columns().iter().any(|column| column == ROW_ID) {
                statistics.columns.insert(ROW_ID.to_owned(), row_id_statistics(snapshot));
            }
            filter.may_pass(&expressions.filter_schema, &statistics)
        }
        None => vec![true; snapshot.row_groups().len()],
    };
    if let Some(sample) = expressions.sample {
        for (may_pass, group) in may_pass.iter_mut().zip(snapshot.row_groups()) {
            *may_pass = *may_pass && group.rows.clone().any(|row| sample.holds(row));
        }
    }
    may_pass
}

/// The exact bounds of the row ids of each row group.
fn row_id_statistics(snapshot: &Snapshot) -> ColumnStatistics {
    let groups = || snapshot.row_groups().iter().map(|group| &group.rows);
    ColumnStatistics {
        minimums: Arc::new(UInt64Array::from_iter_values(groups().map(|rows| rows.start))),
        maximums: Arc::new(UInt64Array::from_iter_values(groups().map(|rows| rows.end.saturating_sub(1)))),
        null_counts: UInt64Array::from(vec![0; snapshot.row_groups().len()]),
    }
}

/// The id of the counts of a snapshot's passing rows.
pub(super) fn count_key(snapshot: &Snapshot, filter_text: &str, expressions: &Expressions) -> String {
    let sample = expressions.sample.map(Sample::key);
    let mut parts: Vec<&[u8]> = vec![COUNTS_VERSION];
    if let Some(sample) = &sample {
        parts.extend([b"sample".as_slice(), sample]);
    }
    if !expressions.filter_joins.is_empty() {
        parts.extend([b"join".as_slice(), &expressions.filter_joins]);
    }
    parts.push(filter_text.as_bytes());
    let of_rows = short_digest(&parts);
    format!("{}-{of_rows}", snapshot.state())
}
