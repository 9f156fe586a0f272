//! The last calls that ended with an error of this server, for the status page.
//!
//! The page needs no credentials. It has names, reasons and numbers of these calls, never the texts of their errors.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
    time::{SystemTime, UNIX_EPOCH},
};

use forebay_proto::v1::Reason;

/// Errors that are kept.
const KEPT_MAX: usize = 20;

static LAST: Mutex<VecDeque<FailedCall>> = Mutex::new(VecDeque::new());

/// A call that ended with an error.
#[derive(Clone, Debug)]
pub struct FailedCall {
    /// Its end, in seconds since 1970.
    pub at: f64,
    /// Its method.
    pub call: &'static str,
    /// The dataset that it named.
    pub dataset: Option<String>,
    /// The column that the error is about.
    pub column: Option<String>,
    /// The caller.
    pub principal: Arc<str>,
    /// Why it failed.
    pub reason: Reason,
    /// The number of such calls.
    pub count: u64,
}

impl FailedCall {
    /// A call that ends now.
    pub fn now(call: &'static str, dataset: Option<&str>, principal: &Arc<str>, reason: Reason) -> Self {
        let at = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
        let (dataset, principal) = (dataset.map(str::to_owned), Arc::clone(principal));
        Self { at, call, dataset, column: None, principal, reason, count: 1 }
    }

    /// Keeps it, with the number of those like it before, and drops the oldest.
    pub(super) fn keep(self) {
        self.keep_in(&mut LAST.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn keep_in(mut self, last: &mut VecDeque<Self>) {
        if let Some(index) = last.iter().position(|other| other.is_like(&self)) {
            let earlier = last.remove(index).map_or(0, |earlier| earlier.count);
            self.count = self.count.saturating_add(earlier);
        }
        last.truncate(KEPT_MAX - 1);
        last.push_front(self);
    }

    fn is_like(&self, other: &Self) -> bool {
        let key =
            |one: &Self| (one.call, one.dataset.clone(), one.column.clone(), Arc::clone(&one.principal), one.reason);
        key(self) == key(other)
    }
}

/// The last calls that ended with an error, newest first.
pub fn last_errors() -> Vec<FailedCall> {
    LAST.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_that_fail_alike_are_counted_in_one_line() {
        let mut last = VecDeque::new();
        for number in 0..30 {
            FailedCall::now("DoGet", Some("a"), &"p".into(), Reason::Limit).keep_in(&mut last);
            FailedCall::now("DoGet", Some(&number.to_string()), &"p".into(), Reason::Limit).keep_in(&mut last);
        }
        assert_eq!(last.len(), KEPT_MAX);
        let counts: Vec<_> = last.iter().take(3).map(|call| (call.dataset.as_deref(), call.count)).collect();
        assert_eq!(counts, [(Some("29"), 1), (Some("a"), 30), (Some("28"), 1)]);
    }
}
