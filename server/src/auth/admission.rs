//! Limits of each caller: open streams, and calls per second.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};

use super::{caller::Caller, error::AccessError, principals::Principal};

/// Delay before a client that was refused a stream retries: streams last long, and a retry costs little.
const STREAMS_RETRY_MS: u64 = 1000;

/// Limits of open streams.
#[derive(Clone, Copy, Debug)]
pub struct StreamLimits {
    /// Streams of one caller.
    pub per_client: usize,
    /// Streams of all callers.
    pub total: usize,
}

/// Counts the open streams. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Admission {
    limits: StreamLimits,
    open: Arc<Mutex<Open>>,
}

/// Permission to keep a stream open; dropping it frees its place.
#[derive(Debug)]
pub struct StreamPermit {
    open: Arc<Mutex<Open>>,
    name: Arc<str>,
}

#[derive(Debug, Default)]
struct Open {
    total: usize,
    by_name: HashMap<Arc<str>, usize>,
}

/// Token buckets of the principals that have a limit of calls.
#[derive(Debug, Default)]
pub(super) struct Rates(Mutex<HashMap<Arc<str>, Bucket>>);

/// A token bucket of at most one second's calls.
#[derive(Debug)]
struct Bucket {
    calls: f64,
    filled: Instant,
}

// === impl Admission ===

impl Admission {
    /// Creates a counter of open streams with these limits.
    pub fn new(limits: StreamLimits) -> Self {
        Self { limits, open: Arc::default() }
    }

    /// Admits a stream of a caller, or reports the limit that it would exceed.
    pub fn stream(&self, caller: &Caller) -> Result<StreamPermit, AccessError> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let own = open.by_name.get(caller.name()).copied().unwrap_or(0);
        let principal_limit = caller.streams_max().map(|limit| (limit, "streams_max of --principals"));
        let (own_limit, own_flag) = principal_limit.unwrap_or((self.limits.per_client, "--streams-per-client"));
        let refused = |open: usize, whose: String, limit: usize, flag: &'static str| {
            Err(AccessError::Streams { open, whose, limit, flag, retry_ms: STREAMS_RETRY_MS })
        };
        if own >= own_limit {
            return refused(own, format!("of {}", caller.name()), own_limit, own_flag);
        }
        if open.total >= self.limits.total {
            return refused(open.total, "of this server".to_owned(), self.limits.total, "--streams-max");
        }
        open.total += 1;
        *open.by_name.entry(Arc::clone(caller.name())).or_insert(0) += 1;
        Ok(StreamPermit { open: Arc::clone(&self.open), name: Arc::clone(caller.name()) })
    }
}

impl Drop for StreamPermit {
    fn drop(&mut self) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.total -= 1;
        if let Some(own) = open.by_name.get_mut(&self.name) {
            *own -= 1;
            if *own == 0 {
                open.by_name.remove(&self.name);
            }
        }
    }
}

// === impl Rates ===

impl Rates {
    /// Counts a call, or reports when the next one is allowed.
    pub(super) fn take(&self, principal: &Principal) -> Result<(), AccessError> {
        let Some(calls_per_second) = principal.calls_per_second else { return Ok(()) };
        let now = Instant::now();
        // A principal that may make one call in two seconds may make the first immediately.
        let calls_max = calls_per_second.max(1.0);
        let mut buckets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let bucket =
            buckets.entry(Arc::clone(&principal.name)).or_insert_with(|| Bucket { calls: calls_max, filled: now });
        let since = now.saturating_duration_since(bucket.filled).as_secs_f64();
        bucket.calls = (bucket.calls + since * calls_per_second).min(calls_max);
        bucket.filled = now;
        if bucket.calls >= 1.0 {
            bucket.calls -= 1.0;
            return Ok(());
        }
        let retry_ms = ((1.0 - bucket.calls) / calls_per_second * 1000.0).ceil() as u64;
        Err(AccessError::Rate { name: Arc::clone(&principal.name), calls_per_second, retry_ms })
    }
}
