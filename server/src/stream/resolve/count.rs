//! How many rows of each row group pass a filter: counted once for a snapshot and a filter, then kept.

use std::sync::{Arc, PoisonError};

use futures::{StreamExt, TryStreamExt};
use tokio::sync::OnceCell;

use crate::stream::{
    StreamError, Streams,
    decode::decode,
    resolve::rows::{Expressions, Rows},
};
use crate::{
    catalog::{RowGroup, Snapshot},
    scan,
    state::{Kind, short_digest},
};

/// Row groups that are counted at once.
const COUNTED_AT_ONCE: usize = 4;

/// Counts kept in memory; more are read from the state directory again.
const COUNTS_KEPT_MAX: usize = 64;

/// What is kept in the state directory; a count that was damaged there would silently shift every row.
#[derive(Debug, serde::Deserialize, serde::Serialize)]
struct Kept {
    counts: Vec<u64>,
    digest: String,
}

/// The counts of one snapshot and filter; empty while they are counted.
pub(crate) type CountCell = OnceCell<Arc<Vec<u64>>>;

impl Streams {
    /// Passing rows of every row group. Without a filter the footers say it; with one, only the columns of the filter
    /// are read, of the row groups that statistics do not rule out.
    pub(crate) async fn passing_rows(
        &self,
        snapshot: &Arc<Snapshot>,
        filter_text: &str,
        expressions: &Arc<Expressions>,
    ) -> Result<Arc<Vec<u64>>, StreamError> {
        if expressions.filter.is_none() {
            return Ok(Arc::clone(snapshot.row_counts()));
        }
        let key = count_key(snapshot, filter_text);
        let cell = self.count_cell(&key);
        // Ranks that ask at once wait for one count.
        let counted = cell.get_or_try_init(|| self.count(snapshot, &key, expressions)).await;
        counted.map(Arc::clone)
    }

    async fn count(
        &self,
        snapshot: &Arc<Snapshot>,
        key: &str,
        expressions: &Arc<Expressions>,
    ) -> Result<Arc<Vec<u64>>, StreamError> {
        if let Some(kept) = self.kept_counts(key, snapshot.row_groups()) {
            return Ok(kept);
        }
        let (rows, may_pass) = self.rows_and_groups(snapshot, expressions, Vec::new()).await?;
        let counts = futures::stream::iter(may_pass.into_iter().enumerate().map(|(index, may_pass)| {
            let rows = Arc::clone(&rows);
            async move {
                if may_pass { self.count_group(snapshot, &snapshot.row_groups()[index], rows).await } else { Ok(0) }
            }
        }));
        let counts: Vec<u64> = counts.buffered(COUNTED_AT_ONCE).try_collect().await?;
        self.keep_counts(key, &counts);
        Ok(Arc::new(counts))
    }

    async fn count_group(&self, snapshot: &Snapshot, group: &RowGroup, rows: Arc<Rows>) -> Result<u64, StreamError> {
        let mut reader = scan::open(snapshot, group, &rows.projection, 0, &self.cpu, &self.budget).await?;
        let mut sum = 0;
        loop {
            let counting = Arc::clone(&rows);
            let step = move || {
                let counted = match reader.next_chunk() {
                    Ok(Some(chunk)) => counting.count(&chunk).map(Some),
                    Ok(None) => Ok(None),
                    Err(source) => Err(source.into()),
                };
                (reader, counted)
            };
            let counted;
            (reader, counted) = decode(&self.cpu, snapshot, group, rows.projection.schema(), step).await?;
            match counted? {
                Some(count) => sum += count,
                None => return Ok(sum),
            }
        }
    }

    /// What reads these columns, and which row groups statistics leave room in; on the CPU pool, whose stacks are made
    /// for deep expressions.
    pub(crate) async fn rows_and_groups(
        &self,
        snapshot: &Arc<Snapshot>,
        expressions: &Arc<Expressions>,
        columns: Vec<String>,
    ) -> Result<(Arc<Rows>, Vec<bool>), StreamError> {
        let (snapshot, expressions) = (Arc::clone(snapshot), Arc::clone(expressions));
        let made = self.cpu.run(move || {
            let rows = Rows::new(&snapshot, &expressions, columns.iter().map(String::as_str), false)?;
            Ok((Arc::new(rows), may_pass(&snapshot, &expressions)))
        });
        made.await?
    }

    fn count_cell(&self, key: &str) -> Arc<CountCell> {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        if counts.len() >= COUNTS_KEPT_MAX && !counts.contains_key(key) {
            counts.clear();
        }
        Arc::clone(counts.entry(key.to_owned()).or_default())
    }

    fn kept_counts(&self, key: &str, groups: &[RowGroup]) -> Option<Arc<Vec<u64>>> {
        // A file that cannot be read or does not fit is counted anew.
        let bytes = self.state.read(Kind::RowCounts, key).ok()??;
        let Kept { counts: stored, digest } = serde_json::from_slice(&bytes).ok()?;
        if digest != counts_digest(key, &stored) {
            return None;
        }
        let fits = |(count, group): (&u64, &RowGroup)| *count <= group.rows.end - group.rows.start;
        let valid = stored.len() == groups.len() && stored.iter().zip(groups).all(fits);
        valid.then(|| Arc::new(stored))
    }

    fn keep_counts(&self, key: &str, counts: &[u64]) {
        let kept = Kept { digest: counts_digest(key, counts), counts: counts.to_vec() };
        // A list of numbers and a text always have a JSON form.
        let bytes = serde_json::to_vec(&kept).unwrap_or_default();
        if let Err(error) = self.state.write(Kind::RowCounts, key, &bytes) {
            tracing::warn!(%error, "row counts are not kept; they are counted again after a restart");
        }
    }
}

fn counts_digest(key: &str, counts: &[u64]) -> String {
    let bytes: Vec<u8> = counts.iter().flat_map(|count| count.to_le_bytes()).collect();
    short_digest(&[key.as_bytes(), &bytes])
}

/// For each row group, whether statistics leave room for a passing row.
fn may_pass(snapshot: &Snapshot, expressions: &Expressions) -> Vec<bool> {
    match &expressions.filter {
        Some(filter) => filter.may_pass(snapshot.wide_schema(), &scan::statistics(snapshot, filter.columns())),
        None => vec![true; snapshot.row_groups().len()],
    }
}

fn count_key(snapshot: &Snapshot, filter_text: &str) -> String {
    format!("{}-{}", snapshot.digest(), short_digest(&[filter_text.as_bytes()]))
}
