//! Schema drift: compares the columns that a plan reads with those that it was fitted on.
//!
//! Serving must not silently compute from other values than training did, such as a float32 instead of a float64, or a
//! float where a null turned a column of integers into floats.

use std::collections::BTreeMap;

use arrow::datatypes::{DataType, Schema};

use crate::{
    error::near_names,
    stream::{error::StreamError, plan_store::FittedTypes},
};

impl FittedTypes {
    /// The types of a schema's columns.
    pub(crate) fn of(schema: &Schema) -> Self {
        let mut types: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
        for field in schema.fields() {
            let of_column = types.entry(field.name().clone()).or_default();
            of_column.insert(load_type(field.data_type()), field.data_type().to_string());
        }
        Self(types)
    }

    /// Checks that a schema has every column, and that each loads as it did.
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
            if !types.contains_key(&load_type(field.data_type())) {
                let expected = types.values().cloned().collect::<Vec<_>>().join(" or ");
                let found = field.data_type().to_string();
                return Err(StreamError::InputDrift { column: column.clone(), expected, found });
            }
        }
        Ok(())
    }
}

/// The name of the type that values load as: columns of one load type give chains and expressions the same numbers,
/// strings and bytes.
fn load_type(data_type: &DataType) -> String {
    match data_type {
        DataType::Dictionary(_, values) => load_type(values),
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => "text".to_owned(),
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_) => {
            "bytes".to_owned()
        }
        // Chains and expressions widen all of these to Int64; UInt64 does not fit.
        DataType::Int8
        | DataType::Int16
        | DataType::Int32
        | DataType::Int64
        | DataType::UInt8
        | DataType::UInt16
        | DataType::UInt32 => "whole numbers".to_owned(),
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
            format!("lists of {}", load_type(item.data_type()))
        }
        DataType::Timestamp(unit, Some(zone)) if matches!(zone.as_ref(), "UTC" | "+00:00" | "Etc/UTC" | "Z") => {
            format!("timestamps in UTC, {unit:?}")
        }
        // Floats round, and dates and times count units: only the same type gives the same values.
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::datatypes::{Field, TimeUnit};

    use super::*;
    use crate::{cpu_pool::CpuPool, state::State, stream::plan_store::PlanStore};

    fn schema(fields: &[(&str, DataType)]) -> Schema {
        Schema::new(fields.iter().map(|(name, kind)| Field::new(*name, kind.clone(), true)).collect::<Vec<_>>())
    }

    fn dictionary(values: DataType) -> DataType {
        DataType::Dictionary(Box::new(DataType::Int8), Box::new(values))
    }

    #[tokio::test]
    async fn drift_errors_name_the_column_and_both_types() {
        let folder = tempfile::tempdir().unwrap();
        let plans = PlanStore::new(State::open(folder.path(), folder.path(), &CpuPool::inline()).unwrap());
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
        for (number, (fitted, sent, is_accepted)) in cases.into_iter().enumerate() {
            let id = format!("{number:x}");
            plans.add_fitted_types(&id, FittedTypes::of(&schema(&[("a", fitted.clone())]))).await.unwrap();
            let known = plans.fitted_types(&id).await.unwrap();
            let checked = known.check(&schema(&[("b", DataType::Null), ("a", sent.clone())]));
            assert_eq!(checked.is_ok(), is_accepted, "{fitted} and {sent}");
            if let Err(error) = checked {
                let text = error.to_string();
                assert!(text.contains("schema drift") && text.contains("\"a\""), "{text}");
                assert!(text.contains(&fitted.to_string()) && text.contains(&sent.to_string()), "{text}");
            }
        }
    }

    #[tokio::test]
    async fn accepts_every_fitted_type_and_any_schema_for_an_unknown_plan() {
        let folder = tempfile::tempdir().unwrap();
        let plans = PlanStore::new(State::open(folder.path(), folder.path(), &CpuPool::inline()).unwrap());
        for kind in [DataType::Float32, DataType::Float64] {
            plans.add_fitted_types("ab", FittedTypes::of(&schema(&[("x", kind)]))).await.unwrap();
        }
        let known = plans.fitted_types("ab").await.unwrap();
        assert!(known.check(&schema(&[("x", DataType::Float32)])).is_ok());
        assert!(known.check(&schema(&[("x", DataType::Float64)])).is_ok());
        let drift = known.check(&schema(&[("x", DataType::Int32)])).unwrap_err().to_string();
        assert!(drift.contains("Float32 or Float64"), "{drift}");
        let missing = known.check(&schema(&[("X1", DataType::Float32)])).unwrap_err().to_string();
        assert!(missing.contains("\"x\"") && missing.contains("\"X1\""), "{missing}");
        assert!(plans.fitted_types("cd").await.unwrap().check(&schema(&[])).is_ok());
    }
}
