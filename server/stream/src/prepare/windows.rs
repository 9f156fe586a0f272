//! The windows of an epoch: which rows each has, and in which row groups these are.

use std::{ops::Range, sync::Arc};

use forebay_order::series::{SeriesWindows, WindowRows, WindowShape};
use forebay_plan::WindowedOutputs;
use forebay_runtime::budget::{Budget, Reservation};

use crate::{counts::series::Series, error::StreamError};

/// The windows over the series of a snapshot. A window belongs to the row group of its last past row.
#[derive(Debug)]
pub(crate) struct EpochWindows {
    pub outputs: Arc<WindowedOutputs>,
    series: Arc<Series>,
    windows: SeriesWindows,
    shape: WindowShape,
    _memory: Reservation,
}

impl EpochWindows {
    pub(crate) fn new(
        series: Arc<Series>,
        shape: WindowShape,
        outputs: Arc<WindowedOutputs>,
        budget: &Budget,
    ) -> Result<Self, StreamError> {
        let memory = budget.reserve((series.ends.len() * size_of::<u64>()) as u64)?;
        let windows = SeriesWindows::new(shape, &series.ends);
        Ok(Self { outputs, series, windows, shape, _memory: memory })
    }

    /// The windows of each row group.
    pub(crate) fn row_counts(&self) -> Vec<u64> {
        (0..self.series.row_group_ends.len()).map(|row_group| self.of(row_group)).map(|of| of.end - of.start).collect()
    }

    /// The windows of a row group, among all of the epoch in file order.
    pub(crate) fn of(&self, row_group: usize) -> Range<u64> {
        let rows = self.rows_of(row_group);
        let before = |row| self.windows.count_before(row, &self.series.ends);
        before(rows.start)..before(rows.end)
    }

    /// The rows of a window.
    pub(crate) fn window_rows(&self) -> u64 {
        self.shape.length + self.shape.horizon
    }

    /// The rows of a row group's windows that are in the row group itself; the windows are counted in it.
    pub(crate) fn rows_in(&self, row_group: usize, windows: &Range<u64>) -> Range<u64> {
        let (first, rows) = (self.of(row_group).start, self.rows_of(row_group));
        let span = self.span(&(first + windows.start..first + windows.end));
        let place = |row: u64| row.clamp(rows.start, rows.end) - rows.start;
        place(span.start)..place(span.end)
    }

    /// The rows of a window, among all that pass; none past the last window.
    pub(crate) fn rows(&self, window: u64) -> Option<WindowRows> {
        self.windows.rows(window, &self.series.ends)
    }

    /// The rows from the first to the last one of these windows.
    pub(crate) fn span(&self, windows: &Range<u64>) -> Range<u64> {
        let first = self.rows(windows.start).map_or(0, |rows| rows.past.start);
        let last = windows.end.checked_sub(1).and_then(|last| self.rows(last));
        first..last.map_or(first, |rows| rows.future().end).max(first)
    }

    /// The passing rows of a row group.
    pub(crate) fn rows_of(&self, row_group: usize) -> Range<u64> {
        let ends = &self.series.row_group_ends;
        row_group.checked_sub(1).map_or(0, |before| ends[before])..ends[row_group]
    }

    /// The row group of a passing row.
    pub(crate) fn row_group_at(&self, row: u64) -> usize {
        self.series.row_group_ends.partition_point(|end| *end <= row)
    }
}
