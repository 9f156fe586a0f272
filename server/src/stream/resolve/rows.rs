//! The columns to read of a snapshot, and the passing rows of what is read.

use std::{collections::BTreeSet, sync::Arc};

use arrow::{array::RecordBatch, buffer::BooleanBuffer, datatypes::SchemaRef};
use forebay_kernels::Program;

use crate::{
    budget::Budget,
    catalog::Snapshot,
    metrics::StageTimes,
    scan::{Projection, RowGroupReader},
    stream::{
        error::StreamError,
        resolve::{
            deciding::{self, Deciding, NextRows},
            derivation::Derivation,
            expressions::Expressions,
            function_column::{Drawing, FunctionColumn},
            groups::GroupFilter,
            passing::Passing,
            wanted,
        },
    },
};

/// The columns to read of a snapshot, and the derivation of its chunks.
#[derive(Debug)]
pub(crate) struct Rows {
    pub projection: Projection,
    derivation: Derivation,
    /// Reads fewer columns of rows that do not pass; none: all columns of all rows are read.
    deciding: Option<Deciding>,
    stored: SchemaRef,
}

impl Rows {
    /// Reads only the stored columns that these columns, stored, joined or derived, need.
    pub(crate) fn new<'a>(
        snapshot: &Snapshot,
        expressions: &Expressions,
        columns: impl IntoIterator<Item = &'a str>,
        with_row_ids: bool,
    ) -> Result<Self, StreamError> {
        let stored = SchemaRef::clone(snapshot.wide_schema());
        let columns: BTreeSet<&str> = columns.into_iter().collect();
        let derivation = Derivation::new(&stored, expressions, columns.iter().copied(), with_row_ids)?;
        let deciding = Deciding::new(&stored, expressions, &derivation, None)?;
        let computed = derivation.functions.iter().map(FunctionColumn::row_bytes).chain(derivation.derived_bytes());
        let computed = computed.fold(0, u64::saturating_add);
        let projection = Projection::new(snapshot, derivation.columns.clone()).with_computed_bytes(computed);
        let projection = projection.with_keys(|column| !columns.contains(column) && derivation.may_key(column));
        Ok(Self { projection, derivation, deciding, stored })
    }

    /// Lets the scan keep dictionaries for columns that only a program's chains read.
    #[must_use]
    pub(crate) fn with_keys(self, program: &Program) -> Self {
        let passed: BTreeSet<&str> = program.stored_columns().collect();
        let may = |column: &str| !passed.contains(column) && self.derivation.may_key(column);
        Self { projection: self.projection.with_keys(may), ..self }
    }

    /// The same for the rows of one group.
    pub(super) fn of_group(&self, group: GroupFilter, expressions: &Expressions) -> Result<Self, StreamError> {
        let (projection, stored) = (self.projection.clone(), SchemaRef::clone(&self.stored));
        let deciding = Deciding::new(&stored, expressions, &self.derivation, Some(group.clone()))?;
        Ok(Self { projection, derivation: self.derivation.of_group(Some(group)), deciding, stored })
    }

    /// Whether every stored row passes.
    pub(crate) fn all_pass(&self) -> bool {
        self.derivation.all_pass()
    }

    /// The number of passing rows in a chunk of the projection; `first_row` is the index of its first row in the
    /// snapshot.
    pub(crate) fn count(&self, chunk: &RecordBatch, first_row: u64) -> Result<u64, StreamError> {
        self.derivation.count(chunk, first_row)
    }

    /// Reads the next rows, of which the first has the index `first_row` in the snapshot, and returns those that pass;
    /// `None` at the end. Run it on the CPU pool.
    pub(crate) fn next(
        &self,
        reader: &mut RowGroupReader,
        first_row: u64,
        times: &mut StageTimes,
    ) -> Result<Option<NextRows>, StreamError> {
        deciding::next_rows(reader, (self.deciding.as_ref(), &self.derivation), first_row, times)
    }

    /// Like [`Self::next`], but returns only the rows that `choose` names: it gets the passing ones of the rows (none: all
    /// pass) and their number, and returns some of the passing ones.
    pub(crate) fn next_wanted(
        &self,
        reader: &mut RowGroupReader,
        first_row: u64,
        choose: impl FnOnce(Option<&BooleanBuffer>, usize) -> Result<BooleanBuffer, StreamError>,
        times: &mut StageTimes,
    ) -> Result<Option<NextRows>, StreamError> {
        wanted::next_wanted(reader, (self.deciding.as_ref(), &self.derivation), first_row, choose, times)
    }

    /// Whether [`Self::with_functions`] adds columns.
    pub(crate) fn has_functions(&self) -> bool {
        !self.derivation.functions.is_empty()
    }

    /// Adds the columns of functions to passing rows, whose place is for errors.
    pub(crate) async fn with_functions(
        &self,
        passing: Passing,
        (budget, drawing): (&Budget, Drawing),
        times: &mut StageTimes,
        place: &str,
    ) -> Result<Passing, StreamError> {
        FunctionColumn::add_all(&self.derivation.functions, passing, (budget, drawing), times, place).await
    }

    /// Whether the columns of functions depend on the seed and the epoch.
    pub(crate) fn is_random(&self) -> bool {
        self.derivation.functions.iter().any(FunctionColumn::is_random)
    }

    /// The columns of images whose damaged rows are left out.
    pub(super) fn skipping(&self) -> impl Iterator<Item = &FunctionColumn> {
        self.derivation.functions.iter().filter(|column| column.skips())
    }

    /// The same without these rows of the snapshot, which are in rising order.
    pub(super) fn without(&self, skipped: Arc<Vec<u64>>, expressions: &Expressions) -> Result<Self, StreamError> {
        let (projection, stored) = (self.projection.clone(), SchemaRef::clone(&self.stored));
        let derivation = self.derivation.without(skipped);
        let deciding = Deciding::new(&stored, expressions, &derivation, None)?;
        Ok(Self { projection, derivation, deciding, stored })
    }

    /// The names of the columns of Python functions, such as `words(text)`.
    pub(crate) fn function_names(&self) -> impl Iterator<Item = &str> {
        self.derivation.functions.iter().filter(|column| column.is_python()).map(|column| column.field.name().as_str())
    }

    /// The passing rows of a chunk; `first_row` is the index of its first row in the snapshot.
    pub(crate) fn apply(&self, chunk: &RecordBatch, first_row: u64, budget: &Budget) -> Result<Passing, StreamError> {
        self.derivation.apply(chunk, first_row, budget)
    }
}
