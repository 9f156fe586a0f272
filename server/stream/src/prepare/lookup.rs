//! The tables of a plan's lookups: pinned to snapshots, which become part of the plan, and read into memory.

use std::{any::Any, collections::HashMap, hash::Hash, sync::Arc};

use arrow::{
    array::{Array, ArrayRef, AsArray, UInt32Array, new_empty_array},
    compute::{cast, concat, take},
    datatypes::{DataType, Float64Type, Schema},
    row::{RowConverter, SortField},
    util::display::array_value_to_string,
};
use forebay_kernels::{LookupTable, Prefix, TableKeys, TableTimes};
use forebay_plan::{Lookup, PlanError, Tables};
use forebay_proto::v1;
use forebay_runtime::{error::near_names, metrics::StageTimes};
use forebay_scan::Projection;

use super::table_columns::CountedColumn;
use crate::{
    environment::Environment,
    error::StreamError,
    rows::{drive::RowSink, pass::in_turn, prefilter::NextRows, scan::RowScan, selection::Rows},
};

/// The most uncompressed bytes of a table's column: a lookup keeps its columns in memory.
const TABLE_COLUMN_BYTES_MAX: u64 = 256 << 20;

/// Bytes per key of its place in an index: its bits, and a slot of a hash table that is at least half empty.
const KEY_INDEX_BYTES: u64 = 24;

/// The chunks of a column, in one type for all row groups, which may encode text differently.
struct TableColumn(Vec<ArrayRef>);

/// Pins the tables of a plan's lookups to snapshots, and reads them.
pub(crate) async fn with_tables(
    environment: &Environment,
    mut plan: v1::Plan,
) -> Result<(v1::Plan, Tables), StreamError> {
    let mut tables = Tables::default();
    pin_tables(environment, &mut plan).await?;
    for (path, lookup) in forebay_plan::lookups(&plan)? {
        // A dataset that the operator removed has no columns, not even in memory.
        environment.catalog.dataset(&lookup.table)?;
        let values = shared_values(environment, &path, &lookup).await?;
        let of_values = Arc::clone(&values.column);
        let (of_keys, held): (_, Arc<dyn Any + Send + Sync>) = if lookup.time.is_empty() {
            let keys = shared_keys(environment, &path, &lookup).await?;
            (Arc::clone(&keys.column), Arc::new((keys, values)))
        } else {
            let times = shared_times(environment, &path, &lookup).await?;
            tables.insert_times(&lookup, Arc::clone(&times.column));
            (Arc::clone(times.column.keys()), Arc::new((times, values)))
        };
        let (held, [table, key, column]) = (Some(held), [&lookup.table, &lookup.key, &lookup.column].map(Clone::clone));
        tables.insert(lookup, Arc::new(LookupTable { table, key, column, keys: of_keys, values: of_values, held }));
    }
    Ok((plan, tables))
}

/// The keys of a table, from a plan in use or read.
async fn shared_keys(
    environment: &Environment,
    path: &str,
    lookup: &Lookup,
) -> Result<Arc<CountedColumn<Arc<TableKeys>>>, StreamError> {
    let of = Lookup { column: lookup.key.clone(), ..lookup.clone() };
    if let Some(shared) = environment.table_columns.keys.get(&of) {
        return Ok(shared);
    }
    let path = format!("{path}.key");
    let values = table_column(environment, &path, lookup, &lookup.key).await?;
    let bytes = values.get_array_memory_size() as u64 + KEY_INDEX_BYTES * values.len() as u64;
    let memory = environment.budget.reserve_fairly(bytes).await?;
    let checked = environment.cpu.run({
        let (lookup, values) = (lookup.clone(), Arc::clone(&values));
        move || check_unique(&path, &lookup, &values)
    });
    checked.await??;
    let counted = CountedColumn::new(Arc::new(TableKeys::new(values)), memory);
    Ok(environment.table_columns.keys.share(of, counted))
}

