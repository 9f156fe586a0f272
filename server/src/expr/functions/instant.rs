//! Timestamps of any unit as nanoseconds since 1970 in 128 bits, which can hold every value of every unit.

use std::sync::Arc;

use arrow::{
    array::{Array, ArrayRef, ArrowPrimitiveType, AsArray, PrimitiveArray},
    datatypes::{
        DataType, TimeUnit, TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType,
        TimestampSecondType,
    },
};
use chrono::{DateTime, Utc};
use datafusion_common::{DataFusionError, exec_err};

/// Nanoseconds per unit.
pub(super) fn nanoseconds(unit: TimeUnit) -> i128 {
    match unit {
        TimeUnit::Second => 1_000_000_000,
        TimeUnit::Millisecond => 1_000_000,
        TimeUnit::Microsecond => 1_000,
        TimeUnit::Nanosecond => 1,
    }
}

/// Maps the counts of a timestamp array, keeping its type.
pub(super) fn map(
    array: &dyn Array,
    each: impl Fn(i64) -> Result<i64, DataFusionError>,
) -> Result<ArrayRef, DataFusionError> {
    fn typed<T: ArrowPrimitiveType<Native = i64>>(
        array: &dyn Array,
        each: impl Fn(i64) -> Result<i64, DataFusionError>,
    ) -> Result<ArrayRef, DataFusionError> {
        let mapped: PrimitiveArray<T> = array.as_primitive::<T>().try_unary(each)?;
        Ok(Arc::new(mapped.with_data_type(array.data_type().clone())))
    }
    match array.data_type() {
        DataType::Timestamp(TimeUnit::Second, _) => typed::<TimestampSecondType>(array, each),
        DataType::Timestamp(TimeUnit::Millisecond, _) => typed::<TimestampMillisecondType>(array, each),
        DataType::Timestamp(TimeUnit::Microsecond, _) => typed::<TimestampMicrosecondType>(array, each),
        DataType::Timestamp(TimeUnit::Nanosecond, _) => typed::<TimestampNanosecondType>(array, each),
        other => exec_err!("expected a timestamp, not {other}"),
    }
}

/// The UTC date and time of an instant.
pub(super) fn date_time(nanoseconds: i128) -> Result<DateTime<Utc>, DataFusionError> {
    const PER_SECOND: i128 = 1_000_000_000;
    let seconds = i64::try_from(nanoseconds.div_euclid(PER_SECOND)).ok();
    let rest = u32::try_from(nanoseconds.rem_euclid(PER_SECOND)).unwrap_or(0);
    let Some(date_time) = seconds.and_then(|seconds| DateTime::from_timestamp(seconds, rest)) else {
        return exec_err!("the instant {nanoseconds} ns since 1970 is outside of the calendar's range");
    };
    Ok(date_time)
}

/// Nanoseconds since 1970 of a date and time.
pub(super) fn of<Z: chrono::TimeZone>(date_time: &DateTime<Z>) -> i128 {
    i128::from(date_time.timestamp()) * 1_000_000_000 + i128::from(date_time.timestamp_subsec_nanos())
}

/// An instant as a count of units, rounded down.
pub(super) fn count(nanoseconds: i128, unit: TimeUnit) -> Result<i64, DataFusionError> {
    let Ok(count) = i64::try_from(nanoseconds.div_euclid(self::nanoseconds(unit))) else {
        return exec_err!("the instant {nanoseconds} ns since 1970 is outside of the range of its unit, {unit:?}");
    };
    Ok(count)
}
