//! Retry policy: when to retry, on which replica, and for how long. Makes no connection.
//!
//! A pass tries each replica once without a pause, so a draining or unreachable server costs no delay while another one
//! responds. Pauses between passes double and are jittered, so that the ranks of a job do not reconnect at once. Passes
//! and time are limited; both limits restart with each received batch.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;
use tonic::Code;

use crate::{Error, HeaderError, transport::Link};

/// Trailer in which a server permits a retry and sets its delay (gRPC proposal A6).
const RETRY_PUSHBACK: &str = "grpc-retry-pushback-ms";

/// Limits of the retries for one batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retry {
    /// Maximum attempts per replica.
    pub passes_max: u32,
    /// Pause after the first pass, jittered down to half; it doubles with each pass.
    pub pause_first: Duration,
    /// Time after the first error at which the last pass may begin; zero: one pass to open a stream, no failover.
    pub deadline: Duration,
}

impl Default for Retry {
    /// Pauses of 0.1 s + 0.2 s + … + 12.8 s: about 19 s if no connection hangs.
    fn default() -> Self {
        Self { passes_max: 9, pause_first: Duration::from_millis(100), deadline: Duration::from_mins(1) }
    }
}

impl Retry {
    /// Returns the pause after `passes` + 1 failed passes.
    pub fn pause(&self, passes: u32) -> Duration {
        self.pause_jittered(passes, Link::default().chance())
    }

    fn pause_jittered(&self, passes: u32, jitter: f64) -> Duration {
        self.pause_first.saturating_mul(1 << passes.min(30)).mul_f64(0.5 + jitter / 2.0)
    }
}

/// Whether an error permits a retry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// A retry may succeed, on any replica.
    Again,
    /// A retry may succeed on another replica only.
    Elsewhere,
    /// Every replica returns the same error, or the job must see it.
    Never,
}

/// Attempts for one batch, from the first error to the batch or to the retry limit.
#[derive(Debug)]
pub(crate) struct Outage {
    retry: Retry,
    begun: Instant,
    urls: Vec<Arc<str>>,
    /// Index of the next replica in this pass.
    next: usize,
    passes: u32,
    tries: u32,
    /// Whether an error of this pass was transient, so that another pass may succeed.
    is_transient: bool,
    /// Latest error of each replica.
    errors: Vec<(Arc<str>, Error)>,
}

/// Classifies an error of a call or a stream.
pub(crate) fn verdict(error: &Error) -> Verdict {
    match error {
        Error::Unreachable { .. }
        | Error::Disconnected { .. }
        | Error::Truncated { .. }
        | Error::Header { reason: HeaderError::Checksum { .. }, .. } => Verdict::Again,
        Error::Status(status) => match status.code() {
            // Only a broken connection cancels a call.
            Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled => Verdict::Again,
            // A temporary limit.
            Code::ResourceExhausted if status.metadata().contains_key(RETRY_PUSHBACK) => Verdict::Again,
            Code::NotFound | Code::ResourceExhausted => Verdict::Elsewhere,
            _ => Verdict::Never,
        },
        Error::Handshake { .. } => Verdict::Elsewhere,
        _ => Verdict::Never,
    }
}

impl Error {
    /// Whether a retry can succeed: the server is draining or unreachable, or the connection broke.
    pub fn is_passing(&self) -> bool {
        verdict(self) == Verdict::Again
    }
}

// === impl Outage ===

impl Outage {
    /// Starts with the replicas in the order in which to try them.
    pub(crate) fn begin(retry: Retry, urls: Vec<Arc<str>>, now: Instant) -> Self {
        Self { retry, begun: now, urls, next: 0, passes: 0, tries: 0, is_transient: false, errors: Vec::new() }
    }

    /// Records a failed attempt.
    pub(crate) fn failed(&mut self, url: Arc<str>, error: Error) {
        self.tries += 1;
        self.is_transient |= verdict(&error) == Verdict::Again;
        self.errors.retain(|(other, _)| *other != url);
        self.errors.push((url, error));
    }

    /// Returns the next replica and the pause before it, or none to give up.
    pub(crate) fn next(&mut self, now: Instant, jitter: f64) -> Option<(Arc<str>, Duration)> {
        let mut pause = Duration::ZERO;
        if self.next == self.urls.len() {
            pause = self.retry.pause_jittered(self.passes, jitter);
            self.passes += 1;
            let late = now.duration_since(self.begun).saturating_add(pause) > self.retry.deadline;
            if !self.is_transient || late || self.passes >= self.retry.passes_max {
                return None;
            }
            (self.next, self.is_transient) = (0, false);
        }
        let url = self.urls.get(self.next).cloned()?;
        self.next += 1;
        Some((url, pause))
    }

    /// Returns the final error; `position` is where to resume.
    pub(crate) fn give_up(mut self, position: u64) -> Error {
        let line = |(url, error): &(Arc<str>, Error)| format!("{url}: {}", error.brief());
        let replicas = self.errors.iter().map(line).collect::<Vec<_>>().join("; ");
        match self.errors.pop() {
            // A single or permanent error is returned unchanged.
            Some((_, error)) if !self.is_transient || self.tries == 1 => error,
            Some((_, source)) => Error::GaveUp { tries: self.tries, replicas, position, source: Box::new(source) },
            None => Error::Incomplete { call: "the replicas", missing: "URL" },
        }
    }
}

#[cfg(test)]
mod tests;
