//! Rejects integers in JSON that a double field would round: a bound or a fill is exact, or an error.

use prost_reflect::{FieldDescriptor, Kind, MessageDescriptor};
use serde_json::{Map, Number, Value};

/// Digits of 2^53 + 1, the smallest integer that a double cannot represent.
const INEXACT_DIGITS_MIN: usize = 16;

/// Returns an error message for the first integer that a double field of the message would round.
pub(crate) fn rounded(bytes: &[u8], message: &MessageDescriptor) -> Option<String> {
    // Most messages have no integer this long, and parsing a large message twice is expensive.
    if !has_long_digits(bytes) {
        return None;
    }
    let Value::Object(fields) = serde_json::from_slice(bytes).ok()? else { return None };
    in_message(&fields, message, "")
}

fn has_long_digits(bytes: &[u8]) -> bool {
    bytes.split(|byte| !byte.is_ascii_digit()).any(|digits| digits.len() >= INEXACT_DIGITS_MIN)
}

fn in_message(fields: &Map<String, Value>, message: &MessageDescriptor, path: &str) -> Option<String> {
    fields.iter().find_map(|(name, value)| {
        let field = message.get_field_by_name(name).or_else(|| message.get_field_by_json_name(name))?;
        let dot = if path.is_empty() { "" } else { "." };
        in_value(value, &field, &format!("{path}{dot}{name}"))
    })
}

fn in_value(value: &Value, field: &FieldDescriptor, path: &str) -> Option<String> {
    match (value, field.kind()) {
        (Value::Array(items), _) => {
            items.iter().enumerate().find_map(|(index, item)| in_value(item, field, &format!("{path}[{index}]")))
        }
        (Value::Object(fields), Kind::Message(message)) => in_message(fields, &message, path),
        (Value::Number(number), Kind::Double) if is_rounded(number) => Some(format!(
            "{path}: float64 cannot represent the integer {number}; set the op's field for integers \
             (integer or unsigned, min_integer, integers, …) if it has one, or use a number that float64 can represent"
        )),
        _ => None,
    }
}

/// Returns whether a double rounds the number to other digits. Digits of a large double may be padded with zeros, which
/// every parser reads as the same double.
fn is_rounded(number: &Number) -> bool {
    let whole = number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from));
    whole.is_some_and(|whole| {
        let double = whole as f64;
        double as i128 != whole && double.to_string() != whole.to_string()
    })
}
