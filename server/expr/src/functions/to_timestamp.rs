//! `to_timestamp` and its variants: instants, which are timestamps in UTC, of texts and of numbers since 1970.
//!
//! DataFusion's versions return local times, which a comparison with a zoned column would shift; they saturate floats
//! that are not instants, and fail for texts after 2262.

use std::sync::Arc;

use arrow::{
    array::{Array, ArrayRef, AsArray, timezone::Tz},
    compute::cast,
    datatypes::{DataType, Decimal256Type, Field, FieldRef, Float64Type, TimeUnit, i256},
};
use datafusion_common::{DataFusionError, ScalarValue, exec_datafusion_err, exec_err, plan_err};
use datafusion_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use super::{formatted, instant, local};

const UTC: &str = "UTC";

/// Decimal places that hold every unit.
const NANOSECOND_SCALE: i8 = 9;

/// Each function, the unit of its numbers, and the unit of its result.
const NAMES: [(&str, TimeUnit, TimeUnit); 5] = [
    ("to_timestamp", TimeUnit::Second, TimeUnit::Microsecond),
    ("to_timestamp_seconds", TimeUnit::Second, TimeUnit::Second),
    ("to_timestamp_millis", TimeUnit::Millisecond, TimeUnit::Millisecond),
    ("to_timestamp_micros", TimeUnit::Microsecond, TimeUnit::Microsecond),
    ("to_timestamp_nanos", TimeUnit::Nanosecond, TimeUnit::Nanosecond),
];

/// Every function of this module.
pub(super) fn functions() -> impl Iterator<Item = Arc<ScalarUDF>> {
    NAMES.into_iter().map(|(name, numbers, result)| {
        let signature = Signature::variadic_any(Volatility::Immutable);
        Arc::new(ScalarUDF::new_from_impl(ToTimestamp { signature, name, numbers, result }))
    })
}

/// `name(x [, format, …])`.
#[derive(Debug, PartialEq, Eq, Hash)]
struct ToTimestamp {
    signature: Signature,
    name: &'static str,
    numbers: TimeUnit,
    result: TimeUnit,
}

// === impl ToTimestamp ===

impl ScalarUDFImpl for ToTimestamp {
    fn name(&self) -> &'static str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arg_types: &[DataType]) -> Result<DataType, DataFusionError> {
        plan_err!("the type of {} depends on its arguments", self.name)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef, DataFusionError> {
        let Some((source, formats)) = args.arg_fields.split_first() else {
            return plan_err!("{} expects a text, a number or a timestamp", self.name);
        };
        let source = source.data_type();
        if !formats.is_empty() && !source.is_string() {
            return plan_err!("{} takes formats of a text, not of {source}", self.name);
        }
        if let Some(other) = formats.iter().find(|format| !format.data_type().is_string()) {
            return plan_err!("a format of {} must be a text, not {}", self.name, other.data_type());
        }
        let literal = args.scalar_arguments.first().copied().flatten();
        Ok(Arc::new(Field::new(self.name, self.type_of(source, literal)?, true)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue, DataFusionError> {
        let Some((source, formats)) = args.args.split_first() else {
            return exec_err!("{} expects a text, a number or a timestamp", self.name);
        };
        let is_scalar = args.args.iter().all(|argument| matches!(argument, ColumnarValue::Scalar(_)));
        let rows = if is_scalar { 1 } else { args.number_rows };
        let formats = formats_of(formats, rows)?;
        let converted = self.convert(&source.to_array(rows)?, &formats, args.return_field.data_type())?;
        if is_scalar {
            return Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&converted, 0)?));
        }
        Ok(ColumnarValue::Array(converted))
    }
}

impl ToTimestamp {
    /// Instants are in UTC; timestamps keep their zone, or none. `to_timestamp` keeps nanoseconds that it is given.
    fn type_of(&self, source: &DataType, literal: Option<&ScalarValue>) -> Result<DataType, DataFusionError> {
        let is_default = self.name == NAMES[0].0;
        let written = literal.and_then(|literal| literal.try_as_str().flatten());
        let is_fine = |text| utc().ok().and_then(|utc| local::read(text, utc)).is_some_and(|value| value % 1_000 != 0);
        Ok(match source {
            DataType::Timestamp(TimeUnit::Nanosecond, zone) if is_default => {
                DataType::Timestamp(TimeUnit::Nanosecond, zone.clone())
            }
            DataType::Timestamp(_, zone) => DataType::Timestamp(self.result, zone.clone()),
            DataType::Date32 | DataType::Date64 => DataType::Timestamp(self.result, None),
            text if text.is_string() && is_default && written.is_some_and(is_fine) => {
                DataType::Timestamp(TimeUnit::Nanosecond, Some(UTC.into()))
            }
            other if other.is_string() || other.is_numeric() || other.is_null() => {
                DataType::Timestamp(self.result, Some(UTC.into()))
            }
            other => return plan_err!("{} expects a text, a number or a timestamp, not {other}", self.name),
        })
    }

