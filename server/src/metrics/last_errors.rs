//! The last calls that ended with an error of this server, for the status page.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
    time::{SystemTime, UNIX_EPOCH},
};

use serde::Serialize;

/// Errors that are kept.
const KEPT_MAX: usize = 20;

static LAST: Mutex<VecDeque<FailedCall>> = Mutex::new(VecDeque::new());

/// A call that ended with an error.
#[derive(Clone, Debug, Serialize)]
pub struct FailedCall {
    /// Its end, in seconds since 1970.
    pub at: f64,
    /// Its method.
    pub call: &'static str,
    /// The dataset that it named.
    pub dataset: Option<String>,
    /// The caller.
    pub principal: Arc<str>,
    /// The stable name of the reason.
    pub reason: &'static str,
    /// The text of the error, which is bounded.
    pub error: String,
}

impl FailedCall {
    /// A call that ends now.
    pub fn now(
        call: &'static str,
        dataset: Option<&str>,
        principal: &Arc<str>,
        (reason, error): (&'static str, &str),
    ) -> Self {
        let at = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
        let (dataset, principal, error) = (dataset.map(str::to_owned), Arc::clone(principal), error.to_owned());
        Self { at, call, dataset, principal, reason, error }
    }

    /// Keeps it, and drops the oldest.
    pub(super) fn keep(self) {
        let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
        last.truncate(KEPT_MAX - 1);
        last.push_front(self);
    }
}

/// The last calls that ended with an error, newest first.
pub fn last_errors() -> Vec<FailedCall> {
    LAST.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
}
