//! JSON values whose objects keep their fields in the order of the text.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::Number;

/// The fields of an object in the order of the text; names are unique.
pub(crate) type JsonObject = Vec<(String, JsonValue)>;

/// A value of JSON.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum JsonValue {
    /// `null`.
    Null,
    /// `true` or `false`.
    Boolean(bool),
    /// A number.
    Number(Number),
    /// A string.
    Text(String),
    /// An array.
    List(Vec<JsonValue>),
    /// An object.
    Object(JsonObject),
}

struct JsonVisitor;

// === impl JsonValue ===

impl<'de> Deserialize<'de> for JsonValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(JsonVisitor)
    }
}

// === impl JsonVisitor ===

impl<'de> Visitor<'de> for JsonVisitor {
    type Value = JsonValue;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a JSON value")
    }

    fn visit_unit<E: Error>(self) -> Result<JsonValue, E> {
        Ok(JsonValue::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<JsonValue, E> {
        Ok(JsonValue::Boolean(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<JsonValue, E> {
        Ok(JsonValue::Number(value.into()))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<JsonValue, E> {
        Ok(JsonValue::Number(value.into()))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<JsonValue, E> {
        Number::from_f64(value).map(JsonValue::Number).ok_or_else(|| E::custom("number out of range"))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<JsonValue, E> {
        Ok(JsonValue::Text(value.to_owned()))
    }

    fn visit_string<E: Error>(self, value: String) -> Result<JsonValue, E> {
        Ok(JsonValue::Text(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<JsonValue, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(JsonValue::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<JsonValue, A::Error> {
        let mut object = JsonObject::new();
        while let Some(field) = fields.next_entry()? {
            object.push(field);
        }
        let mut names: Vec<&str> = object.iter().map(|(name, _)| name.as_str()).collect();
        names.sort_unstable();
        match names.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(A::Error::custom(format_args!("an object has the field \"{}\" twice", pair[0]))),
            None => Ok(JsonValue::Object(object)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_keep_their_order() {
        let value: JsonValue = serde_json::from_str(r#"{"b": [1, -2.5, null], "a": {"d": "x", "c": true}}"#).unwrap();
        let number = |value: f64| JsonValue::Number(Number::from_f64(value).unwrap());
        let object = |fields: Vec<(&str, JsonValue)>| {
            JsonValue::Object(fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
        };
        let list = JsonValue::List(vec![JsonValue::Number(1.into()), number(-2.5), JsonValue::Null]);
        let inner = object(vec![("d", JsonValue::Text("x".to_owned())), ("c", JsonValue::Boolean(true))]);
        assert_eq!(value, object(vec![("b", list), ("a", inner)]));
    }

    #[test]
    fn a_field_that_occurs_twice_is_refused() {
        let error = serde_json::from_str::<JsonValue>(r#"[{"a": 1, "b": 2, "a": 3}]"#).unwrap_err();
        assert!(error.is_data() && error.to_string().contains("the field \"a\" twice"), "{error}");
    }
}
