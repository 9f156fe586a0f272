//! A run: connects, starts the streams, monitors and stops them.

use std::{
    panic,
    sync::Arc,
    time::{Duration, Instant},
};

use forebay_client::{Client, Credentials, Error, StreamInfo};
use futures::{StreamExt, TryStreamExt, stream};
use rustix::time::{ClockId, clock_gettime};
use tokio::{
    sync::watch,
    task::{JoinError, JoinSet},
    time::{self, MissedTickBehavior},
};

use super::{
    epochs::Epochs,
    measures::{Counted, Measures},
    pace::Schedule,
    settings::{RunEnd, Settings},
    stream::{Ended, Reader, Run, StreamFailure, Tally},
    timeline::{Rate, Timeline},
};

/// Concurrent connection attempts; few enough for a server's backlog.
const CONNECTING_MAX: usize = 64;

/// Interval at which totals are sampled.
const TICK: Duration = Duration::from_millis(100);

/// Progress of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Progress {
    /// Completed part of the run, from 0 to 1.
    pub(crate) fraction: f64,
    pub(crate) is_warm_up: bool,
    /// Over the measured time so far.
    pub(crate) rows_per_second: f64,
    pub(crate) bytes_per_second: f64,
}

/// Results of a run.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(super) info: StreamInfo,
    pub(super) world_size: usize,
    /// From the end of the warm-up to the end of the last stream, or to the stop signal.
    pub(super) wall: Duration,
    /// CPU time of this process during `wall`.
    pub(super) cpu: Duration,
    pub(super) was_interrupted: bool,
    pub(super) counted: Counted,
    pub(super) rates: Vec<Rate>,
    /// By stream number.
    pub(super) streams: Vec<StreamOutcome>,
    /// Failed streams, in the order in which they ended.
    pub(crate) failures: Vec<StreamFailure>,
}

/// Results of one stream after the warm-up.
#[derive(Clone, Copy, Debug)]
pub(super) struct StreamOutcome {
    pub(super) number: usize,
    pub(super) rank: usize,
    pub(super) tally: Tally,
    /// From the end of the warm-up to the end of the stream.
    pub(super) time: Duration,
    /// Batches due but not received when the run stopped.
    pub(super) overdue: u64,
}

/// Runs a load against a server and reports its progress. An interrupt (Ctrl-C) ends the run, not the process. Failures
/// of streams are part of the outcome; an error means that the run did not start.
pub(crate) async fn run(
    settings: &Settings,
    server: (&str, &Credentials),
    mut show: impl FnMut(Progress),
) -> Result<Outcome, Error> {
    let clients = connect(settings, server).await?;
    let Some(first) = clients.first() else {
        return Err(Error::Incomplete { call: "the load", missing: "client" });
    };
    let epochs = Epochs::new(first.clone(), settings.request.clone());
    let cell = epochs.get(settings.request.epoch).await?;
    let (info, shares) = cell.get().map_or_else(Default::default, |epoch| {
        let rows = |rank: &forebay_client::Endpoint| rank.rank.map_or(0, |share| share.rows);
        (epoch.info.clone(), epoch.endpoints.iter().map(rows).collect::<Vec<u64>>())
    });
    drop(cell);
    let start = Instant::now();
    let begin = start + settings.warm_up;
    let measures = Measures::new(begin).map_err(|_| Error::Incomplete { call: "the load", missing: "histogram" })?;
    let run = Arc::new(Run { epochs, first_epoch: settings.request.epoch, end: settings.end, measures });
    let (stop, stopped) = watch::channel(false);
    let streams = readers(settings, &run, clients, shares.len(), start);
    let rows_expected = rows_expected(settings, &streams, &shares);
    let mut tasks = JoinSet::new();
    for reader in streams {
        tasks.spawn(reader.run(stopped.clone()));
    }
    let mut watcher = Watcher {
        run: &run,
        begin,
        deadline: match settings.end {
            RunEnd::Epochs(_) => None,
            RunEnd::Duration(duration) => Some(begin + duration),
        },
        rows_expected,
        timeline: Timeline::new(TICK.as_secs_f64()),
        cpu_before: (begin <= start).then(cpu_time),
    };
    let (ended, was_interrupted) = watcher.watch(&mut tasks, &stop, &mut show).await;
    Ok(watcher.outcome(info, shares.len(), ended, was_interrupted))
}

async fn connect(settings: &Settings, (url, credentials): (&str, &Credentials)) -> Result<Vec<Client>, Error> {
    let connections = stream::iter(0..settings.clients).map(|_| Client::connect_with(url, credentials));
    let clients = connections.buffered(CONNECTING_MAX).try_collect::<Vec<_>>().await?;
    Ok(if settings.verify { clients } else { clients.into_iter().map(Client::without_checksums).collect() })
}

