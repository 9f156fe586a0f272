//! The columns of a history, computed block by block from the rows of a block and those before it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use arrow::{
    array::{Array, ArrayRef, RecordBatch, RecordBatchOptions},
    compute::concat_batches,
    datatypes::{FieldRef, Schema},
};
use forebay_kernels::{KernelError, SeriesRows};
use forebay_runtime::budget::{Budget, Reservation};

use super::{HistoryColumn, unpacked};
use crate::{
    error::StreamError,
    rows::{
        derivation::{AddedColumns, Derivation},
        expressions::Expressions,
        neighbours::changes,
    },
};

/// The columns of a history that are read.
#[derive(Debug)]
pub(crate) struct HistoryRows {
    /// Computes the columns that they read, of all rows.
    pub inputs: Derivation,
    /// The places of the columns that it reads among those of a block.
    places: Vec<usize>,
    /// The columns that are read, in the order of their names.
    read: BTreeSet<String>,
    by: Vec<String>,
    columns: Vec<Arc<HistoryColumn>>,
    /// The number of rows before a row that its values may depend on.
    pub rows_before: u64,
}

/// The rows before the next block, with the columns that a history reads.
#[derive(Debug)]
pub(crate) struct EarlierRows {
    /// None: no row is before the block, or none is needed.
    pub(super) rows: Option<RecordBatch>,
    pub(super) memory: Reservation,
}

/// The derivation of rows with these columns, stored, joined, derived or of a history, and the history that some of them are of.
pub(crate) fn derivation<'a>(
    stored: &Schema,
    expressions: &Expressions,
    columns: impl IntoIterator<Item = &'a str>,
    with_row_ids: bool,
) -> Result<(Derivation, Option<Arc<HistoryRows>>), StreamError> {
    let columns: BTreeSet<&str> = columns.into_iter().collect();
    let Some(mut history) = HistoryRows::new(stored, expressions, &columns)? else {
        return Ok((Derivation::new(stored, expressions, columns, with_row_ids)?, None));
    };
    let added = AddedColumns { fields: history.fields().cloned().collect(), read: history.inputs.columns.clone() };
    let derivation = Derivation::with_added(stored, expressions, (columns, with_row_ids), &added)?;
    let place = |column: &usize| derivation.columns.binary_search(column).ok();
    history.places = added.read.iter().filter_map(place).collect();
    Ok((derivation, Some(Arc::new(history))))
}

impl HistoryRows {
    /// The columns of the history among `needed`; none: none of them.
    fn new(stored: &Schema, expressions: &Expressions, needed: &BTreeSet<&str>) -> Result<Option<Self>, StreamError> {
        let Some(history) = &expressions.history else { return Ok(None) };
        let (mut read, mut columns) = (needed.clone(), Vec::new());
        for column in history.columns.iter().rev() {
            if read.contains(column.field.name().as_str()) {
                read.extend(column.reads());
                columns.push(Arc::clone(column));
            }
        }
        if columns.is_empty() {
            return Ok(None);
        }
        columns.reverse();
        let mut before: BTreeMap<&str, u64> = BTreeMap::new();
        for column in &columns {
            let of_inputs = column.reads().filter_map(|name| before.get(name)).max().copied().unwrap_or(0);
            before.insert(column.field.name(), of_inputs + column.op.rows_before());
        }
        let rows_before = before.values().copied().max().unwrap_or(0);
        let read = columns.iter().flat_map(|column| column.reads()).filter(|name| !before.contains_key(name));
        let read: BTreeSet<String> = read.map(str::to_owned).chain(history.by.iter().cloned()).collect();
        let inputs = Derivation::of_all_rows(stored, expressions, read.iter().map(String::as_str))?;
        Ok(Some(Self { inputs, places: Vec::new(), read, by: history.by.clone(), columns, rows_before }))
    }

    /// Bytes of a row of the columns.
    pub(crate) fn row_bytes(&self) -> u64 {
        const VALUE_BYTES: u64 = 16;
        self.columns.len() as u64 * VALUE_BYTES
    }

