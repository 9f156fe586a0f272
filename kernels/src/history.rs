//! Row history: values of a row that are computed from earlier rows of its series.
//!
//! The result of a row depends on nothing but these rows and the index of the row in the dataset, so that it is the same to the
//! bit for every row that a reader begins at.

mod rolling;

use std::{iter, sync::Arc};

use arrow::{
    array::{Array, ArrayRef, AsArray, Float64Array, Int64Array, UInt32Array, UInt64Array},
    compute::{cast, kernels::numeric::sub, take},
    datatypes::{DataType, Int64Type, TimeUnit, UInt64Type},
    error::ArrowError,
};

use crate::{error::KernelError, ops::nearest::float64_of_decimals};

/// A computation on earlier rows of a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HistoryOp {
    /// The value of the row `n` rows before.
    Lag {
        /// At least 1.
        n: u32,
    },
    /// The value less that of the row `n` rows before.
    Diff {
        /// At least 1.
        n: u32,
    },
    /// A statistic of the last `length` rows, with this one.
    Rolling {
        /// The statistic.
        stat: RollingStat,
        /// At least 1.
        length: u32,
    },
}

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

/// The series of consecutive rows of a dataset.
#[derive(Clone, Debug)]
pub struct SeriesRows {
    /// The index of the first row in the dataset.
    first_row: u64,
    /// The place of the first of the rows that are of a row's series, for each row.
    starts: Vec<u32>,
}

// === impl HistoryOp ===

impl HistoryOp {
    /// The number of rows before a row that its result may depend on.
    pub fn rows_before(&self) -> u64 {
        match *self {
            Self::Lag { n } | Self::Diff { n } => n.into(),
            Self::Rolling { length, .. } => u64::from(length) - 1,
        }
    }

    /// The type of the results for values of a type; what the op takes if it does not take them.
    pub fn data_type(&self, values: &DataType) -> Result<DataType, &'static str> {
        let is_number = values.is_numeric() || *values == DataType::Boolean;
        let is_temporal = values.is_temporal() && !matches!(values, DataType::Interval(_));
        match self {
            Self::Lag { .. } => Ok(values.clone()),
            Self::Diff { .. } if is_temporal => Ok(DataType::Float64),
            Self::Diff { .. } if is_number => Ok(of_difference(values)),
            Self::Rolling { stat: RollingStat::Count, .. } => Ok(DataType::Int64),
            Self::Rolling { stat: RollingStat::Min | RollingStat::Max, .. } if is_number || is_temporal => {
                Ok(values.clone())
            }
            Self::Rolling { stat: RollingStat::Sum, .. } if is_whole(values) => Ok(DataType::Int64),
            Self::Rolling { stat: RollingStat::Mean | RollingStat::Std | RollingStat::Sum, .. } => {
                if is_number {
                    Ok(DataType::Float64)
                } else {
                    Err("numbers")
                }
            }
            Self::Diff { .. } | Self::Rolling { .. } => Err("numbers, dates and times"),
        }
    }

    /// The results for these rows, of which all have a value; those whose earlier rows are not among them are wrong. `column` names
    /// the values in an error.
    pub fn evaluate(&self, values: &ArrayRef, series: &SeriesRows, column: &str) -> Result<ArrayRef, KernelError> {
        let failed = |source| KernelError::Arrow { what: "compute the history of", name: column.to_owned(), source };
        match *self {
            Self::Lag { n } => earlier(values, series, n).map_err(failed),
            Self::Diff { n } => difference(values, series, n, column),
            Self::Rolling { stat, length } => rolling::evaluate(values, series, (stat, u64::from(length)), column),
        }
    }
}

// === impl SeriesRows ===

impl SeriesRows {
    /// Rows of which the first has the index `first_row`; `begins` tells of each row but the first whether it begins a series.
    pub fn new(first_row: u64, begins: impl IntoIterator<Item = bool>) -> Self {
        let mut start = 0;
        let starts = iter::once(0).chain(begins.into_iter().zip(1..).map(|(begins, row)| {
            start = if begins { row } else { start };
            start
        }));
        Self { first_row, starts: starts.collect() }
    }

    /// The place of the first of the rows that are of a row's series.
    fn start_of(&self, row: usize) -> usize {
        self.starts.get(row).map_or(row, |start| *start as usize)
    }
}

/// The value of the row `n` rows before, for each row.
fn earlier(values: &ArrayRef, series: &SeriesRows, n: u32) -> Result<ArrayRef, ArrowError> {
    let n = n as usize;
    let places = (0..values.len()).map(|row| {
        let place = row.checked_sub(n).filter(|place| *place >= series.start_of(row))?;
        u32::try_from(place).ok()
    });
    take(values, &places.collect::<UInt32Array>(), None)
}

