//! The driver that reads rows: takes them from a source, such as an open row group, on the CPU pool, waits where the source
//! has to wait, and hands them to a sink.

use std::{future, mem, ops::ControlFlow};

use arrow::datatypes::Schema;
use forebay_catalog::{RowGroup, Snapshot};
use forebay_runtime::{
    cpu_pool::CpuPool,
    metrics::{Stage, StageTimes},
};
use forebay_scan::ScanError;

use super::scan::RowScan;
use crate::error::StreamError;

/// A source of rows.
pub(crate) trait RowSource: Send + 'static {
    type Rows;

    /// Returns the next rows. Runs on the CPU pool, unless they are [finished](Self::is_finished).
    fn next(&mut self, times: &mut StageTimes) -> Result<Next<Self::Rows>, StreamError>;

    /// Waits until [`Self::next`] is not blocked.
    fn ready(&mut self, times: &mut StageTimes) -> impl Future<Output = Result<(), StreamError>> + Send;

    /// Whether [`Self::next`] has nothing to compute.
    fn is_finished(&mut self) -> bool {
        false
    }
}

/// The next rows of a source.
pub(crate) enum Next<T> {
    Rows(T),
    /// Bytes are not fetched, functions have not returned, or another reader computes them: see [`RowSource::ready`].
    Blocked,
    /// The source has no more rows.
    End,
}

/// A sink of rows.
pub(crate) trait RowSink<Rows>: Send + 'static {
    /// What leaves the CPU pool.
    type Output: Send + 'static;

    /// Computes from rows. Runs on the CPU pool: with an output, the job ends, so that others have their turn; without one,
    /// it continues with the next rows.
    fn add(&mut self, rows: Rows, times: &mut StageTimes) -> Result<Option<Self::Output>, StreamError>;

    /// Takes an output. `Break` ends the reading early.
    fn take(
        &mut self,
        _output: Self::Output,
        _times: &mut StageTimes,
    ) -> impl Future<Output = Result<ControlFlow<()>, StreamError>> + Send {
        future::ready(Ok(ControlFlow::Continue(())))
    }
}

/// What a job of the CPU pool ended with.
enum Step<T> {
    Output(T),
    Blocked,
    End,
}

impl<T> Next<T> {
    pub(crate) fn map<U>(self, of: impl FnOnce(T) -> U) -> Next<U> {
        match self {
            Self::Rows(rows) => Next::Rows(of(rows)),
            Self::Blocked => Next::Blocked,
            Self::End => Next::End,
        }
    }
}

/// Reads rows of a row group to the end of their source, or until the sink ends the reading.
pub(crate) async fn drive<Source, Sink>(
    scan: &RowScan,
    row_group: usize,
    (mut source, mut sink): (Source, Sink),
    times: &mut StageTimes,
) -> Result<(Source, Sink, ControlFlow<()>), StreamError>
where
    Source: RowSource,
    Sink: RowSink<Source::Rows>,
{
    let RowScan { cpu, snapshot, rows, .. } = scan;
    loop {
        let step;
        if source.is_finished() {
            step = read(&mut source, &mut sink, times);
        } else {
            let mut spent = mem::take(times);
            let job = move || {
                let step = read(&mut source, &mut sink, &mut spent);
                (source, sink, spent, step)
            };
            let columns = rows.projection.schema();
            (source, sink, *times, step) = decode(cpu, snapshot, scan.row_group(row_group), columns, job).await?;
            times.add(Stage::Queue, cpu.take_queued());
        }
        match step? {
            Step::Output(output) => {
                if sink.take(output, times).await?.is_break() {
                    return Ok((source, sink, ControlFlow::Break(())));
                }
            }
            Step::Blocked => source.ready(times).await?,
            Step::End => return Ok((source, sink, ControlFlow::Continue(()))),
        }
    }
}

/// Hands rows to a sink until it has an output or there are no rows.
fn read<Source, Sink>(
    source: &mut Source,
    sink: &mut Sink,
    times: &mut StageTimes,
) -> Result<Step<Sink::Output>, StreamError>
where
    Source: RowSource,
    Sink: RowSink<Source::Rows>,
{
    loop {
        match source.next(times)? {
            Next::Rows(rows) => {
                if let Some(output) = sink.add(rows, times)? {
                    return Ok(Step::Output(output));
                }
            }
            Next::Blocked => return Ok(Step::Blocked),
            Next::End => return Ok(Step::End),
        }
    }
}

/// Runs a job that decodes these columns of a row group on the CPU pool.
///
/// A panic becomes [`ScanError::Corrupt`]: decoders panic on files whose parts contradict each other.
async fn decode<T: Send + 'static>(
    cpu: &CpuPool,
    snapshot: &Snapshot,
    row_group: &RowGroup,
    columns: &Schema,
    job: impl FnOnce() -> T + Send + 'static,
) -> Result<T, ScanError> {
    cpu.run(job).await.map_err(|panic| forebay_scan::panicked(snapshot, row_group, columns, &panic))
}
