//! As-of joins: of a table's rows with one key, the latest that is not after a row. `pandas.merge_asof`; `ASOF JOIN`.
//!
//! - Times compare exactly in any units: instants with instants in any zones, local times with local times and dates,
//!   which are the start of their day, and whole numbers with whole numbers. All other pairs are rejected.
//! - Of rows with one time, the last in the table's order is joined.
//! - A row without a key or a time finds nothing, and a table's row without a key or a time is not found.

use std::{ops::Range, sync::Arc};

use arrow::{
    array::{Array, ArrayRef, Int64Array},
    compute::cast,
    datatypes::DataType,
    error::ArrowError,
};

use super::{
    lookup::TableKeys,
    lookup_keys::{counts, nanoseconds},
};
use crate::error::OpProblem;

const NANOSECONDS: f64 = 1e9;
const NANOSECONDS_A_DAY: i128 = 86_400_000_000_000;
const NANOSECONDS_A_MILLISECOND: i128 = 1_000_000;

/// The rows of a table by key and time.
#[derive(Debug)]
pub struct TableTimes {
    keys: Arc<TableKeys>,
    /// The type of the times.
    data_type: DataType,
    /// The place of each key's first row below; one more than there are keys.
    starts: Vec<usize>,
    /// The times of the rows of each key in rising order, in units of the type.
    times: Vec<i64>,
    /// The rows of the times, in the table's order where times are equal.
    rows: Vec<u32>,
}

/// How the times of rows compare with those of a table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AsOf {
    /// The units of both, in the smallest one.
    unit: i128,
    table_unit: i128,
    /// Whether a row joins one with its very time.
    allow_exact: bool,
    /// The largest difference.
    tolerance: Option<i128>,
}

/// What values of a type are times of.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Clock {
    Instants,
    LocalTimes,
    Numbers,
}

// === impl TableTimes ===

impl TableTimes {
    /// Bytes of a row while it is sorted, and afterwards.
    pub const ROW_BYTES: u64 = 32;

    /// Orders a table's rows. `keys` are its distinct keys, and `key_of_row` names the one of each row, if it has one.
    pub fn new(keys: Arc<TableKeys>, key_of_row: &[Option<u32>], times: &ArrayRef) -> Result<Self, OpProblem> {
        let data_type = plain_type(times.data_type()).clone();
        let counted = clock(&data_type).and_then(|_| times_of(times).ok().flatten());
        let counted = counted.ok_or_else(|| no_times(times.data_type()))?;
        let mut sorted = Vec::with_capacity(counted.len());
        for (row, (key, time)) in key_of_row.iter().zip(counted).enumerate() {
            let (Some(key), true) = (key, times.is_valid(row)) else { continue };
            let too_large = || OpProblem::Parameter(format!("holds {time}, which is larger than 2^63 - 1"));
            let row = u32::try_from(row).map_err(|_| OpProblem::Parameter("has more than 2^32 rows".to_owned()))?;
            sorted.push((*key, i64::try_from(time).map_err(|_| too_large())?, row));
        }
        sorted.sort_unstable();
        let mut starts = vec![0; keys.values().len() + 1];
        for (key, ..) in &sorted {
            starts[*key as usize + 1] += 1;
        }
        for key in 1..starts.len() {
            starts[key] += starts[key - 1];
        }
        let (times, rows) = sorted.into_iter().map(|(_, time, row)| (time, row)).unzip();
        Ok(Self { keys, data_type, starts, times, rows })
    }

    /// The distinct keys.
    pub fn keys(&self) -> &Arc<TableKeys> {
        &self.keys
    }

    /// How times of a type compare with those of the table.
    pub fn compare(
        &self,
        times: &DataType,
        allow_exact: bool,
        tolerance_seconds: Option<f64>,
    ) -> Result<AsOf, OpProblem> {
        let ((clock_of_rows, unit), (clock_of_table, table_unit)) = match (clock(times), clock(&self.data_type)) {
            (Some(of_rows), Some(of_table)) => (of_rows, of_table),
            (None, _) => return Err(no_times(times)),
            (_, None) => return Err(no_times(&self.data_type)),
        };
        if clock_of_rows != clock_of_table {
            return Err(OpProblem::Parameter(format!(
                "has type {times}, which does not compare with the times of the table, of type {}: instants, which have a \
                 time zone, local times and whole numbers compare among themselves",
                self.data_type
            )));
        }
        let tolerance = match tolerance_seconds {
            Some(_) if clock_of_rows == Clock::Numbers => {
                return Err(OpProblem::Parameter(format!(
                    "has type {times}, whose unit is unknown: tolerance_seconds requires times"
                )));
            }
            Some(seconds) if !seconds.is_finite() || seconds < 0.0 => {
                return Err(OpProblem::Parameter(format!(
                    "tolerance_seconds must be a number of seconds, 0 or more, not {seconds}"
                )));
            }
            seconds => seconds.map(|seconds| (seconds * NANOSECONDS).round() as i128),
        };
        Ok(AsOf { unit, table_unit, allow_exact, tolerance })
    }

