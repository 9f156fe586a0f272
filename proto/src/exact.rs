//! Integers in JSON that a double field would round: a bound or a fill that is a value of a column keeps all its digits or is an error.

use prost_reflect::{FieldDescriptor, Kind, MessageDescriptor};
use serde_json::{Map, Number, Value};

/// Digits of the smallest integer that a double does not hold, 2^53 + 1.
const DIGITS: usize = 16;

/// The first integer that the message's double fields do not hold, in words.
pub(crate) fn rounded(bytes: &[u8], message: &MessageDescriptor) -> Option<String> {
    // Most messages have no integer this long, and reading a large one twice costs.
    if !has_long_digits(bytes) {
        return None;
    }
    let Value::Object(fields) = serde_json::from_slice(bytes).ok()? else { return None };
    in_message(&fields, message, "")
}

fn has_long_digits(bytes: &[u8]) -> bool {
    bytes.split(|byte| !byte.is_ascii_digit()).any(|digits| digits.len() >= DIGITS)
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
            items.iter().enumerate().find_map(|(place, item)| in_value(item, field, &format!("{path}[{place}]")))
        }
        (Value::Object(fields), Kind::Message(message)) => in_message(fields, &message, path),
        (Value::Number(number), Kind::Double) if is_rounded(number) => Some(format!(
            "{path}: float64 does not hold the integer {number}; give it in the field for integers \
             (integer or unsigned, min_integer, integers, …) if the op has one, or a number that it holds"
        )),
        _ => None,
    }
}

/// Whether a double's own digits are others than these. Some writers pad the digits of a large double with zeros, which is the same
/// double to every reader.
fn is_rounded(number: &Number) -> bool {
    let whole = number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from));
    whole.is_some_and(|whole| {
        let double = whole as f64;
        double as i128 != whole && double.to_string() != whole.to_string()
    })
}
