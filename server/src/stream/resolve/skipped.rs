//! Rows that a plan leaves out because their image cannot be decoded: found once for a snapshot, the rows that pass and the
//! images, then kept in memory and under `--state` like counts of passing rows.
//!
//! To find them, every image is decoded once. Afterwards the rows do not exist for the plan: like those that a filter drops,
//! they have no place in the order.

use std::sync::Arc;

use futures::{StreamExt, TryStreamExt};

use super::{
    compiled::Compiled,
    count::{COUNTED_AT_ONCE, COUNTS_KEPT_MAX, count_key, may_pass},
    functions::place_of,
    recent::SharedResults,
    rows::Rows,
};
use crate::{
    catalog::Snapshot,
    metrics::{self, StageTimes},
    scan,
    state::{Kind, State, short_digest},
    stream::{decode::decode, environment::Environment, error::StreamError},
};

/// Changes when other bytes may be an image than before.
const VERSION: &[u8] = b"forebay skipped images 1";

/// Results in memory; further ones are read from the state directory again.
const RESULTS_CACHED_MAX: usize = 64;

/// The rows that a plan leaves out, and the others.
#[derive(Debug, serde::Deserialize, serde::Serialize)]
pub(super) struct SkippedRows {
    /// The rows that stay, of each row group.
    pub passing: Vec<u64>,
    /// The ones that do not, by their index in the snapshot, rising.
    pub skipped: Vec<u64>,
}

/// Results in the state directory. The digest detects damage, which would silently shift every row.
#[derive(Debug, serde::Deserialize, serde::Serialize)]
struct Stored {
    rows: SkippedRows,
    digest: String,
}

/// Results by snapshot, rows and images.
#[derive(Debug)]
pub(crate) struct SkippedImages(SharedResults<Arc<SkippedRows>>);

impl Default for SkippedImages {
    fn default() -> Self {
        Self(SharedResults::new(RESULTS_CACHED_MAX))
    }
}

// === impl SkippedImages ===

impl SkippedImages {
    /// The rows that a plan leaves out; none if it leaves none out for their images. Concurrent ranks share one search.
    pub(super) async fn find(
        &self,
        environment: &Arc<Environment>,
        snapshot: &Arc<Snapshot>,
        compiled: &Compiled,
    ) -> Result<Option<Arc<SkippedRows>>, StreamError> {
        let names: Vec<String> = compiled.rows.skipping().map(|column| column.field.name().clone()).collect();
        if names.is_empty() {
            return Ok(None);
        }
        let rows = count_key(snapshot, &compiled.filter, &compiled.expressions);
        let parts: Vec<&[u8]> =
            [VERSION, rows.as_bytes()].into_iter().chain(names.iter().map(String::as_bytes)).collect();
        let key = format!("{}-{}", snapshot.state(), short_digest(&parts));
        let search = async || {
            if let Some(stored) = load(&environment.state, &key, snapshot).await {
                return Ok(Arc::new(stored));
            }
            let found = search(environment, snapshot, compiled, &names).await?;
            metrics::image_errors("skip", found.skipped.len() as u64);
            tracing::info!(
                dataset = snapshot.dataset(),
                rows = found.skipped.len(),
                "skipping rows whose images cannot be decoded"
            );
            store(&environment.state, &key, &found).await;
            Ok(Arc::new(found))
        };
        self.0.of(&key).get_or_try_init(search).await.map(|found| Some(Arc::clone(found)))
    }
}

/// Decodes the images of every row group.
async fn search(
    environment: &Arc<Environment>,
    snapshot: &Arc<Snapshot>,
    compiled: &Compiled,
    names: &[String],
) -> Result<SkippedRows, StreamError> {
    let (of_job, expressions, columns) = (Arc::clone(snapshot), Arc::clone(&compiled.expressions), names.to_vec());
    let prepared = environment.cpu.run(move || {
        let rows = Rows::new(&of_job, &expressions, columns.iter().map(String::as_str), false)?;
        Ok::<_, StreamError>((Arc::new(rows), may_pass(&of_job, &expressions)))
    });
    let (rows, may_pass) = prepared.await??;
    let groups = futures::stream::iter(may_pass.into_iter().enumerate().map(|(index, may_pass)| {
        let rows = &rows;
        async move {
            if !may_pass {
                return Ok((0, Vec::new()));
            }
            search_row_group(environment, snapshot, rows, index).await
        }
    }));
    let found: Vec<(u64, Vec<u64>)> = groups.buffered(COUNTED_AT_ONCE).try_collect().await?;
    let (passing, skipped): (Vec<u64>, Vec<Vec<u64>>) = found.into_iter().unzip();
    Ok(SkippedRows { passing, skipped: skipped.concat() })
}

/// The rows of a row group that stay, and those that do not.
async fn search_row_group(
    environment: &Arc<Environment>,
    snapshot: &Arc<Snapshot>,
    rows: &Arc<Rows>,
    index: usize,
) -> Result<(u64, Vec<u64>), StreamError> {
    let Environment { cpu, budget, .. } = environment.as_ref();
    let row_group = &snapshot.row_groups()[index];
    let mut reader = scan::open(snapshot, row_group, &rows.projection, cpu, budget).await?;
    let (mut passing, mut skipped, mut next_row) = (0, Vec::new(), row_group.rows.start);
    let place = place_of(snapshot, row_group);
    loop {
        let reading = Arc::clone(rows);
        let step = move || {
            let next = reading.next(&mut reader, next_row, &mut StageTimes::default());
            (reader, next)
        };
        let next;
        (reader, next) = decode(cpu, snapshot, row_group, rows.projection.schema(), step).await?;
        let Some(next) = next? else { break };
        next_row += next.stored;
        passing += next.passing.rows.num_rows() as u64;
        for column in rows.skipping() {
            skipped.extend(column.undecodable(&next.passing, budget, &place).await?);
        }
    }
    // A row may have several images.
    skipped.sort_unstable();
    skipped.dedup();
    Ok((passing - skipped.len() as u64, skipped))
}

/// Reads a stored result; none where it is missing, damaged or of other row groups, so that it is found again.
async fn load(state: &State, key: &str, snapshot: &Snapshot) -> Option<SkippedRows> {
    let bytes = state.read(Kind::RowCounts, key).await.ok()??;
    state.mark_used(Kind::RowCounts, key).await;
    let Stored { rows, digest } = serde_json::from_slice(&bytes).ok()?;
    let is_valid = digest == digest_of(key, &rows) && rows.passing.len() == snapshot.row_groups().len();
    is_valid.then_some(rows)
}

async fn store(state: &State, key: &str, rows: &SkippedRows) {
    let SkippedRows { passing, skipped } = rows;
    let rows = SkippedRows { passing: passing.clone(), skipped: skipped.clone() };
    let stored = Stored { digest: digest_of(key, &rows), rows };
    // Numbers and a string always have a JSON form.
    let bytes = serde_json::to_vec(&stored).unwrap_or_default();
    if let Err(error) = state.write(Kind::RowCounts, key, bytes).await {
        tracing::warn!(%error, "cannot store the rows without images; a restart finds them again");
    }
    state.trim(Kind::RowCounts, COUNTS_KEPT_MAX).await;
}

fn digest_of(key: &str, rows: &SkippedRows) -> String {
    let numbers = [rows.passing.as_slice(), &[u64::MAX], &rows.skipped].concat();
    let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    short_digest(&[key.as_bytes(), &bytes])
}