    /// The row of the table that each row joins, by the number of its key.
    pub fn rows(&self, keys: &Int64Array, times: &dyn Array, as_of: &AsOf) -> Result<Int64Array, ArrowError> {
        let counted = times_of(times)?;
        let counted = counted.ok_or_else(|| ArrowError::InvalidArgumentError("no times".to_owned()))?;
        let found = keys.iter().zip(counted).enumerate().map(|(row, (key, time))| {
            let key = usize::try_from(key?).ok().filter(|_| times.is_valid(row))?;
            self.latest(*self.starts.get(key)?..*self.starts.get(key + 1)?, time, as_of)
        });
        Ok(found.collect())
    }

    /// The latest of a key's rows for a time.
    fn latest(&self, places: Range<usize>, time: i128, as_of: &AsOf) -> Option<i64> {
        let time = time * as_of.unit;
        // The first time that is too late, in units of the table.
        let end = if as_of.allow_exact {
            time.div_euclid(as_of.table_unit) + 1
        } else {
            (time + as_of.table_unit - 1).div_euclid(as_of.table_unit)
        };
        let before = self.times[places.clone()].partition_point(|of_table| i128::from(*of_table) < end);
        let place = places.start + before.checked_sub(1)?;
        let difference = time - i128::from(self.times[place]) * as_of.table_unit;
        as_of.tolerance.is_none_or(|tolerance| difference <= tolerance).then(|| i64::from(self.rows[place]))
    }
}

/// What values of a type are times of, and their unit in nanoseconds; 1 for numbers.
fn clock(data_type: &DataType) -> Option<(Clock, i128)> {
    use DataType as T;
    Some(match data_type {
        T::Dictionary(_, values) => clock(values)?,
        T::Timestamp(unit, Some(_)) => (Clock::Instants, nanoseconds(*unit)),
        T::Timestamp(unit, None) => (Clock::LocalTimes, nanoseconds(*unit)),
        T::Date32 => (Clock::LocalTimes, NANOSECONDS_A_DAY),
        T::Date64 => (Clock::LocalTimes, NANOSECONDS_A_MILLISECOND),
        T::Int8 | T::Int16 | T::Int32 | T::Int64 | T::UInt8 | T::UInt16 | T::UInt32 | T::UInt64 => (Clock::Numbers, 1),
        _ => return None,
    })
}

/// Times in their unit, any number where they are null; `None` for other types.
fn times_of(times: &dyn Array) -> Result<Option<Vec<i128>>, ArrowError> {
    if matches!(times.data_type(), DataType::Dictionary(..)) {
        return counts(&cast(times, plain_type(times.data_type()))?);
    }
    counts(times)
}

fn plain_type(data_type: &DataType) -> &DataType {
    match data_type {
        DataType::Dictionary(_, values) => values,
        other => other,
    }
}

fn no_times(data_type: &DataType) -> OpProblem {
    OpProblem::Parameter(format!("has type {data_type}: times are timestamps, dates or whole numbers"))
}

#[cfg(test)]
mod tests {
    use arrow::{
        array::{
            Date32Array, StringArray, TimestampMicrosecondArray, TimestampMillisecondArray, TimestampNanosecondArray,
            TimestampSecondArray, UInt64Array,
        },
        datatypes::TimeUnit,
    };

    use super::*;

    fn table(keys: &[Option<u32>], times: impl Array + 'static) -> TableTimes {
        let count = keys.iter().flatten().max().map_or(0, |key| i64::from(*key) + 1);
        let distinct = TableKeys::new(Arc::new(Int64Array::from_iter_values(0..count)));
        TableTimes::new(distinct.into(), keys, &(Arc::new(times) as ArrayRef)).unwrap()
    }

    fn rows(table: &TableTimes, rows: &[(Option<i64>, Option<i64>)], as_of: (bool, Option<f64>)) -> Vec<Option<i64>> {
        let keys: Int64Array = rows.iter().map(|(key, _)| *key).collect();
        let times: TimestampMillisecondArray = rows.iter().map(|(_, time)| *time).collect();
        let as_of = table.compare(times.data_type(), as_of.0, as_of.1).unwrap();
        table.rows(&keys, &times, &as_of).unwrap().iter().collect()
    }

