//! A training job: its ranks take their steps together and save a cursor regularly. When a rank ends early, all restart
//! from the last cursor, possibly at another world size.

use std::{cell::RefCell, fmt, future, rc::Rc, sync::Arc, time::Duration};

use arrow::{array::AsArray, datatypes::UInt64Type};
use forebay_client::{
    Batch, Cursor, Error, Plan, RankStream, Remainder, Replicas, Retry, StreamRequest, Transport, Wire, plan_from_json,
};
use futures::{TryStreamExt, future::BoxFuture};
use tokio::time::sleep;

use crate::{chance::Chance, dataset, journal::Journal};

/// Interval at which a rank checks the progress of the others.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Startup time of a rank, after which servers listen.
const START: Duration = Duration::from_millis(100);

/// Parameters of the order.
const SEED: u64 = 7;
const WINDOW_ROWS: u64 = 8;

/// The stream request of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Request {
    pub(crate) plan: dataset::Plan,
    pub(crate) batch_size: u64,
    pub(crate) shuffle: bool,
    pub(crate) remainder: i32,
}

/// Settings of a job.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JobSettings {
    pub(crate) epochs: u64,
    /// Steps between saved cursors.
    pub(crate) save_every: u64,
    /// Duration of a training step.
    pub(crate) step_time: Duration,
    pub(crate) retry: Retry,
}

/// A batch that a rank received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReceivedBatch {
    pub(crate) epoch: u64,
    pub(crate) position: u64,
    pub(crate) step: u64,
    pub(crate) padding_rows: u64,
    pub(crate) last: bool,
    /// The checksum of the body, which the client has verified.
    pub(crate) checksum: u64,
    pub(crate) body_bytes: u64,
    /// The rows, by index in file order.
    pub(crate) rows: Vec<u64>,
}

/// The batches of all ranks from one start of the job to the next.
#[derive(Clone, Debug)]
pub(crate) struct Segment {
    pub(crate) world_size: u64,
    /// The cursor it started from.
    pub(crate) cursor: Option<Cursor>,
    /// By rank.
    pub(crate) batches: Vec<Vec<ReceivedBatch>>,
}

/// The job, independent of its processes.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) request: Request,
    pub(crate) settings: JobSettings,
    pub(crate) urls: Vec<String>,
    pub(crate) journal: Arc<Journal>,
    pub(crate) chance: Arc<Chance>,
    pub(crate) state: RefCell<State>,
}

/// The progress of the job.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) segments: Vec<Segment>,
    /// The last saved cursor, as JSON.
    pub(crate) saved: Option<String>,
    /// Epoch and steps of each rank in the current segment; at the end of an epoch, the start of the next one.
    progress: Vec<(u64, u64)>,
    pub(crate) ended: Vec<bool>,
    /// Whether a rank ended because no replica was available.
    pub(crate) gave_up: bool,
    /// An error that a retry cannot resolve.
    pub(crate) error: Option<String>,
}

