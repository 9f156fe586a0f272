//! Values that are stored as bytes, such as the entries of an archive → arrays of the type of their column.

use std::sync::Arc;

use arrow::{
    array::{ArrayRef, BinaryArray, LargeBinaryArray, StringArray, StringBuilder},
    datatypes::{DataType, Field, Schema},
    json::ReaderBuilder,
};

use crate::{
    json_type::{self, JsonType, Mismatch},
    json_value::JsonValue,
    text::{self, BadText},
};

/// How the values of a column are read.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum RawKind {
    /// As bytes, or as the text of a value.
    Typed(DataType),
    /// As documents of JSON.
    Json(JsonType),
}

/// The field of a document within the objects that the decoder reads.
const DOCUMENT: &str = "document";

// === impl RawKind ===

impl RawKind {
    /// Widens the type of documents so that it holds this one.
    pub(crate) fn add(&mut self, value: &[u8], path: &str) -> Result<(), Mismatch> {
        match self {
            Self::Typed(_) => Ok(()),
            Self::Json(kind) => kind.add(&parse(value, path)?, path),
        }
    }

    /// The type of the column.
    pub(crate) fn data_type(&self) -> DataType {
        match self {
            Self::Typed(kind) => kind.clone(),
            Self::Json(kind) => kind.data_type(),
        }
    }

    /// Converts values; `path` is the name of the column.
    pub(crate) fn convert(&self, values: &[Option<&[u8]>], path: &str) -> Result<ArrayRef, BadText> {
        match self {
            Self::Typed(DataType::Binary) => Ok(Arc::new(BinaryArray::from_iter(values))),
            Self::Typed(DataType::LargeBinary) => Ok(Arc::new(LargeBinaryArray::from_iter(values))),
            Self::Typed(kind) => text::convert(&texts(values)?, kind),
            Self::Json(kind) => documents(values, &kind.data_type(), path),
        }
    }
}

fn parse(value: &[u8], path: &str) -> Result<JsonValue, Mismatch> {
    serde_json::from_slice(value).map_err(|error| {
        let reason = if error.is_data() { error.to_string() } else { format!("it is not JSON: {error}") };
        Mismatch { path: path.to_owned(), reason }
    })
}

fn texts(values: &[Option<&[u8]>]) -> Result<StringArray, BadText> {
    let mut texts = StringBuilder::with_capacity(values.len(), 0);
    for (row, value) in values.iter().enumerate() {
        let text = value.map(std::str::from_utf8).transpose();
        texts.append_option(text.map_err(|_| BadText { row, reason: "it is not UTF-8".to_owned() })?);
    }
    Ok(texts.finish())
}

fn documents(values: &[Option<&[u8]>], kind: &DataType, path: &str) -> Result<ArrayRef, BadText> {
    let schema = Schema::new(vec![Field::new(DOCUMENT, kind.clone(), true)]);
    let bad = |row: usize, reason: String| BadText { row, reason };
    let decoder = ReaderBuilder::new(Arc::new(schema)).with_batch_size(values.len()).with_coerce_primitive(true);
    let mut decoder = decoder.build_decoder().map_err(|error| bad(0, error.to_string()))?;
    for (row, value) in values.iter().enumerate() {
        let value = value.unwrap_or(b"null");
        let checked = parse(value, path).and_then(|parsed| json_type::check(&parsed, kind, path));
        checked.map_err(|Mismatch { path: place, reason }| {
            let reason = if place == path { reason } else { format!("\"{place}\": {reason}") };
            bad(row, reason)
        })?;
        for part in [&format!("{{\"{DOCUMENT}\":").into_bytes(), value, b"}"] {
            decoder.decode(part).map_err(|error| bad(row, error.to_string()))?;
        }
    }
    let batch = decoder.flush().map_err(|error| bad(0, error.to_string()))?;
    let batch = batch.filter(|batch| batch.num_rows() == values.len());
    batch.map(|batch| Arc::clone(batch.column(0))).ok_or_else(|| bad(0, "the decoder lost a document".to_owned()))
}

#[cfg(test)]
mod tests {
    use arrow::{
        array::{Array, AsArray},
        datatypes::Int64Type,
    };

    use super::*;

    fn json_of(documents: &[&str]) -> RawKind {
        let mut kind = RawKind::Json(JsonType::default());
        for document in documents {
            kind.add(document.as_bytes(), "json").unwrap();
        }
        kind
    }

    #[test]
    fn documents_become_values_of_their_type() {
        let first = r#"{"b": 1, "a": {"x": ["y"]}}"#;
        let kind = json_of(&[first]);
        let array = kind.convert(&[Some(first.as_bytes()), None, Some(b" {\n\"b\": 2} \n")], "json").unwrap();
        assert_eq!(array.data_type(), &kind.data_type());
        let object = array.as_struct();
        assert_eq!(object.column_names(), ["b", "a"]);
        assert_eq!(object.column(0).as_primitive::<Int64Type>().iter().collect::<Vec<_>>(), [Some(1), None, Some(2)]);
        assert!(array.is_null(1));
        let lists = json_of(&["[1]"]).convert(&[Some(b"[1, 2]"), Some(b"null")], "json").unwrap();
        assert_eq!((lists.len(), lists.null_count()), (2, 1));
    }

    #[test]
    fn bad_values_have_their_row() {
        for (kind, value, reason) in [
            (RawKind::Typed(DataType::Utf8), &b"\xff"[..], "it is not UTF-8"),
            (RawKind::Typed(DataType::Int64), b"x", "not an integer"),
            (json_of(&["{\"a\": 1}"]), b"{\"a\": \"x\"}", "\"json.a\": it is a text"),
            (json_of(&["{\"a\": 1}"]), b"{\"a\": 1} {", "it is not JSON"),
            (json_of(&["{\"a\": 1}"]), b"", "it is not JSON"),
            (json_of(&["{\"a\": 1}"]), b"{\"b\": 1}", "\"json.b\": the first lines do not have it"),
        ] {
            let bad = kind.convert(&[None, Some(value)], "json").unwrap_err();
            assert!(bad.row == 1 && bad.reason.contains(reason), "{value:?}: {bad:?}");
        }
    }
}
