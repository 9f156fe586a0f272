//! Reads the next rows of a row group: first the columns that decide which rows pass, then the others, of those rows only.

use std::time::Instant;

use arrow::{
    array::{BooleanArray, RecordBatch},
    buffer::BooleanBuffer,
    compute::filter_record_batch,
    datatypes::Schema,
};
use forebay_runtime::{
    budget::Budget,
    metrics::{Stage, StageTimes},
};

use super::{
    derivation::Derivation, expressions::Expressions, group::GroupFilter, history::blocks::BlockReader,
    passing::Passing,
};
use crate::error::StreamError;

/// Decides which rows pass from fewer columns than are read.
#[derive(Clone, Debug)]
pub(crate) struct Prefilter {
    derivation: Derivation,
    /// The columns that it reads, by index in the projection.
    columns: Vec<usize>,
}

/// The passing rows of the next stored ones.
#[derive(Debug)]
pub(crate) struct NextRows {
    pub passing: Passing,
    /// The number of stored rows.
    pub stored: u64,
}

impl Prefilter {
    /// For rows that are read with `all`; `None` if all of them pass or are the history of others, or if every column is needed to
    /// decide.
    pub(crate) fn new(
        stored: &Schema,
        expressions: &Expressions,
        all: &Derivation,
        group: Option<GroupFilter>,
    ) -> Result<Option<Self>, StreamError> {
        let column = group.as_ref().map(GroupFilter::column).filter(|column| stored.index_of(column).is_ok());
        let derivation = Derivation::new(stored, expressions, column, false)?;
        let columns: Vec<usize> =
            derivation.columns.iter().filter_map(|column| all.columns.binary_search(column).ok()).collect();
        let group = group.filter(|group| stored.index_of(group.column()).is_ok());
        let derivation = derivation.of_group(group).without_rows_of(all);
        let is_needed = !derivation.all_pass() && !all.has_history() && columns.len() < all.columns.len();
        Ok(is_needed.then_some(Self { derivation, columns }))
    }

    /// Which of the rows of its columns pass; none: all of them.
    fn selected(
        &self,
        rows: &RecordBatch,
        first_row: u64,
        budget: &Budget,
    ) -> Result<Option<BooleanBuffer>, StreamError> {
        Ok(self.derivation.apply(rows, first_row, budget)?.selected())
    }
}

/// Reads the next rows, whose first has the index `first_row` in the snapshot; none at the end. Run it on the CPU pool.
pub(crate) fn next_rows(
    reader: &mut BlockReader,
    (prefilter, all): (Option<&Prefilter>, &Derivation),
    first_row: u64,
    times: &mut StageTimes,
) -> Result<Option<NextRows>, StreamError> {
    if let Some(prefilter) = prefilter {
        let select = |first: &RecordBatch, budget: &Budget| prefilter.selected(first, first_row, budget);
        return next_selected(reader, (&prefilter.columns, all), first_row, select, times);
    }
    let start = Instant::now();
    let Some(block) = reader.next_block(first_row)? else { return Ok(None) };
    times.add_since(Stage::Decode, start);
    let start = Instant::now();
    let passing = all.apply(&block, first_row, reader.budget())?;
    times.add_since(Stage::Transform, start);
    Ok(Some(NextRows { passing, stored: block.num_rows() as u64 }))
}

/// The same, but returns only the rows that `choose` names: it gets the passing ones of the rows (none: all pass) and the
/// number of rows, and returns some of the passing ones.
pub(crate) fn next_chosen(
    reader: &mut BlockReader,
    (prefilter, all): (Option<&Prefilter>, &Derivation),
    first_row: u64,
    choose: impl FnOnce(Option<&BooleanBuffer>, usize) -> Result<BooleanBuffer, StreamError>,
    times: &mut StageTimes,
) -> Result<Option<NextRows>, StreamError> {
    if prefilter.is_some() || all.all_pass() && !all.has_history() {
        let columns = prefilter.map_or(&[][..], |prefilter| &prefilter.columns);
        let select = |first: &RecordBatch, budget: &Budget| {
            let passing = prefilter.map_or(Ok(None), |prefilter| prefilter.selected(first, first_row, budget))?;
            choose(passing.as_ref(), first.num_rows()).map(Some)
        };
        return next_selected(reader, (columns, all), first_row, select, times);
    }
    // Every column decides which rows pass, or every row is the history of others.
    let start = Instant::now();
    let Some(block) = reader.next_block(first_row)? else { return Ok(None) };
    times.add_since(Stage::Decode, start);
    let start = Instant::now();
    let passing = all.apply(&block, first_row, reader.budget())?.selected();
    let chosen = choose(passing.as_ref(), block.num_rows())?;
    let rows = filter_record_batch(&block, &BooleanArray::new(chosen.clone(), None))?;
    let stored = block.num_rows() as u64;
    let passing = all.apply_selected(rows, Some(chosen), first_row..first_row + stored, reader.budget())?;
    times.add_since(Stage::Transform, start);
    Ok(Some(NextRows { passing, stored }))
}

/// Reads some columns of the next rows, which select rows, then the other columns of these. Without a selection, all rows
/// are read.
fn next_selected(
    reader: &mut BlockReader,
    (columns, all): (&[usize], &Derivation),
    first_row: u64,
    select: impl FnOnce(&RecordBatch, &Budget) -> Result<Option<BooleanBuffer>, StreamError>,
    times: &mut StageTimes,
) -> Result<Option<NextRows>, StreamError> {
    let start = Instant::now();
    let Some(first) = reader.read_ahead(columns)? else { return Ok(None) };
    times.add_since(Stage::Decode, start);
    let start = Instant::now();
    let selected = select(&first, reader.budget())?;
    times.add_since(Stage::Transform, start);
    let start = Instant::now();
    let rows = reader.rest(selected.as_ref())?;
    times.add_since(Stage::Decode, start);
    let start = Instant::now();
    let stored = first.num_rows() as u64;
    let passing = all.apply_selected(rows, selected, first_row..first_row + stored, reader.budget())?;
    times.add_since(Stage::Transform, start);
    Ok(Some(NextRows { passing, stored }))
}
