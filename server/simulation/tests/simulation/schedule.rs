//! The scenario of a seed: a job, its replicas, and a schedule of faults.

use std::{fmt, time::Duration};

use forebay_client::{Remainder, Retry};

use crate::{
    bucket::StoreFault,
    chance::Chance,
    dataset::{Plan, ROWS},
    trainer::{JobSettings, Request},
    wire::PORTION_TIME,
};

/// Epochs of a job.
pub(crate) const EPOCHS_MAX: u64 = 2;

/// Machines for ranks.
pub(crate) const RANKS_MAX: u64 = 4;

/// Approximate bytes of a batch on the wire: its frame and each row.
const STEP_BYTES: u64 = 600;
const ROW_BYTES: u64 = 30;

/// Time to open a stream.
const OPENING: Duration = Duration::from_millis(600);

/// A run, determined by its seed.
#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    pub(crate) seed: u64,
    pub(crate) replicas: usize,
    pub(crate) request: Request,
    pub(crate) settings: JobSettings,
    pub(crate) world_size: u64,
    /// Bytes that a replica sends on a connection per [`PORTION_TIME`].
    pub(crate) portion_bytes: usize,
    /// The longest latency of a message.
    pub(crate) latency_max: Duration,
    pub(crate) faults: Vec<Planned>,
}

/// A fault and its time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Planned {
    pub(crate) at: Duration,
    pub(crate) lasts: Duration,
    pub(crate) fault: Fault,
}

/// Faults of ranks and replicas, by index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A server is killed: its connections close, and nothing listens until it restarts.
    Kill { replica: usize },
    /// A machine disappears silently and returns with a new process.
    Vanish { replica: usize },
    /// A server gets SIGTERM and restarts.
    Drain { replica: usize, grace: Duration },
    /// All messages between two machines are lost, including those in flight.
    Partition { replica: usize, rank: u64 },
    /// Messages between two machines are delayed until the fault ends.
    Hold { replica: usize, rank: u64 },
    /// Messages between two machines have a high latency.
    Slow { replica: usize, rank: u64, latency: Duration },
    /// Every connection of a replica breaks after this many more bytes.
    Cut { replica: usize, bytes: u64 },
    /// A percentage of the responses of a replica's store are faulty.
    Store { replica: usize, fault: StoreFault, percent: u64 },
    /// A rank is killed, and the job restarts from its cursor; with `resize`, at another world size if possible.
    KillRank { rank: u64, resize: bool },
}

impl Scenario {
    /// The run of a seed.
    pub(crate) fn of(seed: u64) -> Self {
        let chance = Chance::new(seed, "schedule");
        let world_size = chance.within(1..=RANKS_MAX);
        let request = Request {
            plan: chance.one_of(&[Plan::Whole, Plan::Filtered]),
            batch_size: chance.one_of(&[4, 6, 8, 10, 16]),
            shuffle: chance.happens(0.6),
            remainder: chance.one_of(&[Remainder::Keep, Remainder::Keep, Remainder::Drop, Remainder::Pad]).into(),
        };
        let settings = JobSettings {
            epochs: chance.within(1..=EPOCHS_MAX),
            save_every: chance.one_of(&[1, 2, 5]),
            step_time: Duration::from_millis(chance.one_of(&[1, 10, 40])),
            retry: chance.one_of(&[
                Retry::default(),
                Retry { passes_max: 5, pause_first: Duration::from_millis(20), deadline: Duration::from_secs(20) },
            ]),
        };
        let replicas = chance.one_of(&[1, 2, 2, 3, 3]);
        let portion_bytes = chance.one_of(&[60, 150, 400]);
        let latency_max = Duration::from_millis(chance.one_of(&[0, 20, 80]));
        let step_bytes = STEP_BYTES + ROW_BYTES * request.batch_size;
        let step_time = settings.step_time + PORTION_TIME * (step_bytes / portion_bytes as u64) as u32;
        let steps = ROWS.div_ceil(world_size * request.batch_size) * settings.epochs;
        let time = OPENING + step_time * steps as u32;
        let faults = if chance.happens(0.05) { 0 } else { chance.within(1..=7) };
        let faults = (0..faults).map(|_| Planned::draw(&chance, replicas, time)).collect();
        Self { seed, replicas, request, settings, world_size, portion_bytes, latency_max, faults }
    }