fn difference(values: &ArrayRef, series: &SeriesRows, n: u32, column: &str) -> Result<ArrayRef, KernelError> {
    let failed = |source| KernelError::Arrow { what: "compute the history of", name: column.to_owned(), source };
    let before = earlier(values, series, n).map_err(failed)?;
    let values_type = values.data_type();
    if values_type.is_temporal() {
        return seconds_between(values, &before).map_err(failed);
    }
    if is_whole(values_type) {
        let (values, before) = (Whole::of(values).map_err(failed)?, Whole::of(&before).map_err(failed)?);
        let differences = (0..values.len()).map(|row| {
            let (Some(value), Some(before)) = (values.get(row), before.get(row)) else { return Ok(None) };
            whole(value - before, column, row).map(Some)
        });
        return Ok(Arc::new(differences.collect::<Result<Int64Array, _>>()?));
    }
    // Decimals are subtracted before they are rounded.
    let (values, before) = if is_decimal(values_type) {
        (Arc::clone(values), before)
    } else {
        (numbers(values).map_err(failed)?, numbers(&before).map_err(failed)?)
    };
    numbers(&sub(&values, &before).map_err(failed)?).map_err(failed)
}

/// The seconds from earlier times to later ones.
fn seconds_between(later: &ArrayRef, earlier: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    let per_second = match later.data_type() {
        DataType::Date32 => 1.0 / 86_400.0,
        DataType::Date64 => 1e3,
        DataType::Time32(unit) | DataType::Time64(unit) | DataType::Timestamp(unit, _) | DataType::Duration(unit) => {
            match unit {
                TimeUnit::Second => 1.0,
                TimeUnit::Millisecond => 1e3,
                TimeUnit::Microsecond => 1e6,
                TimeUnit::Nanosecond => 1e9,
            }
        }
        other => return Err(ArrowError::InvalidArgumentError(format!("{other} is no time"))),
    };
    let (later, earlier) = (cast(later, &DataType::Int64)?, cast(earlier, &DataType::Int64)?);
    let (later, earlier) = (later.as_primitive::<Int64Type>(), earlier.as_primitive::<Int64Type>());
    let seconds = later.iter().zip(earlier).map(|(later, earlier)| {
        let units = i128::from(later?) - i128::from(earlier?);
        Some(if per_second < 1.0 { units as f64 * 86_400.0 } else { units as f64 / per_second })
    });
    Ok(Arc::new(seconds.collect::<Float64Array>()))
}

/// The type of differences of numbers.
fn of_difference(values: &DataType) -> DataType {
    if is_whole(values) { DataType::Int64 } else { DataType::Float64 }
}

fn is_whole(values: &DataType) -> bool {
    values.is_integer() || *values == DataType::Boolean
}

fn is_decimal(values: &DataType) -> bool {
    matches!(values, DataType::Decimal128(..) | DataType::Decimal256(..))
}

/// Numbers as float64.
fn numbers(values: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    match float64_of_decimals(values.as_ref()) {
        Some(doubles) => Ok(Arc::new(doubles)),
        None => cast(values, &DataType::Float64),
    }
}

/// A result as a 64-bit integer.
fn whole(value: i128, column: &str, row: usize) -> Result<i64, KernelError> {
    i64::try_from(value).map_err(|_| KernelError::HistoryOverflow {
        column: column.to_owned(),
        row,
        value: value.to_string(),
    })
}

/// Integers or booleans of any type.
enum Whole {
    Signed(Int64Array),
    Unsigned(UInt64Array),
}

impl Whole {
    fn of(values: &ArrayRef) -> Result<Self, ArrowError> {
        Ok(match values.data_type() {
            DataType::UInt64 => Self::Unsigned(values.as_primitive::<UInt64Type>().clone()),
            _ => Self::Signed(cast(values, &DataType::Int64)?.as_primitive::<Int64Type>().clone()),
        })
    }

    fn len(&self) -> usize {
        match self {
            Self::Signed(values) => values.len(),
            Self::Unsigned(values) => values.len(),
        }
    }

    fn get(&self, row: usize) -> Option<i128> {
        match self {
            Self::Signed(values) => values.is_valid(row).then(|| values.value(row).into()),
            Self::Unsigned(values) => values.is_valid(row).then(|| values.value(row).into()),
        }
    }
}

#[cfg(test)]
mod tests;
