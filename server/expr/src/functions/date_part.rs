//! `date_part` of every type: of dates, times and timestamps as DataFusion has it, of intervals and durations as
//! `PostgreSQL` and `DuckDB` have it.
//!
//! The parts of a duration are those of an interval of days, hours, minutes and seconds, all with the sign of the whole.
//! DataFusion returns totals of 32 bits there, which are null or wrap where they do not fit.

use std::sync::Arc;

use arrow::{
    array::{Array, ArrayRef, Float64Array, Int64Array},
    datatypes::{DataType, Field, FieldRef},
};
use datafusion_common::{DataFusionError, ScalarValue, exec_err, plan_err};
use datafusion_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
    preimage::PreimageResult, simplify::SimplifyContext,
};
use datafusion_functions::datetime;

use super::{
    instant::{self, NANOSECONDS_PER_DAY},
    span::{self, Span},
};

const NANOSECONDS_PER_HOUR: i128 = 3_600 * NANOSECONDS_PER_SECOND;
const NANOSECONDS_PER_MINUTE: i128 = 60 * NANOSECONDS_PER_SECOND;
const NANOSECONDS_PER_SECOND: i128 = 1_000_000_000;

/// A quarter more than 365 days, as in `PostgreSQL` and `DuckDB`.
const NANOSECONDS_PER_YEAR: i128 = 365 * NANOSECONDS_PER_DAY + NANOSECONDS_PER_DAY / 4;

