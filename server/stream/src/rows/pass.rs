//! Passes over row groups: one after another into one sink, or several at once, each into its own sink.

use std::{ops::ControlFlow, time::Instant};

use forebay_runtime::metrics::StageTimes;
use futures::{Stream, StreamExt};

use super::{
    drive::{RowSink, drive},
    prefilter::NextRows,
    scan::RowScan,
};
use crate::{ahead::fetched_ahead, error::StreamError};

/// Reads row groups one after another, in this order; the next ones are fetched meanwhile.
pub(crate) async fn in_turn<Sink: RowSink<NextRows>>(
    scan: &RowScan,
    row_groups: impl Iterator<Item = usize> + Send,
    mut sink: Sink,
    times: &mut StageTimes,
) -> Result<(Sink, ControlFlow<()>), StreamError> {
    let mut readers = fetched_ahead(row_groups.map(|row_group| {
        let scan = scan.clone();
        async move { Ok((row_group, scan.open(row_group).await?)) }
    }));
    loop {
        let start = Instant::now();
        let Some(opened) = readers.next().await else { return Ok((sink, ControlFlow::Continue(()))) };
        let (row_group, reader) = opened?;
        times.add_opened(start, reader.fetch_time());
        let flow;
        (_, sink, flow) = drive(scan, row_group, (reader, sink), times).await?;
        if flow.is_break() {
            return Ok((sink, flow));
        }
    }
}

/// Reads row groups, some at once, each into the sink that `sink` makes for it. Returns the sinks in the order of the row
/// groups, each with its row group.
pub(crate) fn each<Sink: RowSink<NextRows>>(
    scan: &RowScan,
    row_groups: Vec<usize>,
    at_once: usize,
    sink: impl Fn(usize) -> Sink,
) -> impl Stream<Item = Result<(usize, Sink), StreamError>> {
    let reads = row_groups.into_iter().map(move |row_group| {
        let (scan, sink) = (scan.clone(), sink(row_group));
        async move {
            let reader = scan.open(row_group).await?;
            let (_, sink, _) = drive(&scan, row_group, (reader, sink), &mut StageTimes::default()).await?;
            Ok((row_group, sink))
        }
    });
    futures::stream::iter(reads).buffered(at_once)
}