/// The rows of a table by key and time, from a plan in use or read.
async fn shared_times(
    environment: &Environment,
    path: &str,
    lookup: &Lookup,
) -> Result<Arc<CountedColumn<Arc<TableTimes>>>, StreamError> {
    let of = Lookup { column: lookup.time.clone(), ..lookup.clone() };
    if let Some(shared) = environment.table_columns.times.get(&of) {
        return Ok(shared);
    }
    let keys = table_column(environment, &format!("{path}.key"), lookup, &lookup.key).await?;
    let path = format!("{path}.as_of.right");
    let times = table_column(environment, &path, lookup, &lookup.time).await?;
    let bytes = keys.get_array_memory_size() as u64 + (KEY_INDEX_BYTES + TableTimes::ROW_BYTES) * keys.len() as u64;
    let memory = environment.budget.reserve_fairly(bytes).await?;
    let (table, time) = (lookup.table.clone(), lookup.time.clone());
    let sorted = environment.cpu.run(move || {
        let (distinct, key_of_row) = numbered(&keys)?;
        let sorted = TableTimes::new(Arc::new(TableKeys::new(distinct)), &key_of_row, &times);
        let named = |problem| format!("column \"{time}\" of dataset \"{table}\" {problem}");
        sorted.map_err(|problem| StreamError::from(PlanError::field(path, named(problem))))
    });
    let counted = CountedColumn::new(Arc::new(sorted.await??), memory);
    Ok(environment.table_columns.times.share(of, counted))
}

/// A column of a table, from a plan in use or read.
async fn shared_values(
    environment: &Environment,
    path: &str,
    lookup: &Lookup,
) -> Result<Arc<CountedColumn<ArrayRef>>, StreamError> {
    let of = Lookup { key: String::new(), time: String::new(), ..lookup.clone() };
    if let Some(shared) = environment.table_columns.values.get(&of) {
        return Ok(shared);
    }
    let column = table_column(environment, &format!("{path}.columns"), lookup, &lookup.column).await?;
    let memory = environment.budget.reserve(column.get_array_memory_size() as u64)?;
    Ok(environment.table_columns.values.share(of, CountedColumn::new(column, memory)))
}

/// Pins every table that the plan leaves open to its dataset's current snapshot.
pub(crate) async fn pin_tables(environment: &Environment, plan: &mut v1::Plan) -> Result<(), StreamError> {
    let mut pinned = HashMap::new();
    for (path, lookup) in forebay_plan::lookups(plan)? {
        if lookup.snapshot.is_empty() && !pinned.contains_key(&lookup.table) {
            let dataset = environment.catalog.dataset(&lookup.table);
            let dataset = dataset.map_err(|error| PlanError::field(format!("{path}.table"), error.to_string()))?;
            let snapshot = dataset.present().await?;
            pinned.insert(lookup.table, snapshot.digest().to_owned());
        }
    }
    if !pinned.is_empty() {
        forebay_plan::pin(plan, |table| pinned.get(table));
    }
    Ok(())
}

/// Reads a whole column of a table in its stored type, which decides how keys compare. Text is Utf8, and dictionaries
/// are expanded.
async fn table_column(
    environment: &Environment,
    path: &str,
    lookup: &Lookup,
    column: &str,
) -> Result<ArrayRef, StreamError> {
    let snapshot = environment.catalog.dataset(&lookup.table)?.pinned(&lookup.snapshot).await?;
    let stored = snapshot.wide_schema();
    let Ok(index) = stored.index_of(column) else {
        let near = near_names(column, stored.fields().iter().map(|field| field.name().as_str()));
        return Err(PlanError::UnknownColumn { path: path.to_owned(), column: column.to_owned(), near }.into());
    };
    let projection = Projection::new(&snapshot, vec![index]);
    let bytes = projection.row_bytes(&snapshot).saturating_mul(snapshot.row_count());
    if bytes > TABLE_COLUMN_BYTES_MAX {
        let reason = format!(
            "column \"{column}\" of dataset \"{}\" has about {bytes} bytes, more than the {TABLE_COLUMN_BYTES_MAX} bytes that a \
             lookup keeps in memory for a column: join the table beforehand",
            lookup.table
        );
        return Err(PlanError::field(path, reason).into());
    }
    check_type(path, column, stored)?;
    let values = TableColumn(vec![new_empty_array(&plain_type(projection.schema().field(0).data_type()))]);
    let scan = RowScan::new(environment, &snapshot, Arc::new(Rows::stored(projection)));
    let row_groups = 0..snapshot.row_groups().len();
    let (TableColumn(pieces), _) = in_turn(&scan, row_groups, values, &mut StageTimes::default()).await?;
    let concatenated = move || concat(&pieces.iter().map(AsRef::as_ref).collect::<Vec<_>>());
    Ok(environment.cpu.run(concatenated).await??)
}

