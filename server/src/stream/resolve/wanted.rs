//! Decodes chosen rows of a row group: like `deciding`, but of the passing rows only those that a caller names.

use std::time::Instant;

use arrow::{array::BooleanArray, buffer::BooleanBuffer, compute::filter_record_batch};

use super::{
    deciding::{Deciding, NextRows},
    derivation::Derivation,
};
use crate::{
    metrics::{Stage, StageTimes},
    scan::RowGroupReader,
    stream::error::StreamError,
};

/// Reads the next rows, whose first has the index `first_row` in the snapshot, and returns those of them that `choose`
/// names; none at the end. Run it on the CPU pool.
///
/// `choose` gets the passing ones of the rows (none: all pass) and their number, and returns some of the passing ones.
pub(super) fn next_wanted(
    reader: &mut RowGroupReader,
    (deciding, all): (Option<&Deciding>, &Derivation),
    first_row: u64,
    choose: impl FnOnce(Option<&BooleanBuffer>, usize) -> Result<BooleanBuffer, StreamError>,
    times: &mut StageTimes,
) -> Result<Option<NextRows>, StreamError> {
    if deciding.is_none() && !all.all_pass() {
        return next_of_whole(reader, all, first_row, choose, times);
    }
    let start = Instant::now();
    let columns = deciding.map_or(&[][..], Deciding::columns);
    let Some(first) = reader.read_ahead(columns)? else { return Ok(None) };
    times.add_since(Stage::Decode, start);
    let start = Instant::now();
    let passing = deciding.map_or(Ok(None), |deciding| deciding.selected(&first, first_row, reader.budget()))?;
    let stored = first.num_rows();
    let wanted = choose(passing.as_ref(), stored)?;
    times.add_since(Stage::Transform, start);
    let start = Instant::now();
    let rows = reader.rest(Some(&wanted))?;
    times.add_since(Stage::Decode, start);
    let start = Instant::now();
    let stored = stored as u64;
    let passing = all.apply_selected(rows, Some(wanted), first_row..first_row + stored, reader.budget())?;
    times.add_since(Stage::Transform, start);
    Ok(Some(NextRows { passing, stored }))
}

/// The same where every column decides which rows pass.
fn next_of_whole(
    reader: &mut RowGroupReader,
    all: &Derivation,
    first_row: u64,
    choose: impl FnOnce(Option<&BooleanBuffer>, usize) -> Result<BooleanBuffer, StreamError>,
    times: &mut StageTimes,
) -> Result<Option<NextRows>, StreamError> {
    let start = Instant::now();
    let Some(chunk) = reader.next_chunk()? else { return Ok(None) };
    times.add_since(Stage::Decode, start);
    let start = Instant::now();
    let passing = all.apply(&chunk, first_row, reader.budget())?.selected();
    let wanted = choose(passing.as_ref(), chunk.num_rows())?;
    let rows = filter_record_batch(&chunk, &BooleanArray::new(wanted.clone(), None))?;
    let stored = chunk.num_rows() as u64;
    let passing = all.apply_selected(rows, Some(wanted), first_row..first_row + stored, reader.budget())?;
    times.add_since(Stage::Transform, start);
    Ok(Some(NextRows { passing, stored }))
}
