//! Row history: values of a row that are computed from earlier rows of its series.
//!
//! The result of a row depends on nothing but these rows and the index of the row in the dataset, so that it is the same to the
//! bit for every row that a reader begins at.

pub(crate) mod rolling;
pub(crate) mod values;

use std::sync::Arc;

use arrow::{
    array::{Array, ArrayRef, AsArray, Float64Array, Int64Array, UInt32Array},
    compute::{cast, kernels::numeric::sub, take},
    datatypes::{DataType, Int64Type, TimeUnit},
    error::ArrowError,
};

use self::{
    rolling::RollingStat,
    values::{SeriesRows, Whole, is_whole, numbers, whole},
};
use crate::error::KernelError;

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

fn is_decimal(values: &DataType) -> bool {
    matches!(values, DataType::Decimal128(..) | DataType::Decimal256(..))
}

#[cfg(test)]
mod tests;
