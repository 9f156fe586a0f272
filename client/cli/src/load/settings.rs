//! Settings of a load run.

use std::time::Duration;

use forebay_client::StreamRequest;

use super::pace::Pace;

/// Parameters of a run.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// Number of connections.
    pub(crate) clients: usize,
    /// Concurrent streams per connection.
    pub(crate) streams: usize,
    /// Request of the first epoch; the following epochs differ in their number only.
    pub(crate) request: StreamRequest,
    /// When streams end.
    pub(crate) end: RunEnd,
    /// Initial time that is not measured.
    pub(crate) warm_up: Duration,
    /// When a stream requests its next batch.
    pub(crate) pace: Pace,
    /// Whether to verify checksums. Headers are always verified.
    pub(crate) verify: bool,
}

/// When a stream ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum RunEnd {
    /// After this many epochs.
    Epochs(u64),
    /// This long after the warm-up, also within an epoch.
    Duration(Duration),
}
