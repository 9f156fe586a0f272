//! How much state is kept. Any client that may read a dataset causes state: without limits it would fill the disk.
//!
//! Results, which are computed again if they are lost, go in the order of their last use. Plans, which clients name in
//! tickets and requests, go only if they were unused for a time.

use std::{
    cmp::Reverse,
    time::{Duration, SystemTime},
};

use super::kind::{Kind, StateEntry};

/// Kinds of results, which share their bytes equally.
pub(super) const RESULTS: [Kind; 4] = [Kind::RowCounts, Kind::GroupCounts, Kind::Description, Kind::Fit];

/// Time for which a plan of a request is kept: calls that name it in their tickets follow within it.
const INLINE_PLAN_TIME: Duration = Duration::from_hours(1);

/// Most plans of each kind.
const PLANS_MAX: usize = 10_000;

/// Limits of what is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// Bytes of fitted plans.
    pub plan_bytes: u64,
    /// Bytes of plans that clients sent in requests.
    pub inline_plan_bytes: u64,
    /// Bytes of results.
    pub result_bytes: u64,
    /// Time after which what was not used may go.
    pub unused: Duration,
}

/// Why a plan is not kept.
#[derive(Clone, Debug, thiserror::Error)]
#[error(
    "the plan has {bytes} bytes, and {present} of the {limit} bytes and {count} of the {max} plans that {flag} \
     allows are in use: remove plans with forebay plans rm --unused-days DAYS, or raise {flag}",
    max = PLANS_MAX
)]
pub struct PlansFull {
    bytes: u64,
    present: u64,
    limit: u64,
    count: usize,
    flag: &'static str,
}

impl Retention {
    /// 1 GiB of fitted plans, 16 MiB of others, 256 MiB of results; 30 days.
    pub const DEFAULT: Self = Self {
        plan_bytes: 1 << 30,
        inline_plan_bytes: 16 << 20,
        result_bytes: 256 << 20,
        unused: Duration::from_hours(30 * 24),
    };
}

impl Retention {
    /// The results of a kind that go: those that were not used for a time, and of the others those beyond `count_max` or the
    /// limit of bytes that were used longest ago.
    pub(super) fn surplus_results(&self, mut entries: Vec<StateEntry>, count_max: usize) -> Vec<String> {
        entries.sort_by_key(|entry| Reverse(entry.used));
        let (bytes_max, mut bytes) = (self.result_bytes / RESULTS.len() as u64, 0_u64);
        let mut surplus = Vec::new();
        for (index, entry) in entries.into_iter().enumerate() {
            bytes = bytes.saturating_add(entry.bytes);
            if index >= count_max || bytes > bytes_max || is_unused(entry.used, self.unused) {
                surplus.push(entry.id);
            }
        }
        surplus
    }

    /// The plans of a kind that go before one of `bytes` is written, those used longest ago; an error if plans that were
    /// used lately leave no room.
    pub(super) fn plans_in_the_way(
        &self,
        kind: Kind,
        mut entries: Vec<StateEntry>,
        bytes: u64,
    ) -> Result<Vec<String>, PlansFull> {
        let (limit, time, flag) = match kind {
            Kind::InlinePlan => (self.inline_plan_bytes, INLINE_PLAN_TIME.min(self.unused), "--state-inline-bytes"),
            _ => (self.plan_bytes, self.unused, "--state-plan-bytes"),
        };
        entries.sort_by_key(|entry| entry.used);
        let (mut present, mut count) = (entries.iter().map(|entry| entry.bytes).sum::<u64>(), entries.len());
        let mut removed = Vec::new();
        let mut unused = entries.into_iter().take_while(|entry| is_unused(entry.used, time));
        while present.saturating_add(bytes) > limit || count >= PLANS_MAX {
            let Some(entry) = unused.next() else { return Err(PlansFull { bytes, present, limit, count, flag }) };
            (present, count) = (present - entry.bytes, count - 1);
            removed.push(entry.id);
        }
        Ok(removed)
    }

    /// Those that were not used for a time.
    pub(super) fn unused(&self, entries: Vec<StateEntry>) -> Vec<String> {
        let unused = entries.into_iter().filter(|entry| is_unused(entry.used, self.unused));
        unused.map(|entry| entry.id).collect()
    }
}

fn is_unused(used: SystemTime, time: Duration) -> bool {
    used.elapsed().is_ok_and(|age| age > time)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_hours(24);

    /// Entries of 10 bytes that were used this long ago.
    fn entries(ages: &[(&str, Duration)]) -> Vec<StateEntry> {
        let entry = |(id, age): &(&str, Duration)| StateEntry {
            id: (*id).to_owned(),
            bytes: 10,
            used: SystemTime::now() - *age,
        };
        ages.iter().map(entry).collect()
    }

    #[test]
    fn results_go_by_bytes_count_and_age_the_least_recently_used_first() {
        let retention = Retention { result_bytes: 4 * 35, unused: 9 * DAY, ..Retention::DEFAULT };
        let kept = || entries(&[("2", 2 * DAY), ("1", DAY), ("old", 10 * DAY), ("3", 3 * DAY), ("4", 4 * DAY)]);
        assert_eq!(retention.surplus_results(kept(), 100), ["4", "old"]);
        assert_eq!(retention.surplus_results(kept(), 1), ["2", "3", "4", "old"]);
        let roomy = Retention { result_bytes: 1000, ..retention };
        assert_eq!(roomy.surplus_results(kept(), usize::MAX), ["old"]);
        assert_eq!(roomy.unused(kept()), ["old"]);
    }

    #[test]
    fn plans_make_room_only_if_they_are_unused() {
        let retention = Retention { plan_bytes: 30, inline_plan_bytes: 30, unused: 9 * DAY, ..Retention::DEFAULT };
        let way = |kind, bytes| {
            let kept = entries(&[("1", DAY), ("2", 10 * DAY), ("3", 11 * DAY)]);
            retention.plans_in_the_way(kind, kept, bytes)
        };
        assert_eq!(way(Kind::Plan, 0).unwrap(), Vec::<String>::new());
        assert_eq!(way(Kind::Plan, 20).unwrap(), ["3", "2"]);
        // Plans of requests make room even if they were used yesterday.
        assert_eq!(way(Kind::InlinePlan, 30).unwrap(), ["3", "2", "1"]);
        let full = way(Kind::Plan, 30).unwrap_err().to_string();
        assert!(full.contains("10 of the 30 bytes") && full.contains("--state-plan-bytes"), "{full}");
        assert!(way(Kind::InlinePlan, 31).is_err());
    }
}
