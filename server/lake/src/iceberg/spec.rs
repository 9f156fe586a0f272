//! Partition specs, and the values of files under them.
//!
//! Only identity transforms give a column: other transforms compute a value that is not in the table.

use apache_avro::types::Value;
use arrow::datatypes::DataType;
use chrono::NaiveDate;
use serde::Deserialize;

use super::avro::AvroRecord;

/// Days from year 1 to 1970.
const DAYS_BEFORE_1970: i32 = 719_163;
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
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PartitionValue {
    Null,
    /// As Arrow casts it to the type of the column.
    Text(String),
    /// A decimal without its scale.
    Unscaled(i128),
    /// Of a type whose values are read from the files instead.
    Other,
}

// === impl PartitionFieldText ===

impl PartitionFieldText {
    /// The ID of the column whose values this field has.
    pub(super) fn identity(&self) -> Option<i32> {
        self.source_id.filter(|_| self.transform == "identity")
    }
}

// === impl PartitionValue ===

impl PartitionValue {
    /// The values of a partition record.
    pub(super) fn all(record: AvroRecord<'_>) -> Vec<Self> {
        record.values().map(|value| value.map_or(Self::Null, Self::of)).collect()
    }

    fn of(value: &Value) -> Self {
        match value {
            Value::Boolean(value) => Self::Text(value.to_string()),
            Value::Int(value) => Self::Text(value.to_string()),
            Value::Long(value) => Self::Text(value.to_string()),
            Value::String(value) => Self::Text(value.clone()),
            Value::Date(days) => days
                .checked_add(DAYS_BEFORE_1970)
                .and_then(NaiveDate::from_num_days_from_ce_opt)
                .map_or(Self::Other, |date| Self::Text(date.to_string())),
            Value::Decimal(decimal) => match Vec::<u8>::try_from(decimal) {
                Ok(bytes) => big_endian(&bytes).map_or(Self::Other, Self::Unscaled),
                Err(_) => Self::Other,
            },
            _ => Self::Other,
        }
    }

    /// The value in a column of a type; an error if the values of the column must be read from files.
    pub(super) fn text(&self, data_type: &DataType) -> Result<Option<String>, ()> {
        match (self, data_type) {
            (Self::Null, _) => Ok(None),
            (
                Self::Text(text),
                DataType::Boolean | DataType::Int32 | DataType::Int64 | DataType::Utf8 | DataType::Date32,
            ) => Ok(Some(text.clone())),
            (Self::Unscaled(value), DataType::Decimal128(_, scale)) => Ok(Some(scaled(*value, *scale))),
            _ => Err(()),
        }
    }
}

/// Whether values of a type are recorded as text.
pub(super) fn is_textual(data_type: &DataType) -> bool {
    use DataType as T;
    matches!(data_type, T::Boolean | T::Int32 | T::Int64 | T::Utf8 | T::Date32 | T::Decimal128(..))
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
        for (value, data_type, want) in [
            (Value::Boolean(true), DataType::Boolean, Ok(Some("true"))),
            (Value::Int(-5), DataType::Int64, Ok(Some("-5"))),
            (Value::String("São/".to_owned()), DataType::Utf8, Ok(Some("São/"))),
            (Value::Date(days), DataType::Date32, Ok(Some("2024-02-29"))),
            (Value::Date(i32::MAX), DataType::Date32, Err(())),
            (Value::Decimal(vec![0xff, 0x6a].into()), DataType::Decimal128(9, 2), Ok(Some("-1.50"))),
            (Value::Decimal(vec![0x05].into()), DataType::Decimal128(9, 0), Ok(Some("5"))),
            (Value::Decimal(vec![0x05].into()), DataType::Decimal128(9, 3), Ok(Some("0.005"))),
            (Value::Float(1.5), DataType::Float32, Err(())),
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
