//! A row group being read: its passing rows, run by run, from any piece of it.

use std::{ops::Range, time::Duration};

use forebay_order::Piece;

use crate::{
    catalog::Snapshot,
    metrics::StageTimes,
    scan::{self, RowGroupReader},
    stream::{
        environment::Environment,
        error::StreamError,
        resolve::{passing::Passing, prepare::Prepared, rows::Rows},
    },
};

/// A row group whose bytes are fetched, decoded up to the last run.
pub(crate) struct OpenGroup {
    /// The row group's index in the snapshot.
    index: usize,
    reader: RowGroupReader,
    /// Index in the snapshot of the next stored row.
    next_row: u64,
    /// Passing rows before the next one.
    seen: u64,
    /// The chunk decoded last, and how many of its passing rows have been returned.
    pending: Option<(Passing, usize)>,
}

/// Passing rows of a chunk.
pub(crate) struct Run {
    pub chunk: Passing,
    pub rows: Range<usize>,
}

impl OpenGroup {
    /// Fetches a piece's row group, unless another reader has its bytes.
    pub(crate) async fn open(
        environment: &Environment,
        prepared: &Prepared,
        piece: Piece,
    ) -> Result<Self, StreamError> {
        let Environment { cpu, budget, sharing, .. } = environment;
        let (snapshot, rows): (&Snapshot, &Rows) = (&prepared.snapshot, &prepared.compiled.rows);
        let group = &snapshot.row_groups()[piece.row_group];
        // Without a filter, decoding skips the whole chunks before the piece. Chunk boundaries stay the same for any
        // start position, so a batch is equal to the byte.
        let chunk_rows = rows.projection.chunk_rows(snapshot, group);
        let unread = if rows.all_pass() { piece.skip / chunk_rows * chunk_rows } else { 0 };
        let shared = sharing.bytes_of(snapshot, piece.row_group, &rows.projection);
        let reader = scan::open_shared(snapshot, group, &rows.projection, unread, cpu, budget, &shared).await?;
        let next_row = group.rows.start + unread;
        Ok(Self { index: piece.row_group, reader, next_row, seen: unread, pending: None })
    }

    /// The time that storage took.
    pub(crate) fn fetch_time(&self) -> Duration {
        self.reader.fetch_time()
    }

    /// Whether a piece is ahead in this row group.
    pub(crate) fn leads_to(&self, piece: &Piece) -> bool {
        self.index == piece.row_group && self.seen <= piece.skip
    }

    /// Returns the next passing rows of a piece, all of one chunk; none after the last of the piece or row group.
    /// Decodes: run it on the CPU pool.
    pub(crate) fn next_run(
        &mut self,
        piece: &Piece,
        rows: &Rows,
        times: &mut StageTimes,
    ) -> Result<Option<Run>, StreamError> {
        let end = piece.skip + piece.take;
        while self.seen < end {
            let (chunk, first) = match self.pending.take() {
                Some(pending) => pending,
                None => match self.decode(rows, times)? {
                    Some(chunk) => (chunk, 0),
                    None => return Ok(None),
                },
            };
            let count = (chunk.rows.num_rows() - first) as u64;
            let skipped = piece.skip.saturating_sub(self.seen).min(count);
            let taken = (count - skipped).min(end - self.seen - skipped);
            let start = first + skipped as usize;
            let run = start..start + taken as usize;
            self.seen += skipped + taken;
            if run.end < chunk.rows.num_rows() {
                self.pending = Some((chunk.clone(), run.end));
            }
            if !run.is_empty() {
                return Ok(Some(Run { chunk, rows: run }));
            }
        }
        Ok(None)
    }

    /// Whether all rows of a piece have been returned.
    pub(crate) fn is_past(&self, piece: &Piece) -> bool {
        self.seen >= piece.skip + piece.take
    }

    fn decode(&mut self, rows: &Rows, times: &mut StageTimes) -> Result<Option<Passing>, StreamError> {
        let Some(next) = rows.next(&mut self.reader, self.next_row, times)? else { return Ok(None) };
        self.next_row += next.stored;
        Ok(Some(next.passing))
    }
}