impl RowSink<NextRows> for TableColumn {
    type Output = ();

    fn add(&mut self, rows: NextRows, _: &mut StageTimes) -> Result<Option<()>, StreamError> {
        let column = rows.passing.rows.column(0);
        self.0.push(cast(column, &plain_type(column.data_type()))?);
        Ok(Some(()))
    }
}

/// The type without dictionaries, with text as Utf8.
fn plain_type(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Dictionary(_, values) => plain_type(values),
        DataType::LargeUtf8 | DataType::Utf8View => DataType::Utf8,
        other => other.clone(),
    }
}

/// Rejects columns of types that chains do not read.
fn check_type(path: &str, column: &str, stored: &Schema) -> Result<(), StreamError> {
    let data_type = stored.field_with_name(column)?.data_type();
    if data_type.is_nested() && !matches!(data_type, DataType::Dictionary(..)) {
        let reason = format!("column \"{column}\" is {data_type}, and a lookup needs a column of scalars");
        return Err(PlanError::field(path, reason).into());
    }
    Prefix::compile(column, &[], stored).map_err(|error| PlanError::of_chain(path, error, stored))?;
    Ok(())
}

/// Rejects keys that are null or repeated.
fn check_unique(path: &str, lookup: &Lookup, values: &ArrayRef) -> Result<(), StreamError> {
    let rejected = |fault: String| {
        let (key, table) = (&lookup.key, &lookup.table);
        PlanError::field(path, format!("column \"{key}\" of dataset \"{table}\" {fault}: a lookup needs unique keys"))
    };
    if values.null_count() > 0 {
        return Err(rejected(format!("has {} nulls", values.null_count())).into());
    }
    let first = first_rows(values)?;
    let Some(repeated) = first.iter().enumerate().position(|(row, first)| row != *first as usize) else {
        return Ok(());
    };
    let value = match values.as_string_opt::<i32>() {
        Some(texts) => format!("{:?}", texts.value(repeated)),
        None => array_value_to_string(values, repeated)?,
    };
    Err(rejected(format!("has {value} twice")).into())
}

/// The distinct values that are not null, in the order of their first rows, and the number of each row's.
fn numbered(values: &ArrayRef) -> Result<(ArrayRef, Vec<Option<u32>>), StreamError> {
    let first = first_rows(values)?;
    let (mut distinct, mut numbers) = (Vec::new(), Vec::with_capacity(first.len()));
    for (row, first) in first.into_iter().enumerate() {
        numbers.push(if values.is_null(row) {
            None
        } else if first as usize == row {
            distinct.push(first);
            u32::try_from(distinct.len() - 1).ok()
        } else {
            numbers[first as usize]
        });
    }
    Ok((take(values, &UInt32Array::from(distinct), None)?, numbers))
}

/// The first row with the value of each row, as lookups compare values.
fn first_rows(values: &ArrayRef) -> Result<Vec<u32>, StreamError> {
    if let Some(texts) = values.as_string_opt::<i32>() {
        return Ok(first_equal(texts.iter()));
    }
    let comparable = one_zero_and_one_nan(values)?;
    let converter = RowConverter::new(vec![SortField::new(comparable.data_type().clone())])?;
    Ok(first_equal(converter.convert_columns(&[comparable])?.iter()))
}

/// Casts floats to float64 with a single zero and a single NaN, as lookups compare them; returns other values
/// unchanged. Nulls stay null.
fn one_zero_and_one_nan(values: &ArrayRef) -> Result<ArrayRef, StreamError> {
    if !values.data_type().is_floating() {
        return Ok(Arc::clone(values));
    }
    let wide = cast(values, &DataType::Float64)?;
    let compared = |number: f64| if number.is_nan() { f64::NAN } else { number + 0.0 };
    Ok(Arc::new(wide.as_primitive::<Float64Type>().unary::<_, Float64Type>(compared)))
}

fn first_equal<T: Eq + Hash>(values: impl Iterator<Item = T>) -> Vec<u32> {
    let mut seen = HashMap::new();
    (0..).zip(values).map(|(row, value)| *seen.entry(value).or_insert(row)).collect()
}