/// Returns the streams, grouped by client; stream i reads rank i mod the world size.
fn readers(
    settings: &Settings,
    run: &Arc<Run>,
    clients: Vec<Client>,
    world_size: usize,
    start: Instant,
) -> Vec<Reader> {
    let stream_count = settings.clients * settings.streams;
    let clients = clients.into_iter().flat_map(|client| std::iter::repeat_n(client, settings.streams));
    let reader = |(number, client)| Reader {
        run: Arc::clone(run),
        client,
        schedule: Schedule::new(settings.pace, start, number, stream_count),
        number,
        rank: number % world_size.max(1),
        tally: Tally::default(),
    };
    clients.enumerate().map(reader).collect()
}

/// Returns the rows of all streams over all epochs, if the number of epochs is fixed.
fn rows_expected(settings: &Settings, streams: &[Reader], shares: &[u64]) -> Option<u64> {
    let RunEnd::Epochs(epochs) = settings.end else { return None };
    let rows: u64 = streams.iter().filter_map(|reader| shares.get(reader.rank)).sum();
    Some(rows.saturating_mul(epochs).saturating_sub(settings.request.start_position))
}

/// Returns the CPU time of this process so far: user and system, all threads.
fn cpu_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).unwrap_or_default()
}

/// Monitor of the running streams.
struct Watcher<'a> {
    run: &'a Run,
    begin: Instant,
    deadline: Option<Instant>,
    rows_expected: Option<u64>,
    timeline: Timeline,
    /// At the end of the warm-up.
    cpu_before: Option<Duration>,
}

// === impl Watcher ===

impl Watcher<'_> {
    /// Waits for all streams. Stops them at the deadline, at an interrupt, and when one receives corrupt data. Returns
    /// the streams in the order in which they ended, and whether the run was interrupted.
    async fn watch(
        &mut self,
        tasks: &mut JoinSet<Ended>,
        stop: &watch::Sender<bool>,
        show: &mut impl FnMut(Progress),
    ) -> (Vec<Ended>, bool) {
        let mut ended = Vec::new();
        let mut was_interrupted = false;
        let mut interrupt = Box::pin(tokio::signal::ctrl_c());
        let mut ticks = time::interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let is_running = !*stop.borrow();
            let deadline = self.deadline.unwrap_or(self.begin);
            tokio::select! {
                biased;
                Ok(()) = &mut interrupt, if is_running => {
                    was_interrupted = true;
                    stop.send_replace(true);
                }
                () = time::sleep_until(self.begin.into()), if self.cpu_before.is_none() => {
                    self.cpu_before = Some(cpu_time());
                }
                () = time::sleep_until(deadline.into()), if is_running && self.deadline.is_some() => {
                    stop.send_replace(true);
                }
                _ = ticks.tick() => self.sample(show),
                joined = tasks.join_next() => match joined.map(finished) {
                    None => return (ended, was_interrupted),
                    Some(stream) => {
                        if stream.failure.as_ref().is_some_and(StreamFailure::is_corruption) {
                            stop.send_replace(true);
                        }
                        ended.push(stream);
                    }
                },
            }
        }
    }

    /// Samples the current totals.
    fn sample(&mut self, show: &mut impl FnMut(Progress)) {
        let now = Instant::now();
        let total = self.run.measures.total(now);
        let is_warm_up = now < self.begin;
        if !is_warm_up {
            self.timeline.push(total);
        }
        let done = match (self.deadline, self.rows_expected) {
            (Some(deadline), _) => total.seconds / (deadline - self.begin).as_secs_f64(),
            (None, Some(rows)) => self.run.measures.rows_ever() as f64 / rows.max(1) as f64,
            (None, None) => 0.0,
        };
        let seconds = total.seconds.max(f64::MIN_POSITIVE);
        show(Progress {
            fraction: done.clamp(0.0, 1.0),
            is_warm_up,
            rows_per_second: total.rows as f64 / seconds,
            bytes_per_second: total.bytes as f64 / seconds,
        });
    }

    /// Returns the results, once all streams have ended.
    fn outcome(self, info: StreamInfo, world_size: usize, mut ended: Vec<Ended>, was_interrupted: bool) -> Outcome {
        let now = Instant::now();
        let cpu = self.cpu_before.map_or(Duration::ZERO, |before| cpu_time().saturating_sub(before));
        let total = self.run.measures.total(now);
        let failures = ended.iter_mut().filter_map(|stream| stream.failure.take()).collect();
        ended.sort_unstable_by_key(|stream| stream.number);
        let stream = |stream: &Ended| StreamOutcome {
            number: stream.number,
            rank: stream.rank,
            tally: stream.tally,
            time: stream.at.saturating_duration_since(self.begin),
            overdue: stream.overdue,
        };
        Outcome {
            info,
            world_size,
            wall: now.saturating_duration_since(self.begin),
            cpu,
            was_interrupted,
            counted: self.run.measures.snapshot(),
            streams: ended.iter().map(stream).collect(),
            rates: self.timeline.rates(total),
            failures,
        }
    }
}

/// Returns a task's result, or resumes its panic. No task is aborted before all have ended.
fn finished(joined: Result<Ended, JoinError>) -> Ended {
    joined.unwrap_or_else(|error| panic::resume_unwind(error.into_panic()))
}
