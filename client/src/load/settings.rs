//! Settings of a load run.

use std::time::Duration;

use forebay_client::StreamRequest;

use super::pace::Pace;

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
    pub(crate) end: RunEnd,
    /// Time from the start that is not counted.
    pub(crate) warm_up: Duration,
    /// When a stream asks for its next batch.
    pub(crate) pace: Pace,
    /// Whether the bodies are held against their checksums; headers always are.
    pub(crate) verify: bool,
}

/// When a stream is done.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum RunEnd {
    /// Behind so many epochs.
    Epochs(u64),
    /// So long after the warm-up, in the middle of whatever epoch.
    Duration(Duration),
}
