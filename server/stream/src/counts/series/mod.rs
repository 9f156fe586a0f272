//! The series of a request with windows: where each ends among the rows that pass. Found once for a snapshot, its rows and the
//! columns of the series, then kept in memory and under `--state` like counts of passing rows.

mod columns;
mod history;
mod runs;

use std::{collections::HashSet, sync::Arc};

use forebay_catalog::Snapshot;
use forebay_runtime::{
    budget::{Budget, Reservation},
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
    rows::{pass::each, passing::Passing},
};
use columns::Edge;
pub(crate) use columns::SeriesColumns;
pub(crate) use history::HistorySeries;
use runs::{Runs, SERIES_BYTES};

/// Changes when the same columns may make other series.
const VERSION: &[u8] = b"forebay series 1";

/// Results in memory; further ones are read from the state directory again.
const CACHED_MAX: usize = 8;

/// The series among the rows that pass.
#[derive(Debug)]
pub(crate) struct Series {
    /// The end of each series, among all rows that pass.
    pub ends: Vec<u64>,
    /// The end of each row group among them.
    pub row_group_ends: Vec<u64>,
    _memory: Reservation,
}

/// Series by snapshot, rows and columns.
#[derive(Debug)]
pub(crate) struct SeriesTables(Results<Series>);

/// Series as they are stored.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct StoredSeries {
    #[prost(uint64, repeated, tag = "1")]
    ends: Vec<u64>,
    #[prost(uint64, repeated, tag = "2")]
    row_group_ends: Vec<u64>,
}

impl Default for SeriesTables {
    fn default() -> Self {
        Self(Results::new(Kind::RowCounts, CACHED_MAX, KEPT_MAX))
    }
}

impl SeriesTables {
    /// The series among the rows that pass. Concurrent ranks share one search.
    pub(crate) async fn find(
        &self,
        rows: FilteredRows<'_>,
        columns: &Arc<SeriesColumns>,
    ) -> Result<Arc<Series>, StreamError> {
        let names = columns.by.iter().chain([&columns.order]).map(String::as_bytes);
        let parts: Vec<&[u8]> = [VERSION].into_iter().chain(names).chain([columns.source.as_slice()]).collect();
        let context = (Arc::clone(rows.snapshot), rows.environment.budget.clone());
        let search = async || Box::pin(search(rows, columns)).await;
        self.0.get(rows.environment, &rows.key_of(&parts), context, search).await
    }
}

// === impl Series ===

impl Series {
    fn new(ends: Vec<u64>, row_group_ends: Vec<u64>, budget: &Budget) -> Result<Self, StreamError> {
        let memory = budget.reserve(((ends.len() + row_group_ends.len()) * size_of::<u64>()) as u64)?;
        Ok(Self { ends, row_group_ends, _memory: memory })
    }
}

impl Storable for Series {
    type Stored = StoredSeries;
    type Context = (Arc<Snapshot>, Budget);

    fn store(&self, _: &Self::Context) -> StoredSeries {
        StoredSeries { ends: self.ends.clone(), row_group_ends: self.row_group_ends.clone() }
    }

    fn restore(stored: StoredSeries, (snapshot, budget): &Self::Context) -> Option<Self> {
        let StoredSeries { ends, row_group_ends } = stored;
        let is_valid = row_group_ends.len() == snapshot.row_groups().len()
            && row_group_ends.is_sorted()
            && ends.is_sorted()
            && ends.last().copied().unwrap_or(0) == row_group_ends.last().copied().unwrap_or(0);
        if is_valid { Self::new(ends, row_group_ends, budget).ok() } else { None }
    }
}

/// Fails unless the rows of each series follow each other in their order, in rows that a client sent.
pub(crate) fn check_rows(rows: &Passing, columns: &Arc<SeriesColumns>, budget: &Budget) -> Result<(), StreamError> {
    let (mut runs, mut seen) = (Runs::new(Arc::clone(columns), budget), HashSet::new());
    runs.push(rows)?;
    match runs.starts.iter().find(|start| !seen.insert(start.hash)) {
        Some(again) => Err(columns.unsorted(again.row).into()),
        None => Ok(()),
    }
}

/// Reads the columns of all rows that pass.
async fn search(rows: FilteredRows<'_>, columns: &Arc<SeriesColumns>) -> Result<Series, StreamError> {
    let budget = &rows.environment.budget;
    let (scan, row_groups) = rows.scan(columns.by.iter().chain([&columns.order]).cloned().collect()).await?;
    if !scan.rows.functions().is_empty() {
        return Err(columns.of_functions().into());
    }
    let runs = |_| Runs::new(Arc::clone(columns), budget);
    let mut found = std::pin::pin!(each(&scan, row_groups, COUNTED_AT_ONCE, runs));
    let (mut ends, mut passing, mut row_count) = (Vec::new(), vec![0; rows.snapshot.row_groups().len()], 0);
    let (mut seen, mut last): (HashSet<u128>, Option<Edge>) = (HashSet::new(), None);
    let mut memory = budget.empty();
    while let Some((row_group, runs)) = found.try_next().await? {
        memory.try_resize(memory.bytes() + runs.starts.len() as u64 * SERIES_BYTES)?;
        let continues = columns.continues(last.as_ref(), runs.first.as_ref())?;
        for start in runs.starts.iter().skip(usize::from(continues)) {
            if !seen.insert(start.hash) {
                return Err(columns.unsorted(start.row).into());
            }
            // The first series begins at row 0.
            if row_count + start.place > 0 {
                ends.push(row_count + start.place);
            }
        }
        row_count += runs.rows;
        passing[row_group] = runs.rows;
        last = runs.last.or(last);
    }
    if row_count > 0 {
        ends.push(row_count);
    }
    let row_group_ends = passing.iter().scan(0, |end, rows| {
        *end += rows;
        Some(*end)
    });
    Series::new(ends, row_group_ends.collect(), budget)
}
