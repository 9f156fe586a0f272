//! The bottleneck of a run, derived from the stage times in the batch headers.

use forebay_client::StageSeconds;
use serde::Serialize;

/// The wire is the bottleneck if the server waits for its clients for more than this share of the streams' time, or if
/// clients wait while the server is idle for more than this share.
const SENDING_SHARE: f64 = 0.5;

/// The schedule is the bottleneck if more than this share of the streams' time is not spent waiting.
const EARLY_SHARE: f64 = 0.9;

/// Bottleneck of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Bound {
    /// Schedule of an open loop: batches arrived before they were scheduled.
    Schedule,
    Wire,
    Storage,
    /// Python functions of the plan.
    Functions,
    Cpu,
}

impl Bound {
    /// Returns the bottleneck, given the sums over all streams of stage times, running time and waiting time. Each
    /// stream computes `lanes` lanes concurrently, which wait for storage and for CPU threads concurrently.
    pub(crate) fn of(stages: &StageSeconds, stream_seconds: f64, wait_seconds: f64, lanes: f64) -> Option<Self> {
        if stream_seconds <= 0.0 {
            return None;
        }
        let (fetch, udf) = (stages.fetch / lanes.max(1.0), stages.udf / lanes.max(1.0));
        // Lanes, or decoding in file order, wait for CPU threads while the batches before are computed and encoded.
        let cpu = stages.queue / (lanes.max(1.0) + 1.0) + compute(stages);
        Some(if wait_seconds < (1.0 - EARLY_SHARE) * stream_seconds {
            Self::Schedule
        } else if stages.send_wait > SENDING_SHARE * stream_seconds
            || fetch + udf + cpu < (1.0 - SENDING_SHARE) * wait_seconds
        {
            Self::Wire
        } else if udf > cpu.max(fetch) {
            Self::Functions
        } else if fetch > cpu {
            Self::Storage
        } else {
            Self::Cpu
        })
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Schedule => "schedule",
            Self::Wire => "wire",
            Self::Storage => "storage",
            Self::Functions => "functions",
            Self::Cpu => "CPU",
        }
    }
}

/// Returns the seconds of CPU work.
fn compute(stages: &StageSeconds) -> f64 {
    stages.decode + stages.transform + stages.assemble
}

/// Adds a batch's stage times.
pub(super) fn add(sum: &mut StageSeconds, more: &StageSeconds) {
    sum.fetch += more.fetch;
    sum.queue += more.queue;
    sum.decode += more.decode;
    sum.transform += more.transform;
    sum.assemble += more.assemble;
    sum.send_wait += more.send_wait;
    sum.udf += more.udf;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_the_largest_wait() {
        let stages = |fetch, decode, send_wait| StageSeconds { fetch, decode, send_wait, ..StageSeconds::default() };
        let bound = |stages: StageSeconds, wait| Bound::of(&stages, 10.0, wait, 4.0);
        assert_eq!(bound(stages(0.0, 9.0, 0.1), 9.5), Some(Bound::Cpu));
        assert_eq!(bound(stages(36.0, 1.0, 0.1), 9.5), Some(Bound::Storage));
        assert_eq!(bound(stages(8.0, 1.0, 0.1), 9.5), Some(Bound::Wire));
        // Four lanes wait concurrently.
        assert_eq!(bound(stages(8.0, 3.0, 0.1), 9.5), Some(Bound::Cpu));
        assert_eq!(bound(stages(8.0, 9.0, 6.0), 9.5), Some(Bound::Wire));
        assert_eq!(bound(stages(8.0, 9.0, 6.0), 0.5), Some(Bound::Schedule));
        // Most of the time is spent waiting for a CPU thread.
        let queued = |fetch, queue| StageSeconds { queue, ..stages(fetch, 1.0, 0.1) };
        assert_eq!(bound(queued(0.5, 0.0), 9.5), Some(Bound::Wire));
        assert_eq!(bound(queued(0.5, 32.0), 9.5), Some(Bound::Cpu));
        assert_eq!(bound(queued(36.0, 12.0), 9.5), Some(Bound::Storage));
        let called = |udf| StageSeconds { udf, ..stages(8.0, 1.0, 0.1) };
        assert_eq!(bound(called(36.0), 9.5), Some(Bound::Functions));
        assert_eq!(bound(called(4.0), 9.5), Some(Bound::Wire));
        assert_eq!(Bound::of(&stages(1.0, 1.0, 1.0), 0.0, 0.0, 1.0), None);
    }
}
