//! Throughput over time: sampled totals, in bounded memory.

/// Maximum number of totals kept; a plot is about 1000 points wide.
const SAMPLES_MAX: usize = 1200;

/// Totals at an instant.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Total {
    pub(super) seconds: f64,
    pub(super) rows: u64,
    pub(super) bytes: u64,
}

/// Rates between two totals.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub(crate) struct Rate {
    pub(crate) from_seconds: f64,
    pub(crate) to_seconds: f64,
    pub(crate) rows_per_second: f64,
    pub(crate) bytes_per_second: f64,
}

/// Totals in order of time; the first is zero at 0.
#[derive(Debug)]
pub(super) struct Timeline {
    totals: Vec<Total>,
    /// Minimum distance between totals; closer ones are skipped.
    spacing_seconds: f64,
}

impl Timeline {
    pub(super) fn new(spacing_seconds: f64) -> Self {
        Self { totals: vec![Total::default()], spacing_seconds }
    }

    /// Adds a total unless it is too close to the last one.
    pub(super) fn push(&mut self, total: Total) {
        let last = self.totals.last().map_or(0.0, |last| last.seconds);
        // Ticks at the spacing can be slightly early.
        if total.seconds - last < 0.9 * self.spacing_seconds {
            return;
        }
        if self.totals.len() == SAMPLES_MAX {
            let mut place = 0;
            self.totals.retain(|_| {
                place += 1;
                place % 2 == 1
            });
            self.spacing_seconds *= 2.0;
        }
        self.totals.push(total);
    }

    /// Returns the rates between the totals, of which `end` is the last.
    pub(super) fn rates(mut self, end: Total) -> Vec<Rate> {
        // A short last interval would exaggerate a single batch.
        if self.totals.len() > 1
            && self.totals.last().is_some_and(|last| end.seconds - last.seconds < self.spacing_seconds / 2.0)
        {
            self.totals.pop();
        }
        self.totals.push(end);
        self.totals.windows(2).filter_map(|pair| rate(pair[0], pair[1])).collect()
    }
}

fn rate(from: Total, to: Total) -> Option<Rate> {
    let seconds = to.seconds - from.seconds;
    (seconds > 0.0).then(|| Rate {
        from_seconds: from.seconds,
        to_seconds: to.seconds,
        rows_per_second: (to.rows - from.rows) as f64 / seconds,
        bytes_per_second: (to.bytes - from.bytes) as f64 / seconds,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn total(tenths: u64) -> Total {
        Total { seconds: tenths as f64 / 10.0, rows: 5 * tenths, bytes: 1000 * tenths }
    }

    #[test]
    fn merges_a_short_last_interval() {
        let mut timeline = Timeline::new(0.1);
        (1..=10).for_each(|tenths| timeline.push(total(tenths)));
        timeline.push(Total { seconds: 1.01, ..total(10) });
        let rates = timeline.rates(Total { seconds: 1.02, ..total(10) });
        assert_eq!((rates.len(), rates[9].to_seconds), (10, 1.02));
        assert!((rates[0].rows_per_second - 50.0).abs() < 1e-6 && (rates[8].bytes_per_second - 1e4).abs() < 1e-6);
        assert_eq!(Timeline::new(0.1).rates(total(0)), []);
        assert_eq!(Timeline::new(0.1).rates(Total { seconds: 0.001, ..total(1) }).len(), 1);
    }

    #[test]
    fn bounds_the_number_of_rates_of_a_long_run() {
        let mut timeline = Timeline::new(0.1);
        (1..=100_000).for_each(|tenths| timeline.push(total(tenths)));
        assert!(timeline.totals.len() <= SAMPLES_MAX);
        let rates = timeline.rates(total(100_000));
        assert!(rates.iter().all(|rate| (rate.rows_per_second - 50.0).abs() < 1e-6), "{rates:?}");
        assert_eq!((rates[0].from_seconds, rates[rates.len() - 1].to_seconds), (0.0, 10_000.0));
        assert!(rates.windows(2).all(|pair| pair[0].to_seconds.to_bits() == pair[1].from_seconds.to_bits()));
    }
}
