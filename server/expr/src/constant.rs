//! The position of a constant among the values of a type: equal to one, between two, or outside of the range.
//!
//! It turns a comparison of a column with a constant into one of values of the column's type, with no conversion that
//! loses information: integers beyond 2^53 compare with fractions, and the year 9999 with microseconds.

mod float;

use arrow::{
    array::timezone::Tz,
    datatypes::{DECIMAL256_MAX_PRECISION, DataType, TimeUnit, i256},
};
use datafusion_common::ScalarValue;
use datafusion_expr::{Cast, Expr};

use super::functions::{local, span};

/// Decimal places of a nanosecond in seconds.
const NANOSECOND_SCALE: i32 = 9;

/// The magnitude from which no decimal with a non-negative scale holds a number.
const BEYOND_DECIMALS: f64 = 1e76;

const NANOSECONDS_PER_DAY: i128 = 86_400 * 1_000_000_000;

/// A constant among the values of a type.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Position {
    /// Equal to this value.
    At(ScalarValue),
    /// Between this value and the next one.
    After(ScalarValue),
    /// Less than every value.
    Below,
    /// Greater than every value.
    Above,
}

/// An exact number: `unscaled` × 10^-`scale`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Number {
    unscaled: i256,
    scale: i32,
}

/// The position of a constant among the values of a type, if both are numbers or both are times. `None` if the
/// expression is not such a constant, is null, or is left to type coercion.
pub(super) fn position(constant: &Expr, data_type: &DataType) -> Option<Position> {
    match data_type {
        DataType::Timestamp(unit, zone) => {
            let number = instant(constant, zone.as_deref(), true)?;
            place(number, scale_of(*unit), data_type)
        }
        DataType::Duration(unit) => place(span_of(constant)?, scale_of(*unit), data_type),
        DataType::Time32(unit) | DataType::Time64(unit) => place(time_of_day(constant)?, scale_of(*unit), data_type),
        DataType::Date32 => {
            let nanoseconds = instant(constant, None, false)?.unscaled.to_i128()?;
            let day = i256::from_i128(nanoseconds.div_euclid(NANOSECONDS_PER_DAY));
            let is_whole = nanoseconds.rem_euclid(NANOSECONDS_PER_DAY) == 0;
            Some(positioned(day, is_whole, data_type))
        }
        DataType::Decimal32(_, scale)
        | DataType::Decimal64(_, scale)
        | DataType::Decimal128(_, scale)
        | DataType::Decimal256(_, scale) => numeric(constant, i32::from(*scale), data_type),
        integer if integer.is_integer() => numeric(constant, 0, data_type),
        _ => None,
    }
}

/// The position of a number or a float literal.
fn numeric(constant: &Expr, scale: i32, data_type: &DataType) -> Option<Position> {
    if let Expr::Literal(value, _) = constant
        && let Some(number) = Number::of(value)
    {
        return place(number, scale, data_type);
    }
    match float::of(constant)? {
        // NaN is greater than every number: see `floats`.
        float if float.is_nan() || float == f64::INFINITY => Some(Position::Above),
        f64::NEG_INFINITY => Some(Position::Below),
        float if float.abs() >= BEYOND_DECIMALS && scale >= 0 => {
            Some(if float < 0.0 { Position::Below } else { Position::Above })
        }
        float => place(Number::of_float(float, scale)?, scale, data_type),
    }
}

/// Whether an expression is a TIMESTAMP or TIME literal.
pub(super) fn is_time_literal(expr: &Expr) -> bool {
    matches!(expr, Expr::Cast(Cast { expr, field })
        if matches!(field.data_type(), DataType::Timestamp(_, None) | DataType::Time64(_)) && text_of(expr).is_some())
}

/// The decimal places of a unit in seconds.
fn scale_of(unit: TimeUnit) -> i32 {
    match unit {
        TimeUnit::Second => 0,
        TimeUnit::Millisecond => 3,
        TimeUnit::Microsecond => 6,
        TimeUnit::Nanosecond => NANOSECOND_SCALE,
    }
}

/// The value of a string literal.
fn text_of(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Literal(value, _) => value.try_as_str().flatten(),
        _ => None,
    }
}

/// The instant of a DATE, TIMESTAMP or string literal in seconds since 1970. A literal without an offset is local time
/// of the zone.
fn instant(constant: &Expr, zone: Option<&str>, with_texts: bool) -> Option<Number> {
    let text = match constant {
        Expr::Cast(Cast { expr, field }) => match field.data_type() {
            DataType::Timestamp(_, None) => text_of(expr)?,
            // A longer text would lose its time of day.
            DataType::Date32 => text_of(expr).filter(|text| text.trim().len() == "YYYY-MM-DD".len())?,
            _ => return None,
        },
        Expr::Literal(..) if with_texts => text_of(constant)?,
        _ => return None,
    };
    let zone: Tz = zone.unwrap_or("+00:00").parse().ok()?;
    let nanoseconds = local::read(text, zone)?;
    Some(Number { unscaled: i256::from_i128(nanoseconds), scale: NANOSECOND_SCALE })
}