/// `date_part(part, date, time, timestamp, duration or interval)`.
pub(super) fn function() -> Arc<ScalarUDF> {
    let signature = Signature::user_defined(Volatility::Immutable);
    Arc::new(ScalarUDF::new_from_impl(DatePart { signature, inner: datetime::date_part() }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct DatePart {
    signature: Signature,
    inner: Arc<ScalarUDF>,
}

// === impl DatePart ===

impl ScalarUDFImpl for DatePart {
    fn name(&self) -> &'static str {
        "date_part"
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arg_types: &[DataType]) -> Result<Vec<DataType>, DataFusionError> {
        let [part, source] = arg_types else { return plan_err!("date_part expects a part and a date or time") };
        if !part.is_string() {
            return plan_err!("the part of date_part must be a string, not {part}");
        }
        let source = match instant::read_as(source) {
            DataType::Null => instant::READ_AS,
            source if source.is_temporal() => source,
            other => return plan_err!("date_part expects a date, a time, a duration or an interval, not {other}"),
        };
        Ok(vec![DataType::Utf8, source])
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType, DataFusionError> {
        self.inner.return_type(arg_types)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef, DataFusionError> {
        let [_, source] = args.arg_fields else { return plan_err!("date_part expects a part and a date or time") };
        if !is_span(source.data_type()) {
            return self.inner.return_field_from_args(args);
        }
        let part = args.scalar_arguments.first().copied().flatten().and_then(|part| part.try_as_str().flatten());
        let Some(part) = part else { return plan_err!("the part of date_part must be a string literal") };
        let data_type = match IntervalPart::of(part)? {
            IntervalPart::Epoch => DataType::Float64,
            _ => DataType::Int64,
        };
        Ok(Arc::new(Field::new(self.name(), data_type, source.is_nullable())))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue, DataFusionError> {
        match args.args.as_slice() {
            [ColumnarValue::Scalar(part), source] if is_span(&source.data_type()) => {
                let Some(part) = part.try_as_str().flatten() else {
                    return exec_err!("the part of date_part must be a string literal");
                };
                let part = IntervalPart::of(part)?;
                match source {
                    ColumnarValue::Array(array) => Ok(ColumnarValue::Array(part.of_all(array)?)),
                    ColumnarValue::Scalar(value) => {
                        let values = part.of_all(&value.to_array()?)?;
                        Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&values, 0)?))
                    }
                }
            }
            _ => self.inner.invoke_with_args(args),
        }
    }

    fn preimage(
        &self,
        args: &[Expr],
        literal: &Expr,
        info: &SimplifyContext,
    ) -> Result<PreimageResult, DataFusionError> {
        self.inner.preimage(args, literal, info)
    }
}

fn is_span(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Duration(_) | DataType::Interval(_))
}

/// A part of an interval.
#[derive(Clone, Copy)]
enum IntervalPart {
    Year,
    Quarter,
    Month,
    Week,
    Day,
    Hour,
    Minute,
    Second,
    Millisecond,
    Microsecond,
    Nanosecond,
    Epoch,
}

// === impl IntervalPart ===

impl IntervalPart {
    fn of(name: &str) -> Result<Self, DataFusionError> {
        let lower = name.trim_matches(['\'', '"']).to_lowercase();
        Ok(match lower.as_str() {
            "y" | "yr" | "yrs" | "year" | "years" => Self::Year,
            "qtr" | "quarter" | "quarters" => Self::Quarter,
            "mon" | "mons" | "month" | "months" => Self::Month,
            "w" | "week" | "weeks" => Self::Week,
            "d" | "day" | "days" => Self::Day,
            "h" | "hr" | "hrs" | "hour" | "hours" => Self::Hour,
            "m" | "min" | "mins" | "minute" | "minutes" => Self::Minute,
            "s" | "sec" | "secs" | "second" | "seconds" => Self::Second,
            "ms" | "msec" | "msecs" | "msecond" | "mseconds" | "millisecond" | "milliseconds" => Self::Millisecond,
            "us" | "usec" | "usecs" | "usecond" | "useconds" | "microsecond" | "microseconds" => Self::Microsecond,
            "ns" | "nsec" | "nsecs" | "nsecond" | "nseconds" | "nanosecond" | "nanoseconds" => Self::Nanosecond,
            "epoch" => Self::Epoch,
            _ => return plan_err!("an interval has no part '{name}'"),
        })
    }

    fn of_all(self, array: &ArrayRef) -> Result<ArrayRef, DataFusionError> {
        let spans = span::all(array)?.into_iter();
        // The clock of an interval may exceed a day; a duration is all clock, whose whole days count as days.
        let spans = spans.map(|span| match array.data_type() {
            DataType::Duration(_) => span.map(with_days),
            _ => span,
        });
        Ok(match self {
            Self::Epoch => Arc::new(spans.map(|span| span.map(epoch)).collect::<Float64Array>()),
            part => {
                let whole = spans.map(|span| span.and_then(|span| i64::try_from(part.whole(span)).ok()));
                Arc::new(whole.collect::<Int64Array>())
            }
        })
    }

    /// Every part but the epoch.
    fn whole(self, span: Span) -> i128 {
        let Span { months, days, nanoseconds } = span;
        let of_minute = nanoseconds % NANOSECONDS_PER_MINUTE;
        match self {
            Self::Year => i128::from(months / 12),
            Self::Quarter => i128::from(months % 12 / 3 + 1),
            Self::Month => i128::from(months % 12),
            Self::Week => i128::from(days / 7),
            Self::Day => i128::from(days),
            Self::Hour => nanoseconds / NANOSECONDS_PER_HOUR,
            Self::Minute => nanoseconds % NANOSECONDS_PER_HOUR / NANOSECONDS_PER_MINUTE,
            Self::Second => of_minute / NANOSECONDS_PER_SECOND,
            Self::Millisecond => of_minute / 1_000_000,
            Self::Microsecond => of_minute / 1_000,
            Self::Nanosecond | Self::Epoch => of_minute,
        }
    }
}

fn with_days(span: Span) -> Span {
    // A duration of 2^63 seconds has fewer than 2^47 days.
    let days = i64::try_from(span.nanoseconds / NANOSECONDS_PER_DAY).unwrap_or(0);
    Span { months: span.months, days: span.days + days, nanoseconds: span.nanoseconds % NANOSECONDS_PER_DAY }
}

/// Seconds, with a fraction.
fn epoch(span: Span) -> f64 {
    let years = i128::from(span.months / 12) * NANOSECONDS_PER_YEAR;
    let rest = Span { months: span.months % 12, ..span }.length();
    let nanoseconds = years + rest;
    if nanoseconds % 1_000 == 0 { (nanoseconds / 1_000) as f64 / 1e6 } else { nanoseconds as f64 / 1e9 }
}
