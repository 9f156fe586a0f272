//! The type of JSON values: inferred from the first lines, and checked on every line. The library that builds arrays
//! would truncate 1.5 to an integer and read texts as numbers.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Fields};
use serde_json::Number;

use crate::json_value::{JsonObject, JsonValue};

/// What the values at one place of the lines are.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) enum JsonType {
    /// Nulls only.
    #[default]
    Unknown,
    /// Booleans.
    Boolean,
    /// Integers between these two.
    Integer(i128, i128),
    /// Numbers of which one has a fraction or an exponent.
    Float,
    /// Texts.
    Text,
    /// Lists.
    List(Box<JsonType>),
    /// Objects, in the order in which their fields appeared.
    Object(Vec<(String, JsonType)>),
}

/// Two values at one place have no common type, or a value is not of its type.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Mismatch {
    /// The path of the value, such as `a.b[]`.
    pub path: String,
    /// What is wrong.
    pub reason: String,
}

// === impl JsonType ===

impl JsonType {
    /// Widens the type so that it holds a value.
    pub(crate) fn add(&mut self, value: &JsonValue, path: &str) -> Result<(), Mismatch> {
        let found = match value {
            JsonValue::Null => return Ok(()),
            JsonValue::Boolean(_) => Self::Boolean,
            JsonValue::Number(number) => number_type(number),
            JsonValue::Text(_) => Self::Text,
            JsonValue::List(items) => {
                if matches!(self, Self::Unknown) {
                    *self = Self::List(Box::default());
                }
                let Self::List(item) = self else { return Err(self.conflict(value, path)) };
                return items.iter().try_for_each(|value| item.add(value, &format!("{path}[]")));
            }
            JsonValue::Object(object) => {
                if matches!(self, Self::Unknown) {
                    *self = Self::Object(Vec::new());
                }
                let Self::Object(fields) = self else { return Err(self.conflict(value, path)) };
                for (name, value) in object {
                    let place = fields.iter().position(|(other, _)| other == name).unwrap_or_else(|| {
                        fields.push((name.clone(), Self::Unknown));
                        fields.len() - 1
                    });
                    fields[place].1.add(value, &below(path, name))?;
                }
                return Ok(());
            }
        };
        *self = match (&*self, found) {
            (Self::Unknown, found) => found,
            (Self::Integer(least, most), Self::Integer(value, _)) => Self::Integer(value.min(*least), value.max(*most)),
            (Self::Float, Self::Integer(..)) | (Self::Integer(..), Self::Float) => Self::Float,
            (known, found) if *known == found => found,
            _ => return Err(self.conflict(value, path)),
        };
        Ok(())
    }

    /// The Arrow type. Nulls only are texts.
    pub(crate) fn data_type(&self) -> DataType {
        match self {
            Self::Unknown | Self::Text => DataType::Utf8,
            Self::Boolean => DataType::Boolean,
            Self::Integer(_, most) if *most <= i64::MAX.into() => DataType::Int64,
            Self::Integer(least, _) if *least >= 0 => DataType::UInt64,
            Self::Integer(..) | Self::Float => DataType::Float64,
            Self::List(item) => DataType::List(Arc::new(Field::new_list_field(item.data_type(), true))),
            Self::Object(fields) => DataType::Struct(arrow_fields(fields)),
        }
    }

    fn conflict(&self, value: &JsonValue, path: &str) -> Mismatch {
        Mismatch { path: path.to_owned(), reason: format!("it is {} here, and {} before", kind_of(value), self.kind()) }
    }

    fn kind(&self) -> &'static str {
        match self {
            Self::Unknown => "null",
            Self::Boolean => "a boolean",
            Self::Integer(..) | Self::Float => "a number",
            Self::Text => "a text",
            Self::List(_) => "a list",
            Self::Object(_) => "an object",
        }
    }
}

/// The fields of a struct.
pub(crate) fn arrow_fields(fields: &[(String, JsonType)]) -> Fields {
    fields.iter().map(|(name, kind)| Field::new(name, kind.data_type(), true)).collect()
}

