//! Reads the passing rows of a row group: first the columns that decide which rows pass, then the others, of those rows
//! only.

use std::{ops::Range, time::Instant};

use arrow::{array::RecordBatch, buffer::BooleanBuffer};

use super::{derivation::Derivation, expressions::Expressions, groups::GroupFilter, passing::Passing};
use crate::{
    budget::Budget,
    metrics::{Stage, StageTimes},
    scan::RowGroupReader,
    stream::error::StreamError,
};

/// Decides which rows pass.
#[derive(Clone, Debug)]
pub(super) struct Deciding {
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

impl Deciding {
    /// For rows that are read with `all`; `None` if all of them pass, or if every column is needed to decide.
    pub(super) fn new(
        stored: &arrow::datatypes::Schema,
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
        let is_needed = !derivation.all_pass() && columns.len() < all.columns.len();
        Ok(is_needed.then_some(Self { derivation, columns }))
    }

    /// The columns that it reads, by index in the projection.
    pub(super) fn columns(&self) -> &[usize] {
        &self.columns
    }

    /// Which of the rows of these columns pass; none: all of them.
    pub(super) fn selected(
        &self,
        rows: &RecordBatch,
        first_row: u64,
        budget: &Budget,
    ) -> Result<Option<BooleanBuffer>, StreamError> {
        Ok(self.derivation.apply(rows, first_row, budget)?.selected())
    }
}

/// Reads the next rows, whose first has the index `first_row` in the snapshot; none at the end. Run it on the CPU pool.
pub(super) fn next_rows(
    reader: &mut RowGroupReader,
    (deciding, all): (Option<&Deciding>, &Derivation),
    first_row: u64,
    times: &mut StageTimes,
) -> Result<Option<NextRows>, StreamError> {
    let start = Instant::now();
    let Some(deciding) = deciding else {
        let Some(chunk) = reader.next_chunk()? else { return Ok(None) };
        times.add_since(Stage::Decode, start);
        let start = Instant::now();
        let passing = all.apply(&chunk, first_row, reader.budget())?;
        times.add_since(Stage::Transform, start);
        return Ok(Some(NextRows { passing, stored: chunk.num_rows() as u64 }));
    };
    let Some(first) = reader.read_ahead(&deciding.columns)? else { return Ok(None) };
    times.add_since(Stage::Decode, start);
    let start = Instant::now();
    let selected = deciding.selected(&first, first_row, reader.budget())?;
    times.add_since(Stage::Transform, start);
    let start = Instant::now();
    let rows = reader.rest(selected.as_ref())?;
    times.add_since(Stage::Decode, start);
    let start = Instant::now();
    let stored: Range<u64> = first_row..first_row + first.num_rows() as u64;
    let passing = all.apply_selected(rows, selected, stored, reader.budget())?;
    times.add_since(Stage::Transform, start);
    Ok(Some(NextRows { passing, stored: first.num_rows() as u64 }))
}
