//! The blocks of a row group with the columns of a history.

use std::{ops::ControlFlow, ops::Range, sync::Arc, time::Duration};

use arrow::{array::RecordBatch, buffer::BooleanBuffer, compute::concat_batches};
use forebay_runtime::{budget::Budget, metrics::StageTimes};
use forebay_scan::{RowGroupReader, ScanError, SharedBytes};
use futures::{FutureExt, future::BoxFuture};

use super::rows::{EarlierRows, HistoryRows};
use crate::{
    error::StreamError,
    rows::{
        derivation::Derivation,
        drive::{RowSink, drive},
        prefilter::NextRows,
        scan::RowScan,
        selection::Rows,
    },
};

/// An open row group, with the rows before its next block if a history reads them.
pub(crate) struct BlockReader {
    reader: RowGroupReader,
    earlier: Option<EarlierRows>,
}

/// The last rows before a block.
struct LastRows {
    history: Arc<HistoryRows>,
    batches: Vec<RecordBatch>,
    /// The rows that are missing.
    missing: usize,
}

// === impl RowScan ===

impl RowScan {
    /// Opens a row group to read the blocks of these stored rows, and reads what a history needs of the rows before them. Fetches
    /// their bytes, unless another reader has them.
    pub(crate) async fn open_blocks(
        &self,
        row_group: usize,
        stored: Range<u64>,
        shared: &Arc<SharedBytes>,
    ) -> Result<BlockReader, StreamError> {
        let Self { cpu, budget, snapshot, rows, .. } = self;
        let group = self.row_group(row_group);
        let first_row = group.rows.start + stored.start.min(group.rows.end - group.rows.start);
        let reader = forebay_scan::open_shared(snapshot, group, &rows.projection, stored, cpu, budget, shared).await?;
        let earlier = match rows.history() {
            Some((history, read)) => Some(self.earlier_rows(history, read, first_row).await?),
            None => None,
        };
        Ok(BlockReader { reader, earlier })
    }

    /// Reads the rows before a row that a history needs.
    fn earlier_rows<'a>(
        &'a self,
        history: &'a Arc<HistoryRows>,
        read: &'a Arc<Rows>,
        first_row: u64,
    ) -> BoxFuture<'a, Result<EarlierRows, StreamError>> {
        let scan = Self { rows: Arc::clone(read), ..self.clone() };
        let read = async move {
            let from = first_row.saturating_sub(history.rows_before);
            let row_groups = scan.snapshot.row_groups();
            let first = row_groups.partition_point(|group| group.rows.end <= from);
            let end = row_groups.partition_point(|group| group.rows.start < first_row);
            let mut last = LastRows { history: Arc::clone(history), batches: Vec::new(), missing: 0 };
            for (row_group, group) in row_groups.iter().enumerate().take(end).skip(first) {
                let rows = &group.rows;
                let needed = from.max(rows.start)..first_row.min(rows.end);
                // A file may have an empty row group.
                if needed.is_empty() {
                    continue;
                }
                last.missing = (needed.end - needed.start) as usize;
                let stored = needed.start - rows.start..needed.end - rows.start;
                let reader = scan.open_at(row_group, stored, &Arc::default()).await?;
                (_, last, _) = drive(&scan, row_group, (reader, last), &mut StageTimes::default()).await?;
            }
            let mut earlier = EarlierRows::none(&scan.budget);
            if let Some(first) = last.batches.first() {
                earlier.keep(&concat_batches(first.schema_ref(), &last.batches)?, history.rows_before)?;
            }
            Ok(earlier)
        };
        read.boxed()
    }
}

// === impl BlockReader ===

impl BlockReader {
    /// The next block, whose first row has the index `first_row` in the snapshot, with the columns of the derivation's history.
    pub(crate) fn next_block(&mut self, all: &Derivation, first_row: u64) -> Result<Option<RecordBatch>, StreamError> {
        let Some(block) = self.reader.next_block()? else { return Ok(None) };
        match &mut self.earlier {
            Some(earlier) => all.with_history(&block, first_row, earlier, self.reader.budget()).map(Some),
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

// === impl LastRows ===

impl RowSink<NextRows> for LastRows {
    type Output = ();

    fn add(&mut self, rows: NextRows, _: &mut StageTimes) -> Result<Option<()>, StreamError> {
        let rows = self.history.read_of(&rows.passing.rows)?;
        let count = rows.num_rows().min(self.missing);
        self.missing -= count;
        self.batches.push(rows.slice(0, count));
        Ok((self.missing == 0).then_some(()))
    }

    async fn take(&mut self, (): (), _: &mut StageTimes) -> Result<ControlFlow<()>, StreamError> {
        Ok(ControlFlow::Break(()))
    }
}