/// Checks that a type holds a value exactly.
pub(crate) fn check(value: &JsonValue, kind: &DataType, path: &str) -> Result<(), Mismatch> {
    let mismatch = |reason: String| Err(Mismatch { path: path.to_owned(), reason });
    match (kind, value) {
        (_, JsonValue::Null) | (DataType::Boolean, JsonValue::Boolean(_)) | (DataType::Utf8, JsonValue::Text(_)) => {
            Ok(())
        }
        (DataType::Int64, JsonValue::Number(number)) if number.is_i64() => Ok(()),
        (DataType::UInt64, JsonValue::Number(number)) if number.is_u64() => Ok(()),
        (DataType::Float64, JsonValue::Number(number)) => match integer(number) {
            Some(exact) if exact as f64 as i128 != exact => {
                mismatch(format!("{exact} has more digits than a double holds"))
            }
            _ => Ok(()),
        },
        (DataType::List(item), JsonValue::List(items)) => {
            let path = format!("{path}[]");
            items.iter().try_for_each(|value| check(value, item.data_type(), &path))
        }
        (DataType::Struct(fields), JsonValue::Object(object)) => check_fields(object, fields, path),
        (_, JsonValue::Number(number)) => mismatch(format!("{number} is not {kind}")),
        _ => mismatch(format!("it is {}, the column is {kind}", kind_of(value))),
    }
}

/// Checks the fields of an object.
pub(crate) fn check_fields(object: &JsonObject, fields: &Fields, path: &str) -> Result<(), Mismatch> {
    for (name, value) in object {
        let path = below(path, name);
        match fields.find(name) {
            Some((_, field)) => check(value, field.data_type(), &path)?,
            None => return Err(Mismatch { path, reason: "the first lines do not have it".to_owned() }),
        }
    }
    Ok(())
}

/// The path of a field.
pub(crate) fn below(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

fn number_type(number: &Number) -> JsonType {
    integer(number).map_or(JsonType::Float, |integer| JsonType::Integer(integer, integer))
}

fn integer(number: &Number) -> Option<i128> {
    number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from))
}

fn kind_of(value: &JsonValue) -> &'static str {
    match value {
        JsonValue::Null => "null",
        JsonValue::Boolean(_) => "a boolean",
        JsonValue::Number(_) => "a number",
        JsonValue::Text(_) => "a text",
        JsonValue::List(_) => "a list",
        JsonValue::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn json_value(value: &serde_json::Value) -> JsonValue {
        serde_json::from_value(value.clone()).unwrap()
    }

    fn inferred(values: &[serde_json::Value]) -> Result<DataType, Mismatch> {
        let mut kind = JsonType::default();
        values.iter().try_for_each(|value| kind.add(&json_value(value), "x"))?;
        Ok(kind.data_type())
    }

    #[test]
    fn types_hold_all_values() {
        for (values, kind) in [
            (vec![json!(null)], DataType::Utf8),
            (vec![json!(1), json!(-5), json!(null)], DataType::Int64),
            (vec![json!(1), json!(u64::MAX)], DataType::UInt64),
            (vec![json!(1), json!(2.5)], DataType::Float64),
            (vec![json!("a"), json!(null)], DataType::Utf8),
        ] {
            assert_eq!(inferred(&values).unwrap(), kind, "{values:?}");
        }
        let nested = inferred(&[json!([{"a": 1}]), json!([]), json!([{"b": "x"}, null])]).unwrap();
        let fields = Fields::from(vec![Field::new("a", DataType::Int64, true), Field::new("b", DataType::Utf8, true)]);
        assert_eq!(nested, DataType::List(Arc::new(Field::new_list_field(DataType::Struct(fields), true))));
        let conflict = inferred(&[json!({"a": [1]}), json!({"a": ["x"]})]).unwrap_err();
        assert_eq!(
            (conflict.path.as_str(), conflict.reason.as_str()),
            ("x.a[]", "it is a text here, and a number before")
        );
    }

    #[test]
    fn values_of_other_types_are_found() {
        for (value, kind) in [
            (json!(1.5), DataType::Int64),
            (json!("1"), DataType::Int64),
            (json!(-1), DataType::UInt64),
            (json!(9_007_199_254_740_993_u64), DataType::Float64),
            (json!(1), DataType::Utf8),
            (json!(true), DataType::Float64),
        ] {
            assert!(check(&json_value(&value), &kind, "x").is_err(), "{value} as {kind}");
        }
        assert!(check(&json_value(&json!(9_007_199_254_740_992_u64)), &DataType::Float64, "x").is_ok());
    }
}