    fn fields(&self) -> impl Iterator<Item = &FieldRef> {
        self.columns.iter().map(|column| &column.field)
    }

    /// Adds the columns to a block of the derivation's columns, whose first row has the index `first_row` in the snapshot.
    /// `earlier` has the rows before it, and then those before the next block.
    pub(crate) fn add_to(
        &self,
        block: &RecordBatch,
        first_row: u64,
        earlier: &mut EarlierRows,
        budget: &Budget,
    ) -> Result<RecordBatch, StreamError> {
        let count = block.num_rows();
        let inputs = self.inputs.apply(&block.project(&self.places)?, first_row, budget)?.rows;
        let inputs = self.read_of(&inputs)?;
        let rows = match earlier.rows.take() {
            Some(before) => concat_batches(&before.schema(), [&before, &inputs])?,
            None => inputs,
        };
        let before = rows.num_rows() - count;
        let first = first_row.saturating_sub(before as u64);
        let (computed, series) = (rows.clone(), self.series(&rows, first)?);
        let located = |error: KernelError| StreamError::Kernel(error.map_row(|row| first as usize + row));
        let computed = self.columns.iter().try_fold(computed, |computed, column| {
            let found = column.evaluate(&computed, &series).map_err(located)?;
            with_column(&computed, &column.field, found)
        })?;
        earlier.keep(&rows, self.rows_before)?;
        let found = &computed.columns()[rows.num_columns()..];
        let fields = block.schema_ref().fields().iter().chain(self.fields()).cloned().collect::<Vec<_>>();
        let columns = block.columns().iter().cloned().chain(found.iter().map(|column| column.slice(before, count)));
        batch(fields, columns.collect(), count)
    }

    /// The columns that are read, in an order that does not depend on the block, and without dictionaries.
    pub(super) fn read_of(&self, inputs: &RecordBatch) -> Result<RecordBatch, StreamError> {
        let (mut fields, mut columns) = (Vec::with_capacity(self.read.len()), Vec::with_capacity(self.read.len()));
        for name in &self.read {
            let index = inputs.schema_ref().index_of(name)?;
            let column = unpacked(inputs.column(index))?;
            let field = inputs.schema_ref().field(index).clone().with_nullable(true);
            fields.push(Arc::new(field.with_data_type(column.data_type().clone())));
            columns.push(column);
        }
        batch(fields, columns, inputs.num_rows())
    }

    fn series(&self, rows: &RecordBatch, first: u64) -> Result<SeriesRows, StreamError> {
        let by = self.by.iter().filter_map(|name| rows.column_by_name(name).cloned()).collect::<Vec<_>>();
        Ok(SeriesRows::new(first, changes(&by, rows.num_rows())?.iter()))
    }
}

// === impl EarlierRows ===

impl EarlierRows {
    pub(crate) fn none(budget: &Budget) -> Self {
        Self { rows: None, memory: budget.empty() }
    }

    /// Keeps the last ones of some rows.
    pub(super) fn keep(&mut self, rows: &RecordBatch, count: u64) -> Result<(), StreamError> {
        let count = usize::try_from(count).map_or(rows.num_rows(), |count| count.min(rows.num_rows()));
        if count == 0 {
            return Ok(());
        }
        let last = rows.slice(rows.num_rows() - count, count);
        let bytes = last.columns().iter().map(|column| column.to_data().get_slice_memory_size());
        self.memory.try_resize(bytes.sum::<Result<usize, _>>()? as u64)?;
        self.rows = Some(last);
        Ok(())
    }
}

fn with_column(rows: &RecordBatch, field: &FieldRef, column: ArrayRef) -> Result<RecordBatch, StreamError> {
    let fields = rows.schema_ref().fields().iter().chain([field]).cloned().collect();
    let columns = rows.columns().iter().cloned().chain([column]).collect();
    batch(fields, columns, rows.num_rows())
}

fn batch(fields: Vec<FieldRef>, columns: Vec<ArrayRef>, rows: usize) -> Result<RecordBatch, StreamError> {
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    Ok(RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), columns, &options)?)
}
