//! One pass over the passing rows of a snapshot, for fits and descriptions: row groups are fetched ahead, decoded and
//! computed chunk by chunk on the CPU pool.

use std::{ops::Range, sync::Arc};

use arrow::array::RecordBatch;
use futures::StreamExt;

use super::{
    decode::decode,
    environment::Environment,
    epoch::{
        fitting,
        task::{FETCH_AHEAD, fetched_ahead},
    },
    error::StreamError,
    flights::Progress,
    resolve::{
        count::rows_and_groups, deciding::NextRows, expressions::Expressions, function_column::Drawing,
        functions::place_of, rows::Rows,
    },
};
use crate::{
    budget::Reservation,
    catalog::Snapshot,
    metrics::StageTimes,
    scan::{self, RowGroupReader},
};

/// Chunks that exist at once besides those that a sink queues: one being decoded, one being computed from.
const CHUNKS_DECODED: u64 = 2;

/// What a pass does with its rows.
pub(super) trait RowSink: Send + 'static {
    /// What is computed from a chunk.
    type Values: Send + 'static;

    /// What the pass is for, in errors.
    const PURPOSE: &'static str;

    /// Chunks whose values may wait in queues.
    const CHUNKS_QUEUED: u64;

    /// Computes from passing rows. Runs on the CPU pool.
    fn compute(&mut self, rows: &RecordBatch) -> Result<Self::Values, StreamError>;

    /// Takes what was computed from a chunk. False ends the pass early.
    fn take(&mut self, values: Self::Values) -> impl Future<Output = bool> + Send;
}

/// Pushes every passing row of these row groups into a sink, which needs these columns, stored, joined or derived. Reads no other column but
/// those of the filter and of derived columns.
pub(super) async fn run<Sink: RowSink>(
    environment: &Arc<Environment>,
    snapshot: &Arc<Snapshot>,
    expressions: &Arc<Expressions>,
    columns: Vec<String>,
    row_groups: Range<usize>,
    mut sink: Sink,
    progress: &mut Progress,
) -> Result<Sink, StreamError> {
    let (rows, may_pass) = rows_and_groups(environment, snapshot, expressions, columns).await?;
    let groups = snapshot.row_groups();
    let may_pass = |index: &usize| may_pass.get(*index).copied().unwrap_or(false);
    let read: Vec<usize> = row_groups.filter(may_pass).collect();
    let _memory = reserve::<Sink>(environment, snapshot, &rows, &read).await?;
    progress.begin_pass(read.iter().map(|index| groups[*index].rows.end - groups[*index].rows.start).sum());
    let mut readers = fetched_ahead(read.into_iter().map(|index| {
        let (environment, snapshot, rows) = (Arc::clone(environment), Arc::clone(snapshot), Arc::clone(&rows));
        async move {
            let Environment { cpu, budget, .. } = environment.as_ref();
            let row_group = &snapshot.row_groups()[index];
            Ok((index, scan::open(&snapshot, row_group, &rows.projection, cpu, budget).await?))
        }
    }));
    while let Some(opened) = readers.next().await {
        let (index, mut reader) = opened?;
        let mut next_row = groups[index].rows.start;
        loop {
            let computed;
            (reader, sink, computed) =
                next_values(environment, snapshot, &rows, (index, next_row), reader, sink).await?;
            let Some((values, row_count)) = computed else { break };
            if !sink.take(values).await {
                return Ok(sink);
            }
            next_row += row_count;
            progress.add_rows(row_count);
        }
    }
    Ok(sink)
}

/// What a sink computes from the next rows of a row group, and the number of stored ones; none at its end.
type NextValues<Sink> = (RowGroupReader, Sink, Option<(<Sink as RowSink>::Values, u64)>);

async fn next_values<Sink: RowSink>(
    environment: &Environment,
    snapshot: &Snapshot,
    rows: &Arc<Rows>,
    (index, next_row): (usize, u64),
    mut reader: RowGroupReader,
    mut sink: Sink,
) -> Result<NextValues<Sink>, StreamError> {
    let (cpu, group, columns) = (&environment.cpu, &snapshot.row_groups()[index], rows.projection.schema());
    let chunk_rows = Arc::clone(rows);
    if !rows.has_functions() {
        let step = move || {
            let next = chunk_rows.next(&mut reader, next_row, &mut StageTimes::default()).transpose();
            let computed = next.map(|next| -> Result<_, StreamError> {
                let NextRows { passing, stored } = next?;
                Ok((sink.compute(&passing.rows)?, stored))
            });
            (reader, sink, computed)
        };
        let (reader, sink, computed) = decode(cpu, snapshot, group, columns, step).await?;
        return Ok((reader, sink, computed.transpose()?));
    }
    let step = move || {
        let next = chunk_rows.next(&mut reader, next_row, &mut StageTimes::default());
        (reader, next)
    };
    let (reader, next) = decode(cpu, snapshot, group, columns, step).await?;
    let Some(NextRows { passing, stored }) = next? else { return Ok((reader, sink, None)) };
    let (mut times, place) = (StageTimes::default(), place_of(snapshot, group));
    let passing = rows.with_functions(passing, (&environment.budget, Drawing::default()), &mut times, &place).await?;
    let compute = move || {
        let values = sink.compute(&passing.rows);
        (sink, values)
    };
    let (sink, values) = cpu.run(compute).await?;
    Ok((reader, sink, Some((values?, stored))))
}

/// Reserves the memory of a pass: compressed row groups in flight, the decoders of one, and decoded chunks.
async fn reserve<Sink: RowSink>(
    environment: &Environment,
    snapshot: &Arc<Snapshot>,
    rows: &Arc<Rows>,
    read: &[usize],
) -> Result<Reservation, StreamError> {
    // Reads the footers of all row groups, which may be many.
    let (read, snapshot, rows) = (read.to_vec(), Arc::clone(snapshot), Arc::clone(rows));
    let sized = environment.cpu.run(move || {
        let projection = &rows.projection;
        let ahead = read.len().min(FETCH_AHEAD + 1) as u64;
        let of_group = |index: usize| {
            let group = &snapshot.row_groups()[index];
            let chunks = projection.chunk_bytes(&snapshot, group).saturating_mul(CHUNKS_DECODED + Sink::CHUNKS_QUEUED);
            let fetched = projection.stored_bytes(&snapshot, group).saturating_mul(ahead);
            fetched.saturating_add(projection.decoder_bytes(&snapshot, group)).saturating_add(chunks)
        };
        read.into_iter().map(of_group).max().unwrap_or(0)
    });
    let reserved = environment.budget.reserve_fairly(sized.await?).await;
    reserved.map_err(|source| StreamError::Memory { task: Sink::PURPOSE, advice: fitting::of_pass(&source), source })
}
