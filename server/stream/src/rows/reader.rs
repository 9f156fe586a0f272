//! The passing rows of one row group, block by block: fetched, decoded, filtered, derived, and with the columns of
//! functions.

use std::{ops::Range, sync::Arc, time::Duration};

use arrow::buffer::BooleanBuffer;
use forebay_runtime::metrics::StageTimes;
use forebay_scan::{ALL_ROWS, SharedBytes};

use super::{
    drive::{Next, RowSource},
    history::blocks::BlockReader,
    passing::Passing,
    prefilter::NextRows,
    scan::RowScan,
};
use crate::error::StreamError;

/// A row group whose bytes are fetched, decoded up to the last block.
pub(crate) struct RowReader {
    scan: RowScan,
    reader: BlockReader,
    /// The row group's index in the snapshot.
    row_group: usize,
    /// Index in the snapshot of the next stored row.
    next_row: u64,
    /// Rows that lack the columns of functions.
    incomplete: Option<PartOfBlock>,
    /// Rows to which they were added.
    complete: Option<PartOfBlock>,
}

/// Rows of a block, all but some of the first and last ones.
pub(crate) struct PartOfBlock {
    pub next: NextRows,
    /// The number of passing rows before them that are left out.
    pub before: u64,
}

// === impl RowScan ===

impl RowScan {
    /// Opens a row group to read all of its rows.
    pub(crate) async fn open(&self, row_group: usize) -> Result<RowReader, StreamError> {
        self.open_at(row_group, ALL_ROWS, &Arc::default()).await
    }

    /// Opens a row group to read these stored rows. Fetches their bytes, unless another reader has them.
    pub(crate) async fn open_at(
        &self,
        row_group: usize,
        stored: Range<u64>,
        shared: &Arc<SharedBytes>,
    ) -> Result<RowReader, StreamError> {
        let next_row = self.row_group(row_group).rows.start + stored.start;
        let reader = self.open_blocks(row_group, stored, shared).await?;
        Ok(RowReader { scan: self.clone(), reader, row_group, next_row, incomplete: None, complete: None })
    }
}

// === impl RowReader ===

impl RowReader {
    /// The time that storage took.
    pub(crate) fn fetch_time(&self) -> Duration {
        self.reader.fetch_time()
    }

    /// Returns the passing rows of the next block. The first `skip` passing rows are not needed, and come without the
    /// columns of functions if the block has no others. With `end`, these columns are computed for passing rows up to there
    /// alone, and the others are left out; those before are counted. Decodes: run it on the CPU pool.
    pub(crate) fn next_part(
        &mut self,
        (skip, end): (u64, Option<u64>),
        times: &mut StageTimes,
    ) -> Result<Next<PartOfBlock>, StreamError> {
        if let Some(complete) = self.complete.take() {
            return Ok(Next::Rows(complete));
        }
        if self.incomplete.is_some() {
            return Ok(Next::Blocked);
        }
        let rows = Arc::clone(&self.scan.rows);
        let Some(next) = rows.next(&mut self.reader, self.next_row, times)? else { return Ok(Next::End) };
        self.next_row += next.stored;
        let count = next.passing.rows.num_rows();
        if rows.functions().is_empty() || count as u64 <= skip {
            return Ok(Next::Rows(PartOfBlock { next, before: 0 }));
        }
        let (passing, before) = match end {
            // Both are at most the number of rows.
            Some(end) => (next.passing.slice(skip as usize..end.min(count as u64) as usize), skip),
            None => (next.passing, 0),
        };
        self.incomplete = Some(PartOfBlock { next: NextRows { passing, stored: next.stored }, before });
        Ok(Next::Blocked)
    }

    /// Returns the rows of the next block that `choose` names: it gets the passing ones (none: all pass) and the number of
    /// rows. Decodes: run it on the CPU pool.
    pub(crate) fn next_chosen(
        &mut self,
        choose: impl FnOnce(Option<&BooleanBuffer>, usize) -> Result<BooleanBuffer, StreamError>,
        times: &mut StageTimes,
    ) -> Result<Option<NextRows>, StreamError> {
        let next = self.scan.rows.next_chosen(&mut self.reader, self.next_row, choose, times)?;
        self.next_row += next.as_ref().map_or(0, |next| next.stored);
        Ok(next)
    }

    /// Keeps chosen rows until [`Self::complete`] has added the columns of functions.
    pub(crate) fn await_functions(&mut self, passing: Passing) {
        let next = NextRows { stored: passing.rows.num_rows() as u64, passing };
        self.incomplete = Some(PartOfBlock { next, before: 0 });
    }

    /// The rows to which [`Self::complete`] has added them.
    pub(crate) fn completed(&mut self) -> Option<Passing> {
        self.complete.take().map(|part| part.next.passing)
    }

    /// Adds the columns of functions to the rows that lack them.
    pub(crate) async fn complete(&mut self, times: &mut StageTimes) -> Result<(), StreamError> {
        if let Some(PartOfBlock { next, before }) = self.incomplete.take() {
            let passing = self.scan.with_functions(next.passing, self.row_group, times).await?;
            self.complete = Some(PartOfBlock { next: NextRows { passing, stored: next.stored }, before });
        }
        Ok(())
    }
}

impl RowSource for RowReader {
    type Rows = NextRows;

    fn next(&mut self, times: &mut StageTimes) -> Result<Next<NextRows>, StreamError> {
        Ok(self.next_part((0, None), times)?.map(|part| part.next))
    }

    async fn ready(&mut self, times: &mut StageTimes) -> Result<(), StreamError> {
        self.complete(times).await
    }
}
