//! Schedule of a stream's batches, and the start of each latency measurement.

use std::time::{Duration, Instant};

/// Timer granularity: tokio's timer has a step of 1 ms, and the task may run another one later.
const TIMER_STEP: Duration = Duration::from_millis(2);

/// Pace of a stream's batches.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Pace {
    /// Closed loop: requests the next batch when the last one has arrived.
    Closed,
    /// Open loop: batch k is scheduled k intervals after the stream's first, regardless of the batches before. Its
    /// latency starts when it is scheduled, so a slow batch shows in all batches that it delays (no coordinated
    /// omission).
    Open {
        /// Time between consecutive batches of a stream.
        interval: Duration,
    },
}

/// Schedule of one stream.
#[derive(Clone, Copy, Debug)]
pub(super) struct Schedule {
    pace: Pace,
    first_due: Instant,
}

impl Schedule {
    /// Returns the schedule of one of several streams that start together. Their first batches are spread over an
    /// interval, like those of independent ranks.
    pub(super) fn new(pace: Pace, start: Instant, stream: usize, stream_count: usize) -> Self {
        let offset = match pace {
            Pace::Closed => Duration::ZERO,
            Pace::Open { interval } => interval.mul_f64(stream as f64 / stream_count.max(1) as f64),
        };
        Self { pace, first_due: start + offset }
    }

    /// Returns when a batch is scheduled, or none for a closed loop. Batches are numbered from 0 over all epochs of the
    /// stream.
    pub(super) fn due(&self, batch: u64) -> Option<Instant> {
        match self.pace {
            Pace::Closed => None,
            Pace::Open { interval } => Some(self.first_due + interval.mul_f64(batch as f64)),
        }
    }

    /// Returns the start of the latency of a batch requested now. A delay within the timer's granularity is not charged
    /// to the server; a batch after a late one is late since it was scheduled.
    pub(super) fn since(due: Instant, requested: Instant) -> Instant {
        if requested.saturating_duration_since(due) <= TIMER_STEP { requested.max(due) } else { due }
    }

    /// Returns the number of batches due before an instant but not received, given the number received.
    pub(super) fn overdue(&self, received: u64, at: Instant) -> u64 {
        let (Pace::Open { interval }, Some(elapsed)) = (self.pace, at.checked_duration_since(self.first_due)) else {
            return 0;
        };
        let due = (elapsed.as_secs_f64() / interval.as_secs_f64()) as u64 + 1;
        due.saturating_sub(received)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPEN: Pace = Pace::Open { interval: Duration::from_millis(100) };

    #[test]
    fn an_open_loop_keeps_its_schedule_when_batches_are_late() {
        let start = Instant::now();
        let schedule = Schedule::new(OPEN, start, 0, 1);
        let due = |batch| schedule.due(batch).unwrap() - start;
        assert_eq!([due(0), due(1), due(600)], [0, 100, 60_000].map(Duration::from_millis));
        assert_eq!(Schedule::new(Pace::Closed, start, 0, 1).due(7), None);
    }

    #[test]
    fn latency_includes_delays_of_earlier_batches_but_not_the_timers() {
        let due = Instant::now();
        let since = |microseconds| Schedule::since(due, due + Duration::from_micros(microseconds)) - due;
        assert_eq!([0, 900, 2000].map(since), [0, 900, 2000].map(Duration::from_micros));
        assert_eq!([2001, 50_000].map(since), [Duration::ZERO; 2]);
    }

    #[test]
    fn spreads_streams_over_an_interval() {
        let start = Instant::now();
        let first = |stream| Schedule::new(OPEN, start, stream, 4).due(0).unwrap() - start;
        assert_eq!([first(0), first(1), first(3)], [0, 25, 75].map(Duration::from_millis));
    }

    #[test]
    fn counts_overdue_batches() {
        let start = Instant::now();
        let schedule = Schedule::new(OPEN, start, 1, 2);
        let at = |milliseconds| start + Duration::from_millis(milliseconds);
        // Batches are scheduled at 50, 150, 250, …
        for (taken, milliseconds, expected) in [(0, 40, 0), (0, 60, 1), (1, 60, 0), (1, 1049, 9), (20, 1049, 0)] {
            assert_eq!(schedule.overdue(taken, at(milliseconds)), expected, "{taken} by {milliseconds} ms");
        }
        assert_eq!(Schedule::new(Pace::Closed, start, 0, 1).overdue(0, at(1000)), 0);
    }
}
