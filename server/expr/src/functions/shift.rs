//! A date or a timestamp plus or minus an interval, a duration or a time of day.
//!
//! Months, then days, are added to the local time of the zone, then the part of the clock to the instant. Arrow's kernels
//! drop the clock of dates, and fail where the local time that results does not exist or exists twice.

use std::sync::Arc;

use arrow::{
    array::{Array, ArrayRef, timezone::Tz},
    compute::cast,
    datatypes::{DataType, TimeUnit},
};
use chrono::{DateTime, Days, Months, NaiveDateTime, Offset, Utc};
use datafusion_common::{DataFusionError, ScalarValue, exec_datafusion_err, exec_err};
use datafusion_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};

use super::{
    instant::{self, NANOSECONDS_PER_DAY},
    local,
    span::{self, Span},
};

/// A function of a moment and a span: their sum, or their difference, as this type.
pub(crate) fn function(subtract: bool, result: DataType) -> Arc<ScalarUDF> {
    let signature = Signature::any(2, Volatility::Immutable);
    Arc::new(ScalarUDF::new_from_impl(Shift { signature, subtract, result }))
}

/// The finest unit that a literal span needs, `None` if whole days do; the unit of its type for other expressions.
pub(crate) fn unit_of(span: Option<&ScalarValue>, data_type: &DataType) -> Option<TimeUnit> {
    use TimeUnit::{Microsecond, Millisecond, Nanosecond, Second};
    let Some(value) = span else {
        return Some(match data_type {
            DataType::Duration(unit) | DataType::Time32(unit) | DataType::Time64(unit) => *unit,
            _ => Microsecond,
        });
    };
    let span = value.to_array().and_then(|array| span::all(&array)).ok()?.into_iter().next().flatten()?;
    let is_whole = |unit| span.nanoseconds % instant::nanoseconds(unit) == 0;
    if span.nanoseconds == 0 && matches!(data_type, DataType::Interval(_)) {
        return None;
    }
    Some([Second, Millisecond, Microsecond].into_iter().find(|unit| is_whole(*unit)).unwrap_or(Nanosecond))
}

/// SQL cannot call it by name.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Shift {
    signature: Signature,
    subtract: bool,
    result: DataType,
}

// === impl Shift ===

impl ScalarUDFImpl for Shift {
    fn name(&self) -> &'static str {
        if self.subtract { "minus_interval" } else { "plus_interval" }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arg_types: &[DataType]) -> Result<DataType, DataFusionError> {
        Ok(self.result.clone())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue, DataFusionError> {
        match args.args.as_slice() {
            [ColumnarValue::Scalar(moment), ColumnarValue::Scalar(span)] => {
                let shifted = self.shift(&moment.to_array()?, &span.to_array()?)?;
                Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&shifted, 0)?))
            }
            [moment, span] => {
                let (moments, spans) = (moment.to_array(args.number_rows)?, span.to_array(args.number_rows)?);
                Ok(ColumnarValue::Array(self.shift(&moments, &spans)?))
            }
            _ => exec_err!("expected a moment and an interval"),
        }
    }
}

impl Shift {
    fn shift(&self, moments: &ArrayRef, spans: &ArrayRef) -> Result<ArrayRef, DataFusionError> {
        let zone: Option<Tz> = match &self.result {
            DataType::Timestamp(_, Some(zone)) => Some(zone.parse()?),
            _ => None,
        };
        let moments = instant::all(&null_as(moments, &self.result)?)?;
        let spans = span::all(&null_as(spans, &DataType::Duration(TimeUnit::Second))?)?;
        let shifted = moments.into_iter().zip(spans).map(|pair| match pair {
            (Some(moment), Some(span)) => {
                shifted(moment, if self.subtract { span.negated() } else { span }, zone).map(Some)
            }
            _ => Ok(None),
        });
        instant::array(shifted, &self.result)
    }
}

/// An untyped null as one of this type.
fn null_as(array: &ArrayRef, data_type: &DataType) -> Result<ArrayRef, DataFusionError> {
    if array.data_type().is_null() { Ok(cast(array, data_type)?) } else { Ok(Arc::clone(array)) }
}

/// The instant of a moment plus a span, in nanoseconds since 1970.
fn shifted(moment: i128, span: Span, zone: Option<Tz>) -> Result<i128, DataFusionError> {
    if span.months == 0 && (span.days == 0 || zone.is_none()) {
        return Ok(moment + i128::from(span.days) * NANOSECONDS_PER_DAY + span.nanoseconds);
    }
    let start = instant::date_time(moment)?;
    let shifted = match zone {
        None => {
            plus_days(plus_months(start.naive_utc(), span.months), span.days).map(|local| instant::of(&local.and_utc()))
        }
        Some(zone) => plus_calendar(&start, span, zone),
    };
    let shifted = shifted.ok_or_else(|| exec_datafusion_err!("an interval added to {start} exceeds the calendar"))?;
    Ok(shifted + span.nanoseconds)
}

/// Adds months, then days, to the local time of a zone.
fn plus_calendar(start: &DateTime<Utc>, span: Span, zone: Tz) -> Option<i128> {
    let mut at = start.with_timezone(&zone);
    if span.months != 0 {
        at = local::resolve(plus_months(at.naive_local(), span.months)?, zone, None)?;
    }
    if span.days != 0 {
        let offset = at.offset().fix();
        at = local::resolve(plus_days(Some(at.naive_local()), span.days)?, zone, Some(offset))?;
    }
    Some(instant::of(&at))
}

fn plus_months(local: NaiveDateTime, months: i64) -> Option<NaiveDateTime> {
    let count = Months::new(u32::try_from(months.unsigned_abs()).ok()?);
    if months < 0 { local.checked_sub_months(count) } else { local.checked_add_months(count) }
}

fn plus_days(local: Option<NaiveDateTime>, days: i64) -> Option<NaiveDateTime> {
    let count = Days::new(days.unsigned_abs());
    if days < 0 { local?.checked_sub_days(count) } else { local?.checked_add_days(count) }
}
