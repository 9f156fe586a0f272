//! Rows that a plan leaves out because their image cannot be decoded: found once for a snapshot, the rows that pass and the
//! images.
//!
//! To find them, every image is decoded once. Afterwards the rows do not exist for the plan: like those that a filter drops,
//! they have no place in the order.

use std::{ops::ControlFlow, sync::Arc};

use forebay_catalog::Snapshot;
use forebay_runtime::{
    budget::Budget,
    metrics::{self, StageTimes},
    state::Kind,
};
use futures::TryStreamExt;
use prost::Message;

use super::{
    filtered_rows::{COUNTED_AT_ONCE, FilteredRows},
    passing::KEPT_MAX,
    store::{Results, Storable},
};
use crate::{
    error::StreamError,
    rows::{
        drive::RowSink, function_column::FunctionColumn, pass::each, passing::Passing, prefilter::NextRows,
        scan::RowScan, selection::Rows,
    },
};

/// Changes when other bytes may be an image than before.
const VERSION: &[u8] = b"forebay skipped images 1";

/// Results in memory; further ones are read from the state directory again.
const CACHED_MAX: usize = 64;

/// The rows that a plan leaves out, and the others.
#[derive(Debug)]
pub(crate) struct SkippedRows {
    /// The rows that stay, of each row group.
    pub passing: Arc<Vec<u64>>,
    /// The ones that do not, by their index in the snapshot, rising.
    pub skipped: Arc<Vec<u64>>,
}

/// Results by snapshot, rows and images.
#[derive(Debug)]
pub(crate) struct SkippedImages(Results<SkippedRows>);

#[derive(Clone, PartialEq, Message)]
pub(crate) struct StoredSkipped {
    #[prost(uint64, repeated, tag = "1")]
    passing: Vec<u64>,
    #[prost(uint64, repeated, tag = "2")]
    skipped: Vec<u64>,
}

/// Decodes the images of passing rows.
struct ImageSearch {
    columns: Arc<Vec<FunctionColumn>>,
    budget: Budget,
    /// The place of the rows in errors.
    place: String,
    passing: u64,
    skipped: Vec<u64>,
}

impl Default for SkippedImages {
    fn default() -> Self {
        Self(Results::new(Kind::RowCounts, CACHED_MAX, KEPT_MAX))
    }
}

// === impl SkippedImages ===

impl SkippedImages {
    /// The rows that a plan leaves out; none if it leaves none out for their images. `of_plan` reads what the plan needs.
    pub(crate) async fn find(
        &self,
        rows: FilteredRows<'_>,
        of_plan: &Rows,
    ) -> Result<Option<Arc<SkippedRows>>, StreamError> {
        let columns: Vec<FunctionColumn> = of_plan.skipping().cloned().collect();
        if columns.is_empty() {
            return Ok(None);
        }
        let names = columns.iter().map(|column| column.field.name().as_bytes());
        let key = rows.key_of(&[VERSION].into_iter().chain(names).collect::<Vec<_>>());
        let search = async || {
            let found = search(rows, columns).await?;
            metrics::image_errors("skip", found.skipped.len() as u64);
            tracing::info!(
                dataset = rows.snapshot.dataset(),
                rows = found.skipped.len(),
                "skipping rows whose images cannot be decoded"
            );
            Ok(found)
        };
        self.0.get(rows.environment, &key, Arc::clone(rows.snapshot), search).await.map(Some)
    }
}

/// Decodes the images of every row group.
async fn search(rows: FilteredRows<'_>, columns: Vec<FunctionColumn>) -> Result<SkippedRows, StreamError> {
    let names = columns.iter().map(|column| column.field.name().clone()).collect();
    let (scan, row_groups) = rows.scan(names).await?;
    // The images are decoded by the sink.
    let scan = RowScan { rows: Arc::new(scan.rows.without_functions()), ..scan };
    let columns = Arc::new(columns);
    let sink = |row_group| ImageSearch {
        columns: Arc::clone(&columns),
        budget: scan.budget.clone(),
        place: scan.place(row_group),
        passing: 0,
        skipped: Vec::new(),
    };
    let (mut staying, mut found) = (vec![0; rows.snapshot.row_groups().len()], Vec::new());
    let mut searched = std::pin::pin!(each(&scan, row_groups, COUNTED_AT_ONCE, sink));
    while let Some((row_group, ImageSearch { passing, mut skipped, .. })) = searched.try_next().await? {
        // A row may have several images.
        skipped.sort_unstable();
        skipped.dedup();
        staying[row_group] = passing - skipped.len() as u64;
        found.extend(skipped);
    }
    Ok(SkippedRows { passing: Arc::new(staying), skipped: Arc::new(found) })
}

// === impl SkippedRows, ImageSearch ===

impl Storable for SkippedRows {
    type Stored = StoredSkipped;
    type Context = Arc<Snapshot>;

    fn store(&self, _: &Arc<Snapshot>) -> StoredSkipped {
        StoredSkipped { passing: self.passing.to_vec(), skipped: self.skipped.to_vec() }
    }

    fn restore(StoredSkipped { passing, skipped }: StoredSkipped, snapshot: &Arc<Snapshot>) -> Option<Self> {
        let is_valid = passing.len() == snapshot.row_groups().len();
        is_valid.then(|| Self { passing: Arc::new(passing), skipped: Arc::new(skipped) })
    }
}

impl RowSink<NextRows> for ImageSearch {
    type Output = Passing;

    fn add(&mut self, rows: NextRows, _: &mut StageTimes) -> Result<Option<Passing>, StreamError> {
        self.passing += rows.passing.rows.num_rows() as u64;
        Ok(Some(rows.passing))
    }

    async fn take(&mut self, passing: Passing, _: &mut StageTimes) -> Result<ControlFlow<()>, StreamError> {
        for column in self.columns.iter() {
            self.skipped.extend(column.undecodable(&passing, &self.budget, &self.place).await?);
        }
        Ok(ControlFlow::Continue(()))
    }
}
