//! When a stream asks for its next batch, and since when that batch has been waited for.

use std::time::{Duration, Instant};

/// The step of tokio's timer is a millisecond; another one may pass until the task runs.
const TIMER_STEP: Duration = Duration::from_millis(2);

/// How the batches of a stream follow each other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Pace {
    /// Closed loop: the next batch is asked for once the last one has come.
    Closed,
    /// Open loop: batch k is due k intervals behind the stream's first, whatever became of those before. Its latency
    /// counts from then, so that one slow batch is seen in all those that it delays (no coordinated omission).
    Open {
        /// From one batch of a stream to its next.
        interval: Duration,
    },
}

/// The pace of one stream.
#[derive(Clone, Copy, Debug)]
pub(super) struct Schedule {
    pace: Pace,
    first_due: Instant,
}

impl Schedule {
    /// The schedule of one of several streams that start together: their first batches are spread over an interval, as
    /// those of ranks that know nothing of each other are.
    pub(super) fn new(pace: Pace, start: Instant, stream: usize, stream_count: usize) -> Self {
        let offset = match pace {
            Pace::Closed => Duration::ZERO,
            Pace::Open { interval } => interval.mul_f64(stream as f64 / stream_count.max(1) as f64),
        };
        Self { pace, first_due: start + offset }
    }

    /// When the batch with this number, counted from 0 over all the stream's epochs, is due; none: at once.
    pub(super) fn due(&self, batch: u64) -> Option<Instant> {
        match self.pace {
            Pace::Closed => None,
            Pace::Open { interval } => Some(self.first_due + interval.mul_f64(batch as f64)),
        }
    }

    /// From when the wait for a batch counts that was due then and has been asked for now. What the timer came late by,
    /// within its step, is not the server's; a batch that comes behind a late one is late since it was due.
    pub(super) fn since(due: Instant, asked: Instant) -> Instant {
        if asked.saturating_duration_since(due) <= TIMER_STEP { asked.max(due) } else { due }
    }

    /// Batches that were due before an instant and have not come, of a stream that has taken so many.
    pub(super) fn overdue(&self, taken: u64, at: Instant) -> u64 {
        let (Pace::Open { interval }, Some(elapsed)) = (self.pace, at.checked_duration_since(self.first_due)) else {
            return 0;
        };
        let due = (elapsed.as_secs_f64() / interval.as_secs_f64()) as u64 + 1;
        due.saturating_sub(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPEN: Pace = Pace::Open { interval: Duration::from_millis(100) };

    #[test]
    fn an_open_loop_is_on_time_whatever_the_batches_do() {
        let start = Instant::now();
        let schedule = Schedule::new(OPEN, start, 0, 1);
        let due = |batch| schedule.due(batch).unwrap() - start;
        assert_eq!([due(0), due(1), due(600)], [0, 100, 60_000].map(Duration::from_millis));
        assert_eq!(Schedule::new(Pace::Closed, start, 0, 1).due(7), None);
    }

    #[test]
    fn a_batch_behind_a_late_one_is_late_and_a_late_timer_is_nobodys_latency() {
        let due = Instant::now();
        let since = |microseconds| Schedule::since(due, due + Duration::from_micros(microseconds)) - due;
        assert_eq!([0, 900, 2000].map(since), [0, 900, 2000].map(Duration::from_micros));
        assert_eq!([2001, 50_000].map(since), [Duration::ZERO; 2]);
    }

    #[test]
    fn streams_share_out_an_interval() {
        let start = Instant::now();
        let first = |stream| Schedule::new(OPEN, start, stream, 4).due(0).unwrap() - start;
        assert_eq!([first(0), first(1), first(3)], [0, 25, 75].map(Duration::from_millis));
    }

    #[test]
    fn what_was_due_and_did_not_come_is_overdue() {
        let start = Instant::now();
        let schedule = Schedule::new(OPEN, start, 1, 2);
        let at = |milliseconds| start + Duration::from_millis(milliseconds);
        // Batches are due at 50, 150, 250, …
        for (taken, milliseconds, expected) in [(0, 40, 0), (0, 60, 1), (1, 60, 0), (1, 1049, 9), (20, 1049, 0)] {
            assert_eq!(schedule.overdue(taken, at(milliseconds)), expected, "{taken} by {milliseconds} ms");
        }
        assert_eq!(Schedule::new(Pace::Closed, start, 0, 1).overdue(0, at(1000)), 0);
    }
}
