//! Partition specs, and the values of files under them.
//!
//! Only identity transforms give a column: other transforms compute a value that is not in the table.

use apache_avro::types::Value;
use arrow::datatypes::{DataType, TimeUnit};
use chrono::{DateTime, NaiveDate};
use serde::Deserialize;

use super::avro::AvroRecord;

/// Days from year 1 to 1970.
const DAYS_BEFORE_1970: i32 = 719_163;
const SECOND_NANOSECONDS: i64 = 1_000_000_000;
/// Bytes of the widest decimal.
const DECIMAL_BYTES_MAX: usize = 16;

/// A partition spec. Its fields are those of the partition record in manifests, in order.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct SpecText {
    pub spec_id: i32,
    pub fields: Vec<PartitionFieldText>,
}

/// A field of a partition spec.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct PartitionFieldText {
    /// The column; none if the transform has several.
    #[serde(default)]
    source_id: Option<i32>,
    transform: String,
}

/// A value of a partition record.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum PartitionValue {
    Null,
    /// As Arrow casts it to the type of the column.
    Text(String),
    /// Writers may leave out what the number means: days or microseconds since 1970, microseconds of a day.
    Integer(i64),
    Float(f32),
    Double(f64),
    /// Since 1970, in parts of a second of this number of nanoseconds.
    Instant(i64, i64),
    /// A decimal without its scale.
    Unscaled(i128),
    /// A value of a type whose values are read from the files instead.
    Other,
}

// === impl PartitionFieldText ===

impl PartitionFieldText {
    /// The ID of the column whose values this field has.
    pub(super) fn identity(&self) -> Option<i32> {
        self.source_id.filter(|_| self.transform == "identity")
    }

    /// Whether it no longer partitions.
    pub(super) fn is_void(&self) -> bool {
        self.transform == "void"
    }
}

// === impl PartitionValue ===

impl PartitionValue {
    /// Whether two records have the same values. NaN is the same as itself.
    pub(super) fn are_same(values: &[Self], others: &[Self]) -> bool {
        let is_same = |(value, other): (&Self, &Self)| match (value, other) {
            (Self::Float(value), Self::Float(other)) => value.to_bits() == other.to_bits(),
            (Self::Double(value), Self::Double(other)) => value.to_bits() == other.to_bits(),
            _ => value == other,
        };
        values.len() == others.len() && values.iter().zip(others).all(is_same)
    }

    /// The values of a partition record.
    pub(super) fn all(record: AvroRecord<'_>) -> Vec<Self> {
        record.values().map(|value| value.map_or(Self::Null, Self::of)).collect()
    }

    fn of(value: &Value) -> Self {
        match value {
            Value::Boolean(value) => Self::Text(value.to_string()),
            Value::Int(value) | Value::Date(value) => Self::Integer((*value).into()),
            Value::Long(value) | Value::TimeMicros(value) => Self::Integer(*value),
            Value::Float(value) => Self::Float(*value),
            Value::Double(value) => Self::Double(*value),
            Value::String(value) => Self::Text(value.clone()),
            Value::TimestampMillis(value) | Value::LocalTimestampMillis(value) => Self::Instant(*value, 1_000_000),
            Value::TimestampMicros(value) | Value::LocalTimestampMicros(value) => Self::Instant(*value, 1000),
            Value::TimestampNanos(value) | Value::LocalTimestampNanos(value) => Self::Instant(*value, 1),
            Value::Decimal(decimal) => match Vec::<u8>::try_from(decimal) {
                Ok(bytes) => big_endian(&bytes).map_or(Self::Other, Self::Unscaled),
                Err(_) => Self::Other,
            },
            _ => Self::Other,
        }
    }

    /// The value in a column of a type; an error if the values of the column must be read from files.
    pub(super) fn text(&self, data_type: &DataType) -> Result<Option<String>, ()> {
        use DataType as T;
        let text = match (self, data_type) {
            (Self::Null, _) => return Ok(None),
            (Self::Text(text), T::Boolean | T::Utf8) => Some(text.clone()),
            (Self::Integer(value), T::Int32 | T::Int64) => Some(value.to_string()),
            (Self::Integer(days), T::Date32) => date(*days),
            (Self::Integer(value), T::Timestamp(TimeUnit::Microsecond, _)) => instant(*value, 1000),
            (Self::Integer(value), T::Timestamp(TimeUnit::Nanosecond, _)) => instant(*value, 1),
            (Self::Integer(value), T::Time64(TimeUnit::Microsecond)) => time(*value),
            (Self::Instant(value, nanoseconds), T::Timestamp(..)) => instant(*value, *nanoseconds),
            (Self::Float(value), T::Float32) => Some(format!("{value:?}")),
            // A float may have become a double, whose shortest text is another one.
            (Self::Float(value), T::Float64) => Some(format!("{:?}", f64::from(*value))),
            (Self::Double(value), T::Float64) => Some(format!("{value:?}")),
            (Self::Unscaled(value), T::Decimal128(_, scale)) => Some(scaled(*value, *scale)),
            _ => None,
        };
        text.map(Some).ok_or(())
    }
}

