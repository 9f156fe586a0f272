//! Statistics of the last rows of a series, at a cost that does not depend on how many they are.
//!
//! The rows of a dataset are divided into blocks of as many rows as a window has. A window then is the end of one block and the
//! beginning of the next: each of them is folded once, for all windows that have it. Blocks begin at fixed rows, so that the roundings
//! of a result are the same for every row that a reader begins at.

use std::{cmp::Ordering, sync::Arc};

use arrow::{
    array::{Array, ArrayRef, AsArray, Float64Array, Int64Array, UInt32Array, make_comparator},
    buffer::{BooleanBuffer, NullBuffer},
    compute::{SortOptions, take},
    datatypes::Float64Type,
    error::ArrowError,
};

use super::values::{SeriesRows, Whole, is_whole, numbers, whole};
use crate::error::KernelError;

/// A statistic of some rows, without null and NaN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RollingStat {
    /// The mean; null of no value.
    Mean,
    /// The deviation of a sample; null of fewer than two values.
    Std,
    /// The least value; null of none.
    Min,
    /// The greatest value; null of none.
    Max,
    /// The sum; null of no value.
    Sum,
    /// The number of values.
    Count,
}

/// The statistic of each row.
pub(super) fn evaluate(
    values: &ArrayRef,
    series: &SeriesRows,
    (stat, length): (RollingStat, u64),
    column: &str,
) -> Result<ArrayRef, KernelError> {
    let failed = |source| KernelError::Arrow { what: "compute the history of", name: column.to_owned(), source };
    let windows = Windows { series, length, rows: values.len() };
    Ok(match stat {
        RollingStat::Count => {
            let present = present(values).map_err(failed)?;
            let counts = windows.fold(|row| i64::from(present.value(row)), |earlier, later| earlier + later);
            Arc::new(Int64Array::from(counts))
        }
        RollingStat::Min | RollingStat::Max => {
            let places = extremes(values, &windows, stat == RollingStat::Max).map_err(failed)?;
            take(values, &places, None).map_err(failed)?
        }
        RollingStat::Sum if is_whole(values.data_type()) => {
            let values = Whole::of(values).map_err(failed)?;
            let sums = windows.fold(|row| values.get(row), |earlier, later| either(earlier, later, |a, b| a + b));
            let sums = sums.into_iter().enumerate();
            let sums = sums.map(|(row, sum)| sum.map(|sum| whole(sum, column, row)).transpose());
            Arc::new(sums.collect::<Result<Int64Array, _>>()?)
        }
        RollingStat::Sum => {
            let values = Doubles::of(values).map_err(failed)?;
            let sums = windows.fold(|row| values.get(row), |earlier, later| either(earlier, later, |a, b| a + b));
            Arc::new(sums.into_iter().collect::<Float64Array>())
        }
        RollingStat::Mean | RollingStat::Std => {
            let values = Doubles::of(values).map_err(failed)?;
            let moments = windows.fold(|row| Moments::of(values.get(row)), Moments::with);
            let of = if stat == RollingStat::Mean { Moments::mean } else { Moments::deviation };
            Arc::new(moments.into_iter().map(of).collect::<Float64Array>())
        }
    })
}

/// Windows of the last rows of a series.
struct Windows<'a> {
    series: &'a SeriesRows,
    length: u64,
    rows: usize,
}

