//! A training job: ranks that take their batches in step, save a cursor now and then, and are all started again from
//! what was saved when one of them is gone, at another world size if need be.

use std::{cell::RefCell, fmt, future, rc::Rc, sync::Arc, time::Duration};

use arrow::{array::AsArray, datatypes::UInt64Type};
use forebay_client::{
    Batch, Cursor, Error, Plan, RankStream, Remainder, Replicas, Retry, StreamRequest, Transport, Wire, plan_from_json,
};
use futures::{TryStreamExt, future::BoxFuture};
use tokio::time::sleep;

use crate::{chance::Chance, dataset, journal::Journal};

/// How often a rank looks whether the others have taken the step too.
const LOOK: Duration = Duration::from_millis(10);

/// What a process takes to begin: by then its servers listen.
const START: Duration = Duration::from_millis(100);

/// Of the order.
const SEED: u64 = 7;
const WINDOW_ROWS: u64 = 8;

/// What a job asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Request {
    pub(crate) plan: dataset::Plan,
    pub(crate) batch_size: u64,
    pub(crate) shuffle: bool,
    pub(crate) remainder: i32,
}

/// How a job goes about it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Habits {
    pub(crate) epochs: u64,
    /// Steps from one saved cursor to the next.
    pub(crate) save_every: u64,
    /// What a step of the training takes.
    pub(crate) step_time: Duration,
    pub(crate) retry: Retry,
}

/// One batch as a rank took it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Taken {
    pub(crate) epoch: u64,
    pub(crate) position: u64,
    pub(crate) step: u64,
    pub(crate) padding_rows: u64,
    pub(crate) last: bool,
    /// Of the body as it came; the client has held it against the bytes.
    pub(crate) checksum: u64,
    pub(crate) body_bytes: u64,
    /// The rows, by their index in file order.
    pub(crate) rows: Vec<u64>,
}

/// What the ranks took from one start of the job to the next.
#[derive(Clone, Debug)]
pub(crate) struct Segment {
    pub(crate) world_size: u64,
    /// What it went on from.
    pub(crate) cursor: Option<Cursor>,
    /// By rank.
    pub(crate) taken: Vec<Vec<Taken>>,
}

/// The job: what outlives its processes.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) request: Request,
    pub(crate) habits: Habits,
    pub(crate) urls: Vec<String>,
    pub(crate) journal: Arc<Journal>,
    pub(crate) chance: Arc<Chance>,
    pub(crate) state: RefCell<State>,
}

/// Where the job has come to.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) segments: Vec<Segment>,
    /// The last saved cursor, as its text.
    pub(crate) saved: Option<String>,
    /// Epoch and steps of each rank of the present segment; at an epoch's end its next one.
    progress: Vec<(u64, u64)>,
    pub(crate) ended: Vec<bool>,
    /// A rank gave up on all replicas: its process ended with an error.
    pub(crate) gave_up: bool,
    /// What must never happen.
    pub(crate) error: Option<String>,
}

/// A rank's machine, as its client sees the world from it.
struct Machine {
    chance: Arc<Chance>,
    journal: Arc<Journal>,
    rank: u64,
}

impl Request {
    fn to_stream(self, world_size: u64) -> StreamRequest {
        let plan: Plan = plan_from_json(self.plan.json().as_bytes()).unwrap();
        StreamRequest {
            dataset: dataset::NAME.into(),
            plan: Some(plan),
            batch_size: Some(self.batch_size),
            world_size: Some(world_size),
            seed: SEED,
            shuffle: self.shuffle,
            window_rows: self.shuffle.then_some(WINDOW_ROWS),
            remainder: self.remainder,
            with_row_ids: true,
            ..StreamRequest::default()
        }
    }

    pub(crate) fn remainder(&self) -> Remainder {
        Remainder::try_from(self.remainder).unwrap()
    }
}

impl Job {
    /// A job whose ranks are about to be started for the first time, from a cursor if there is one.
    pub(crate) fn new(
        request: Request,
        habits: Habits,
        world_size: u64,
        cursor: Option<Cursor>,
        urls: Vec<String>,
        journal: &Arc<Journal>,
        chance: Chance,
    ) -> Rc<Self> {
        let saved = cursor.as_ref().map(Cursor::to_json);
        let ranks = world_size as usize;
        let state = State {
            segments: vec![Segment { world_size, cursor, taken: vec![Vec::new(); ranks] }],
            saved,
            progress: vec![(0, 0); ranks],
            ended: vec![false; ranks],
            gave_up: false,
            error: None,
        };
        let (journal, chance, state) = (Arc::clone(journal), Arc::new(chance), RefCell::new(state));
        Rc::new(Self { request, habits, urls, journal, chance, state })
    }

    /// The job's ranks now.
    pub(crate) fn world_size(&self) -> u64 {
        self.state.borrow().progress.len() as u64
    }

    /// Whether every rank has taken all of it.
    pub(crate) fn has_ended(&self) -> bool {
        self.state.borrow().ended.iter().all(|ended| *ended)
    }

