//! One pass over the passing rows of a snapshot, for fits and descriptions: reserves its memory and reports its progress.

use std::{
    ops::{ControlFlow, Range},
    sync::Arc,
};

use forebay_catalog::Snapshot;
use forebay_runtime::{budget::Reservation, metrics::StageTimes};

use super::{
    advice,
    ahead::FETCH_AHEAD,
    computations::Progress,
    environment::Environment,
    error::StreamError,
    rows::{
        drive::RowSink, expressions::Expressions, pass::in_turn, prefilter::NextRows, pruning::pruned_scan,
        scan::RowScan,
    },
};

/// Blocks that exist at once besides those that a sink queues: one being decoded, one being computed from.
const BLOCKS_DECODED: u64 = 2;

/// A sink of the rows of a pass.
pub(super) trait PassSink: RowSink<NextRows> {
    /// What the pass is for, in errors.
    const PURPOSE: &'static str;

    /// Blocks whose values may wait in queues.
    const BLOCKS_QUEUED: u64;
}

/// A sink whose rows are counted as progress.
struct Reported<Sink> {
    sink: Sink,
    progress: Progress,
}

/// Pushes every passing row of these row groups into a sink, which needs these columns, stored, joined or derived. Reads no
/// other column but those of the filter and of derived columns.
pub(super) async fn run<Sink: PassSink>(
    environment: &Arc<Environment>,
    (snapshot, expressions): (&Arc<Snapshot>, &Arc<Expressions>),
    columns: Vec<String>,
    row_groups: Range<usize>,
    sink: Sink,
    progress: &mut Progress,
) -> Result<Sink, StreamError> {
    let (scan, mut read) = pruned_scan(environment, snapshot, expressions, columns).await?;
    read.retain(|index| row_groups.contains(index));
    let _memory = reserve::<Sink>(environment, &scan, &read).await?;
    let rows = |index: &usize| scan.row_group(*index).rows.end - scan.row_group(*index).rows.start;
    progress.begin_pass(read.iter().map(rows).sum());
    let reported = Reported { sink, progress: progress.clone() };
    let (Reported { sink, progress: reported }, _) =
        in_turn(&scan, read.into_iter(), reported, &mut StageTimes::default()).await?;
    *progress = reported;
    Ok(sink)
}

/// Reserves the memory of a pass: compressed row groups in flight, the decoders of one, and decoded blocks.
async fn reserve<Sink: PassSink>(
    environment: &Environment,
    scan: &RowScan,
    read: &[usize],
) -> Result<Reservation, StreamError> {
    // Reads the footers of all row groups, which may be many.
    let (read, scan) = (read.to_vec(), scan.clone());
    let sized = environment.cpu.run(move || {
        let (snapshot, projection) = (&scan.snapshot, &scan.rows.projection);
        let ahead = read.len().min(FETCH_AHEAD + 1) as u64;
        let of_group = |index: usize| {
            let group = scan.row_group(index);
            let blocks = projection.block_bytes(snapshot, group).saturating_mul(BLOCKS_DECODED + Sink::BLOCKS_QUEUED);
            let fetched = projection.stored_bytes(snapshot, group).saturating_mul(ahead);
            fetched.saturating_add(projection.decoder_bytes(snapshot, group)).saturating_add(blocks)
        };
        read.into_iter().map(of_group).max().unwrap_or(0)
    });
    let reserved = environment.budget.reserve_fairly(sized.await?).await;
    reserved.map_err(|source| StreamError::Memory { task: Sink::PURPOSE, advice: advice::of_pass(&source), source })
}

// === impl Reported ===

impl<Sink: PassSink> RowSink<NextRows> for Reported<Sink> {
    type Output = (Option<Sink::Output>, u64);

    fn add(&mut self, rows: NextRows, times: &mut StageTimes) -> Result<Option<Self::Output>, StreamError> {
        let stored = rows.stored;
        Ok(Some((self.sink.add(rows, times)?, stored)))
    }

    async fn take(
        &mut self,
        (output, stored): Self::Output,
        times: &mut StageTimes,
    ) -> Result<ControlFlow<()>, StreamError> {
        if let Some(output) = output
            && self.sink.take(output, times).await?.is_break()
        {
            return Ok(ControlFlow::Break(()));
        }
        self.progress.add_rows(stored);
        Ok(ControlFlow::Continue(()))
    }
}
