//! Limits the lines of refused calls in the access log: for each principal, or each address without one, the first of
//! an interval are written, and the others are counted.
//!
//! Metrics count every refusal.

use std::{
    collections::HashMap,
    convert::Infallible,
    mem,
    sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use forebay_runtime::log::ACCESS;
use tokio::time;

/// The time over which lines are counted.
const INTERVAL: Duration = Duration::from_secs(10);

/// Lines of one source in an interval.
const LINES_MAX: u64 = 100;

/// Sources that are counted separately. Further ones, as of a client with many addresses, share their lines.
const SOURCES_MAX: usize = 256;

/// The name of further sources.
const OTHERS: &str = "others";

/// The refusals of the current interval, by source.
#[derive(Debug, Default)]
struct RefusalCounts(HashMap<Arc<str>, u64>);

static SAMPLE: LazyLock<Mutex<RefusalCounts>> = LazyLock::new(Mutex::default);

/// Whether to log a refusal of a source, which is a principal or an address.
pub(super) fn admits(source: &str) -> bool {
    sample().admits(source)
}

/// Writes how many refusals were left out, at the end of each interval.
pub(super) async fn report() -> Infallible {
    loop {
        time::sleep(INTERVAL).await;
        write_left_out();
    }
}

/// Writes how many refusals of the interval were left out.
pub(super) fn write_left_out() {
    let left_out = sample().next_interval();
    for (source, count) in left_out {
        tracing::info!(target: ACCESS, source = &*source, count, "refused calls without a line of their own");
    }
}

fn sample() -> MutexGuard<'static, RefusalCounts> {
    SAMPLE.lock().unwrap_or_else(PoisonError::into_inner)
}

// === impl RefusalCounts ===

impl RefusalCounts {
    fn admits(&mut self, source: &str) -> bool {
        let has_own = self.0.len() < SOURCES_MAX || self.0.contains_key(source);
        let count = self.0.entry(if has_own { source } else { OTHERS }.into()).or_insert(0);
        *count += 1;
        *count <= LINES_MAX
    }

    /// The refusals of each source that were not written. Begins another interval.
    fn next_interval(&mut self) -> Vec<(Arc<str>, u64)> {
        let counts = mem::take(&mut self.0).into_iter();
        let mut left_out: Vec<_> = counts.map(|(source, count)| (source, count.saturating_sub(LINES_MAX))).collect();
        left_out.retain(|(_, count)| *count > 0);
        left_out.sort();
        left_out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_lines_of_an_interval_are_written_and_the_others_counted() {
        let mut sample = RefusalCounts::default();
        let written =
            |sample: &mut RefusalCounts, source: &str, count: u64| (0..count).filter(|_| sample.admits(source)).count();
        assert_eq!(written(&mut sample, "10.0.0.1", 1000), LINES_MAX as usize);
        assert_eq!(written(&mut sample, "trainer", 3), 3);
        assert_eq!(sample.next_interval(), [("10.0.0.1".into(), 1000 - LINES_MAX)]);
        assert_eq!(written(&mut sample, "10.0.0.1", LINES_MAX), LINES_MAX as usize);
        assert!(sample.next_interval().is_empty());
    }

    #[test]
    fn many_sources_share_their_lines() {
        let mut sample = RefusalCounts::default();
        let written = (0..10_000).filter(|number| sample.admits(&format!("10.0.0.{number}"))).count();
        assert_eq!(written, SOURCES_MAX + LINES_MAX as usize);
        assert_eq!(sample.0.len(), SOURCES_MAX + 1);
    }
}
