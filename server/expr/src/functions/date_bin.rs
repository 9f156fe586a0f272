//! `date_bin` for timestamps of any unit and year. DataFusion's version counts nanoseconds and returns null after the
//! year 2262.

use std::sync::Arc;

use arrow::{
    array::{Array, AsArray},
    compute::cast,
    datatypes::{DataType, Int64Type, IntervalMonthDayNano, IntervalMonthDayNanoType, IntervalUnit, TimeUnit},
};
use chrono::{Datelike, Months};
use datafusion_common::{DataFusionError, ScalarValue, exec_err, plan_err};
use datafusion_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};
use datafusion_functions::datetime;

use super::instant;

/// `date_bin(stride, timestamp or time [, origin])`.
pub(super) fn function() -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::new_from_impl(DateBin { signature: Signature::user_defined(Volatility::Immutable) }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct DateBin {
    signature: Signature,
}

/// The width of a bin.
#[derive(Clone, Copy)]
enum Stride {
    Nanoseconds(i128),
    Months(i64),
}

// === impl DateBin ===

impl ScalarUDFImpl for DateBin {
    fn name(&self) -> &'static str {
        "date_bin"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    /// The stride becomes an interval; timestamps keep their unit; strings and dates become timestamps.
    fn coerce_types(&self, arg_types: &[DataType]) -> Result<Vec<DataType>, DataFusionError> {
        let (Some(source), 2..=3) = (arg_types.get(1), arg_types.len()) else {
            return plan_err!("date_bin expects a stride, a timestamp and optionally an origin");
        };
        let time = |data_type: &DataType| match instant::read_as(data_type) {
            DataType::Date32 | DataType::Date64 | DataType::Null => Ok(instant::READ_AS),
            moment @ (DataType::Timestamp(..) | DataType::Time32(_) | DataType::Time64(_)) => Ok(moment),
            other => plan_err!("date_bin expects a timestamp or a time, not {other}"),
        };
        let source = time(source)?;
        let mut types = vec![DataType::Interval(IntervalUnit::MonthDayNano), source.clone()];
        if let Some(origin) = arg_types.get(2) {
            let is_instant = matches!(source, DataType::Timestamp(..));
            types.push(if is_instant { time(origin)? } else { source });
        }
        Ok(types)
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType, DataFusionError> {
        let Some(source) = arg_types.get(1) else { return plan_err!("date_bin expects a stride and a timestamp") };
        Ok(source.clone())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue, DataFusionError> {
        let DataType::Timestamp(unit, _) = args.return_field.data_type().clone() else {
            return datetime::date_bin().invoke_with_args(args);
        };
        let [stride, source, rest @ ..] = args.args.as_slice() else {
            return exec_err!("date_bin expects a stride and a timestamp");
        };
        let (Some(stride), Some(origin)) = (stride_of(stride)?, origin_of(rest.first())?) else {
            return Ok(ColumnarValue::Scalar(ScalarValue::try_from(args.return_field.data_type())?));
        };
        let bin = |count: i64| bin(count, unit, stride, origin);
        match source {
            ColumnarValue::Array(array) => Ok(ColumnarValue::Array(instant::map(array, bin)?)),
            ColumnarValue::Scalar(value) => {
                let binned = instant::map(&value.to_array()?, bin)?;
                Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&binned, 0)?))
            }
        }
    }
}

/// The stride of a call; `None` if it is null.
fn stride_of(stride: &ColumnarValue) -> Result<Option<Stride>, DataFusionError> {
    let ColumnarValue::Scalar(stride) = stride else {
        return exec_err!("the stride of date_bin must be a constant interval");
    };
    let array = cast(&stride.to_array()?, &DataType::Interval(IntervalUnit::MonthDayNano))?;
    if array.is_null(0) {
        return Ok(None);
    }
    let IntervalMonthDayNano { months, days, nanoseconds } = array.as_primitive::<IntervalMonthDayNanoType>().value(0);
    let within_days = i128::from(days) * instant::NANOSECONDS_PER_DAY + i128::from(nanoseconds);
    match (months, within_days) {
        (1.., 0) => Ok(Some(Stride::Months(months.into()))),
        (0, 1..) => Ok(Some(Stride::Nanoseconds(within_days))),
        (0, _) | (_, 0) => exec_err!("the stride of date_bin must be greater than zero"),
        _ => exec_err!("the stride of date_bin must have months and years, or days and shorter units, not both"),
    }
}

/// The origin in nanoseconds since 1970, 0 by default; `None` if it is null.
fn origin_of(origin: Option<&ColumnarValue>) -> Result<Option<i128>, DataFusionError> {
    let Some(origin) = origin else { return Ok(Some(0)) };
    let ColumnarValue::Scalar(origin) = origin else {
        return exec_err!("the origin of date_bin must be a constant timestamp");
    };
    let array = origin.to_array()?;
    if array.is_null(0) {
        return Ok(None);
    }
    let DataType::Timestamp(unit, _) = array.data_type() else {
        return exec_err!("the origin of date_bin must be a timestamp, not {}", array.data_type());
    };
    let count = cast(&array, &DataType::Int64)?.as_primitive::<Int64Type>().value(0);
    Ok(Some(i128::from(count) * instant::nanoseconds(*unit)))
}

/// The start of the bin of a timestamp.
fn bin(count: i64, unit: TimeUnit, stride: Stride, origin: i128) -> Result<i64, DataFusionError> {
    let nanoseconds = i128::from(count) * instant::nanoseconds(unit);
    let start = match stride {
        Stride::Nanoseconds(stride) => origin + (nanoseconds - origin).div_euclid(stride) * stride,
        Stride::Months(stride) => start_of_months(nanoseconds, stride, origin)?,
    };
    instant::count(start, unit)
}

fn start_of_months(nanoseconds: i128, stride: i64, origin: i128) -> Result<i128, DataFusionError> {
    let (source, origin) = (instant::date_time(nanoseconds)?, instant::date_time(origin)?);
    let months = |date: &chrono::DateTime<chrono::Utc>| i64::from(date.year()) * 12 + i64::from(date.month0());
    let shifted = |months: i64| {
        let count = Months::new(u32::try_from(months.unsigned_abs()).unwrap_or(u32::MAX));
        let shifted = if months < 0 { origin.checked_sub_months(count) } else { origin.checked_add_months(count) };
        shifted.map_or_else(|| exec_err!("a bin of date_bin starts outside of the calendar's range"), Ok)
    };
    let bins = (months(&source) - months(&origin)).div_euclid(stride);
    let mut start = shifted(bins * stride)?;
    // Bins start on the same day of the month as the origin.
    if start > source {
        start = shifted((bins - 1) * stride)?;
    }
    Ok(instant::of(&start))
}