/// Whether values of a type are recorded as text.
pub(super) fn is_textual(data_type: &DataType) -> bool {
    use DataType as T;
    matches!(
        data_type,
        T::Boolean
            | T::Int32
            | T::Int64
            | T::Float32
            | T::Float64
            | T::Utf8
            | T::Date32
            | T::Time64(_)
            | T::Timestamp(..)
            | T::Decimal128(..)
    )
}

fn date(days: i64) -> Option<String> {
    let days = i32::try_from(days).ok()?.checked_add(DAYS_BEFORE_1970)?;
    NaiveDate::from_num_days_from_ce_opt(days).map(|date| date.to_string())
}

/// A time in parts of a second of a number of nanoseconds, as text without a zone.
fn instant(value: i64, nanoseconds: i64) -> Option<String> {
    let per_second = SECOND_NANOSECONDS / nanoseconds;
    let fraction = u32::try_from(value.rem_euclid(per_second) * nanoseconds).ok()?;
    let instant = DateTime::from_timestamp(value.div_euclid(per_second), fraction)?;
    Some(instant.naive_utc().format("%Y-%m-%d %H:%M:%S%.9f").to_string())
}

/// Microseconds of a day as text.
fn time(microseconds: i64) -> Option<String> {
    let day = instant(microseconds, 1000)?;
    day.strip_prefix("1970-01-01 ").map(str::to_owned)
}

/// A signed big-endian integer.
fn big_endian(bytes: &[u8]) -> Option<i128> {
    if bytes.is_empty() || bytes.len() > DECIMAL_BYTES_MAX {
        return None;
    }
    let sign = if bytes[0] & 0x80 == 0 { 0 } else { -1 };
    Some(bytes.iter().fold(sign, |value, byte| (value << 8) | i128::from(*byte)))
}

/// A decimal as text: `-1.50`.
fn scaled(value: i128, scale: i8) -> String {
    let scale = usize::try_from(scale).unwrap_or_default();
    let digits = format!("{:0>width$}", value.unsigned_abs(), width = scale + 1);
    let (whole, fraction) = digits.split_at(digits.len() - scale);
    let sign = if value < 0 { "-" } else { "" };
    if scale == 0 { format!("{sign}{whole}") } else { format!("{sign}{whole}.{fraction}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_as_text() {
        let text = |value: Value, data_type: DataType| PartitionValue::of(&value).text(&data_type);
        let days = 19_782; // 2024-02-29
        let microseconds = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
        for (value, data_type, want) in [
            (Value::Boolean(true), DataType::Boolean, Ok(Some("true"))),
            (Value::Int(-5), DataType::Int64, Ok(Some("-5"))),
            (Value::String("São/".to_owned()), DataType::Utf8, Ok(Some("São/"))),
            (Value::Date(days), DataType::Date32, Ok(Some("2024-02-29"))),
            (Value::Date(i32::MAX), DataType::Date32, Err(())),
            (Value::Decimal(vec![0xff, 0x6a].into()), DataType::Decimal128(9, 2), Ok(Some("-1.50"))),
            (Value::Decimal(vec![0x05].into()), DataType::Decimal128(9, 0), Ok(Some("5"))),
            (Value::Decimal(vec![0x05].into()), DataType::Decimal128(9, 3), Ok(Some("0.005"))),
            (Value::Int(days), DataType::Date32, Ok(Some("2024-02-29"))),
            (Value::Float(0.1), DataType::Float32, Ok(Some("0.1"))),
            (Value::Float(0.1), DataType::Float64, Ok(Some("0.10000000149011612"))),
            (Value::Double(f64::NAN), DataType::Float64, Ok(Some("NaN"))),
            (Value::TimestampMicros(-1), microseconds.clone(), Ok(Some("1969-12-31 23:59:59.999999000"))),
            (Value::Long(1_500_000), microseconds, Ok(Some("1970-01-01 00:00:01.500000000"))),
            (Value::TimeMicros(1), DataType::Time64(TimeUnit::Microsecond), Ok(Some("00:00:00.000001000"))),
            (Value::Bytes(vec![1]), DataType::Binary, Err(())),
        ] {
            assert_eq!(text(value.clone(), data_type), want.map(|text| text.map(str::to_owned)), "{value:?}");
        }
        assert_eq!(PartitionValue::Null.text(&DataType::Float32), Ok(None));
    }

    #[test]
    fn only_identity_gives_a_column() {
        let field = |text: &str| serde_json::from_str::<PartitionFieldText>(text).unwrap().identity();
        assert_eq!(field(r#"{"source-id": 3, "field-id": 1000, "transform": "identity", "name": "x"}"#), Some(3));
        assert_eq!(field(r#"{"source-id": 3, "transform": "bucket[4]", "name": "x"}"#), None);
        assert_eq!(field(r#"{"source-ids": [3, 4], "transform": "identity", "name": "x"}"#), None);
    }
}
