//! The columns to read of a snapshot, and the passing rows of what is read.

use std::{collections::BTreeSet, ops::Range, sync::Arc};

use arrow::{buffer::BooleanBuffer, datatypes::SchemaRef};
use forebay_catalog::{RowGroup, Snapshot};
use forebay_kernels::Program;
use forebay_runtime::metrics::StageTimes;
use forebay_scan::{ALL_ROWS, Projection};

use super::{
    derivation::Derivation,
    expressions::Expressions,
    function_column::FunctionColumn,
    group::GroupFilter,
    history::{
        blocks::BlockReader,
        rows::{HistoryRows, derivation as history_derivation},
    },
    prefilter::{self, NextRows, Prefilter},
};
use crate::error::StreamError;

/// The columns to read of a snapshot, and the derivation of its blocks.
#[derive(Debug)]
pub(crate) struct Rows {
    pub projection: Projection,
    derivation: Derivation,
    /// Reads fewer columns of rows that do not pass; none: all columns of all rows are read.
    prefilter: Option<Prefilter>,
    /// The columns that are computed from earlier rows, and how these are read; none: there are none.
    history: Option<(Arc<HistoryRows>, Arc<Self>)>,
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
        let (derivation, history) = history_derivation(&stored, expressions, columns.iter().copied(), with_row_ids)?;
        let prefilter = Prefilter::new(&stored, expressions, &derivation, None)?;
        let computed = derivation.functions.iter().map(FunctionColumn::row_bytes).chain(derivation.derived_bytes());
        let computed = computed.chain(history.iter().map(|history| history.row_bytes()));
        let computed = computed.fold(0, u64::saturating_add);
        let projection = Projection::new(snapshot, derivation.columns.clone()).with_computed_bytes(computed);
        let may_key = |column: &str| {
            derivation.may_key(column) && history.as_ref().is_none_or(|history| history.inputs.may_key(column))
        };
        let projection = projection.with_keys(|column| !columns.contains(column) && may_key(column));
        let history = history.map(|history| {
            let derivation = history.inputs.clone();
            let projection = Projection::new(snapshot, derivation.columns.clone());
            let stored = SchemaRef::clone(&stored);
            (history, Arc::new(Self { projection, derivation, prefilter: None, history: None, stored }))
        });
        Ok(Self { projection, derivation, prefilter, history, stored })
    }

    /// The stored columns of a projection, of all rows.
    pub(crate) fn stored(projection: Projection) -> Self {
        let stored = SchemaRef::clone(projection.schema());
        Self { projection, derivation: Derivation::of_stored(&stored), prefilter: None, history: None, stored }
    }

    /// Lets the scan keep dictionaries for columns that only a program's chains read.
    #[must_use]
    pub(crate) fn with_keys(self, program: &Program) -> Self {
        let passed: BTreeSet<&str> = program.stored_columns().collect();
        let of_history = |column: &str| self.history.as_ref().is_none_or(|(history, _)| history.inputs.may_key(column));
        let may = |column: &str| !passed.contains(column) && self.derivation.may_key(column) && of_history(column);
        Self { projection: self.projection.with_keys(may), ..self }
    }

    /// The same for the rows of one group.
    pub(crate) fn of_group(&self, group: GroupFilter, expressions: &Expressions) -> Result<Self, StreamError> {
        let (projection, stored) = (self.projection.clone(), SchemaRef::clone(&self.stored));
        let prefilter = Prefilter::new(&stored, expressions, &self.derivation, Some(group.clone()))?;
        let history = self.history.clone();
        Ok(Self { projection, derivation: self.derivation.of_group(Some(group)), prefilter, history, stored })
    }

    /// Whether every stored row passes.
    pub(crate) fn all_pass(&self) -> bool {
        self.derivation.all_pass()
    }

    /// Reads the next rows, of which the first has the index `first_row` in the snapshot, and returns those that pass;
    /// `None` at the end. Run it on the CPU pool.
    pub(crate) fn next(
        &self,
        reader: &mut BlockReader,
        first_row: u64,
        times: &mut StageTimes,
    ) -> Result<Option<NextRows>, StreamError> {
        prefilter::next_rows(reader, (self.prefilter.as_ref(), &self.derivation), first_row, times)
    }

    /// Like [`Self::next`], but returns only the rows that `choose` names: it gets the passing ones of the rows (none: all
    /// pass) and their number, and returns some of the passing ones.
    pub(crate) fn next_chosen(
        &self,
        reader: &mut BlockReader,
        first_row: u64,
        choose: impl FnOnce(Option<&BooleanBuffer>, usize) -> Result<BooleanBuffer, StreamError>,
        times: &mut StageTimes,
    ) -> Result<Option<NextRows>, StreamError> {
        prefilter::next_chosen(reader, (self.prefilter.as_ref(), &self.derivation), first_row, choose, times)
    }

    /// The columns that are computed from earlier rows, and how these are read; none: there are none.
    pub(crate) fn history(&self) -> Option<(&Arc<HistoryRows>, &Arc<Self>)> {
        self.history.as_ref().map(|(history, read)| (history, read))
    }

    /// The columns of functions, which are added to the rows that [`Self::next`] returns.
    pub(crate) fn functions(&self) -> &[FunctionColumn] {
        &self.derivation.functions
    }

    /// The same without the columns of functions, in blocks of the same size.
    pub(crate) fn without_functions(&self) -> Self {
        let derivation = self.derivation.without_functions();
        let (projection, stored) = (self.projection.clone(), SchemaRef::clone(&self.stored));
        let (prefilter, history) = (self.prefilter.clone(), self.history.clone());
        Self { projection, derivation, prefilter, history, stored }
    }

    /// Whether the columns of functions depend on the seed and the epoch.
    pub(crate) fn is_random(&self) -> bool {
        self.derivation.functions.iter().any(FunctionColumn::is_random)
    }

    /// The columns of images whose damaged rows are left out.
    pub(crate) fn skipping(&self) -> impl Iterator<Item = &FunctionColumn> {
        self.derivation.functions.iter().filter(|column| column.skips())
    }

    /// The same without these rows of the snapshot, which are in rising order.
    pub(crate) fn without(&self, skipped: Arc<Vec<u64>>, expressions: &Expressions) -> Result<Self, StreamError> {
        let (projection, stored) = (self.projection.clone(), SchemaRef::clone(&self.stored));
        let derivation = self.derivation.without(skipped);
        let prefilter = Prefilter::new(&stored, expressions, &derivation, None)?;
        Ok(Self { projection, derivation, prefilter, history: self.history.clone(), stored })
    }

    /// The names of the columns of Python functions, such as `words(text)`.
    pub(crate) fn function_names(&self) -> impl Iterator<Item = &str> {
        self.derivation.functions.iter().filter(|column| column.is_python()).map(|column| column.field.name().as_str())
    }

    /// The stored rows of a row group that are decoded for these passing ones.
    ///
    /// Without a filter, they are the whole blocks with the rows. Block boundaries are the same for any start position, so
    /// a batch is equal to the byte.
    pub(crate) fn stored_rows(&self, snapshot: &Snapshot, row_group: &RowGroup, passing: &Range<u64>) -> Range<u64> {
        if !self.all_pass() {
            return ALL_ROWS;
        }
        let block_rows = self.projection.block_rows(snapshot, row_group);
        passing.start / block_rows * block_rows..passing.end.div_ceil(block_rows).saturating_mul(block_rows)
    }
}
