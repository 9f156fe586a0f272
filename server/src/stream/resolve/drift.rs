//! What a plan's columns were when it was fitted, kept beside it: so that serving cannot quietly compute from other
//! values than training did (a float32 where there was a float64, a float where there was an integer before a null
//! came).

use std::collections::BTreeMap;

use arrow::datatypes::{DataType, Schema};
use serde::{Deserialize, Serialize};

use crate::stream::StreamError;
use crate::{
    error::near_names,
    state::{Kind, State, StateError},
};

/// The columns that a plan reads by name; for each what its values load as, and a type that it had then. A plan that
/// was fitted to datasets of different types takes them all.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct KnownColumns(BTreeMap<String, BTreeMap<String, String>>);

impl KnownColumns {
    /// What is known of a plan; nothing where no fit of this server has seen it.
    pub(crate) fn of_plan(state: &State, plan_id: &str) -> Self {
        let bytes = state.read(Kind::PlanColumns, plan_id).ok().flatten();
        bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default()
    }

    /// Adds the columns that a plan reads here.
    pub(crate) fn keep(state: &State, plan_id: &str, read: &Schema) -> Result<(), StateError> {
        let mut known = Self::of_plan(state, plan_id);
        for field in read.fields() {
            let types = known.0.entry(field.name().clone()).or_default();
            types.insert(loads_as(field.data_type()), field.data_type().to_string());
        }
        // Maps of texts always have a JSON form.
        state.write(Kind::PlanColumns, plan_id, &serde_json::to_vec(&known).unwrap_or_default())
    }

    /// Holds a schema against what is known: every column is there, and loads as it did.
    pub(crate) fn check(&self, schema: &Schema) -> Result<(), StreamError> {
        let names = || schema.fields().iter().map(|field| field.name().as_str());
        let missing: Vec<String> = self.0.keys().filter(|column| schema.index_of(column).is_err()).cloned().collect();
        if let Some(first) = missing.first() {
            let near = near_names(first, names());
            let columns = missing.iter().map(|column| format!("\"{column}\"")).collect();
            return Err(StreamError::ColumnsMissing { columns, near });
        }
        for (column, types) in &self.0 {
            let Ok(field) = schema.field_with_name(column) else { continue };
            if !types.contains_key(&loads_as(field.data_type())) {
                let expected = types.values().cloned().collect::<Vec<_>>().join(" or ");
                let found = field.data_type().to_string();
                return Err(StreamError::InputDrift { column: column.clone(), expected, found });
            }
        }
        Ok(())
    }
}

/// What values of a type load as: types of one name give the same numbers, texts and bytes, to chains and to
/// expressions.
fn loads_as(data_type: &DataType) -> String {
    match data_type {
        DataType::Dictionary(_, values) => loads_as(values),
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => "text".to_owned(),
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_) => {
            "bytes".to_owned()
        }
        // All of them are 64-bit integers in a chain, and are widened to that by expressions. Not so UInt64.
        DataType::Int8
        | DataType::Int16
        | DataType::Int32
        | DataType::Int64
        | DataType::UInt8
        | DataType::UInt16
        | DataType::UInt32 => "whole numbers".to_owned(),
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
            format!("lists of {}", loads_as(item.data_type()))
        }
        DataType::Timestamp(unit, Some(zone)) if matches!(zone.as_ref(), "UTC" | "+00:00" | "Etc/UTC" | "Z") => {
            format!("timestamps in UTC, {unit:?}")
        }
        // Floats round, dates and times count units: only the same type is the same.
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::datatypes::{Field, TimeUnit};

    use super::*;

    fn schema(fields: &[(&str, DataType)]) -> Schema {
        Schema::new(fields.iter().map(|(name, kind)| Field::new(*name, kind.clone(), true)).collect::<Vec<_>>())
    }

    fn dictionary(values: DataType) -> DataType {
        DataType::Dictionary(Box::new(DataType::Int8), Box::new(values))
    }

    #[test]
    fn what_loads_alike_is_taken_and_what_does_not_is_named_with_both_types() {
        let folder = tempfile::tempdir().unwrap();
        let state = State::open(folder.path()).unwrap();
        let item = |kind| Arc::new(Field::new("item", kind, true));
        let zone = |zone: &str| DataType::Timestamp(TimeUnit::Microsecond, Some(zone.into()));
        let cases = [
            (DataType::Int64, DataType::Int8, true),
            (DataType::Int32, DataType::UInt32, true),
            (DataType::Int64, DataType::UInt64, false),
            (DataType::Int64, DataType::Float64, false),
            (DataType::Float64, DataType::Float32, false),
            (DataType::Utf8, dictionary(DataType::LargeUtf8), true),
            (dictionary(DataType::Utf8), DataType::Utf8View, true),
            (DataType::Utf8, DataType::Binary, false),
            (DataType::Date32, DataType::Date64, false),
            (DataType::Date32, DataType::Int32, false),
            (DataType::Boolean, DataType::Int8, false),
            (DataType::Float64, DataType::Null, false),
            (zone("UTC"), zone("+00:00"), true),
            (zone("UTC"), zone("Europe/Vienna"), false),
            (zone("UTC"), DataType::Timestamp(TimeUnit::Nanosecond, Some("UTC".into())), false),
            (DataType::List(item(DataType::Int64)), DataType::LargeList(item(DataType::Int32)), true),
            (DataType::List(item(DataType::Int64)), DataType::List(item(DataType::Float32)), false),
        ];
        for (number, (fitted, sent, taken)) in cases.into_iter().enumerate() {
            let id = format!("{number:x}");
            KnownColumns::keep(&state, &id, &schema(&[("a", fitted.clone())])).unwrap();
            let checked =
                KnownColumns::of_plan(&state, &id).check(&schema(&[("b", DataType::Null), ("a", sent.clone())]));
            assert_eq!(checked.is_ok(), taken, "{fitted} and {sent}");
            if let Err(error) = checked {
                let text = error.to_string();
                assert!(text.contains("schema drift") && text.contains("\"a\""), "{text}");
                assert!(text.contains(&fitted.to_string()) && text.contains(&sent.to_string()), "{text}");
            }
        }
    }

    #[test]
    fn a_plan_fitted_to_several_types_takes_them_all_and_an_unknown_plan_anything() {
        let folder = tempfile::tempdir().unwrap();
        let state = State::open(folder.path()).unwrap();
        for kind in [DataType::Float32, DataType::Float64] {
            KnownColumns::keep(&state, "ab", &schema(&[("x", kind)])).unwrap();
        }
        let known = KnownColumns::of_plan(&state, "ab");
        assert!(known.check(&schema(&[("x", DataType::Float32)])).is_ok());
        assert!(known.check(&schema(&[("x", DataType::Float64)])).is_ok());
        let drift = known.check(&schema(&[("x", DataType::Int32)])).unwrap_err().to_string();
        assert!(drift.contains("Float32 or Float64"), "{drift}");
        let missing = known.check(&schema(&[("X1", DataType::Float32)])).unwrap_err().to_string();
        assert!(missing.contains("\"x\"") && missing.contains("\"X1\""), "{missing}");
        assert!(KnownColumns::of_plan(&state, "cd").check(&schema(&[])).is_ok());
    }
}
