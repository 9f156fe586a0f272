//! Windows of consecutive rows of series: which rows each has.
//!
//! Rows are numbered over the whole sequence of passing rows, in file order, in which each series is a run. A window is named by its
//! last past row: both rise together, so that a window's rows, and the windows up to a row, follow by arithmetic and a binary
//! search.

use std::ops::Range;

/// The shape of the windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowShape {
    /// Past rows, at least 1.
    pub length: u64,
    /// Future rows.
    pub horizon: u64,
    /// Rows between the beginnings of windows, at least 1.
    pub stride: u64,
    /// Whether the past of a window may begin before its series.
    pub is_padded: bool,
}

/// The windows of all series.
#[derive(Clone, Debug)]
pub struct SeriesWindows {
    shape: WindowShape,
    /// The end of each series' windows.
    ends: Vec<u64>,
}

/// The rows of a window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WindowRows {
    /// Rows before the series, which do not exist.
    pub padding: u64,
    /// The past rows that exist, at least one.
    pub past: Range<u64>,
    /// Rows after the past ones.
    pub horizon: u64,
}

// === impl WindowShape ===

impl WindowShape {
    /// The number of windows of a series of `rows` rows.
    fn count(&self, rows: u64) -> u64 {
        let Some(last) = rows.checked_sub(self.horizon + 1) else { return 0 };
        let before = self.first_past_end();
        match last.checked_sub(before) {
            Some(beyond) => beyond / self.stride + 1,
            None => u64::from(self.is_padded),
        }
    }

    /// The last past row of a window of a series of `rows` rows, which has the window.
    fn past_end(&self, window: u64, rows: u64) -> u64 {
        (self.first_past_end() + window * self.stride).min(rows - self.horizon - 1)
    }

    /// The last past row of the first window of a long series.
    fn first_past_end(&self) -> u64 {
        if self.is_padded { (self.length - 1) % self.stride } else { self.length - 1 }
    }
}

// === impl SeriesWindows ===

impl SeriesWindows {
    /// The windows of series that end before these rows.
    pub fn new(shape: WindowShape, series_ends: &[u64]) -> Self {
        let (mut start, mut windows) = (0, 0);
        let ends = series_ends.iter().map(|end| {
            windows += shape.count(end - start);
            start = *end;
            windows
        });
        Self { shape, ends: ends.collect() }
    }

    /// The number of windows.
    pub fn count(&self) -> u64 {
        self.ends.last().copied().unwrap_or(0)
    }

    /// The rows of a window; `series_ends` are those that the windows were made of. None if there is no such window.
    pub fn rows(&self, window: u64, series_ends: &[u64]) -> Option<WindowRows> {
        let series = self.ends.partition_point(|end| *end <= window);
        let (end, windows_before) = (*series_ends.get(series)?, before(&self.ends, series));
        let start = before(series_ends, series);
        let past_end = self.shape.past_end(window - windows_before, end - start) + 1;
        let padding = self.shape.length.saturating_sub(past_end);
        let past = start + past_end.saturating_sub(self.shape.length)..start + past_end;
        Some(WindowRows { padding, past, horizon: self.shape.horizon })
    }

    /// The number of windows whose last past row is before a row.
    pub fn count_before(&self, row: u64, series_ends: &[u64]) -> u64 {
        let series = series_ends.partition_point(|end| *end <= row);
        let windows = before(&self.ends, series);
        let Some(end) = series_ends.get(series) else { return windows };
        let start = before(series_ends, series);
        let (rows, shape) = (end - start, self.shape);
        let count = shape.count(rows);
        // Windows of a series rise by the stride; the only window of a short one may be the exception.
        let passed = match count {
            0 => 0,
            1 => u64::from(shape.past_end(0, rows) < row - start),
            _ => (row - start).saturating_sub(shape.first_past_end()).div_ceil(shape.stride).min(count),
        };
        windows + passed
    }
}

// === impl WindowRows ===

impl WindowRows {
    /// The future rows.
    pub fn future(&self) -> Range<u64> {
        self.past.end..self.past.end + self.horizon
    }
}

fn before(ends: &[u64], index: usize) -> u64 {
    index.checked_sub(1).map_or(0, |before| ends[before])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shape(length: u64, horizon: u64, stride: u64, is_padded: bool) -> WindowShape {
        WindowShape { length, horizon, stride, is_padded }
    }

    /// The windows of series of these rows, each tried at every row.
    fn expected(shape: WindowShape, series: &[u64]) -> Vec<WindowRows> {
        let (mut windows, mut start) = (Vec::new(), 0);
        for rows in series {
            let end = start + rows;
            let is_window = |last: &u64| {
                let beginning = i128::from(*last) + 1 - i128::from(shape.length) - i128::from(start);
                last + shape.horizon < end
                    && beginning.rem_euclid(i128::from(shape.stride)) == 0
                    && (beginning >= 0 || shape.is_padded)
            };
            let mut lasts: Vec<u64> = (start..end).filter(is_window).collect();
            if lasts.is_empty() && shape.is_padded && *rows > shape.horizon {
                lasts.push(end - 1 - shape.horizon);
            }
            windows.extend(lasts.into_iter().map(|last| {
                let first = (last + 1).saturating_sub(shape.length).max(start);
                let padding = shape.length - (last + 1 - first);
                WindowRows { padding, past: first..last + 1, horizon: shape.horizon }
            }));
            start = end;
        }
        windows
    }

    fn ends(series: &[u64]) -> Vec<u64> {
        series
            .iter()
            .scan(0, |end, rows| {
                *end += rows;
                Some(*end)
            })
            .collect()
    }

    #[test]
    fn windows_begin_at_multiples_of_the_stride() {
        let ends = [10, 13];
        let windows = SeriesWindows::new(shape(4, 2, 3, false), &ends);
        let past = |window| windows.rows(window, &ends).map(|rows| rows.past);
        assert_eq!((windows.count(), past(0), past(1), past(2)), (2, Some(0..4), Some(3..7), None));
        assert_eq!(windows.rows(1, &ends).unwrap().future(), 7..9);
        // The first series has windows at rows 0, 3 and 6, the second none but its latest.
        let padded = SeriesWindows::new(shape(4, 2, 3, true), &ends);
        let rows = |window| padded.rows(window, &ends).map(|rows| (rows.padding, rows.past));
        assert_eq!((rows(0), rows(1), rows(2)), (Some((3, 0..1)), Some((0, 0..4)), Some((0, 3..7))));
        assert_eq!((rows(3), padded.count()), (Some((3, 10..11)), 4));
    }

    proptest! {
        /// Windows, and the windows before each row, are those of trying every row.
        #[test]
        fn windows_are_those_of_every_row(
            series in prop::collection::vec(1..40_u64, 0..12),
            length in 1..12_u64,
            horizon in 0..5_u64,
            stride in 1..9_u64,
            is_padded: bool,
        ) {
            let (shape, ends) = (shape(length, horizon, stride, is_padded), ends(&series));
            let (expected, windows) = (expected(shape, &series), SeriesWindows::new(shape, &ends));
            prop_assert_eq!(windows.count(), expected.len() as u64);
            for (window, rows) in (0..).zip(&expected) {
                prop_assert_eq!(windows.rows(window, &ends), Some(rows.clone()));
            }
            prop_assert_eq!(windows.rows(windows.count(), &ends), None);
            for row in 0..=ends.last().copied().unwrap_or(0) {
                let before = expected.iter().filter(|rows| rows.past.end <= row).count();
                prop_assert_eq!(windows.count_before(row, &ends), before as u64);
            }
        }
    }
}
