//! Texts → values of a type, exactly: a text that the type cannot hold is an error, never a rounded value.

use std::sync::Arc;

use arrow::{
    array::{Array, ArrayRef, ArrowPrimitiveType, BooleanArray, PrimitiveArray, StringArray},
    compute::{
        cast,
        kernels::cast_utils::{parse_decimal, string_to_datetime, string_to_time_nanoseconds},
    },
    datatypes::{
        DataType, Date32Type, Decimal128Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
        Time64MicrosecondType, Time64NanosecondType, TimeUnit, TimestampMicrosecondType, TimestampMillisecondType,
        TimestampNanosecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
    },
};
use chrono::{DateTime, NaiveDate, Utc};

/// A text that the type of its column cannot hold.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct BadText {
    /// Its row in the array.
    pub row: usize,
    /// Why.
    pub reason: String,
}

/// Why one text is not of a type.
type Parsed<T> = Result<T, &'static str>;

/// Converts texts to a type.
pub(crate) fn convert(texts: &StringArray, to: &DataType) -> Result<ArrayRef, BadText> {
    Ok(match to {
        DataType::Utf8 => Arc::new(texts.clone()),
        DataType::LargeUtf8 | DataType::Binary | DataType::LargeBinary => {
            cast(texts, to).map_err(|error| BadText { row: 0, reason: error.to_string() })?
        }
        DataType::Boolean => booleans(texts)?,
        DataType::Int8 => numbers::<Int8Type>(texts, to, integer)?,
        DataType::Int16 => numbers::<Int16Type>(texts, to, integer)?,
        DataType::Int32 => numbers::<Int32Type>(texts, to, integer)?,
        DataType::Int64 => numbers::<Int64Type>(texts, to, integer)?,
        DataType::UInt8 => numbers::<UInt8Type>(texts, to, integer)?,
        DataType::UInt16 => numbers::<UInt16Type>(texts, to, integer)?,
        DataType::UInt32 => numbers::<UInt32Type>(texts, to, integer)?,
        DataType::UInt64 => numbers::<UInt64Type>(texts, to, integer)?,
        DataType::Float32 => numbers::<Float32Type>(texts, to, float32)?,
        DataType::Float64 => numbers::<Float64Type>(texts, to, float64)?,
        DataType::Date32 => numbers::<Date32Type>(texts, to, date)?,
        DataType::Decimal128(precision, scale) => {
            numbers::<Decimal128Type>(texts, to, |text| decimal(text, *precision, *scale))?
        }
        DataType::Time64(TimeUnit::Nanosecond) => numbers::<Time64NanosecondType>(texts, to, |text| time(text, 1))?,
        DataType::Time64(_) => numbers::<Time64MicrosecondType>(texts, to, |text| time(text, 1000))?,
        DataType::Timestamp(unit, zone) => {
            let parse = |text: &str| timestamp(text, *unit, zone.is_some());
            match unit {
                TimeUnit::Millisecond => numbers::<TimestampMillisecondType>(texts, to, parse)?,
                TimeUnit::Microsecond => numbers::<TimestampMicrosecondType>(texts, to, parse)?,
                _ => numbers::<TimestampNanosecondType>(texts, to, parse)?,
            }
        }
        _ => return Err(BadText { row: 0, reason: format!("text cannot be read as {to}") }),
    })
}

fn numbers<T: ArrowPrimitiveType>(
    texts: &StringArray,
    to: &DataType,
    parse: impl Fn(&str) -> Parsed<T::Native>,
) -> Result<ArrayRef, BadText> {
    let mut values = PrimitiveArray::<T>::builder(texts.len());
    for (row, text) in texts.iter().enumerate() {
        match text {
            None => values.append_null(),
            Some(text) => values.append_value(parse(text.trim_ascii()).map_err(|why| bad(row, text, to, why))?),
        }
    }
    Ok(Arc::new(values.finish().with_data_type(to.clone())))
}

