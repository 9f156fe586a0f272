//! Opening the blocks of a row group, and reading what a history needs of the rows before them.

use std::{
    ops::{ControlFlow, Range},
    sync::Arc,
};

use arrow::{array::RecordBatch, compute::concat_batches};
use forebay_runtime::metrics::StageTimes;
use forebay_scan::SharedBytes;
use futures::{FutureExt, future::BoxFuture};

use super::{
    blocks::BlockReader,
    rows::{EarlierRows, HistoryRows},
};
use crate::{
    error::StreamError,
    rows::{
        drive::{RowSink, drive},
        prefilter::NextRows,
        scan::RowScan,
        selection::Rows,
    },
};

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
            Some((history, read)) => Some((Arc::clone(history), self.earlier_rows(history, read, first_row).await?)),
            None => None,
        };
        Ok(BlockReader::new(reader, earlier))
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