    fn convert(&self, source: &ArrayRef, formats: &[ArrayRef], target: &DataType) -> Result<ArrayRef, DataFusionError> {
        let unit = instant::nanoseconds(self.numbers);
        let step = instant::step(target)?;
        let fits = |value: &i128| i64::try_from(value.div_euclid(step)).is_ok();
        match source.data_type() {
            DataType::Null => Ok(cast(source, target)?),
            DataType::Timestamp(..) | DataType::Date32 | DataType::Date64 => {
                instant::array(instant::all(source)?.into_iter().map(|value| Ok(value.filter(fits))), target)
            }
            text if text.is_string() => {
                let read = read_all(self.name, source, formats)?;
                instant::array(read.into_iter().map(|value| Ok(value.filter(fits))), target)
            }
            float if float.is_floating() => {
                let floats = cast(source, &DataType::Float64)?;
                let each = floats.as_primitive::<Float64Type>().iter();
                let each = each.map(|value| Ok(value.and_then(|value| self.of_float(value)).filter(fits)));
                instant::array(each, target)
            }
            _ => {
                let decimals = cast(source, &DataType::Decimal256(76, NANOSECOND_SCALE))?;
                let scale = 10_i128.pow(NANOSECOND_SCALE.unsigned_abs().into());
                let exact = |value: i256| value.checked_mul(i256::from_i128(unit))?.checked_div(i256::from_i128(scale));
                let each = decimals.as_primitive::<Decimal256Type>().iter();
                // A fraction of the unit is dropped, as from floats.
                let whole = |value: i128| if self.numbers == self.result { value / unit * unit } else { value };
                let each = each.map(|value| Ok(value.and_then(exact).and_then(i256::to_i128).map(whole).filter(fits)));
                instant::array(each, target)
            }
        }
    }

    /// Nanoseconds of a float; none of NaN and of what is out of range. `to_timestamp` rounds to microseconds, others
    /// drop fractions of their unit.
    fn of_float(&self, value: f64) -> Option<i128> {
        /// Beyond it no unit has an instant.
        const UNITS_MAX: f64 = 1e19;
        let counted = if self.numbers == self.result { value.trunc() } else { (value * 1e6).round() };
        let step = if self.numbers == self.result { self.numbers } else { self.result };
        (counted.abs() < UNITS_MAX).then(|| counted as i128 * instant::nanoseconds(step))
    }
}

/// Nanoseconds since 1970 of texts, each by the first format that matches it.
pub(super) fn read_all(
    name: &str,
    texts: &ArrayRef,
    formats: &[ArrayRef],
) -> Result<Vec<Option<i128>>, DataFusionError> {
    let (texts, utc) = (cast(texts, &DataType::Utf8)?, utc()?);
    let read = |(row, text): (usize, Option<&str>)| {
        let Some(text) = text else { return Ok(None) };
        if formats.is_empty() {
            let value = local::read(text, utc);
            return value.map(Some).ok_or_else(|| exec_datafusion_err!("{name}: '{text}' is not a timestamp"));
        }
        let formats = formats.iter().map(AsArray::as_string::<i32>).filter(|format| format.is_valid(row));
        let formats: Vec<&str> = formats.map(|format| format.value(row)).collect();
        match formats.iter().find_map(|format| formatted::read(text, format)) {
            None if formats.is_empty() => Ok(None),
            None => exec_err!("{name}: '{text}' is not a timestamp of the format '{}'", formats.join("' or '")),
            value => Ok(value),
        }
    };
    texts.as_string::<i32>().iter().enumerate().map(read).collect()
}

/// The formats of a call as texts of every row.
pub(super) fn formats_of(formats: &[ColumnarValue], rows: usize) -> Result<Vec<ArrayRef>, DataFusionError> {
    formats.iter().map(|format| Ok(cast(&format.to_array(rows)?, &DataType::Utf8)?)).collect()
}

fn utc() -> Result<Tz, DataFusionError> {
    Ok("+00:00".parse::<Tz>()?)
}
