//! One run: machines, a network and a clock; faults that begin and end as scheduled; a supervisor that restarts the
//! job; a time limit.

use std::{
    panic,
    rc::Rc,
    sync::Arc,
    time::{Duration, SystemTime},
};

use forebay_client::Cursor;
use turmoil::Sim;

use crate::{
    bucket::Bucket,
    chance::Chance,
    dataset,
    journal::{Counts, Journal},
    panics,
    replica::{self, Replica},
    schedule::{Fault, RANKS_MAX, Scenario},
    trainer::{Job, Request, Segment},
};

/// Time slice of each machine; messages are delivered between slices.
const TICK: Duration = Duration::from_millis(10);

/// Time limit of the job after the last fault: a silent connection times out after 30 s, and the stream or job resumes
/// in less time than that.
const END_WITHIN: Duration = Duration::from_mins(2);

/// The result of a run.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// The error, if any.
    pub(crate) failure: Option<String>,
    /// The batches received from each start of the job.
    pub(crate) segments: Vec<Segment>,
    pub(crate) log: Vec<String>,
    pub(crate) counts: Counts,
    pub(crate) simulated: Duration,
}

/// A scheduled event.
#[derive(Clone, Copy, Debug)]
enum Event {
    Begin(Fault),
    End(Fault),
    Restart { resize: bool },
}

/// The state of a run outside of the simulated machines.
struct World {
    sim: Sim<'static>,
    replicas: Vec<Rc<Replica>>,
    job: Rc<Job>,
    bucket: Arc<Bucket>,
    journal: Arc<Journal>,
    chance: Chance,
    ranks: u64,
    /// Sorted by time; equal times in the order of the schedule.
    events: Vec<(Duration, Event)>,
    is_restarting: bool,
    latency_min: Duration,
}

/// Runs a scenario, from a cursor if given.
pub(crate) fn run(scenario: &Scenario, cursor: Option<Cursor>) -> Outcome {
    let directory = tempfile::tempdir().unwrap();
    let mut world = World::new(scenario, cursor, directory.path());
    let before = panics::count();
    let driven = panic::catch_unwind(panic::AssertUnwindSafe(|| world.drive(scenario.faults_end() + END_WITHIN)));
    let mut failure = driven.unwrap_or_else(|_| Err("the simulation panicked".to_owned())).err();
    if failure.is_none() && panics::count() > before {
        failure = Some("a task panicked".to_owned());
    }
    let segments = world.job.state.borrow().segments.clone();
    let simulated = world.sim.elapsed();
    Outcome { failure, segments, log: world.journal.lines(), counts: world.journal.counts(), simulated }
}

fn rank_name(rank: u64) -> String {
    format!("rank-{rank}")
}

/// Whether the job may resume at another world size: its steps must align with lanes, counted from the start of the
/// epoch or from the cursor.
fn may_resize(request: &Request, cursor: Option<&Cursor>, world_size: u64) -> bool {
    let Some(cursor) = cursor else { return true };
    let step_rows = world_size * request.batch_size;
    match cursor.lanes {
        None => cursor.position == 0,
        Some(lanes) => {
            let is_on_lanes = cursor.position.is_multiple_of(lanes) && step_rows.is_multiple_of(lanes);
            lanes.is_multiple_of(world_size) && (cursor.position.is_multiple_of(step_rows) || is_on_lanes)
        }
    }
}

impl World {
    fn new(scenario: &Scenario, cursor: Option<Cursor>, directory: &std::path::Path) -> Self {
        let latency_min = Duration::ZERO;
        let mut sim = turmoil::Builder::new()
            .tick_duration(TICK)
            .epoch(SystemTime::UNIX_EPOCH)
            .simulation_duration(Duration::MAX)
            .min_message_latency(latency_min)
            .max_message_latency(scenario.latency_max)
            .rng_seed(scenario.seed)
            .build();
        let journal = Arc::new(Journal::default());
        let chance = |purpose| Chance::new(scenario.seed, purpose);
        let bucket = Bucket::new(dataset::files(), chance("bucket"), Arc::clone(&journal));
        let urls: Vec<String> = (0..scenario.replicas).map(replica::url).collect();
        let replicas: Vec<Rc<Replica>> = (0..scenario.replicas)
            .map(|number| {
                let state = directory.join(replica::name(number));
                Replica::new(number, scenario.portion_bytes, state, &bucket, &journal, urls.clone())
            })
            .collect();
        for replica in &replicas {
            let replica = Rc::clone(replica);
            sim.host(replica.name(), move || Rc::clone(&replica).run());
        }
        let (request, settings) = (scenario.request, scenario.settings);
        let job = Job::new(request, settings, scenario.world_size, cursor, urls, &journal, chance("clients"));
        let resizes = |fault| matches!(fault, Fault::KillRank { resize: true, .. });
        let is_resized = scenario.faults.iter().any(|planned| resizes(planned.fault));
        let ranks = if is_resized { RANKS_MAX } else { scenario.world_size };
        for rank in 0..ranks {
            let job = Rc::clone(&job);
            sim.host(rank_name(rank), move || Rc::clone(&job).run(rank));
        }
        let mut events: Vec<(Duration, Event)> = Vec::new();
        for planned in &scenario.faults {
            events.push((planned.at, Event::Begin(planned.fault)));
            events.push((planned.at + planned.lasts, Event::End(planned.fault)));
        }
        events.sort_by_key(|(at, _)| *at);
        let chance = chance("supervisor");
        let is_restarting = false;
        Self { sim, replicas, job, bucket, journal, chance, ranks, events, is_restarting, latency_min }
    }

