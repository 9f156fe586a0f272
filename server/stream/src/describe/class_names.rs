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

/// The names of the classes 0, 1, … of each column that has some.
pub(super) fn of(schema: &Schema) -> HashMap<String, Vec<String>> {
    let metadata = schema.metadata().get(KEY).and_then(|text| serde_json::from_str::<Metadata>(text).ok());
    let features = metadata.into_iter().flat_map(|found| found.info.features);
    // Other features have other forms.
    let read =
        features.filter_map(|(column, feature)| Some((column, serde_json::from_value::<Feature>(feature).ok()?)));
    read.filter(|(_, feature)| feature.kind == CLASS_LABEL).map(|(column, feature)| (column, feature.names)).collect()
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
        let names = ["neg", "pos"].map(str::to_owned).to_vec();
        assert_eq!(of(&schema(text)), HashMap::from([("label".to_owned(), names)]));
        for text in ["{}", "[", r#"{"info": {"features": null}}"#] {
            assert!(of(&schema(text)).is_empty(), "{text}");
        }
        assert!(of(&Schema::empty()).is_empty());
    }
}