    #[test]
    fn finds_the_last_row_that_is_not_later() {
        let keys = [Some(1), Some(0), Some(1), Some(1), None, Some(1), Some(0)];
        let times = [Some(30), Some(5), Some(10), Some(30), Some(1), None, Some(-7)];
        let table = table(&keys, TimestampMillisecondArray::from(times.to_vec()));
        let of = |key, time| (Some(key), Some(time));
        let events = [of(1, 9), of(1, 10), of(1, 29), of(1, 30), of(1, 99), of(0, -8), of(0, -7), of(0, 4), of(0, 5)];
        assert_eq!(
            rows(&table, &events, (true, None)),
            [None, Some(2), Some(2), Some(3), Some(3), None, Some(6), Some(6), Some(1)]
        );
        assert_eq!(
            rows(&table, &events, (false, None)),
            [None, None, Some(2), Some(2), Some(3), None, None, Some(6), Some(6)]
        );
        assert_eq!(
            rows(&table, &events, (true, Some(0.019))),
            [None, Some(2), Some(2), Some(3), None, None, Some(6), Some(6), Some(1)]
        );
        assert_eq!(rows(&table, &[(None, Some(50)), (Some(1), None), of(7, 50)], (true, None)), [None, None, None]);
    }

    #[test]
    fn compares_units_exactly() {
        let row = |table: &TableTimes, time: ArrayRef, allow_exact| {
            let as_of = table.compare(time.data_type(), allow_exact, None).unwrap();
            table.rows(&Int64Array::from(vec![0; time.len()]), &time, &as_of).unwrap().iter().collect::<Vec<_>>()
        };
        let seconds = table(&[Some(0), Some(0)], TimestampSecondArray::from(vec![-2, 1]));
        let micros = |times: Vec<i64>| Arc::new(TimestampMicrosecondArray::from(times)) as ArrayRef;
        let events = micros(vec![-2_000_001, -2_000_000, -1_999_999, 999_999, 1_000_000, 1_000_001]);
        assert_eq!(row(&seconds, Arc::clone(&events), true), [None, Some(0), Some(0), Some(0), Some(1), Some(1)]);
        assert_eq!(row(&seconds, events, false), [None, None, Some(0), Some(0), Some(0), Some(1)]);
        let nanos = table(&[Some(0), Some(0)], TimestampNanosecondArray::from(vec![999_999_999, 1_000_000_001]));
        let events = || Arc::new(TimestampSecondArray::from(vec![0, 1, 2])) as ArrayRef;
        assert_eq!(row(&nanos, events(), true), [None, Some(0), Some(1)]);
        // The largest counts of the longest unit.
        let days = table(&[Some(0)], Date32Array::from(vec![1]));
        let events = || Arc::new(TimestampSecondArray::from(vec![i64::MIN, 86_399, 86_400, i64::MAX])) as ArrayRef;
        assert_eq!(row(&days, events(), true), [None, None, Some(0), Some(0)]);
        assert_eq!(row(&days, events(), false), [None, None, None, Some(0)]);
    }

    #[test]
    fn rejects_what_does_not_compare() {
        let local = table(&[Some(0)], TimestampSecondArray::from(vec![1]));
        let problem =
            |data_type: DataType, tolerance| local.compare(&data_type, true, tolerance).unwrap_err().to_string();
        let zoned = DataType::Timestamp(TimeUnit::Second, Some("UTC".into()));
        assert!(problem(zoned, None).contains("which does not compare with the times of the table"));
        assert!(problem(DataType::Int64, None).contains("does not compare"));
        assert!(problem(DataType::Utf8, None).ends_with("times are timestamps, dates or whole numbers"));
        for seconds in [-1.0, f64::NAN, f64::INFINITY] {
            assert!(problem(DataType::Date32, Some(seconds)).contains("0 or more"));
        }
        let numbers = table(&[Some(0)], UInt64Array::from(vec![1]));
        assert!(numbers.compare(&DataType::Int8, true, Some(1.0)).unwrap_err().to_string().contains("unit is unknown"));
        let keys = Arc::new(TableKeys::new(Arc::new(Int64Array::from(vec![0]))));
        let made = |times: ArrayRef| TableTimes::new(Arc::clone(&keys), &[Some(0)], &times).unwrap_err().to_string();
        assert!(made(Arc::new(UInt64Array::from(vec![u64::MAX]))).contains("larger than 2^63 - 1"));
        assert!(made(Arc::new(StringArray::from(vec!["x"]))).contains("times are timestamps"));
    }
}
