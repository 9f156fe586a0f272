//! Rows of series, and their values as numbers.

use std::{iter, sync::Arc};

use arrow::{
    array::{Array, ArrayRef, AsArray, Int64Array, UInt64Array},
    compute::cast,
    datatypes::{DataType, Int64Type, UInt64Type},
    error::ArrowError,
};

use crate::{error::KernelError, ops::nearest::float64_of_decimals};

/// The series of consecutive rows of a dataset.
#[derive(Clone, Debug)]
pub struct SeriesRows {
    /// The index of the first row in the dataset.
    pub(super) first_row: u64,
    /// The place of the first of the rows that are of a row's series, for each row.
    starts: Vec<u32>,
}

// === impl SeriesRows ===

impl SeriesRows {
    /// Consecutive rows from the index `first_row` on. `begins` is true for each row after the first that begins a series.
    pub fn new(first_row: u64, begins: impl IntoIterator<Item = bool>) -> Self {
        let mut start = 0;
        let starts = iter::once(0).chain(begins.into_iter().zip(1..).map(|(begins, row)| {
            start = if begins { row } else { start };
            start
        }));
        Self { first_row, starts: starts.collect() }
    }

    /// The place of the first of the rows that are of a row's series.
    pub(super) fn start_of(&self, row: usize) -> usize {
        self.starts.get(row).map_or(row, |start| *start as usize)
    }
}

pub(super) fn is_whole(values: &DataType) -> bool {
    values.is_integer() || *values == DataType::Boolean
}

/// Numbers as float64.
pub(super) fn numbers(values: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    match float64_of_decimals(values.as_ref()) {
        Some(doubles) => Ok(Arc::new(doubles)),
        None => cast(values, &DataType::Float64),
    }
}

/// A result as a 64-bit integer.
pub(super) fn whole(value: i128, column: &str, row: usize) -> Result<i64, KernelError> {
    i64::try_from(value).map_err(|_| KernelError::HistoryOverflow {
        column: column.to_owned(),
        row,
        value: value.to_string(),
    })
}

/// Integers or booleans of any type.
pub(super) enum Whole {
    Signed(Int64Array),
    Unsigned(UInt64Array),
}

impl Whole {
    pub(super) fn of(values: &ArrayRef) -> Result<Self, ArrowError> {
        Ok(match values.data_type() {
            DataType::UInt64 => Self::Unsigned(values.as_primitive::<UInt64Type>().clone()),
            _ => Self::Signed(cast(values, &DataType::Int64)?.as_primitive::<Int64Type>().clone()),
        })
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Self::Signed(values) => values.len(),
            Self::Unsigned(values) => values.len(),
        }
    }

    pub(super) fn get(&self, row: usize) -> Option<i128> {
        match self {
            Self::Signed(values) => values.is_valid(row).then(|| values.value(row).into()),
            Self::Unsigned(values) => values.is_valid(row).then(|| values.value(row).into()),
        }
    }
}
