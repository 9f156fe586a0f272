//! The table property `schema.name-mapping.default`: names of columns in files that have no field IDs.

use serde::Deserialize;

/// The names of a field in files, and those of the fields in it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct NameMapping {
    #[serde(default)]
    field_id: Option<i32>,
    #[serde(default)]
    names: Vec<String>,
    #[serde(default)]
    fields: Vec<NameMapping>,
}

static NOT_MAPPED: NameMapping = NameMapping { field_id: None, names: Vec::new(), fields: Vec::new() };

// === impl NameMapping ===

impl NameMapping {
    /// Parses the property: the mapping of the columns.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let fields = serde_json::from_str(text).map_err(|source| source.to_string())?;
        Ok(Self { fields, ..Self::default() })
    }

    /// The names of this field.
    pub(super) fn names(&self) -> &[String] {
        &self.names
    }

    /// The mapping of a field in this one. A field that is not mapped is in no file without field IDs.
    pub(super) fn field(&self, id: i32) -> &Self {
        self.fields.iter().find(|field| field.field_id == Some(id)).unwrap_or(&NOT_MAPPED)
    }

    /// The mapping of the items of a list, or of the keys or values of a map: `element`, `key` or `value`.
    pub(super) fn part(&self, name: &str) -> &Self {
        self.fields.iter().find(|field| field.names.iter().any(|known| known == name)).unwrap_or(&NOT_MAPPED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_names_by_id_and_parts_by_name() {
        let text = r#"[{"field-id": 1, "names": ["a", "b"]}, {"names": ["only"]},
                       {"field-id": 2, "names": ["l"], "fields": [{"field-id": 3, "names": ["element"]}]}]"#;
        let mapping = NameMapping::parse(text).unwrap();
        assert_eq!(mapping.field(1).names(), ["a", "b"]);
        assert_eq!(mapping.field(2).part("element").field_id, Some(3));
        assert!(mapping.field(9).names().is_empty());
        assert!(NameMapping::parse("{}").is_err());
    }
}