/// The length of a literal interval or duration, in seconds.
fn span_of(constant: &Expr) -> Option<Number> {
    let Expr::Literal(value, _) = constant else { return None };
    span::length(value).map(|length| Number { unscaled: i256::from_i128(length), scale: NANOSECOND_SCALE })
}

/// The time of day of a TIME or string literal, in seconds since midnight.
fn time_of_day(constant: &Expr) -> Option<Number> {
    let text = match constant {
        Expr::Cast(Cast { expr, field }) if matches!(field.data_type(), DataType::Time64(_)) => text_of(expr)?,
        Expr::Literal(..) => text_of(constant)?,
        _ => return None,
    };
    let parsed = ScalarValue::Utf8(Some(text.to_owned())).cast_to(&DataType::Time64(TimeUnit::Nanosecond)).ok()?;
    let ScalarValue::Time64Nanosecond(Some(nanoseconds)) = parsed else { return None };
    Some(Number { unscaled: i256::from_i128(nanoseconds.into()), scale: NANOSECOND_SCALE })
}

/// The position of a number among multiples of 10^-`scale`.
fn place(number: Number, scale: i32, data_type: &DataType) -> Option<Position> {
    let outside = if number.unscaled.is_negative() { Position::Below } else { Position::Above };
    let shift = scale - number.scale;
    if shift >= 0 {
        let Some(scaled) = power_of_ten(shift).and_then(|power| number.unscaled.checked_mul(power)) else {
            return Some(if number.unscaled == i256::ZERO { at_zero(data_type)? } else { outside });
        };
        return Some(positioned(scaled, true, data_type));
    }
    let Some(power) = power_of_ten(-shift) else {
        // Less than one unit away from zero.
        let floor = if number.unscaled.is_negative() { i256::MINUS_ONE } else { i256::ZERO };
        return Some(positioned(floor, number.unscaled == i256::ZERO, data_type));
    };
    let (quotient, remainder) = (number.unscaled.checked_div(power)?, number.unscaled.checked_rem(power)?);
    let floor = if remainder.is_negative() { quotient.checked_sub(i256::ONE)? } else { quotient };
    Some(positioned(floor, remainder == i256::ZERO, data_type))
}

fn at_zero(data_type: &DataType) -> Option<Position> {
    value(i256::ZERO, data_type).map(Position::At)
}

fn power_of_ten(exponent: i32) -> Option<i256> {
    let exponent = u32::try_from(exponent).ok().filter(|exponent| *exponent <= u32::from(DECIMAL256_MAX_PRECISION))?;
    i256::from_i128(10).checked_pow(exponent)
}

/// The position of `floor`, or of a number between it and the next integer.
fn positioned(floor: i256, is_whole: bool, data_type: &DataType) -> Position {
    let next = floor.checked_add(i256::ONE).and_then(|next| value(next, data_type));
    match (value(floor, data_type), is_whole, next) {
        (Some(value), true, _) => Position::At(value),
        (Some(value), false, Some(_)) => Position::After(value),
        (None, ..) if floor.is_negative() => Position::Below,
        (Some(_), false, None) | (None, ..) => Position::Above,
    }
}

