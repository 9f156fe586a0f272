//! The order of jobs: that of the tenant which has used the least CPU time is next, as in fair queueing by virtual time
//! (Demers, Keshav and Shenker 1989; WFQ with equal weights). The jobs of one tenant keep their order.
//!
//! All times are nanoseconds since a fixed moment.

use std::collections::{HashMap, VecDeque};

use crate::tenant::Tenant;

/// Tenants without jobs whose CPU time is kept.
const TENANTS_KEPT_MAX: usize = 256;

/// Waiting and running jobs by tenant.
#[derive(Debug)]
pub(super) struct Schedule<Job> {
    tenants: HashMap<Tenant, TenantJobs<Job>>,
    waiting: usize,
    /// The CPU time that the tenant whose job started last had used. A tenant that returns starts here: it does not
    /// save up CPU time while it is idle, and has no debt to others that were.
    clock: u64,
    /// Jobs so far.
    pushed: u64,
    /// The time at which a thread was last free for a job in turn.
    freed: u64,
}

/// The jobs of one tenant.
#[derive(Debug)]
struct TenantJobs<Job> {
    waiting: VecDeque<WaitingJob<Job>>,
    /// CPU time of ended jobs, from the schedule's clock on.
    used: u64,
    running: u64,
    /// The sum of the times at which the running jobs started.
    started: u64,
}

#[derive(Debug)]
struct WaitingJob<Job> {
    job: Job,
    since: u64,
    /// Its number among all jobs.
    number: u64,
}

/// A job that runs, to be returned to [`Schedule::end`].
#[derive(Debug)]
#[must_use]
pub(super) struct StartedJob {
    pub(super) tenant: Tenant,
    start: u64,
}

// === impl Schedule ===

impl<Job> Default for Schedule<Job> {
    fn default() -> Self {
        Self { tenants: HashMap::new(), waiting: 0, clock: 0, pushed: 0, freed: 0 }
    }
}

impl<Job> Schedule<Job> {
    /// Adds a job.
    pub(super) fn push(&mut self, tenant: &Tenant, job: Job, now: u64) {
        let clock = self.clock;
        if !self.tenants.contains_key(tenant) {
            // Forgets those that have no jobs, unless they have used more than others.
            let is_full = self.tenants.len() >= TENANTS_KEPT_MAX;
            self.tenants.retain(|_, jobs| !jobs.is_idle() || (jobs.used > clock && !is_full));
            self.tenants.insert(tenant.clone(), TenantJobs::default());
        }
        let Some(jobs) = self.tenants.get_mut(tenant) else { return };
        if jobs.is_idle() {
            jobs.used = jobs.used.max(clock);
        }
        jobs.waiting.push_back(WaitingJob { job, since: now, number: self.pushed });
        self.pushed += 1;
        self.waiting += 1;
    }

    /// Starts the next job.
    pub(super) fn start(&mut self, now: u64) -> Option<(Job, StartedJob)> {
        self.freed = now;
        self.start_among(now, |_| true)
    }

    /// Starts the next job of a tenant of which no job runs, if it waits and no thread was free for `patience`.
    pub(super) fn start_starved(&mut self, now: u64, patience: u64) -> Option<(Job, StartedJob)> {
        let freed = self.freed;
        self.start_among(now, |jobs| jobs.starves_from(freed, patience).is_some_and(|from| from <= now))
    }

    /// The time from which [`Self::start_starved`] starts a job that waits now.
    pub(super) fn starves_from(&self, patience: u64) -> Option<u64> {
        self.tenants.values().filter_map(|jobs| jobs.starves_from(self.freed, patience)).min()
    }

    fn start_among(&mut self, now: u64, may: impl Fn(&TenantJobs<Job>) -> bool) -> Option<(Job, StartedJob)> {
        let next = self.tenants.iter_mut().filter(|(_, jobs)| may(jobs));
        let next = next.filter_map(|(tenant, jobs)| {
            let first = jobs.waiting.front()?;
            Some(((jobs.used_at(now), first.number), tenant, jobs))
        });
        let ((used, _), tenant, jobs) = next.min_by_key(|(key, ..)| *key)?;
        let WaitingJob { job, .. } = jobs.waiting.pop_front()?;
        jobs.running += 1;
        jobs.started += now;
        self.clock = self.clock.max(used);
        self.waiting -= 1;
        Some((job, StartedJob { tenant: tenant.clone(), start: now }))
    }

    /// Accounts a job that has ended.
    pub(super) fn end(&mut self, ended: StartedJob, now: u64) {
        let StartedJob { tenant, start } = ended;
        if let Some(jobs) = self.tenants.get_mut(&tenant) {
            jobs.running -= 1;
            jobs.started -= start;
            jobs.used += now.saturating_sub(start);
        }
    }

    /// The number of jobs that wait.
    pub(super) fn waiting(&self) -> usize {
        self.waiting
    }

    /// The time that the job which waits longest has waited.
    pub(super) fn longest_wait(&self, now: u64) -> u64 {
        let firsts = self.tenants.values().filter_map(|jobs| jobs.waiting.front());
        firsts.map(|first| now.saturating_sub(first.since)).max().unwrap_or(0)
    }

