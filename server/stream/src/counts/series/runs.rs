//! The runs of a row group: where rows of another series begin, and whether those of a series rise.

use std::{iter, sync::Arc};

use arrow::{
    array::{Array, ArrayRef, AsArray, UInt32Array},
    compute::{
        cast,
        kernels::cmp::{distinct, lt},
        take,
    },
    datatypes::{DataType, Float16Type, Float32Type, Float64Type},
    row::{RowConverter, SortField},
};
use forebay_kernels::KernelError;
use forebay_runtime::{
    budget::{Budget, Reservation},
    metrics::StageTimes,
};
use xxhash_rust::xxh3::xxh3_128;

use super::columns::{Edge, SeriesColumns};
use crate::{
    error::StreamError,
    rows::{
        drive::RowSink,
        history::plain,
        neighbours::{changes, neighbours},
        passing::Passing,
        prefilter::NextRows,
    },
};

/// Bytes of a series while its end is found: the end itself, and the hash of its values in a set.
pub(crate) const SERIES_BYTES: u64 = (size_of::<u64>() + 3 * size_of::<u128>()) as u64;

/// The runs of a row group: rows of the same series that follow each other.
#[derive(Debug)]
pub(crate) struct Runs {
    columns: Arc<SeriesColumns>,
    pub rows: u64,
    pub starts: Vec<RunStart>,
    pub first: Option<Edge>,
    pub last: Option<Edge>,
    memory: Reservation,
}

/// The first row of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunStart {
    /// Its place among the passing rows of the row group.
    pub place: u64,
    /// Its index in the snapshot.
    pub row: u64,
    /// The hash of the values of its series.
    pub hash: u128,
}

impl Runs {
    pub(crate) fn new(columns: Arc<SeriesColumns>, budget: &Budget) -> Self {
        Self { columns, rows: 0, starts: Vec::new(), first: None, last: None, memory: budget.empty() }
    }

    /// Adds the passing rows of the next block.
    pub(crate) fn push(&mut self, passing: &Passing) -> Result<(), StreamError> {
        let count = passing.rows.num_rows();
        if count == 0 {
            return Ok(());
        }
        let by = self.columns.by.iter().map(|name| column(passing, name)).collect::<Result<Vec<_>, _>>()?;
        let order = column(passing, &self.columns.order)?;
        let stored_row = |row: usize| passing.stored_row(row) as u64;
        if let Some(row) = unordered(&order) {
            return Err(self.columns.unordered(stored_row(row)).into());
        }
        let changes = changes(&by, count)?;
        let (earlier, later) = neighbours(&order);
        let is_right = &changes | lt(&earlier, &later)?.values();
        if let Some(pair) = (!&is_right).set_indices().next() {
            let is_equal = !distinct(&order.slice(pair, 1), &order.slice(pair + 1, 1))?.value(0);
            return Err(self.columns.not_rising(stored_row(pair + 1), is_equal).into());
        }
        // The first row always begins a run of its block, so that there is a key.
        let starts: Vec<usize> = iter::once(0).chain(changes.set_indices().map(|pair| pair + 1)).collect();
        self.memory.try_resize(self.memory.bytes() + starts.len() as u64 * SERIES_BYTES)?;
        let (keys, edges) = (comparable(&by, &starts)?, comparable(&[order], &[0, count - 1])?);
        let edge =
            |key: &[u8], order: &[u8], row| Edge { key: key.to_vec(), order: order.to_vec(), row: stored_row(row) };
        let first = edge(&keys[0], &edges[0], 0);
        let continues = self.columns.continues(self.last.as_ref(), Some(&first))?;
        for (key, start) in keys.iter().zip(&starts).skip(usize::from(continues)) {
            let (place, row) = (self.rows + *start as u64, stored_row(*start));
            self.starts.push(RunStart { place, row, hash: xxh3_128(key) });
        }
        self.rows += count as u64;
        self.last = Some(edge(&keys[keys.len() - 1], &edges[1], count - 1));
        self.first.get_or_insert(first);
        Ok(())
    }
}

impl RowSink<NextRows> for Runs {
    type Output = ();

    fn add(&mut self, rows: NextRows, _: &mut StageTimes) -> Result<Option<()>, StreamError> {
        self.push(&rows.passing)?;
        Ok(Some(()))
    }
}

fn column(passing: &Passing, name: &str) -> Result<ArrayRef, KernelError> {
    let found = passing.rows.column_by_name(name).cloned();
    found.ok_or_else(|| KernelError::MissingColumn { column: name.to_owned() })
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
