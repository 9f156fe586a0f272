//! Timestamps and dates as nanoseconds since 1970 in 128 bits, which can hold every value of every unit.

use std::sync::Arc;

use arrow::{
    array::{Array, ArrayRef, ArrowPrimitiveType, AsArray, Int64Array, PrimitiveArray},
    compute::cast,
    datatypes::{
        DataType, Int64Type, TimeUnit, TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType,
        TimestampSecondType,
    },
};
use chrono::{DateTime, Utc};
use datafusion_common::{DataFusionError, exec_err};

pub(super) const NANOSECONDS_PER_DAY: i128 = 86_400 * 1_000_000_000;

/// The type that a function reads texts as: nanoseconds would end in 2262.
pub(super) const READ_AS: DataType = DataType::Timestamp(TimeUnit::Microsecond, None);

/// The type that a function of times converts an argument to: texts are timestamps, others stay as they are.
pub(super) fn read_as(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => READ_AS,
        other => other.clone(),
    }
}

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

/// Nanoseconds per unit of a date, a timestamp, a time of day or a duration.
pub(super) fn step(data_type: &DataType) -> Result<i128, DataFusionError> {
    Ok(match data_type {
        DataType::Date32 => NANOSECONDS_PER_DAY,
        DataType::Date64 => nanoseconds(TimeUnit::Millisecond),
        DataType::Timestamp(unit, _) | DataType::Time32(unit) | DataType::Time64(unit) | DataType::Duration(unit) => {
            nanoseconds(*unit)
        }
        other => return exec_err!("expected a date, a time or a duration, not {other}"),
    })
}

/// Nanoseconds of each value of an array of such a type.
pub(super) fn all(array: &dyn Array) -> Result<Vec<Option<i128>>, DataFusionError> {
    let step = step(array.data_type())?;
    let counts = cast(&narrow_to_wide(array)?, &DataType::Int64)?;
    Ok(counts.as_primitive::<Int64Type>().iter().map(|count| count.map(|count| i128::from(count) * step)).collect())
}

/// A 32-bit type as its 32-bit counts, which a cast can widen.
fn narrow_to_wide(array: &dyn Array) -> Result<ArrayRef, DataFusionError> {
    match array.data_type() {
        DataType::Date32 | DataType::Time32(_) => Ok(cast(array, &DataType::Int32)?),
        _ => Ok(arrow::array::make_array(array.to_data())),
    }
}

/// An array of such a type from nanoseconds, rounded down. A value outside of the range of the type is an error.
pub(super) fn array(
    values: impl IntoIterator<Item = Result<Option<i128>, DataFusionError>>,
    data_type: &DataType,
) -> Result<ArrayRef, DataFusionError> {
    let step = step(data_type)?;
    let count = |nanoseconds: i128| match i64::try_from(nanoseconds.div_euclid(step)) {
        Ok(count) if *data_type != DataType::Date32 || i32::try_from(count).is_ok() => Ok(count),
        _ => exec_err!("the instant {nanoseconds} ns since 1970 is outside of the range of {data_type}"),
    };
    let counts: Result<Int64Array, DataFusionError> =
        values.into_iter().map(|value| value?.map(count).transpose()).collect();
    let counts: ArrayRef = Arc::new(counts?);
    let counts = if *data_type == DataType::Date32 { cast(&counts, &DataType::Int32)? } else { counts };
    Ok(cast(&counts, data_type)?)
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