    /// The same job without faults, on one replica, at full speed: the reference for other runs.
    pub(crate) fn calm(request: Request, settings: JobSettings, world_size: u64) -> Self {
        Self {
            seed: 0,
            replicas: 1,
            request,
            settings: JobSettings { epochs: EPOCHS_MAX, step_time: Duration::from_millis(1), ..settings },
            world_size,
            portion_bytes: 1 << 20,
            latency_max: Duration::ZERO,
            faults: Vec::new(),
        }
    }

    /// The end of the last fault.
    pub(crate) fn faults_end(&self) -> Duration {
        self.faults.iter().map(|planned| planned.at + planned.lasts).max().unwrap_or_default()
    }
}

impl Planned {
    /// A fault that begins within the duration of the job.
    fn draw(chance: &Chance, replicas: usize, time: Duration) -> Self {
        let replica = chance.within(0..=replicas as u64 - 1) as usize;
        let rank = chance.within(0..=RANKS_MAX - 1);
        let fault = match chance.within(0..=10) {
            0 | 1 => Fault::Kill { replica },
            2 => Fault::Vanish { replica },
            3 => Fault::Drain { replica, grace: Duration::from_millis(chance.one_of(&[0, 300, 3_000])) },
            4 => Fault::Partition { replica, rank },
            5 => Fault::Hold { replica, rank },
            6 => Fault::Slow { replica, rank, latency: Duration::from_millis(chance.within(50..=400)) },
            7 => Fault::Cut { replica, bytes: chance.within(1..=8_000) },
            8 | 9 => {
                let fault = chance.one_of(&[
                    StoreFault::Refused,
                    StoreFault::Busy,
                    StoreFault::Interrupted,
                    StoreFault::Short,
                    StoreFault::Whole,
                    StoreFault::Slow,
                ]);
                Fault::Store { replica, fault, percent: chance.one_of(&[30, 60, 100]) }
            }
            _ => Fault::KillRank { rank, resize: chance.happens(0.6) },
        };
        let at = Duration::from_millis(chance.within(0..=time.as_millis() as u64));
        // Some faults last longer than the 30 s timeout of silent connections.
        let lasts = if chance.happens(0.05) { chance.within(30_000..=45_000) } else { chance.within(50..=4_000) };
        Self { at, lasts: Duration::from_millis(lasts), fault }
    }
}

impl Fault {
    /// The name under which it is counted.
    pub(crate) fn kind(self) -> &'static str {
        match self {
            Self::Kill { .. } => "replica killed",
            Self::Vanish { .. } => "machine vanished",
            Self::Drain { .. } => "replica drained",
            Self::Partition { .. } => "partition",
            Self::Hold { .. } => "link held",
            Self::Slow { .. } => "link slow",
            Self::Cut { .. } => "connections cut",
            Self::Store { .. } => "storage fault",
            Self::KillRank { .. } => "rank killed",
        }
    }
}

impl fmt::Display for Scenario {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(formatter, "seed {}", self.seed)?;
        writeln!(
            formatter,
            "  {} replicas, {} ranks; {} bytes per 10 ms and connection, latency up to {:?}",
            self.replicas, self.world_size, self.portion_bytes, self.latency_max
        )?;
        writeln!(formatter, "  {:?}", self.request)?;
        writeln!(formatter, "  {:?}", self.settings)?;
        for Planned { at, lasts, fault } in &self.faults {
            writeln!(formatter, "  {at:?} for {lasts:?}: {fault:?}")?;
        }
        Ok(())
    }
}