/// The machine of a rank, as the transport of its client.
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
    /// A job that has not started yet, from a cursor if given.
    pub(crate) fn new(
        request: Request,
        settings: JobSettings,
        world_size: u64,
        cursor: Option<Cursor>,
        urls: Vec<String>,
        journal: &Arc<Journal>,
        chance: Chance,
    ) -> Rc<Self> {
        let saved = cursor.as_ref().map(Cursor::to_json);
        let ranks = world_size as usize;
        let state = State {
            segments: vec![Segment { world_size, cursor, batches: vec![Vec::new(); ranks] }],
            saved,
            progress: vec![(0, 0); ranks],
            ended: vec![false; ranks],
            gave_up: false,
            error: None,
        };
        let (journal, chance, state) = (Arc::clone(journal), Arc::new(chance), RefCell::new(state));
        Rc::new(Self { request, settings, urls, journal, chance, state })
    }

    /// The current number of ranks.
    pub(crate) fn world_size(&self) -> u64 {
        self.state.borrow().progress.len() as u64
    }

    /// Whether every rank has received its last batch.
    pub(crate) fn has_ended(&self) -> bool {
        self.state.borrow().ended.iter().all(|ended| *ended)
    }

    /// Returns to the saved cursor, with `world_size` ranks. Discards later batches, which the ranks will receive
    /// again.
    pub(crate) fn restart(&self, world_size: u64) {
        let mut state = self.state.borrow_mut();
        let cursor = state.saved.as_deref().map(|text| Cursor::from_json(text).unwrap());
        let saved = cursor.as_ref().map_or((0, 0), |cursor| (cursor.epoch, cursor.position));
        for batches in state.segments.iter_mut().flat_map(|segment| &mut segment.batches) {
            batches.retain(|batch| (batch.epoch, batch.position) < saved);
        }
        let ranks = world_size as usize;
        state.segments.push(Segment { world_size, cursor, batches: vec![Vec::new(); ranks] });
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
        // The machine continues without a process.
        future::pending().await
    }

    async fn train(&self, rank: u64) -> Result<(), Error> {
        let request = self.request.to_stream(self.world_size());
        let mut cursor = self.state.borrow().saved.as_deref().map(Cursor::from_json).transpose()?;
        let machine = Machine { chance: Arc::clone(&self.chance), journal: Arc::clone(&self.journal), rank };
        let mut urls = self.urls.clone();
        // Each rank prefers a different replica.
        urls.rotate_left(rank as usize % self.urls.len());
        let replicas = Replicas::new(&urls)?.with_retry(self.settings.retry).with_transport(Arc::new(machine));
        if cursor.is_some() {
            self.journal.count("ranks resumed from a cursor");
        }
        while cursor.as_ref().map_or(0, |cursor| cursor.epoch) < self.settings.epochs {
            let mut stream = match &cursor {
                None => replicas.open(&request, rank).await?,
                Some(cursor) => replicas.open_at(&request, rank, cursor).await?,
            };
            self.journal.note(format_args!("rank {rank} reads from {}", stream.url()));
            self.epoch(rank, &mut stream).await?;
            cursor = Some(stream.cursor().clone());
            self.barrier(rank, (stream.cursor().epoch, 0)).await;
            self.save(rank, stream.cursor());
        }
        Ok(())
    }

    async fn epoch(&self, rank: u64, stream: &mut RankStream) -> Result<(), Error> {
        let (mut url, mut steps) = (stream.url().to_owned(), 0);
        while let Some(batch) = stream.try_next().await? {
            if stream.url() != url {
                self.journal.count("fail-overs");
                self.journal.note(format_args!("rank {rank} fails over to {}", stream.url()));
                stream.url().clone_into(&mut url);
            }
            self.journal
                .note(format_args!("rank {rank} receives step {} of epoch {}", batch.header.step, batch.header.epoch));
            let epoch = batch.header.epoch;
            self.state.borrow_mut().record(rank, &batch);
            steps += 1;
            self.barrier(rank, (epoch, steps)).await;
            if steps % self.settings.save_every == 0 {
                self.save(rank, stream.cursor());
            }
            sleep(self.settings.step_time).await;
        }
        Ok(())
    }

    /// Waits until every rank has reached this step or the end of its epoch.
    async fn barrier(&self, rank: u64, step: (u64, u64)) {
        self.state.borrow_mut().progress[rank as usize] = step;
        while self.state.borrow().progress.iter().any(|other| *other < step) {
            sleep(POLL_INTERVAL).await;
        }
    }

    /// Saves the checkpoint on rank 0. The cursors of all ranks are equal.
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
            self.journal.count("ranks that gave up and restarted");
            state.gave_up = true;
        } else {
            state.error = Some(format!("rank {rank}: {error}"));
        }
    }
}

impl State {
    fn record(&mut self, rank: u64, batch: &Batch) {
        let header = &batch.header;
        let rows = batch.data.column_by_name("__row_id").unwrap().as_primitive::<UInt64Type>().values().to_vec();
        let received = ReceivedBatch {
            epoch: header.epoch,
            position: header.position,
            step: header.step,
            padding_rows: header.padding_rows,
            last: header.last,
            checksum: header.checksum,
            body_bytes: batch.body_bytes,
            rows,
        };
        self.segments.last_mut().unwrap().batches[rank as usize].push(received);
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
