//! A load on a server: streams that take batches as fast as they come or on a schedule, and what they saw.
//!
//! `runner` connects, starts the streams and stops them; `stream` is one of them; `pace` says when it asks for a batch;
//! `measures` is what all of them write to. From there the figures go to `report`, and from it to `plot` and to
//! whoever writes text. Nothing here knows of flags, files or exit codes.

mod bound;
mod epochs;
mod measures;
mod pace;
mod plot;
mod report;
mod runner;
mod stream;
mod timeline;

use std::time::Duration;

use forebay_client::StreamRequest;

pub(crate) use bound::Bound;
pub(crate) use pace::Pace;
pub(crate) use plot::svg;
pub(crate) use report::{Report, Times};
pub(crate) use runner::{Progress, run};
pub(crate) use stream::Trouble;

/// What is asked of a server, by how many, and for how long.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// Connections.
    pub(crate) clients: usize,
    /// Streams of each connection, all read at once.
    pub(crate) streams: usize,
    /// The first epoch; the next ones are those behind it.
    pub(crate) request: StreamRequest,
    /// When the streams are done.
    pub(crate) end: End,
    /// Time from the start that is not counted.
    pub(crate) warm_up: Duration,
    /// When a stream asks for its next batch.
    pub(crate) pace: Pace,
    /// Whether the bodies are held against their checksums; headers always are.
    pub(crate) verify: bool,
}

/// When a stream is done.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum End {
    /// Behind so many epochs.
    Epochs(u64),
    /// So long after the warm-up, in the middle of whatever epoch.
    Duration(Duration),
}
