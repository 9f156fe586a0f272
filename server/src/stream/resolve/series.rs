//! The series of a request with windows: where each ends among the rows that pass. Found once for a snapshot, its rows and the
//! columns of the series, then kept in memory and under `--state` like counts of passing rows.

use std::{collections::HashSet, iter, sync::Arc};

use arrow::{
    array::{Array, ArrayRef, AsArray, UInt32Array},
    buffer::BooleanBuffer,
    compute::{
        cast,
        kernels::cmp::{distinct, lt},
        take,
    },
    datatypes::{DataType, Float16Type, Float32Type, Float64Type, Schema},
    row::{RowConverter, SortField},
};
use futures::StreamExt;
use prost::Message;
use xxhash_rust::xxh3::xxh3_128;

use super::{
    compiled::Compiled,
    count::{COUNTED_AT_ONCE, COUNTS_KEPT_MAX, count_key, rows_and_groups},
    passing::Passing,
    recent::SharedResults,
    rows::Rows,
};
use crate::{
    budget::{Budget, Reservation},
    catalog::{RowGroup, Snapshot},
    error::near_names,
    plan::{PlanError, Windows},
    scan,
    state::{Kind, short_digest},
    stream::{decode::decode, describe::type_name, environment::Environment, error::StreamError, kept},
};

/// Changes when the same columns may make other series.
const VERSION: &[u8] = b"forebay series 1";

/// Results in memory; further ones are read from the state directory again.
const RESULTS_CACHED_MAX: usize = 8;

/// Bytes of a series while its end is found: the end itself, and the hash of its values in a set.
const SERIES_BYTES: u64 = (size_of::<u64>() + 3 * size_of::<u128>()) as u64;

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

/// The columns of the series, and what decides their values other than the snapshot.
#[derive(Debug)]
struct SeriesColumns {
    by: Vec<String>,
    order: String,
    source: Vec<u8>,
}

/// The runs of a row group: rows of the same series that follow each other.
#[derive(Debug)]
struct Runs {
    columns: Arc<SeriesColumns>,
    rows: u64,
    /// The first row of each run, counted in the row group, its index in the snapshot, and the hash of its values.
    starts: Vec<(u64, u64, u128)>,
    first: Option<Edge>,
    last: Option<Edge>,
    memory: Reservation,
}

/// A row at an edge of a chunk: the values of its series and of the order, as bytes that compare like them.
#[derive(Clone, Debug)]
struct Edge {
    key: Vec<u8>,
    order: Vec<u8>,
    /// The row's index in the snapshot.
    row: u64,
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
        compiled: &Compiled,
        windows: &Windows,
    ) -> Result<Arc<Series>, StreamError> {
        let columns = SeriesColumns::check(windows, snapshot, compiled)?;
        let rows = count_key(snapshot, &compiled.filter, &compiled.expressions);
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
            let series = Box::pin(search(environment, snapshot, compiled, Arc::new(columns))).await?;
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

// === impl SeriesColumns ===

impl SeriesColumns {
    fn check(windows: &Windows, snapshot: &Snapshot, compiled: &Compiled) -> Result<Self, PlanError> {
        let schema = &compiled.expressions.schema;
        for (index, column) in windows.by.iter().enumerate() {
            check_column(&format!("window.by[{index}]"), column, schema, |data_type| {
                matches!(data_type, DataType::Boolean) || is_ordered(data_type) || is_bytes(data_type)
            })?;
        }
        check_column("window.order", &windows.order, schema, is_ordered)?;
        let names = windows.by.iter().chain([&windows.order]);
        let are_stored = names.clone().all(|name| snapshot.wide_schema().index_of(name).is_ok());
        let source = if are_stored { Vec::new() } else { compiled.computed_source() };
        Ok(Self { by: windows.by.clone(), order: windows.order.clone(), source })
    }
}

fn check_column(
    path: &str,
    column: &str,
    schema: &Schema,
    is_accepted: impl Fn(&DataType) -> bool,
) -> Result<(), PlanError> {
    let Ok(field) = schema.field_with_name(column) else {
        let near = near_names(column, schema.fields().iter().map(|field| field.name().as_str()));
        return Err(PlanError::UnknownColumn { path: path.to_owned(), column: column.to_owned(), near });
    };
    if is_accepted(plain(field.data_type())) {
        return Ok(());
    }
    let reason =
        format!("column \"{column}\" is {}: expected numbers, text, dates or times", type_name(field.data_type()));
    Err(PlanError::field(path, reason))
}

/// The type of the values of a column, which may be a dictionary.
fn plain(data_type: &DataType) -> &DataType {
    if let DataType::Dictionary(_, values) = data_type { values } else { data_type }
}

fn is_ordered(data_type: &DataType) -> bool {
    let is_span = matches!(data_type, DataType::Duration(_) | DataType::Interval(_));
    (data_type.is_numeric() || data_type.is_temporal() || is_text(data_type)) && !is_span
}

fn is_text(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
}

fn is_bytes(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Binary | DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_))
}

