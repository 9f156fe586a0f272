//! The rows of one source in one lane of a mixture, or of one source in file order: repetition after repetition, window
//! after window.

use std::{
    collections::VecDeque,
    ops::Range,
    sync::{Arc, Mutex, PoisonError},
};

use forebay_order::{Repetition, Sequence, Window};
use tokio::sync::mpsc;

use crate::{
    environment::Environment,
    epoch::{
        lane_task::{LaneTask, ShuffledEpoch, TimedWindow},
        memory::source_window_rows,
        row_group::RowGroupOpener,
    },
    error::StreamError,
    prepare::mixed::PreparedMixture,
};

/// Repetitions whose order is kept, for each source: lanes begin a repetition at different times.
const REPETITIONS_MAX: usize = 2;

/// A mixture whose rows are read. Cheap to clone.
#[derive(Clone)]
pub(crate) struct MixedEpoch {
    pub environment: Arc<Environment>,
    pub mixture: Arc<PreparedMixture>,
    /// What opens the row groups of each source.
    openers: Arc<[RowGroupOpener]>,
    /// The repetitions that lanes began last, for each source.
    repetitions: Arc<Vec<Mutex<LatestRepetitions>>>,
}

/// Repetitions and their numbers, the latest first.
type LatestRepetitions = VecDeque<(u64, Arc<ReadRepetition>)>;

/// The order of one repetition of a source.
struct ReadRepetition {
    /// The lanes; none in file order.
    lanes: Option<Repetition>,
    sequence: Arc<Sequence>,
}

/// Computes the windows of one source in one lane.
pub(super) struct FeedTask {
    epoch: MixedEpoch,
    source: usize,
    lane: u64,
    /// The rows to compute, counted over the source's rows in this lane, of all repetitions.
    rows: Range<u64>,
    /// The repetition of the first one, or an earlier one.
    first_repetition: u64,
}

/// Consecutive windows of a repetition.
struct WindowRun {
    /// The rows of the repetition in the lane that are needed.
    rows: Range<u64>,
    /// The index of the next window.
    next: u64,
}

impl MixedEpoch {
    /// With `admits`, the rows that it computes are cached.
    pub(crate) fn new(environment: &Arc<Environment>, mixture: &Arc<PreparedMixture>, admits: bool) -> Self {
        let openers = mixture.sources.iter().map(|source| RowGroupOpener::new(environment, source, admits));
        Self {
            environment: Arc::clone(environment),
            mixture: Arc::clone(mixture),
            openers: openers.collect(),
            repetitions: Arc::new(mixture.sources.iter().map(|_| Mutex::default()).collect()),
        }
    }

    /// The number of lanes; 1 in file order.
    pub(super) fn lanes(&self) -> u64 {
        self.mixture.epoch.shuffle().map_or(1, |shuffle| shuffle.lanes)
    }

    /// The rows of a source in a lane before a position.
    fn rows_before(&self, source: usize, lane: u64, position: u64) -> u64 {
        match &self.mixture.strides {
            Some(strides) => strides.count_before(source, lane, position),
            None => self.mixture.order.pattern().count(source, position),
        }
    }

    /// The order of a repetition, computed by the first lane that begins it.
    async fn repetition(&self, source: usize, number: u64) -> Result<Arc<ReadRepetition>, StreamError> {
        let kept = || self.repetitions[source].lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, known)) = kept().iter().find(|(known, _)| *known == number) {
            return Ok(Arc::clone(known));
        }
        let epoch = self.clone();
        let read = move || {
            let (prepared, mixture) = (&epoch.mixture.sources[source], &epoch.mixture);
            let shuffled = mixture.strides.as_ref().zip(mixture.epoch.shuffle());
            let lanes =
                shuffled.map(|(strides, shuffle)| Repetition::new(&mixture.order, strides, source, number, shuffle));
            let sequence = match &lanes {
                Some(lanes) => lanes.sequence(prepared.epoch.passing()),
                None => prepared.epoch.sequence(),
            };
            Arc::new(ReadRepetition { lanes, sequence: Arc::new(sequence) })
        };
        let read = self.environment.cpu.run(read).await?;
        let mut kept = kept();
        kept.push_front((number, Arc::clone(&read)));
        kept.truncate(REPETITIONS_MAX);
        Ok(read)
    }
}

// === impl FeedTask ===

