//! The blocks of a row group, with the columns of a history if there is one.

use std::{sync::Arc, time::Duration};

use arrow::{array::RecordBatch, buffer::BooleanBuffer};
use forebay_runtime::budget::Budget;
use forebay_scan::{RowGroupReader, ScanError};

use super::rows::{EarlierRows, HistoryRows};
use crate::error::StreamError;

/// An open row group, with the rows before its next block if a history reads them.
pub(crate) struct BlockReader {
    reader: RowGroupReader,
    earlier: Option<(Arc<HistoryRows>, EarlierRows)>,
}

// === impl BlockReader ===

impl BlockReader {
    pub(super) fn new(reader: RowGroupReader, earlier: Option<(Arc<HistoryRows>, EarlierRows)>) -> Self {
        Self { reader, earlier }
    }

    /// The next block, whose first row has the index `first_row` in the snapshot, with the columns of its history.
    pub(crate) fn next_block(&mut self, first_row: u64) -> Result<Option<RecordBatch>, StreamError> {
        let Some(block) = self.reader.next_block()? else { return Ok(None) };
        match &mut self.earlier {
            Some((history, earlier)) => history.add_to(&block, first_row, earlier, self.reader.budget()).map(Some),
            None => Ok(Some(block)),
        }
    }

    /// See [`RowGroupReader::read_ahead`].
    pub(crate) fn read_ahead(&mut self, columns: &[usize]) -> Result<Option<RecordBatch>, ScanError> {
        self.reader.read_ahead(columns)
    }

    /// See [`RowGroupReader::rest`].
    pub(crate) fn rest(&mut self, selected: Option<&BooleanBuffer>) -> Result<RecordBatch, ScanError> {
        self.reader.rest(selected)
    }

    pub(crate) fn budget(&self) -> &Budget {
        self.reader.budget()
    }

    /// The time that storage took.
    pub(crate) fn fetch_time(&self) -> Duration {
        self.reader.fetch_time()
    }
}