/// Reads the columns of all rows that pass.
async fn search(
    environment: &Arc<Environment>,
    snapshot: &Arc<Snapshot>,
    compiled: &Compiled,
    columns: Arc<SeriesColumns>,
) -> Result<Series, StreamError> {
    let names = columns.by.iter().chain([&columns.order]).cloned().collect();
    let (rows, may_pass) = rows_and_groups(environment, snapshot, &compiled.expressions, names).await?;
    if rows.has_functions() {
        let reason =
            "series cannot be distinguished by columns that functions compute: use stored, joined or derived ones";
        return Err(PlanError::field("window.by", reason).into());
    }
    let found = futures::stream::iter(may_pass.into_iter().enumerate().map(|(index, may_pass)| {
        let (rows, columns) = (Arc::clone(&rows), Arc::clone(&columns));
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
        let continues = match (&last, &runs.first) {
            (Some(last), Some(first)) if last.key == first.key => {
                columns.check_rising(last, first)?;
                true
            }
            _ => false,
        };
        for (number, (start, row, hash)) in runs.starts.iter().enumerate() {
            if number == 0 && continues {
                continue;
            }
            if !seen.insert(*hash) {
                return Err(columns.unsorted(*row).into());
            }
            // The first series begins at row 0.
            if rows + start > 0 {
                ends.push(rows + start);
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

// === impl Runs ===

impl Runs {
    fn new(columns: Arc<SeriesColumns>, budget: &Budget) -> Self {
        Self { columns, rows: 0, starts: Vec::new(), first: None, last: None, memory: budget.empty() }
    }

    /// Adds the passing rows of the next chunk.
    fn add(&mut self, passing: &Passing) -> Result<(), StreamError> {
        let count = passing.rows.num_rows();
        if count == 0 {
            return Ok(());
        }
        // The rows were made for these columns.
        let of = |name: &String| passing.rows.column_by_name(name).cloned();
        let by: Vec<ArrayRef> = self.columns.by.iter().filter_map(of).collect();
        let order: Vec<ArrayRef> = [&self.columns.order].into_iter().filter_map(of).collect();
        let stored_row = |row: usize| passing.stored_row(row) as u64;
        for order in &order {
            if let Some(row) = unordered(order) {
                let reason = format!("row {}: \"{}\" is null or NaN there", stored_row(row), self.columns.order);
                return Err(PlanError::field("window.order", reason).into());
            }
        }
        let changes = changes(&by, count - 1)?;
        for order in &order {
            let (earlier, later) = neighbours(order);
            let is_right = &changes | lt(&earlier, &later)?.values();
            if let Some(pair) = (!&is_right).set_indices().next() {
                let row = pair + 1;
                let is_equal = !distinct(&order.slice(row - 1, 1), &order.slice(row, 1))?.value(0);
                return Err(self.columns.not_rising(stored_row(row), is_equal).into());
            }
        }
        // The first row always begins a run of its chunk, so that there is a key.
        let starts: Vec<usize> = iter::once(0).chain(changes.set_indices().map(|pair| pair + 1)).collect();
        self.memory.try_resize(self.memory.bytes() + starts.len() as u64 * SERIES_BYTES)?;
        let keys = comparable(&by, &starts)?;
        let edges = comparable(&order, &[0, count - 1])?;
        let edge =
            |key: &[u8], order: &[u8], row| Edge { key: key.to_vec(), order: order.to_vec(), row: stored_row(row) };
        let (first_key, last_key) = (keys[0].as_slice(), keys[keys.len() - 1].as_slice());
        let first = edge(first_key, &edges[0], 0);
        let continues = match &self.last {
            Some(last) if last.key == first.key => {
                self.columns.check_rising(last, &first)?;
                true
            }
            _ => false,
        };
        for (key, start) in keys.iter().zip(&starts).skip(usize::from(continues)) {
            self.starts.push((self.rows + *start as u64, stored_row(*start), xxh3_128(key)));
        }
        self.rows += count as u64;
        self.last = Some(edge(last_key, &edges[1], count - 1));
        self.first.get_or_insert(first);
        Ok(())
    }
}

impl SeriesColumns {
    fn check_rising(&self, earlier: &Edge, later: &Edge) -> Result<(), PlanError> {
        if earlier.order < later.order {
            return Ok(());
        }
        Err(self.not_rising(later.row, earlier.order == later.order))
    }

    fn not_rising(&self, row: u64, is_equal: bool) -> PlanError {
        let (order, by) = (&self.order, self.by.join(", "));
        let series = if by.is_empty() { String::new() } else { format!(" of its series ({by})") };
        let found = if is_equal { "is that of" } else { "is before that of" };
        let reason = format!(
            "row {row}: its \"{order}\" {found} the row before it{series}, and windows need strictly rising rows: {}",
            if is_equal { "remove duplicates" } else { "sort the dataset" }
        );
        PlanError::field("window.order", reason)
    }

    fn unsorted(&self, row: u64) -> PlanError {
        let (order, by) = (&self.order, self.by.join(", "));
        let reason = format!(
            "row {row}: rows of its series ({by}) ended before, and windows need the rows of a series together: sort the dataset \
             by {by}, {order}"
        );
        PlanError::field("window.by", reason)
    }
}

/// Which of a chunk's rows after the first are of another series than the row before.
fn changes(by: &[ArrayRef], pairs: usize) -> Result<BooleanBuffer, StreamError> {
    by.iter().try_fold(BooleanBuffer::new_unset(pairs), |changes, column| {
        let (earlier, later) = neighbours(column);
        Ok(&changes | distinct(&earlier, &later)?.values())
    })
}

/// A column without its last row, and without its first.
fn neighbours(column: &ArrayRef) -> (ArrayRef, ArrayRef) {
    let pairs = column.len().saturating_sub(1);
    (column.slice(0, pairs), column.slice(column.len() - pairs, pairs))
}

/// The first row whose value has no place in an order.
fn unordered(column: &ArrayRef) -> Option<usize> {
    if let Some(nulls) = column.logical_nulls().filter(|nulls| nulls.null_count() > 0) {
        return (0..nulls.len()).find(|row| nulls.is_null(*row));
    }
    match column.data_type() {
        DataType::Float16 => column.as_primitive::<Float16Type>().values().iter().position(|value| value.is_nan()),
        DataType::Float32 => column.as_primitive::<Float32Type>().values().iter().position(|value| value.is_nan()),
        DataType::Float64 => column.as_primitive::<Float64Type>().values().iter().position(|value| value.is_nan()),
        DataType::Dictionary(_, values) if values.is_floating() => {
            cast(column, values).ok().and_then(|plain| unordered(&plain))
        }
        _ => None,
    }
}

/// The values of some rows as bytes that compare like them; empty without columns.
fn comparable(columns: &[ArrayRef], rows: &[usize]) -> Result<Vec<Vec<u8>>, StreamError> {
    let rows = UInt32Array::from_iter_values(rows.iter().map(|row| *row as u32));
    if columns.is_empty() {
        return Ok(vec![Vec::new(); rows.len()]);
    }
    let values = columns.iter().map(|column| cast(&take(column, &rows, None)?, plain(column.data_type())));
    let values = values.collect::<Result<Vec<_>, _>>()?;
    let fields = values.iter().map(|values| SortField::new(values.data_type().clone())).collect();
    let found = RowConverter::new(fields)?.convert_columns(&values)?;
    Ok(found.iter().map(|row| row.as_ref().to_vec()).collect())
}