impl FeedTask {
    /// The task of a source's rows in a lane, between two positions; none if there are none.
    pub(super) fn new(epoch: &MixedEpoch, source: usize, lane: u64, positions: Range<u64>) -> Option<Self> {
        let rows = epoch.rows_before(source, lane, positions.start)..epoch.rows_before(source, lane, positions.end);
        let order = &epoch.mixture.order;
        let first_repetition = order.pattern().count(source, positions.start) / order.sources()[source].rows;
        (!rows.is_empty()).then(|| Self { epoch: epoch.clone(), source, lane, rows, first_repetition })
    }

    /// Sends the windows, each from its first row that is needed to its last one.
    pub(super) async fn run(self, sender: mpsc::Sender<Result<TimedWindow, StreamError>>) {
        let mut number = self.first_repetition;
        loop {
            let repetition = match self.epoch.repetition(self.source, number).await {
                Ok(repetition) => repetition,
                Err(error) => {
                    // Fails if the reader was dropped, which needs no error.
                    let _ = sender.send(Err(error)).await;
                    return;
                }
            };
            let (before, length) = self.extent(&repetition, number);
            if before >= self.rows.end {
                return;
            }
            let rows = self.rows.start.saturating_sub(before)..(self.rows.end - before).min(length);
            if !rows.is_empty() && !self.send(&repetition, rows, &sender).await {
                return;
            }
            number += 1;
        }
    }

    /// The rows of the source in this lane before a repetition, and in it.
    fn extent(&self, repetition: &ReadRepetition, number: u64) -> (u64, u64) {
        if let Some(lanes) = &repetition.lanes {
            return (lanes.before(self.lane), lanes.lane(self.lane).length);
        }
        let rows = self.epoch.mixture.order.sources()[self.source].rows;
        (number.saturating_mul(rows), rows)
    }

    /// Sends the windows of these rows of a repetition. False ends the feed.
    async fn send(
        &self,
        repetition: &ReadRepetition,
        rows: Range<u64>,
        sender: &mpsc::Sender<Result<TimedWindow, StreamError>>,
    ) -> bool {
        let opener = self.epoch.openers[self.source].clone();
        let source = ShuffledEpoch { opener, sequence: Arc::clone(&repetition.sequence) };
        let last = self.window_at(repetition, rows.end - 1);
        let end = self.window_of(repetition, last).0.rows.end;
        let mut task = LaneTask::new(&source, end);
        let mut run = WindowRun { next: self.window_at(repetition, rows.start), rows };
        while let Some((window, offsets)) = self.next_window(repetition, &mut run) {
            // Reserving first keeps the number of windows within the memory reservation.
            let Ok(permit) = sender.reserve().await else { return false };
            let computed = task.timed(window, self.lane, run.next - 1).await;
            let needed = run.rows.start.max(offsets.start)..run.rows.end.min(offsets.end);
            let (first, count) = ((needed.start - offsets.start) as usize, (needed.end - needed.start) as usize);
            let is_computed = computed.is_ok();
            permit.send(computed.map(|(window, times)| (window.slice(first, count), times)));
            if !is_computed {
                return false;
            }
        }
        true
    }

    /// The index of the window of a row of a repetition in this lane.
    fn window_at(&self, repetition: &ReadRepetition, row: u64) -> u64 {
        match &repetition.lanes {
            Some(lanes) => lanes.lane(self.lane).window_at(row),
            None => row / self.window_rows(),
        }
    }

    /// The next window, and the offsets of its rows; none after the last row that is needed.
    fn next_window(&self, repetition: &ReadRepetition, run: &mut WindowRun) -> Option<(Window, Range<u64>)> {
        let (window, offsets) = self.window_of(repetition, run.next);
        run.next += 1;
        (offsets.start < run.rows.end).then_some((window, offsets))
    }

    /// The window of an index, and the offsets of its rows in the repetition.
    fn window_of(&self, repetition: &ReadRepetition, index: u64) -> (Window, Range<u64>) {
        if let Some(lanes) = &repetition.lanes {
            let lane = lanes.lane(self.lane);
            return (lane.window(index), lane.offsets(index));
        }
        let (rows, window_rows) = (self.epoch.mixture.order.sources()[self.source].rows, self.window_rows());
        let start = index * window_rows;
        let offsets = start..start.saturating_add(window_rows).min(rows);
        (Window::in_order(offsets.clone()), offsets)
    }

    fn window_rows(&self) -> u64 {
        source_window_rows(&self.epoch.mixture, self.source)
    }
}