fn booleans(texts: &StringArray) -> Result<ArrayRef, BadText> {
    let parse = |(row, text): (usize, Option<&str>)| {
        let Some(text) = text else { return Ok(None) };
        boolean(text.trim_ascii())
            .map(Some)
            .ok_or_else(|| bad(row, text, &DataType::Boolean, "it is not true or false"))
    };
    let values: BooleanArray = texts.iter().enumerate().map(parse).collect::<Result<_, _>>()?;
    Ok(Arc::new(values))
}

fn bad(row: usize, text: &str, to: &DataType, why: &str) -> BadText {
    let shown: String = text.chars().take(60).flat_map(char::escape_debug).collect();
    let dots = if text.chars().nth(60).is_some() { "…" } else { "" };
    BadText { row, reason: format!("\"{shown}{dots}\" is not {to}: {why}") }
}

/// `true`, `false`, `1` and `0` in any case.
fn boolean(text: &str) -> Option<bool> {
    match text {
        "1" => Some(true),
        "0" => Some(false),
        _ if text.eq_ignore_ascii_case("true") => Some(true),
        _ if text.eq_ignore_ascii_case("false") => Some(false),
        _ => None,
    }
}

fn integer<T: std::str::FromStr>(text: &str) -> Parsed<T> {
    text.parse().map_err(|_| if is_integer(text) { "it is out of range" } else { "it is not an integer" })
}

/// Whether a text is a sign and digits.
pub(crate) fn is_integer(text: &str) -> bool {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}

/// A floating-point number. Decimal fractions are rounded to the nearest value, integers must be exact.
pub(crate) fn float64(text: &str) -> Parsed<f64> {
    let value: f64 = text.parse().map_err(|_| "it is not a number")?;
    checked(text, value, value)
}

fn float32(text: &str) -> Parsed<f32> {
    let value: f32 = text.parse().map_err(|_| "it is not a number")?;
    checked(text, value.into(), value)
}

fn checked<T>(text: &str, wide: f64, value: T) -> Parsed<T> {
    if wide.is_infinite() && !text.to_ascii_lowercase().contains("inf") {
        return Err("it is out of range");
    }
    // Values beyond 2^127 have no exact counterpart to compare with.
    let is_inexact = is_integer(text) && !text.parse::<i128>().is_ok_and(|exact| wide as i128 == exact);
    if is_inexact {
        Err("the integer has more digits than the type holds: use string or decimal128")
    } else {
        Ok(value)
    }
}

fn date(text: &str) -> Parsed<i32> {
    let date = NaiveDate::parse_from_str(text, "%Y-%m-%d").map_err(|_| "it is not a date such as 2024-12-31")?;
    Ok(Date32Type::from_naive_date(date))
}

/// Whether a text is a date of the usual form: four digits, two, and two.
pub(crate) fn is_date(text: &str) -> bool {
    text.len() == 10 && text.as_bytes()[4] == b'-' && date(text).is_ok()
}

fn time(text: &str, nanoseconds: i64) -> Parsed<i64> {
    let value = string_to_time_nanoseconds(text).map_err(|_| "it is not a time such as 23:59:59.5")?;
    if value % nanoseconds == 0 { Ok(value / nanoseconds) } else { Err("it has a finer fraction than the unit") }
}

/// A time, whether it has an offset from UTC, and the digits of its fraction; `None` if the text is something else.
pub(crate) fn instant(text: &str) -> Option<(DateTime<Utc>, bool, usize)> {
    let rest = text.get(10..)?;
    let fraction = rest.split_once('.').map_or("", |(_, fraction)| fraction);
    let digits = fraction.bytes().take_while(u8::is_ascii_digit).count();
    let value = string_to_datetime(&Utc, text).ok()?;
    Some((value, rest.contains(['Z', 'z', '+', '-']), digits))
}

fn timestamp(text: &str, unit: TimeUnit, is_zoned: bool) -> Parsed<i64> {
    let (value, has_offset, digits) = instant(text).ok_or("it is not a time such as 2024-12-31T23:59:59.5")?;
    if has_offset && !is_zoned {
        return Err("it has an offset from UTC: use timestamp[us, tz=UTC]");
    }
    let (per_second, nanoseconds) = match unit {
        TimeUnit::Millisecond => (1000, 1_000_000),
        TimeUnit::Microsecond => (1_000_000, 1000),
        _ => (1_000_000_000, 1),
    };
    let fraction = i64::from(value.timestamp_subsec_nanos());
    // Leap seconds have a fraction of a second and more.
    if fraction % nanoseconds != 0 || fraction >= 1_000_000_000 || digits > 9 {
        return Err("it has a finer fraction than the unit");
    }
    let whole = i128::from(value.timestamp()) * per_second + i128::from(fraction / nanoseconds);
    i64::try_from(whole).map_err(|_| "it is out of range")
}

