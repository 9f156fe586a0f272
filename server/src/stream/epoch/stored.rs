//! The passing rows of a row group, chunk by chunk, as they are stored: fetched, decoded and derived.

use std::{ops::Range, sync::Arc, time::Duration};

use crate::{
    cache::CachedChunks,
    metrics::StageTimes,
    scan::{self, ALL_ROWS, RowGroupChunks, RowGroupReader},
    stream::{
        environment::Environment,
        error::StreamError,
        resolve::{finished::file_state, passing::Passing, prepared::Prepared, rows::Rows},
    },
};

/// A row group whose bytes are fetched, decoded up to the last chunk.
pub(super) struct StoredReader {
    reader: RowGroupReader,
    /// The row group's index in the snapshot.
    row_group: usize,
    /// Index in the snapshot of the next stored row.
    next_row: u64,
    /// Rows that lack the columns of functions, and the number of rows before them that are left out.
    incomplete: Option<(Passing, u64)>,
    /// Rows to which they were added.
    complete: Option<(Passing, u64)>,
    environment: Arc<Environment>,
    prepared: Prepared,
}

/// The next rows of a row group.
pub(super) enum NextPassing {
    /// Rows, and the number of passing rows before them that are left out.
    Rows((Passing, u64)),
    /// Their columns of functions are missing: see [`StoredReader::complete`].
    Blocked,
    End,
}

/// The stored rows of a row group that are decoded for these passing ones.
///
/// Without a filter, they are the whole chunks with the rows. Chunk boundaries are the same for any start position, so a
/// batch is equal to the byte.
pub(super) fn stored_rows(prepared: &Prepared, row_group: usize, passing: &Range<u64>) -> Range<u64> {
    let (snapshot, rows) = (&prepared.snapshot, &prepared.compiled.rows);
    if !rows.all_pass() {
        return ALL_ROWS;
    }
    let chunk_rows = rows.projection.chunk_rows(snapshot, &snapshot.row_groups()[row_group]);
    passing.start / chunk_rows * chunk_rows..passing.end.div_ceil(chunk_rows).saturating_mul(chunk_rows)
}

impl StoredReader {
    /// Opens a row group to read these stored rows. `chunks` is the cache of the snapshot's column chunks.
    pub(super) async fn open(
        environment: &Arc<Environment>,
        prepared: &Prepared,
        chunks: Option<&Arc<CachedChunks>>,
        row_group: usize,
        needed: Range<u64>,
    ) -> Result<Self, StreamError> {
        let (snapshot, rows) = (&prepared.snapshot, &prepared.compiled.rows);
        let group = &snapshot.row_groups()[row_group];
        let next_row = group.rows.start + needed.start;
        let Environment { cpu, budget, sharing, .. } = environment.as_ref();
        let chunks = chunks.map(|chunks| RowGroupChunks::new(chunks, row_group, file_state(snapshot, row_group)));
        let shared = sharing.bytes_of(snapshot, row_group, &rows.projection, chunks);
        let reader = scan::open_shared(snapshot, group, &rows.projection, needed, cpu, budget, &shared).await?;
        let (environment, prepared) = (Arc::clone(environment), prepared.clone());
        Ok(Self { reader, row_group, next_row, incomplete: None, complete: None, environment, prepared })
    }

    /// The time that storage took.
    pub(super) fn fetch_time(&self) -> Duration {
        self.reader.fetch_time()
    }

    /// Returns the passing rows of the next chunk. The first `skip` passing rows are not needed, and come without the
    /// columns of functions if the chunk has no others. With `end`, these columns are computed for passing rows up to there
    /// alone, and the others are left out; those before are counted. Decodes: run it on the CPU pool.
    pub(super) fn next(
        &mut self,
        (skip, end): (u64, Option<u64>),
        rows: &Rows,
        times: &mut StageTimes,
    ) -> Result<NextPassing, StreamError> {
        if let Some(complete) = self.complete.take() {
            return Ok(NextPassing::Rows(complete));
        }
        if self.incomplete.is_some() {
            return Ok(NextPassing::Blocked);
        }
        let Some(next) = rows.next(&mut self.reader, self.next_row, times)? else { return Ok(NextPassing::End) };
        self.next_row += next.stored;
        let count = next.passing.rows.num_rows();
        if rows.has_functions() && count as u64 > skip {
            self.incomplete = Some(match end {
                // Both are at most the number of rows.
                Some(end) => (next.passing.slice(skip as usize..end.min(count as u64) as usize), skip),
                None => (next.passing, 0),
            });
            return Ok(NextPassing::Blocked);
        }
        Ok(NextPassing::Rows((next.passing, 0)))
    }

    /// Adds the columns of functions to the rows that lack them.
    pub(super) async fn complete(&mut self, times: &mut StageTimes) -> Result<(), StreamError> {
        if let Some((passing, before)) = self.incomplete.take() {
            let budget = &self.environment.budget;
            let complete = self.prepared.with_functions(passing, self.row_group, budget, times).await?;
            self.complete = Some((complete, before));
        }
        Ok(())
    }
}
