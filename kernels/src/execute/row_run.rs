//! A run of rows that is being appended, and the feeds of its chains.

use std::ops::Range;

use arrow::array::ArrayRef;

use crate::{
    compile::{chain::CompiledChain, program::Program},
    error::KernelError,
    execute::{
        explain::column_error,
        list_rows::ListRows,
        lists::ListFeed,
        mapped::MappedDictionary,
        source::{Feed, UnreadableColumn},
    },
};

/// Rows of a batch that are being appended.
#[derive(Debug)]
pub(super) struct RowRun<'a> {
    pub(super) program: &'a Program,
    /// The program's input columns in the batch.
    pub(super) inputs: &'a [ArrayRef],
    pub(super) rows: Range<usize>,
    /// The first output row, unless the rows are scattered.
    pub(super) output_row: usize,
    /// The output row of each row, if they are scattered.
    pub(super) places: Option<&'a [u32]>,
}

/// A chain ready to compute the rows of a run.
#[derive(Debug)]
pub(super) enum ChainFeed<'a> {
    Single(Feed<'a>),
    Lists(ListFeed<'a>),
}

impl RowRun<'_> {
    /// The lists of a chain over lists; `None` for other chains.
    pub(super) fn lists(&self, chain: &CompiledChain) -> Result<Option<ListRows>, KernelError> {
        let Some(list) = &chain.list else { return Ok(None) };
        let unreadable = |source| self.unreadable(UnreadableColumn { input: chain.input, source });
        let lists = ListRows::new(&self.inputs[chain.input], self.rows.clone(), list.limit);
        let lists = lists.map_err(|source| unreadable(Some(source)))?.ok_or_else(|| unreadable(None))?;
        if let Some(expected) = list.exact
            && let Some((row, found)) = lists.first_unequal(expected)
        {
            let (column, row) = (self.program.input_columns()[chain.input].clone(), self.rows.start + row);
            return Err(KernelError::ByteCount { column, row, found, expected });
        }
        Ok(Some(lists))
    }

    /// Prepares a chain for the run; `lists` is the result of [`Self::lists`] for the chain.
    pub(super) fn feed<'b>(
        &'b self,
        chain: &'b CompiledChain,
        lists: Option<&'b ListRows>,
        mapped: &mut [Option<MappedDictionary>],
    ) -> Result<ChainFeed<'b>, KernelError> {
        let feed = match lists {
            None => Feed::new(chain, self.inputs, &self.rows, mapped).map(ChainFeed::Single),
            Some(lists) => Feed::of(chain, &lists.elements, &(0..lists.elements.len()), mapped)
                .map(|elements| ChainFeed::Lists(ListFeed { chain, lists, elements })),
        };
        feed.map_err(|problem| self.unreadable(problem))
    }

    fn unreadable(&self, problem: UnreadableColumn) -> KernelError {
        let (program, input) = (self.program, problem.input);
        column_error(problem, &program.input_columns()[input], &program.input_types[input], &self.inputs[input])
    }
}