    fn drive(&mut self, end: Duration) -> Result<(), String> {
        while !self.job.has_ended() {
            let now = self.sim.elapsed();
            while self.events.first().is_some_and(|(at, _)| *at <= now) {
                let (_, event) = self.events.remove(0);
                self.apply(event);
            }
            self.supervise();
            if let Some(error) = self.job.state.borrow_mut().error.take() {
                return Err(error);
            }
            if now > end {
                return Err(format!("the job has not ended {END_WITHIN:?} after the last fault"));
            }
            self.sim.step().map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    fn note(&self, event: impl std::fmt::Display) {
        self.journal.note_at(self.sim.elapsed(), event);
    }

    fn apply(&mut self, event: Event) {
        match event {
            Event::Begin(fault) => {
                self.note(format_args!("begins: {fault:?}"));
                self.begin(fault);
            }
            Event::End(fault) => {
                self.note(format_args!("ends: {fault:?}"));
                self.end(fault);
            }
            Event::Restart { resize } => self.restart(resize),
        }
    }

    fn begin(&mut self, fault: Fault) {
        self.journal.count(fault.kind());
        match fault {
            Fault::Kill { replica } => self.start(replica, false),
            Fault::Vanish { replica } => {
                for rank in 0..self.ranks {
                    self.sim.partition(replica::name(replica), rank_name(rank));
                }
                self.sim.crash(replica::name(replica));
            }
            Fault::Drain { replica, grace } => {
                let replica = &self.replicas[replica];
                if replica.is_up.get() {
                    replica.grace.set(grace);
                    replica.terminate();
                }
            }
            Fault::Partition { replica, rank } => self.sim.partition(replica::name(replica), self.rank(rank)),
            Fault::Hold { replica, rank } => self.sim.hold(replica::name(replica), self.rank(rank)),
            Fault::Slow { replica, rank, latency } => {
                self.sim.set_link_latency(replica::name(replica), self.rank(rank), latency);
            }
            Fault::Cut { replica, bytes } => {
                let cut = self.replicas[replica].wires.borrow_mut().cut_after(bytes);
                self.note(format_args!("{cut} connections will be cut"));
            }
            Fault::Store { replica, fault, percent } => self.bucket.set_fault(replica, fault, percent),
            Fault::KillRank { rank, resize } => {
                let rank = rank % self.job.world_size();
                self.sim.crash(rank_name(rank));
                self.restart_soon(resize);
            }
        }
    }

    fn end(&mut self, fault: Fault) {
        match fault {
            Fault::Kill { replica } | Fault::Drain { replica, .. } => self.start(replica, true),
            Fault::Vanish { replica } => {
                for rank in 0..self.ranks {
                    self.sim.repair(replica::name(replica), rank_name(rank));
                }
                self.start(replica, true);
            }
            Fault::Partition { replica, rank } => self.sim.repair(replica::name(replica), self.rank(rank)),
            Fault::Hold { replica, rank } => self.sim.release(replica::name(replica), self.rank(rank)),
            Fault::Slow { replica, rank, .. } => {
                self.sim.set_link_latency(replica::name(replica), self.rank(rank), self.latency_min);
            }
            Fault::Store { replica, .. } => self.bucket.clear_fault(replica),
            Fault::Cut { .. } | Fault::KillRank { .. } => {}
        }
    }

    /// Restarts a replica's machine, with or without a server.
    fn start(&mut self, replica: usize, is_up: bool) {
        self.sim.crash(replica::name(replica));
        self.replicas[replica].is_up.set(is_up);
        self.sim.bounce(replica::name(replica));
    }

    fn rank(&self, rank: u64) -> String {
        rank_name(rank % self.ranks)
    }

    /// Restarts the job if a rank gave up.
    fn supervise(&mut self) {
        if self.job.state.borrow().gave_up {
            self.restart_soon(false);
        }
    }

    fn restart_soon(&mut self, resize: bool) {
        if !self.is_restarting {
            self.is_restarting = true;
            let at = self.sim.elapsed() + Duration::from_millis(self.chance.within(50..=1_000));
            let index = self.events.partition_point(|(other, _)| *other <= at);
            self.events.insert(index, (at, Event::Restart { resize }));
        }
    }

    /// Restarts all ranks, as the launcher of a job does when one ends.
    fn restart(&mut self, resize: bool) {
        self.is_restarting = false;
        let saved = self.job.state.borrow().saved.as_deref().map(|text| Cursor::from_json(text).unwrap());
        let present = self.job.world_size();
        let may = |world_size: &u64| may_resize(&self.job.request, saved.as_ref(), *world_size);
        let others: Vec<u64> = (1..=self.ranks).filter(|size| *size != present).filter(may).collect();
        let world_size = if resize && !others.is_empty() { self.chance.one_of(&others) } else { present };
        if world_size != present {
            self.journal.count("jobs resumed at another world size");
        }
        self.journal.count("job restarted");
        self.note(format_args!("the job restarts with {world_size} ranks instead of {present}"));
        for rank in 0..self.ranks {
            self.sim.crash(rank_name(rank));
        }
        self.job.restart(world_size);
        for rank in 0..self.ranks {
            self.sim.bounce(rank_name(rank));
        }
    }
}