    /// Goes back to what was saved: what came behind it will be taken again, by so many ranks.
    pub(crate) fn begin_again(&self, world_size: u64) {
        let mut state = self.state.borrow_mut();
        let cursor = state.saved.as_deref().map(|text| Cursor::from_json(text).unwrap());
        let place = cursor.as_ref().map_or((0, 0), |cursor| (cursor.epoch, cursor.position));
        for taken in state.segments.iter_mut().flat_map(|segment| &mut segment.taken) {
            taken.retain(|batch| (batch.epoch, batch.position) < place);
        }
        let ranks = world_size as usize;
        state.segments.push(Segment { world_size, cursor, taken: vec![Vec::new(); ranks] });
        (state.progress, state.ended, state.gave_up) = (vec![(0, 0); ranks], vec![false; ranks], false);
    }

    /// The process of a rank.
    pub(crate) async fn run(self: Rc<Self>, rank: u64) -> turmoil::Result {
        if rank < self.world_size() {
            sleep(START).await;
            match self.train(rank).await {
                Ok(()) => self.state.borrow_mut().ended[rank as usize] = true,
                Err(error) => self.failed(rank, &error),
            }
        }
        // The machine goes on without a process.
        future::pending().await
    }

    async fn train(&self, rank: u64) -> Result<(), Error> {
        let request = self.request.to_stream(self.world_size());
        let mut cursor = self.state.borrow().saved.as_deref().map(Cursor::from_json).transpose()?;
        let outside = Machine { chance: Arc::clone(&self.chance), journal: Arc::clone(&self.journal), rank };
        let mut urls = self.urls.clone();
        // Each rank prefers another replica.
        urls.rotate_left(rank as usize % self.urls.len());
        let replicas = Replicas::new(&urls)?.with_retry(self.habits.retry).with_transport(Arc::new(outside));
        if cursor.is_some() {
            self.journal.count("ranks that went on from a cursor");
        }
        while cursor.as_ref().map_or(0, |cursor| cursor.epoch) < self.habits.epochs {
            let mut stream = match &cursor {
                None => replicas.open(&request, rank).await?,
                Some(cursor) => replicas.open_at(&request, rank, cursor).await?,
            };
            self.journal.note(format_args!("rank {rank} reads from {}", stream.url()));
            self.epoch(rank, &mut stream).await?;
            cursor = Some(stream.cursor().clone());
            self.in_step(rank, (stream.cursor().epoch, 0)).await;
            self.save(rank, stream.cursor());
        }
        Ok(())
    }

    async fn epoch(&self, rank: u64, stream: &mut RankStream) -> Result<(), Error> {
        let (mut url, mut steps) = (stream.url().to_owned(), 0);
        while let Some(batch) = stream.try_next().await? {
            if stream.url() != url {
                self.journal.count("fail-overs");
                self.journal.note(format_args!("rank {rank} goes on at {}", stream.url()));
                stream.url().clone_into(&mut url);
            }
            self.journal
                .note(format_args!("rank {rank} takes step {} of epoch {}", batch.header.step, batch.header.epoch));
            let epoch = batch.header.epoch;
            self.state.borrow_mut().take(rank, &batch);
            steps += 1;
            self.in_step(rank, (epoch, steps)).await;
            if steps % self.habits.save_every == 0 {
                self.save(rank, stream.cursor());
            }
            sleep(self.habits.step_time).await;
        }
        Ok(())
    }

    /// Waits until every rank is as far as this one, or has nothing left in the epoch.
    async fn in_step(&self, rank: u64, place: (u64, u64)) {
        self.state.borrow_mut().progress[rank as usize] = place;
        while self.state.borrow().progress.iter().any(|other| *other < place) {
            sleep(LOOK).await;
        }
    }

    /// One rank writes the checkpoint. Another one's file would say the same.
    fn save(&self, rank: u64, cursor: &Cursor) {
        if rank == 0 {
            self.journal.note(format_args!("saved at {} of epoch {}", cursor.position, cursor.epoch));
            self.state.borrow_mut().saved = Some(cursor.to_json());
        }
    }

    fn failed(&self, rank: u64, error: &Error) {
        self.journal.note(format_args!("rank {rank} fails: {error}"));
        let mut state = self.state.borrow_mut();
        if error.is_passing() || matches!(error, Error::GaveUp { .. }) {
            self.journal.count("ranks that gave up and were started again");
            state.gave_up = true;
        } else {
            state.error = Some(format!("rank {rank}: {error}"));
        }
    }
}

impl State {
    fn take(&mut self, rank: u64, batch: &Batch) {
        let header = &batch.header;
        let rows = batch.data.column_by_name("__row_id").unwrap().as_primitive::<UInt64Type>().values().to_vec();
        let taken = Taken {
            epoch: header.epoch,
            position: header.position,
            step: header.step,
            padding_rows: header.padding_rows,
            last: header.last,
            checksum: header.checksum,
            body_bytes: batch.body_bytes,
            rows,
        };
        self.segments.last_mut().unwrap().taken[rank as usize].push(taken);
    }
}

impl Transport for Machine {
    fn connect(&self, host: &str, port: u16) -> BoxFuture<'static, std::io::Result<Box<dyn Wire>>> {
        self.journal.count("connections");
        self.journal.note(format_args!("rank {} connects to {host}", self.rank));
        let host = host.to_owned();
        Box::pin(async move {
            let stream = turmoil::net::TcpStream::connect((host, port)).await?;
            Ok(Box::new(stream) as Box<dyn Wire>)
        })
    }

    fn chance(&self) -> f64 {
        self.chance.fraction()
    }
}

impl fmt::Debug for Machine {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Machine").field("rank", &self.rank).finish_non_exhaustive()
    }
}