fn decimal(text: &str, precision: u8, scale: i8) -> Parsed<i128> {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let are_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if whole.len() + fraction.len() == 0 || !are_digits(whole) || !are_digits(fraction) {
        return Err("it is not a decimal number without an exponent");
    }
    let (whole, fraction) = (whole.trim_start_matches('0'), fraction.trim_end_matches('0'));
    if fraction.len() > usize::from(scale.unsigned_abs()) {
        return Err("it has more digits after the point than the scale");
    }
    if whole.len() > usize::from(precision - scale.unsigned_abs()) {
        return Err("it has more digits than the precision");
    }
    let sign = if text.starts_with('-') { "-" } else { "" };
    parse_decimal::<Decimal128Type>(&format!("{sign}{whole}.{fraction}0"), precision, scale)
        .map_err(|_| "it is out of range")
}

#[cfg(test)]
mod tests {
    use arrow::util::display::array_value_to_string;

    use super::*;

    fn converted(text: &str, kind: &str) -> Result<String, String> {
        let kind = crate::type_name::parse(kind).unwrap();
        let array = convert(&StringArray::from(vec![None, Some(text)]), &kind).map_err(|error| error.reason)?;
        assert!(array.is_null(0) && array.data_type() == &kind);
        Ok(array_value_to_string(&array, 1).unwrap())
    }

    #[test]
    fn values_are_exact() {
        for (text, kind, shown) in [
            (" 42 ", "int8", "42"),
            ("18446744073709551615", "uint64", "18446744073709551615"),
            ("0.1", "float64", "0.1"),
            ("NaN", "float64", "NaN"),
            ("-inf", "float32", "-inf"),
            ("9007199254740992", "float64", "9007199254740992.0"),
            ("TRUE", "bool", "true"),
            ("2024-02-29", "date32", "2024-02-29"),
            ("9999-12-31 23:59:59.999999", "timestamp[us]", "9999-12-31T23:59:59.999999"),
            ("2024-01-01T00:00:00+02:00", "timestamp[ms, UTC]", "2023-12-31T22:00:00Z"),
            ("-12.50", "decimal128(4, 2)", "-12.50"),
            ("+.5", "decimal128(1, 1)", "0.5"),
            ("99999999999999999999999999999999999999", "decimal128(38, 0)", "99999999999999999999999999999999999999"),
            ("23:59:59.000001", "time64[us]", "23:59:59.000001"),
        ] {
            assert_eq!(converted(text, kind).as_deref(), Ok(shown), "{text} as {kind}");
        }
    }

    #[test]
    fn what_a_type_cannot_hold_is_an_error() {
        for (text, kind, reason) in [
            ("128", "int8", "out of range"),
            ("1.5", "int64", "not an integer"),
            ("", "int64", "not an integer"),
            ("1e400", "float64", "out of range"),
            ("9007199254740993", "float64", "more digits"),
            ("16777217", "float32", "more digits"),
            ("yes", "bool", "not true or false"),
            ("2024-02-30", "date32", "not a date"),
            ("2024-01-01 00:00:00.0000001", "timestamp[us]", "finer fraction"),
            ("2024-01-01T00:00:00Z", "timestamp[us]", "offset from UTC"),
            ("2300-01-01 00:00:00", "timestamp[ns]", "out of range"),
            ("1.005", "decimal128(10, 2)", "digits after the point"),
            ("100", "decimal128(4, 2)", "digits than the precision"),
            ("1e2", "decimal128(10, 2)", "without an exponent"),
        ] {
            let error = converted(text, kind).unwrap_err();
            assert!(error.contains(reason), "{text} as {kind}: {error}");
        }
    }
}
