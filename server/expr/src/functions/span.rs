//! Lengths of intervals and durations. As in `DuckDB` and `PostgreSQL`, comparisons take a month as 30 days and a day as
//! 24 hours.

use std::sync::Arc;

use arrow::{
    array::{Array, ArrayRef, AsArray, Decimal128Array},
    compute::cast,
    datatypes::{DataType, IntervalMonthDayNano, IntervalMonthDayNanoType, IntervalUnit},
};
use datafusion_common::{DataFusionError, ScalarValue, exec_err};
use datafusion_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};

use super::instant::{self, NANOSECONDS_PER_DAY};

/// Lengths in nanoseconds: more than any interval has.
const LENGTH: DataType = DataType::Decimal128(38, 0);

const DAYS_PER_MONTH: i128 = 30;

/// A part of the calendar and a part of the clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    pub(super) months: i64,
    pub(super) days: i64,
    pub(super) nanoseconds: i128,
}

/// The length of an interval or a duration in nanoseconds.
pub(crate) fn function() -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::new_from_impl(Length { signature: Signature::any(1, Volatility::Immutable) }))
}

/// The length of a literal interval or duration in nanoseconds.
pub(crate) fn length(value: &ScalarValue) -> Option<i128> {
    if !matches!(value.data_type(), DataType::Interval(_) | DataType::Duration(_)) {
        return None;
    }
    let array = value.to_array().ok()?;
    all(&array).ok()?.into_iter().next().flatten().map(Span::length)
}

/// The spans of an array of intervals, durations or times of day.
pub(super) fn all(array: &ArrayRef) -> Result<Vec<Option<Span>>, DataFusionError> {
    if !matches!(array.data_type(), DataType::Interval(_)) {
        let of_clock = |nanoseconds| Span { months: 0, days: 0, nanoseconds };
        return Ok(instant::all(array)?.into_iter().map(|value| value.map(of_clock)).collect());
    }
    let intervals = cast(array, &DataType::Interval(IntervalUnit::MonthDayNano))?;
    Ok(intervals.as_primitive::<IntervalMonthDayNanoType>().iter().map(|value| value.map(Span::of)).collect())
}

// === impl Span ===

impl Span {
    fn of(interval: IntervalMonthDayNano) -> Self {
        let IntervalMonthDayNano { months, days, nanoseconds } = interval;
        Self { months: months.into(), days: days.into(), nanoseconds: nanoseconds.into() }
    }

    pub(super) fn length(self) -> i128 {
        (i128::from(self.months) * DAYS_PER_MONTH + i128::from(self.days)) * NANOSECONDS_PER_DAY + self.nanoseconds
    }

    pub(super) fn negated(self) -> Self {
        Self { months: -self.months, days: -self.days, nanoseconds: -self.nanoseconds }
    }
}

/// SQL cannot call it by name.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Length {
    signature: Signature,
}

// === impl Length ===

impl ScalarUDFImpl for Length {
    fn name(&self) -> &'static str {
        "interval_length"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arg_types: &[DataType]) -> Result<DataType, DataFusionError> {
        Ok(LENGTH)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue, DataFusionError> {
        let lengths = |array: &ArrayRef| -> Result<ArrayRef, DataFusionError> {
            let lengths: Decimal128Array = all(array)?.into_iter().map(|span| span.map(Span::length)).collect();
            Ok(Arc::new(lengths.with_data_type(LENGTH)))
        };
        match args.args.as_slice() {
            [ColumnarValue::Array(array)] => Ok(ColumnarValue::Array(lengths(array)?)),
            [ColumnarValue::Scalar(value)] => {
                Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&lengths(&value.to_array()?)?, 0)?))
            }
            _ => exec_err!("a length is that of one interval"),
        }
    }
}
