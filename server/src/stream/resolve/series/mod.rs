//! The series of a request with windows: where each ends among the rows that pass. Found once for a snapshot, its rows and the
//! columns of the series, then kept in memory and under `--state` like counts of passing rows.

mod columns;
mod runs;

use std::{collections::HashSet, sync::Arc};

use futures::StreamExt;
use prost::Message;

use super::{
    count::{COUNTED_AT_ONCE, COUNTS_KEPT_MAX, count_key, rows_and_groups},
    expressions::Expressions,
    recent::SharedResults,
    rows::Rows,
};
use crate::{
    budget::{Budget, Reservation},
    catalog::{RowGroup, Snapshot},
    plan::PlanError,
    scan,
    state::{Kind, short_digest},
    stream::{decode::decode, environment::Environment, error::StreamError, kept},
};
use columns::Edge;
pub(crate) use columns::SeriesColumns;
use runs::{Runs, SERIES_BYTES};

/// Changes when the same columns may make other series.
const VERSION: &[u8] = b"forebay series 1";

/// Results in memory; further ones are read from the state directory again.
const RESULTS_CACHED_MAX: usize = 8;

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
pub(crate) struct SeriesTables(SharedResults<Arc<Series>>);

/// Series as they are stored.
#[derive(Clone, PartialEq, Message)]
struct StoredSeries {
    #[prost(uint64, repeated, tag = "1")]
    ends: Vec<u64>,
    #[prost(uint64, repeated, tag = "2")]
    row_group_ends: Vec<u64>,
}

impl Default for SeriesTables {
    fn default() -> Self {
        Self(SharedResults::new(RESULTS_CACHED_MAX))
    }
}

impl SeriesTables {
    /// The series among the rows that pass. Concurrent ranks share one search.
    pub(super) async fn find(
        &self,
        environment: &Arc<Environment>,
        snapshot: &Arc<Snapshot>,
        (filter, expressions): (&str, &Arc<Expressions>),
        columns: &Arc<SeriesColumns>,
    ) -> Result<Arc<Series>, StreamError> {
        let rows = count_key(snapshot, filter, expressions);
        let names = columns.by.iter().chain([&columns.order]);
        let names: Vec<String> = names.map(|name| format!("{} {name}\n", name.len())).collect();
        let mut parts: Vec<&[u8]> = vec![VERSION, rows.as_bytes(), b"\n"];
        parts.extend(names.iter().map(String::as_bytes));
        parts.push(&columns.source);
        let key = format!("{}-{}", snapshot.state(), short_digest(&parts));
        let find = async || {
            let budget = &environment.budget;
            let stored = kept::load(&environment.state, Kind::RowCounts, &key).await;
            if let Some(series) = stored.and_then(|bytes| Series::decode(&bytes, snapshot.row_groups(), budget)) {
                return Ok(Arc::new(series));
            }
            let series = Box::pin(search(environment, snapshot, expressions, columns)).await?;
            kept::store(&environment.state, Kind::RowCounts, &key, &series.encode(), COUNTS_KEPT_MAX).await;
            Ok(Arc::new(series))
        };
        self.0.of(&key).get_or_try_init(find).await.map(Arc::clone)
    }
}

// === impl Series ===

impl Series {
    fn new(ends: Vec<u64>, row_group_ends: Vec<u64>, budget: &Budget) -> Result<Self, StreamError> {
        let memory = budget.reserve(((ends.len() + row_group_ends.len()) * size_of::<u64>()) as u64)?;
        Ok(Self { ends, row_group_ends, _memory: memory })
    }

    /// None if the bytes are of other row groups.
    fn decode(bytes: &[u8], row_groups: &[RowGroup], budget: &Budget) -> Option<Self> {
        let StoredSeries { ends, row_group_ends } = StoredSeries::decode(bytes).ok()?;
        let is_valid = row_group_ends.len() == row_groups.len()
            && row_group_ends.is_sorted()
            && ends.is_sorted()
            && ends.last().copied().unwrap_or(0) == row_group_ends.last().copied().unwrap_or(0);
        if is_valid { Self::new(ends, row_group_ends, budget).ok() } else { None }
    }

    fn encode(&self) -> Vec<u8> {
        StoredSeries { ends: self.ends.clone(), row_group_ends: self.row_group_ends.clone() }.encode_to_vec()
    }
}

/// Reads the columns of all rows that pass.
async fn search(
    environment: &Arc<Environment>,
    snapshot: &Arc<Snapshot>,
    expressions: &Arc<Expressions>,
    columns: &Arc<SeriesColumns>,
) -> Result<Series, StreamError> {
    let names = columns.by.iter().chain([&columns.order]).cloned().collect();
    let (rows, may_pass) = rows_and_groups(environment, snapshot, expressions, names).await?;
    if rows.has_functions() {
        let reason =
            "series cannot be distinguished by columns that functions compute: use stored, joined or derived ones";
        return Err(PlanError::field("window.by", reason).into());
    }
    let found = futures::stream::iter(may_pass.into_iter().enumerate().map(|(index, may_pass)| {
        let (rows, columns) = (Arc::clone(&rows), Arc::clone(columns));
        async move {
            let runs = Runs::new(columns, &environment.budget);
            if !may_pass {
                return Ok(runs);
            }
            search_row_group(environment, snapshot, &snapshot.row_groups()[index], rows, runs).await
        }
    }));
    let mut found = std::pin::pin!(found.buffered(COUNTED_AT_ONCE));
    let (mut ends, mut row_group_ends, mut rows) = (Vec::new(), Vec::new(), 0);
    let (mut seen, mut last): (HashSet<u128>, Option<Edge>) = (HashSet::new(), None);
    let mut memory = environment.budget.empty();
    while let Some(runs) = found.next().await {
        let runs: Runs = runs?;
        memory.try_resize(memory.bytes() + runs.starts.len() as u64 * SERIES_BYTES)?;
        let continues = columns.continues(last.as_ref(), runs.first.as_ref())?;
        for start in runs.starts.iter().skip(usize::from(continues)) {
            if !seen.insert(start.hash) {
                return Err(columns.unsorted(start.row).into());
            }
            // The first series begins at row 0.
            if rows + start.place > 0 {
                ends.push(rows + start.place);
            }
        }
        rows += runs.rows;
        row_group_ends.push(rows);
        last = runs.last.or(last);
    }
    if rows > 0 {
        ends.push(rows);
    }
    Series::new(ends, row_group_ends, &environment.budget)
}

async fn search_row_group(
    environment: &Environment,
    snapshot: &Snapshot,
    row_group: &RowGroup,
    rows: Arc<Rows>,
    mut runs: Runs,
) -> Result<Runs, StreamError> {
    let Environment { cpu, budget, .. } = environment;
    let mut reader = scan::open(snapshot, row_group, &rows.projection, cpu, budget).await?;
    let mut next_row = row_group.rows.start;
    loop {
        let searching = Arc::clone(&rows);
        let step = move || {
            let added = match reader.next_chunk() {
                Ok(Some(chunk)) => searching
                    .apply(&chunk, next_row, reader.budget())
                    .and_then(|passing| runs.add(&passing))
                    .map(|()| Some(chunk.num_rows())),
                Ok(None) => Ok(None),
                Err(source) => Err(source.into()),
            };
            (reader, runs, added)
        };
        let added;
        (reader, runs, added) = decode(cpu, snapshot, row_group, rows.projection.schema(), step).await?;
        match added? {
            Some(row_count) => next_row += row_count as u64,
            None => return Ok(runs),
        }
    }
}
