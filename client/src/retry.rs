//! When to try again, where, and for how long: the policy alone, without a connection or a stream.
//!
//! A pass asks each replica once, one right after the other: a server that drains or is gone costs no wait while another
//! answers. Between passes there is a pause, twice as long each time and jittered, so that the ranks of a job do not
//! come back all at once. Passes and time are both bounded, and both begin anew once a batch has come.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tonic::Code;

use crate::transport::Link;
use crate::{Error, HeaderError};

/// The trailer by which a server says that a call may be tried again, and when (gRPC's proposal A6).
const RETRY_PUSHBACK: &str = "grpc-retry-pushback-ms";

/// How long a client goes on asking its replicas for one batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retry {
    /// How often each replica is asked at most.
    pub passes_max: u32,
    /// The pause behind the first pass, shortened by up to a half; each further one is twice as long.
    pub pause_first: Duration,
    /// No pass begins later than this after the first trouble; zero: one pass to open a stream, and none to go on.
    pub deadline: Duration,
}

impl Default for Retry {
    /// 0.1 s + 0.2 s + … + 12.8 s of pauses: some 19 s where no connection hangs.
    fn default() -> Self {
        Self { passes_max: 9, pause_first: Duration::from_millis(100), deadline: Duration::from_mins(1) }
    }
}

impl Retry {
    /// The pause behind so many passes that failed and one more.
    pub fn pause(&self, passes: u32) -> Duration {
        self.pause_jittered(passes, Link::default().chance())
    }

    fn pause_jittered(&self, passes: u32, jitter: f64) -> Duration {
        self.pause_first.saturating_mul(1 << passes.min(30)).mul_f64(0.5 + jitter / 2.0)
    }
}

/// What an error says of another try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Another try, here or elsewhere, may bring what was asked for.
    Again,
    /// This server cannot, for as long as anyone waits; another one may.
    Elsewhere,
    /// The answer would be the same everywhere, or the job must hear of it.
    Never,
}

/// The tries for one batch, from the first trouble to the batch or to giving up.
#[derive(Debug)]
pub(crate) struct Outage {
    retry: Retry,
    begun: Instant,
    urls: Vec<Arc<str>>,
    /// The one to be asked next in this pass.
    next: usize,
    passes: u32,
    tries: u32,
    /// Whether waiting may help: a trouble of this pass was a passing one.
    hope: bool,
    /// The latest of each replica.
    troubles: Vec<(Arc<str>, Error)>,
}

/// Judges an error of a call or of a stream.
pub(crate) fn verdict(error: &Error) -> Verdict {
    match error {
        Error::Unreachable { .. }
        | Error::Disconnected { .. }
        | Error::Truncated { .. }
        | Error::Header { reason: HeaderError::Checksum { .. }, .. } => Verdict::Again,
        Error::Status(status) => match status.code() {
            // Neither side cancels a call but through a broken connection.
            Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled => Verdict::Again,
            // A limit that is reached for now.
            Code::ResourceExhausted if status.metadata().contains_key(RETRY_PUSHBACK) => Verdict::Again,
            Code::NotFound | Code::ResourceExhausted => Verdict::Elsewhere,
            _ => Verdict::Never,
        },
        _ => Verdict::Never,
    }
}

impl Error {
    /// Whether a retry can succeed: the server is draining, is unreachable, or its connection broke.
    pub fn is_passing(&self) -> bool {
        verdict(self) == Verdict::Again
    }
}

// === impl Outage ===

impl Outage {
    /// Begins with the replicas in the order in which they are asked.
    pub(crate) fn begin(retry: Retry, urls: Vec<Arc<str>>, now: Instant) -> Self {
        Self { retry, begun: now, urls, next: 0, passes: 0, tries: 0, hope: false, troubles: Vec::new() }
    }

    /// Notes a trouble that is not for ever.
    pub(crate) fn failed(&mut self, url: Arc<str>, error: Error) {
        self.tries += 1;
        self.hope |= verdict(&error) == Verdict::Again;
        self.troubles.retain(|(other, _)| *other != url);
        self.troubles.push((url, error));
    }

    /// The replica to ask next, and how long to wait before; none: give up.
    pub(crate) fn next(&mut self, now: Instant, jitter: f64) -> Option<(Arc<str>, Duration)> {
        let mut pause = Duration::ZERO;
        if self.next == self.urls.len() {
            pause = self.retry.pause_jittered(self.passes, jitter);
            self.passes += 1;
            let late = now.duration_since(self.begun).saturating_add(pause) > self.retry.deadline;
            if !self.hope || late || self.passes >= self.retry.passes_max {
                return None;
            }
            (self.next, self.hope) = (0, false);
        }
        let url = self.urls.get(self.next).cloned()?;
        self.next += 1;
        Some((url, pause))
    }

    /// What the caller hears in the end; `position` is where it may go on.
    pub(crate) fn give_up(mut self, position: u64) -> Error {
        let place = |(url, error): &(Arc<str>, Error)| format!("{url}: {error}");
        let replicas = self.troubles.iter().map(place).collect::<Vec<_>>().join("; ");
        match self.troubles.pop() {
            // A single answer that no waiting changes says it all.
            Some((_, error)) if !self.hope || self.tries == 1 => error,
            Some((_, source)) => Error::GaveUp { tries: self.tries, replicas, position, source: Box::new(source) },
            None => Error::Incomplete { call: "the replicas", missing: "URL" },
        }
    }
}

#[cfg(test)]
mod tests;