/// A count of a type's units as a value of that type, if it fits.
fn value(units: i256, data_type: &DataType) -> Option<ScalarValue> {
    let wide = units.to_i128();
    let decimal = |precision: u8| {
        let limit = power_of_ten(i32::from(precision))?;
        (units < limit && units > limit.wrapping_neg()).then_some(units)
    };
    Some(match data_type {
        DataType::Int8 => ScalarValue::Int8(Some(wide?.try_into().ok()?)),
        DataType::Int16 => ScalarValue::Int16(Some(wide?.try_into().ok()?)),
        DataType::Int32 => ScalarValue::Int32(Some(wide?.try_into().ok()?)),
        DataType::Int64 => ScalarValue::Int64(Some(wide?.try_into().ok()?)),
        DataType::UInt8 => ScalarValue::UInt8(Some(wide?.try_into().ok()?)),
        DataType::UInt16 => ScalarValue::UInt16(Some(wide?.try_into().ok()?)),
        DataType::UInt32 => ScalarValue::UInt32(Some(wide?.try_into().ok()?)),
        DataType::UInt64 => ScalarValue::UInt64(Some(wide?.try_into().ok()?)),
        DataType::Date32 => ScalarValue::Date32(Some(wide?.try_into().ok()?)),
        DataType::Time32(TimeUnit::Second) => ScalarValue::Time32Second(Some(wide?.try_into().ok()?)),
        DataType::Time32(_) => ScalarValue::Time32Millisecond(Some(wide?.try_into().ok()?)),
        DataType::Time64(TimeUnit::Nanosecond) => ScalarValue::Time64Nanosecond(Some(wide?.try_into().ok()?)),
        DataType::Time64(_) => ScalarValue::Time64Microsecond(Some(wide?.try_into().ok()?)),
        DataType::Duration(unit) => {
            let count = Some(wide?.try_into().ok()?);
            match unit {
                TimeUnit::Second => ScalarValue::DurationSecond(count),
                TimeUnit::Millisecond => ScalarValue::DurationMillisecond(count),
                TimeUnit::Microsecond => ScalarValue::DurationMicrosecond(count),
                TimeUnit::Nanosecond => ScalarValue::DurationNanosecond(count),
            }
        }
        DataType::Timestamp(unit, zone) => {
            let (count, zone) = (Some(wide?.try_into().ok()?), zone.clone());
            match unit {
                TimeUnit::Second => ScalarValue::TimestampSecond(count, zone),
                TimeUnit::Millisecond => ScalarValue::TimestampMillisecond(count, zone),
                TimeUnit::Microsecond => ScalarValue::TimestampMicrosecond(count, zone),
                TimeUnit::Nanosecond => ScalarValue::TimestampNanosecond(count, zone),
            }
        }
        DataType::Decimal32(precision, scale) => {
            ScalarValue::Decimal32(Some(decimal(*precision)?.to_i128()?.try_into().ok()?), *precision, *scale)
        }
        DataType::Decimal64(precision, scale) => {
            ScalarValue::Decimal64(Some(decimal(*precision)?.to_i128()?.try_into().ok()?), *precision, *scale)
        }
        DataType::Decimal128(precision, scale) => {
            ScalarValue::Decimal128(Some(decimal(*precision)?.to_i128()?), *precision, *scale)
        }
        DataType::Decimal256(precision, scale) => {
            ScalarValue::Decimal256(Some(decimal(*precision)?), *precision, *scale)
        }
        _ => return None,
    })
}

fn is_whole(float: f64) -> bool {
    float.fract().abs() == 0.0
}

// === impl Number ===

impl Number {
    /// The number of an integer or decimal literal.
    pub(super) fn of(value: &ScalarValue) -> Option<Self> {
        let whole = |value: i128| Self { unscaled: i256::from_i128(value), scale: 0 };
        let decimal = |unscaled: i256, scale: i8| Self { unscaled, scale: i32::from(scale) };
        Some(match value {
            ScalarValue::Int8(Some(value)) => whole((*value).into()),
            ScalarValue::Int16(Some(value)) => whole((*value).into()),
            ScalarValue::Int32(Some(value)) => whole((*value).into()),
            ScalarValue::Int64(Some(value)) => whole((*value).into()),
            ScalarValue::UInt8(Some(value)) => whole((*value).into()),
            ScalarValue::UInt16(Some(value)) => whole((*value).into()),
            ScalarValue::UInt32(Some(value)) => whole((*value).into()),
            ScalarValue::UInt64(Some(value)) => whole((*value).into()),
            ScalarValue::Decimal32(Some(value), _, scale) => decimal(i256::from_i128((*value).into()), *scale),
            ScalarValue::Decimal64(Some(value), _, scale) => decimal(i256::from_i128((*value).into()), *scale),
            ScalarValue::Decimal128(Some(value), _, scale) => decimal(i256::from_i128(*value), *scale),
            ScalarValue::Decimal256(Some(value), _, scale) => decimal(*value, *scale),
            _ => return None,
        })
    }

    /// A finite float as an exact number, or, if that has too many digits, as a number between the same two multiples
    /// of 10^-`scale`. `None` if there is no such number.
    fn of_float(float: f64, scale: i32) -> Option<Self> {
        /// Floats that are multiples of 2^-60 are converted exactly.
        const EXACT_POWER: u32 = 60;
        let scaled = float * f64::from(EXACT_POWER).exp2();
        if is_whole(float) {
            let unscaled = i256::from_f64(float)?;
            return Some(Self { unscaled, scale: 0 });
        }
        if is_whole(scaled) {
            // m / 2^60 = m × 5^60 / 10^60.
            let unscaled = i256::from_f64(scaled)?.checked_mul(i256::from_i128(5).checked_pow(EXACT_POWER)?)?;
            return Some(Self { unscaled, scale: EXACT_POWER as i32 });
        }
        let nearby = if float < 0.0 { i256::MINUS_ONE } else { i256::ONE };
        (scale == 0).then_some(Self { unscaled: nearby, scale: EXACT_POWER as i32 })
    }

    /// The nearest float64.
    pub(super) fn nearest_float(self) -> Option<f64> {
        format!("{}e{}", self.unscaled, -self.scale).parse().ok()
    }
}
