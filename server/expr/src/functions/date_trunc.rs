//! `date_trunc` for timestamps of any unit and year. DataFusion's version counts nanoseconds and fails after the year
//! 2262.

use std::sync::Arc;

use arrow::{
    array::{AsArray, timezone::Tz},
    compute::cast,
    datatypes::{DataType, FieldRef, Int64Type, TimeUnit},
};
use chrono::{Datelike, Days, NaiveDate, NaiveDateTime, NaiveTime, Offset, Timelike};
use datafusion_common::{DataFusionError, ScalarValue, exec_err, plan_err};
use datafusion_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion_functions::datetime;

use super::{instant, local};

/// `date_trunc(precision, timestamp or time)`.
pub(super) fn function() -> Arc<ScalarUDF> {
    let signature = Signature::user_defined(Volatility::Immutable);
    Arc::new(ScalarUDF::new_from_impl(DateTrunc { signature, inner: datetime::date_trunc() }))
}

/// DataFusion's function, extended to years outside of its range.
#[derive(Debug, PartialEq, Eq, Hash)]
struct DateTrunc {
    signature: Signature,
    inner: Arc<ScalarUDF>,
}

// === impl DateTrunc ===

impl ScalarUDFImpl for DateTrunc {
    fn name(&self) -> &'static str {
        "date_trunc"
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    /// Timestamps keep their unit; strings and dates become timestamps.
    fn coerce_types(&self, arg_types: &[DataType]) -> Result<Vec<DataType>, DataFusionError> {
        let [precision, source] = arg_types else { return plan_err!("date_trunc expects a unit and a timestamp") };
        if !precision.is_string() {
            return plan_err!("the unit of date_trunc must be a string, not {precision}");
        }
        let source = match instant::read_as(source) {
            DataType::Date32 | DataType::Date64 | DataType::Null => instant::READ_AS,
            moment @ (DataType::Timestamp(..) | DataType::Time32(_) | DataType::Time64(_)) => moment,
            other => return plan_err!("date_trunc expects a timestamp or a time, not {other}"),
        };
        Ok(vec![DataType::Utf8, source])
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType, DataFusionError> {
        self.inner.return_type(arg_types)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef, DataFusionError> {
        self.inner.return_field_from_args(args)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue, DataFusionError> {
        let [ColumnarValue::Scalar(precision), source] = args.args.as_slice() else {
            return self.inner.invoke_with_args(args);
        };
        let (precision, source) = (precision.try_as_str().flatten().map(str::to_lowercase), source.clone());
        let Some(precision) = precision else { return self.inner.invoke_with_args(args) };
        if may_wrap(&source)?
            && let Some(truncated) = truncate_each(&source, &precision)
        {
            return truncated;
        }
        self.inner.invoke_with_args(args).or_else(|error| truncate_each(&source, &precision).ok_or(error)?)
    }
}

/// Whether a period may start before the first timestamp of the unit, where DataFusion's subtraction wraps.
fn may_wrap(source: &ColumnarValue) -> Result<bool, DataFusionError> {
    /// A year in nanoseconds, rounded up.
    const PERIOD_MAX: i64 = 32_000_000_000_000_000;
    let ColumnarValue::Array(array) = source else { return Ok(false) };
    if !matches!(array.data_type(), DataType::Timestamp(..)) {
        return Ok(false);
    }
    let counts = cast(array, &DataType::Int64)?;
    let first = arrow::compute::min(counts.as_primitive::<Int64Type>());
    Ok(first.is_some_and(|count| count < i64::MIN + PERIOD_MAX))
}

/// Truncates each value, in any year. `None` if this function does not support the source or the precision.
fn truncate_each(source: &ColumnarValue, precision: &str) -> Option<Result<ColumnarValue, DataFusionError>> {
    let DataType::Timestamp(unit, zone) = source.data_type() else { return None };
    truncated(NaiveDateTime::default(), precision)?;
    let zone: Tz = zone.as_deref().unwrap_or("+00:00").parse().ok()?;
    let each = |count: i64| truncate(count, unit, zone, precision);
    Some(match source {
        ColumnarValue::Array(array) => instant::map(array, each).map(ColumnarValue::Array),
        ColumnarValue::Scalar(value) => value
            .to_array()
            .and_then(|array| instant::map(&array, each))
            .and_then(|array| ScalarValue::try_from_array(&array, 0))
            .map(ColumnarValue::Scalar),
    })
}

fn truncate(count: i64, unit: TimeUnit, zone: Tz, precision: &str) -> Result<i64, DataFusionError> {
    let source = instant::date_time(i128::from(count) * instant::nanoseconds(unit))?;
    let local = source.with_timezone(&zone).naive_local();
    let offset = source.with_timezone(&zone).offset().fix();
    let Some(start) = truncated(local, precision).and_then(|start| local::resolve(start, zone, Some(offset))) else {
        return exec_err!("date_trunc('{precision}') has no value at {local}");
    };
    instant::count(instant::of(&start), unit)
}

/// The start of the period of a local time.
fn truncated(local: NaiveDateTime, precision: &str) -> Option<NaiveDateTime> {
    let (date, time) = (local.date(), local.time());
    let day = |date: NaiveDate| date.and_time(NaiveTime::MIN);
    match precision {
        "year" => NaiveDate::from_ymd_opt(date.year(), 1, 1).map(day),
        "quarter" => NaiveDate::from_ymd_opt(date.year(), date.month0() / 3 * 3 + 1, 1).map(day),
        "month" => date.with_day(1).map(day),
        "week" => date.checked_sub_days(Days::new(date.weekday().num_days_from_monday().into())).map(day),
        "day" => Some(day(date)),
        "hour" => NaiveTime::from_hms_opt(time.hour(), 0, 0).map(|time| date.and_time(time)),
        "minute" => NaiveTime::from_hms_opt(time.hour(), time.minute(), 0).map(|time| date.and_time(time)),
        "second" => local.with_nanosecond(0),
        "millisecond" => local.with_nanosecond(time.nanosecond() / 1_000_000 * 1_000_000),
        "microsecond" => local.with_nanosecond(time.nanosecond() / 1_000 * 1_000),
        _ => None,
    }
}
