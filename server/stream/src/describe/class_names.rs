//! The names of a column's classes, which the library `datasets` writes into the metadata of a schema.

use std::collections::HashMap;

use arrow::datatypes::Schema;
use serde::Deserialize;

/// The key of the metadata, in JSON.
const KEY: &str = "huggingface";

/// The type of a column of class ids.
const CLASS_LABEL: &str = "ClassLabel";

#[derive(Debug, Deserialize)]
struct Metadata {
    info: Info,
}

#[derive(Debug, Deserialize)]
struct Info {
    features: HashMap<String, serde_json::Value>,
}

#[derive(Debug, Deserialize)]
struct Feature {
    #[serde(rename = "_type")]
    kind: String,
    names: Vec<String>,
}

/// The names of the classes 0, 1, … of a column; none if the schema has none.
pub(super) fn of(schema: &Schema, column: &str) -> Vec<String> {
    let metadata = schema.metadata().get(KEY).and_then(|text| serde_json::from_str::<Metadata>(text).ok());
    // Other features have other forms.
    let feature = metadata.and_then(|mut found| found.info.features.remove(column));
    let feature = feature.and_then(|feature| serde_json::from_value::<Feature>(feature).ok());
    feature.filter(|feature| feature.kind == CLASS_LABEL).map(|feature| feature.names).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::Fields;

    use super::*;

    #[test]
    fn names_are_those_of_class_labels_only() {
        let text = r#"{"info": {"features": {"label": {"names": ["neg", "pos"], "_type": "ClassLabel"},
            "text": {"dtype": "string", "_type": "Value"}, "all": [{"dtype": "int32", "_type": "Value"}]}}}"#;
        let schema = |text: &str| {
            Schema::new_with_metadata(Fields::empty(), [(KEY.to_owned(), text.to_owned())].into_iter().collect())
        };
        assert_eq!(of(&schema(text), "label"), ["neg", "pos"]);
        for (text, column) in [(text, "text"), (text, "all"), (text, "other"), ("{}", "label"), ("[", "label")] {
            assert!(of(&schema(text), column).is_empty(), "{column} of {text}");
        }
        assert!(of(&Schema::empty(), "label").is_empty());
    }
}
