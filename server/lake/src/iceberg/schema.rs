//! Schemas in table metadata, as columns of Arrow types with the field IDs that data files have.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, TimeUnit};
use serde::Deserialize;

use super::name_mapping::NameMapping;
use crate::{
    error::LakeError,
    table::{Column, ColumnKey, StoredAs},
};

/// The most digits of a decimal.
const DECIMAL_DIGITS_MAX: u8 = 38;

/// A schema of a table.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct SchemaText {
    #[serde(default)]
    pub schema_id: i32,
    pub fields: Vec<FieldText>,
}

/// A column, or a field of a struct.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct FieldText {
    pub id: i32,
    pub name: String,
    required: bool,
    #[serde(rename = "type")]
    kind: TypeText,
    #[serde(default)]
    initial_default: Option<serde_json::Value>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum TypeText {
    Primitive(String),
    Nested(NestedText),
}

#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
enum NestedText {
    Struct { fields: Vec<FieldText> },
    List { element: Box<TypeText> },
    Map { key: Box<TypeText>, value: Box<TypeText> },
}

// === impl SchemaText ===

impl SchemaText {
    /// The columns. Files without field IDs have the names of the mapping.
    pub(super) fn columns(&self, names: Option<&NameMapping>) -> Result<Vec<Column>, LakeError> {
        self.fields.iter().map(|field| field.column(names)).collect()
    }
}

// === impl FieldText ===

impl FieldText {
    /// The column of a field that is in no other one.
    pub(super) fn column(&self, names: Option<&NameMapping>) -> Result<Column, LakeError> {
        let names = names.map(|names| names.field(self.id));
        let (arrow, stored) = self.arrow(&self.name, names)?;
        Ok(Column { field: arrow.with_nullable(!self.required), stored })
    }

    /// The field in Arrow and how files store it. `path` names it in errors. Nullable, as writers may declare optional
    /// what the table does not.
    fn arrow(&self, path: &str, names: Option<&NameMapping>) -> Result<(Field, StoredAs), LakeError> {
        if self.initial_default.as_ref().is_some_and(|value| !value.is_null()) {
            return Err(LakeError::Unsupported(format!(
                "column \"{path}\" has an initial default, which is not supported: rewrite the data files that lack it, \
                 then drop the default"
            )));
        }
        let (data_type, children) = self.kind.arrow(path, names)?;
        let key = match names {
            Some(names) => ColumnKey::IdOrName { id: self.id, names: names.names().to_vec() },
            None => ColumnKey::Id(self.id),
        };
        let field = Field::new(&self.name, data_type, true);
        Ok((self.kind.with_extension(field), StoredAs { key, children }))
    }
}

// === impl TypeText ===

impl TypeText {
    /// A field with the extension type that data files have for its type.
    fn with_extension(&self, field: Field) -> Field {
        match self {
            Self::Primitive(name) if name == "uuid" => {
                let extension = [("ARROW:extension:name", "arrow.uuid"), ("ARROW:extension:metadata", "")];
                field.with_metadata(extension.map(|(key, value)| (key.to_owned(), value.to_owned())).into())
            }
            _ => field,
        }
    }

    fn arrow(&self, path: &str, names: Option<&NameMapping>) -> Result<(DataType, Vec<StoredAs>), LakeError> {
        let nested = match self {
            Self::Primitive(name) => {
                let unknown = || LakeError::Unsupported(format!("column \"{path}\" has the unsupported type {name}"));
                return Ok((primitive(name).ok_or_else(unknown)?, Vec::new()));
            }
            Self::Nested(nested) => nested,
        };
        match nested {
            NestedText::Struct { fields } => {
                let (mut arrow, mut children) = (Vec::new(), Vec::new());
                for field in fields {
                    let names = names.map(|names| names.field(field.id));
                    let (field, stored) = field.arrow(&format!("{path}.{}", field.name), names)?;
                    arrow.push(field);
                    children.push(stored);
                }
                Ok((DataType::Struct(arrow.into()), children))
            }
            NestedText::List { element } => {
                let (field, stored) = part(element, "element", true, path, names)?;
                Ok((DataType::List(Arc::new(field)), vec![stored]))
            }
            NestedText::Map { key, value } => {
                let (key, key_stored) = part(key, "key", false, path, names)?;
                let (value, value_stored) = part(value, "value", true, path, names)?;
                let entries = Field::new("key_value", DataType::Struct(vec![key, value].into()), false);
                Ok((DataType::Map(Arc::new(entries), false), vec![key_stored, value_stored]))
            }
        }
    }
}

/// The items of a list, the keys or the values of a map.
fn part(
    kind: &TypeText,
    name: &str,
    is_nullable: bool,
    path: &str,
    names: Option<&NameMapping>,
) -> Result<(Field, StoredAs), LakeError> {
    let names = names.map(|names| names.part(name));
    let (data_type, children) = kind.arrow(&format!("{path}.{name}"), names)?;
    Ok((Field::new(name, data_type, is_nullable), StoredAs { key: ColumnKey::Position, children }))
}