impl Windows<'_> {
    /// Folds the values of each window.
    fn fold<T: Copy>(&self, value: impl Fn(usize) -> T, with: impl Fn(T, T) -> T) -> Vec<T> {
        let (rows, series) = (self.rows, self.series);
        // Of each row, the values to the end of its block or series.
        let mut ends: Vec<T> = Vec::with_capacity(rows);
        for row in (0..rows).rev() {
            let own = value(row);
            let is_last = row + 1 == rows || self.begins_block(row + 1) || series.start_of(row + 1) == row + 1;
            let end = match ends.last() {
                Some(later) if !is_last => with(own, *later),
                _ => own,
            };
            ends.push(end);
        }
        ends.reverse();
        let mut folded: Vec<T> = Vec::with_capacity(rows);
        let (mut block, mut beginning): (usize, Option<T>) = (0, None);
        for row in 0..rows {
            let start = series.start_of(row);
            if self.begins_block(row) || start == row {
                (block, beginning) = (row, None);
            }
            let own = value(row);
            let until = beginning.map_or(own, |earlier| with(earlier, own));
            beginning = Some(until);
            let first = (row + 1).saturating_sub(usize::try_from(self.length).unwrap_or(usize::MAX)).max(start);
            folded.push(if first < block { with(ends[first], until) } else { until });
        }
        folded
    }

    fn begins_block(&self, row: usize) -> bool {
        (self.series.first_row + row as u64).is_multiple_of(self.length)
    }
}

/// The place of the least or greatest value of each window; the first of equal ones.
fn extremes(values: &ArrayRef, windows: &Windows<'_>, is_greatest: bool) -> Result<UInt32Array, ArrowError> {
    let (present, compare) = (present(values)?, make_comparator(values, values, SortOptions::default())?);
    let better = if is_greatest { Ordering::Greater } else { Ordering::Less };
    let chosen = |earlier: u32, later: u32| {
        if compare(later as usize, earlier as usize) == better { later } else { earlier }
    };
    let place = |row: usize| if present.value(row) { u32::try_from(row).ok() } else { None };
    Ok(windows.fold(place, |earlier, later| either(earlier, later, chosen)).into_iter().collect())
}

/// Which values are not null and not NaN.
fn present(values: &ArrayRef) -> Result<BooleanBuffer, ArrowError> {
    if values.data_type().is_floating() {
        let doubles = Doubles::of(values)?;
        return Ok(BooleanBuffer::collect_bool(values.len(), |row| doubles.get(row).is_some()));
    }
    Ok(values.logical_nulls().map_or_else(|| BooleanBuffer::new_set(values.len()), NullBuffer::into_inner))
}

/// What both have of each other, or the one that is there.
fn either<T>(earlier: Option<T>, later: Option<T>, both: impl FnOnce(T, T) -> T) -> Option<T> {
    match (earlier, later) {
        (Some(earlier), Some(later)) => Some(both(earlier, later)),
        (earlier, later) => earlier.or(later),
    }
}

/// Numbers as float64.
struct Doubles(Float64Array);

/// Number, mean and sum of squared distances from the mean of some values.
#[derive(Clone, Copy)]
struct Moments {
    count: f64,
    mean: f64,
    squares: f64,
}

// === impl Doubles ===

impl Doubles {
    fn of(values: &ArrayRef) -> Result<Self, ArrowError> {
        Ok(Self(numbers(values)?.as_primitive::<Float64Type>().clone()))
    }

    /// None for null and NaN.
    fn get(&self, row: usize) -> Option<f64> {
        self.0.is_valid(row).then(|| self.0.value(row)).filter(|value| !value.is_nan())
    }
}

// === impl Moments ===

impl Moments {
    fn of(value: Option<f64>) -> Self {
        Self { count: if value.is_some() { 1.0 } else { 0.0 }, mean: value.unwrap_or(0.0), squares: 0.0 }
    }

    /// Those of both, by the pairwise formula of Chan et al.
    fn with(self, later: Self) -> Self {
        if self.count == 0.0 || later.count == 0.0 {
            return if self.count == 0.0 { later } else { self };
        }
        let (count, distance) = (self.count + later.count, later.mean - self.mean);
        Self {
            count,
            mean: self.mean + distance * (later.count / count),
            squares: self.squares + later.squares + distance * distance * (self.count * later.count / count),
        }
    }

    fn mean(self) -> Option<f64> {
        (self.count > 0.0).then_some(self.mean)
    }

    fn deviation(self) -> Option<f64> {
        (self.count > 1.0).then(|| (self.squares / (self.count - 1.0)).sqrt())
    }
}