    /// Removes all jobs that wait.
    pub(super) fn take_waiting(&mut self) -> Vec<Job> {
        self.waiting = 0;
        let jobs = self.tenants.values_mut().flat_map(|jobs| jobs.waiting.drain(..));
        jobs.map(|waiting| waiting.job).collect()
    }
}

// === impl TenantJobs ===

impl<Job> Default for TenantJobs<Job> {
    fn default() -> Self {
        Self { waiting: VecDeque::new(), used: 0, running: 0, started: 0 }
    }
}

impl<Job> TenantJobs<Job> {
    fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.running == 0
    }

    /// The CPU time used until now, that of running jobs included.
    fn used_at(&self, now: u64) -> u64 {
        self.used + (self.running * now).saturating_sub(self.started)
    }

    /// Behind jobs that have run for `patience` already, a job starves at once.
    fn starves_from(&self, freed: u64, patience: u64) -> Option<u64> {
        let first = self.waiting.front().filter(|_| self.running == 0)?;
        Some(if freed <= first.since { first.since.max(freed + patience) } else { first.since + patience })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant(name: &str) -> Tenant {
        Tenant::new(&name.into())
    }

    /// Runs the jobs of a schedule on one thread, each for as long as it says, and returns their names in order.
    fn run_all(schedule: &mut Schedule<(&'static str, u64)>, mut now: u64) -> Vec<&'static str> {
        let mut names = Vec::new();
        while let Some(((name, time), started)) = schedule.start(now) {
            names.push(name);
            now += time;
            schedule.end(started, now);
        }
        names
    }

    #[test]
    fn a_tenant_with_many_long_jobs_delays_another_by_one_of_them() {
        let (greedy, modest) = (tenant("greedy"), tenant("modest"));
        let mut schedule = Schedule::default();
        (0..50).for_each(|_| schedule.push(&greedy, ("long", 1000), 0));
        let (_, first) = schedule.start(0).unwrap();
        (0..4).for_each(|_| schedule.push(&modest, ("short", 10), 1));
        schedule.end(first, 1000);
        assert_eq!(run_all(&mut schedule, 1000)[..6], ["short", "short", "short", "short", "long", "long"]);
    }

    #[test]
    fn tenants_get_equal_cpu_time_and_not_equal_numbers_of_jobs() {
        let (one, other) = (tenant("one"), tenant("other"));
        let mut schedule = Schedule::default();
        for _ in 0..20 {
            schedule.push(&one, ("long", 90), 0);
            schedule.push(&other, ("short", 30), 0);
        }
        let order = run_all(&mut schedule, 0);
        let long = order[..16].iter().filter(|name| **name == "long").count();
        assert_eq!(long, 4, "{order:?}");
    }

    #[test]
    fn idle_time_is_not_saved_up() {
        let (busy, idle) = (tenant("busy"), tenant("idle"));
        let mut schedule = Schedule::default();
        (0..100).for_each(|_| schedule.push(&busy, ("busy", 10), 0));
        assert_eq!(run_all(&mut schedule, 0).len(), 100);
        for _ in 0..4 {
            schedule.push(&idle, ("idle", 10), 1000);
            schedule.push(&busy, ("busy", 10), 1000);
        }
        let order = run_all(&mut schedule, 1000);
        assert_eq!(order[..4].iter().filter(|name| **name == "busy").count(), 2, "{order:?}");
    }

    #[test]
    fn jobs_that_run_count_before_they_end() {
        let (running, other) = (tenant("running"), tenant("other"));
        let mut schedule = Schedule::default();
        schedule.push(&running, ("first", 0), 0);
        let (_, first) = schedule.start(0).unwrap();
        schedule.push(&running, ("second", 0), 1);
        schedule.push(&other, ("other", 0), 2);
        let ((name, _), second) = schedule.start(100).unwrap();
        assert_eq!(name, "other");
        schedule.end(first, 100);
        schedule.end(second, 100);
    }

    #[test]
    fn a_tenant_without_a_running_job_starves() {
        let (one, other) = (tenant("one"), tenant("other"));
        let mut schedule = Schedule::default();
        schedule.push(&one, "running", 0);
        let (_, running) = schedule.start(0).unwrap();
        schedule.push(&one, "after it", 0);
        assert_eq!(schedule.starves_from(20), None);
        schedule.push(&other, "starved", 5);
        assert_eq!((schedule.starves_from(20), schedule.longest_wait(20)), (Some(20), 20));
        assert!(schedule.start_starved(19, 20).is_none());
        let (job, starved) = schedule.start_starved(20, 20).unwrap();
        assert_eq!((job, schedule.starves_from(20), schedule.waiting()), ("starved", None, 1));
        // The next one does not wait for a job that has run for so long.
        schedule.end(starved, 25);
        schedule.push(&other, "starved", 26);
        assert_eq!(schedule.starves_from(20), Some(26));
        let (_, starved) = schedule.start_starved(26, 20).unwrap();
        schedule.end(starved, 30);
        schedule.end(running, 30);
    }

    #[test]
    fn tenants_without_jobs_are_forgotten() {
        let mut schedule = Schedule::default();
        for number in 0..1000 {
            schedule.push(&tenant(&number.to_string()), ("job", 1), number);
            run_all(&mut schedule, number);
        }
        assert!(schedule.tenants.len() <= TENANTS_KEPT_MAX, "{} are kept", schedule.tenants.len());
    }
}