/// The Arrow type of a type without nested fields.
fn primitive(name: &str) -> Option<DataType> {
    let microseconds = |zone: Option<&str>| DataType::Timestamp(TimeUnit::Microsecond, zone.map(Into::into));
    let nanoseconds = |zone: Option<&str>| DataType::Timestamp(TimeUnit::Nanosecond, zone.map(Into::into));
    Some(match name {
        "boolean" => DataType::Boolean,
        "int" => DataType::Int32,
        "long" => DataType::Int64,
        "float" => DataType::Float32,
        "double" => DataType::Float64,
        "date" => DataType::Date32,
        "time" => DataType::Time64(TimeUnit::Microsecond),
        "timestamp" => microseconds(None),
        "timestamptz" => microseconds(Some("UTC")),
        "timestamp_ns" => nanoseconds(None),
        "timestamptz_ns" => nanoseconds(Some("UTC")),
        "string" => DataType::Utf8,
        "uuid" => DataType::FixedSizeBinary(16),
        "binary" => DataType::Binary,
        other => return fixed(other).or_else(|| decimal(other)),
    })
}

fn fixed(name: &str) -> Option<DataType> {
    let bytes: i32 = name.strip_prefix("fixed[")?.strip_suffix(']')?.trim().parse().ok()?;
    (bytes > 0).then_some(DataType::FixedSizeBinary(bytes))
}

fn decimal(name: &str) -> Option<DataType> {
    let (precision, scale) = name.strip_prefix("decimal(")?.strip_suffix(')')?.split_once(',')?;
    let (precision, scale): (u8, i8) = (precision.trim().parse().ok()?, scale.trim().parse().ok()?);
    let is_valid = (1..=DECIMAL_DIGITS_MAX).contains(&precision) && scale >= 0 && scale.unsigned_abs() <= precision;
    is_valid.then_some(DataType::Decimal128(precision, scale))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn columns(fields: &str) -> Result<Vec<Column>, LakeError> {
        let schema: SchemaText = serde_json::from_str(&format!(r#"{{"schema-id": 0, "fields": [{fields}]}}"#)).unwrap();
        schema.columns(None)
    }

    fn kind(text: &str) -> Result<DataType, LakeError> {
        let field = format!(r#"{{"id": 1, "name": "c", "required": true, "type": {text}}}"#);
        columns(&field).map(|columns| columns[0].field.data_type().clone())
    }

    #[test]
    fn types_without_nested_fields() {
        for (name, want) in [
            ("int", DataType::Int32),
            ("timestamptz", DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))),
            ("timestamp_ns", DataType::Timestamp(TimeUnit::Nanosecond, None)),
            ("decimal(9, 2)", DataType::Decimal128(9, 2)),
            ("decimal(38,38)", DataType::Decimal128(38, 38)),
            ("fixed[7]", DataType::FixedSizeBinary(7)),
        ] {
            assert_eq!(kind(&format!("\"{name}\"")).unwrap(), want);
        }
        for name in ["variant", "geometry(srid:1)", "unknown", "decimal(39, 0)", "decimal(2,3)", "fixed[0]", "fixed[x]"]
        {
            let error = kind(&format!("\"{name}\"")).unwrap_err();
            assert!(matches!(&error, LakeError::Unsupported(text) if text.contains(name)), "{error}");
        }
    }

    #[test]
    fn nested_fields_have_ids_and_parts_have_places() {
        let found = columns(
            r#"{"id": 3, "name": "m", "required": false, "type": {"type": "map", "key-id": 4, "key": "string",
                "value-id": 5, "value-required": false, "value": {"type": "struct", "fields": [
                    {"id": 6, "name": "x", "required": true, "type": {"type": "list", "element-id": 7,
                     "element": "double", "element-required": true}}]}}}"#,
        )
        .unwrap();
        let column = &found[0];
        assert!(column.field.is_nullable());
        let item = DataType::List(Arc::new(Field::new("element", DataType::Float64, true)));
        let value = DataType::Struct(vec![Field::new("x", item, true)].into());
        let entries =
            DataType::Struct(vec![Field::new("key", DataType::Utf8, false), Field::new("value", value, true)].into());
        assert_eq!(*column.field.data_type(), DataType::Map(Arc::new(Field::new("key_value", entries, false)), false));
        assert_eq!(column.stored.key, ColumnKey::Id(3));
        let [key, value] = column.stored.children.as_slice() else { panic!("{column:?}") };
        assert_eq!((&key.key, &value.key), (&ColumnKey::Position, &ColumnKey::Position));
        assert_eq!(value.children[0].key, ColumnKey::Id(6));
        assert_eq!(value.children[0].children[0].key, ColumnKey::Position);
    }

    #[test]
    fn defaults_of_earlier_rows_are_refused() {
        let field = |default: &str| {
            columns(&format!(
                r#"{{"id": 1, "name": "c", "required": true, "type": "int", "initial-default": {default}}}"#
            ))
        };
        assert!(field("null").is_ok());
        assert!(field("5").unwrap_err().to_string().contains("column \"c\" has an initial default"));
    }
}
