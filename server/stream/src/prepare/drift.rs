//! Schema drift: compares the columns that a plan reads with those that it was fitted on.
//!
//! Training and serving must compute from the same values: a float32 instead of a float64 rounds, and the hour of a
//! timestamp depends on its zone. A fit writes the types of the columns that the plan reads into the plan, so that they
//! also apply to plans that are derived from it, such as by another filter, and on servers that did not fit it. Plans
//! that were stored before fits did so have their types in the state only.

use std::{collections::BTreeMap, sync::Arc};

use arrow::datatypes::{DataType, Field, Schema};
use forebay_catalog::is_utc;
use forebay_proto::v1;
use forebay_runtime::{error::near_names, state::short_digest};

use super::units;
use crate::{
    describe::{full_type_name, type_name},
    error::StreamError,
    plan_store::FittedTypes,
};

/// The most characters of a type's name in a plan; longer names end in a digest.
const NAME_LENGTH_MAX: usize = 200;

/// What a plan says about the columns that it was fitted on.
#[derive(Debug)]
pub(crate) struct FittedColumns {
    units: Vec<v1::Unit>,
    types: Vec<v1::ColumnType>,
}

// === impl FittedColumns ===

impl FittedColumns {
    /// Those of a plan; none of a plan that no fit has written.
    pub(crate) fn of(plan: &v1::Plan) -> Self {
        Self { units: plan.units.clone(), types: plan.types.clone() }
    }

    /// Rejects columns that a plan reads and that load as other types than where it was fitted. `read` has the stored
    /// columns that the plan reads: a column that it no longer reads may have any type.
    pub(crate) fn check(&self, read: &Schema) -> Result<(), StreamError> {
        for v1::ColumnType { column, r#type: expected } in &self.types {
            let Ok(field) = read.field_with_name(column) else { continue };
            if &loaded_name(field.data_type()) != expected {
                let found = type_name(field.data_type());
                return Err(StreamError::InputDrift { column: column.clone(), expected: expected.clone(), found });
            }
        }
        Ok(())
    }

    /// Rejects stored, joined and derived columns in other units.
    pub(crate) fn check_units(&self, columns: &Schema) -> Result<(), StreamError> {
        units::check(&self.units, columns)
    }

    /// The drift that explains why a plan does not compile for stored columns; without drift, the error itself.
    pub(crate) fn explain(&self, error: StreamError, stored: &Schema) -> StreamError {
        self.check(stored).err().unwrap_or(error)
    }
}

/// Writes the units of the columns that a plan computes from, and the types of the stored columns that it reads, into
/// the plan.
pub(crate) fn write(plan: &mut v1::Plan, columns: &Schema, read: &Schema) {
    units::write(plan, columns);
    let types: BTreeMap<&String, String> =
        read.fields().iter().map(|field| (field.name(), loaded_name(field.data_type()))).collect();
    let entry = |(column, loaded): (&String, String)| v1::ColumnType { column: column.clone(), r#type: loaded };
    plan.types = types.into_iter().map(entry).collect();
}

// === impl FittedTypes ===

impl FittedTypes {
    /// The types of a schema's columns.
    pub(crate) fn of(schema: &Schema) -> Self {
        let mut types: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
        for field in schema.fields() {
            let of_column = types.entry(field.name().clone()).or_default();
            of_column.insert(loaded_name(field.data_type()), field.data_type().to_string());
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
            let (found, loaded) = (field.data_type().to_string(), loaded_name(field.data_type()));
            // Older states have other names of what a type loads as, so only the types count.
            let is_fitted = |stored: &String| {
                *stored == found || stored.parse().is_ok_and(|stored: DataType| loaded_name(&stored) == loaded)
            };
            if !types.contains_key(&loaded) && !types.values().any(is_fitted) {
                let expected = types.values().cloned().collect::<Vec<_>>().join(" or ");
                return Err(StreamError::InputDrift { column: column.clone(), expected, found });
            }
        }
        Ok(())
    }
}

/// The name of the type that values load as: columns of one such type give ops and expressions the same numbers, times,
/// texts and bytes. It is part of a plan's id.
fn loaded_name(data_type: &DataType) -> String {
    let name = full_type_name(&loaded(data_type));
    match name.char_indices().nth(NAME_LENGTH_MAX) {
        Some((end, _)) => format!("{}… {}", &name[..end], short_digest(&[name.as_bytes()])),
        None => name,
    }
}

/// The type that values load as: the same for encodings and widths of the same values.
fn loaded(data_type: &DataType) -> DataType {
    let field = |field: &Arc<Field>| Field::new(field.name(), loaded(field.data_type()), true);
    let item = |field: &Arc<Field>| Arc::new(Field::new("item", loaded(field.data_type()), true));
    match data_type {
        DataType::Dictionary(_, values) => loaded(values),
        DataType::RunEndEncoded(_, values) => loaded(values.data_type()),
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => DataType::Utf8,
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_) => {
            DataType::Binary
        }
        // Chains and expressions widen all of these to Int64; UInt64 does not fit.
        DataType::Int8
        | DataType::Int16
        | DataType::Int32
        | DataType::Int64
        | DataType::UInt8
        | DataType::UInt16
        | DataType::UInt32 => DataType::Int64,
        DataType::Decimal32(precision, scale) | DataType::Decimal64(precision, scale) => {
            DataType::Decimal128(*precision, *scale)
        }
        DataType::List(of)
        | DataType::LargeList(of)
        | DataType::FixedSizeList(of, _)
        | DataType::ListView(of)
        | DataType::LargeListView(of) => DataType::List(item(of)),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(field).collect()),
        DataType::Map(entries, _) => DataType::Map(Arc::new(field(entries)), false),
        DataType::Timestamp(unit, Some(zone)) if is_utc(Some(zone)) => DataType::Timestamp(*unit, Some("UTC".into())),
        // Floats round, dates and times count units, and what is learned of decimals depends on their digits: only the same type gives the same values.
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::datatypes::{Field, TimeUnit};
    use forebay_runtime::{cpu_pool::CpuPool, state::State};

    use super::*;
    use crate::plan_store::PlanStore;

    fn schema(fields: &[(&str, DataType)]) -> Schema {
        Schema::new(fields.iter().map(|(name, kind)| Field::new(*name, kind.clone(), true)).collect::<Vec<_>>())
    }

    fn dictionary(values: DataType) -> DataType {
        DataType::Dictionary(Box::new(DataType::Int8), Box::new(values))
    }

    /// A struct whose name is too long for a plan, with a last field of this type.
    fn nested(last: DataType) -> DataType {
        let fields = (0..100).map(|number| Field::new(format!("field{number}"), DataType::Int32, true));
        DataType::Struct(fields.chain([Field::new("last", last, true)]).collect())
    }

    #[test]
    fn long_names_of_types_are_bounded_and_distinct() {
        let (text, bytes) = (loaded_name(&nested(DataType::Utf8)), loaded_name(&nested(DataType::Binary)));
        assert_ne!(text, bytes);
        assert!(text.chars().count() < NAME_LENGTH_MAX + 40, "{text}");
    }

    #[tokio::test]
    async fn states_of_older_servers_accept_what_they_did() {
        let older =
            r#"{"n": {"whole numbers": "Int32"}, "t": {"timestamps in UTC, Microsecond": "Timestamp(µs, \"Z\")"}}"#;
        let older: FittedTypes = serde_json::from_str(older).unwrap();
        let utc = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
        assert!(older.check(&schema(&[("n", DataType::UInt8), ("t", utc.clone())])).is_ok());
        assert!(older.check(&schema(&[("n", DataType::Float32), ("t", utc)])).is_err());
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
            (DataType::Decimal32(5, 2), DataType::Decimal128(5, 2), true),
            (DataType::Decimal128(5, 2), DataType::Decimal128(5, 1), false),
            (nested(DataType::Utf8), nested(DataType::Utf8View), true),
            (nested(DataType::Utf8), nested(DataType::Binary), false),
        ];
        for (number, (fitted, sent, is_accepted)) in cases.into_iter().enumerate() {
            let id = format!("{number:x}");
            plans.add_fitted_types(&id, FittedTypes::of(&schema(&[("a", fitted.clone())]))).await.unwrap();
            let known = plans.fitted_types(&id).await.unwrap();
            let sent_columns = schema(&[("b", DataType::Null), ("a", sent.clone())]);
            let checked = known.check(&sent_columns);
            assert_eq!(checked.is_ok(), is_accepted, "{fitted} and {sent}");
            let mut plan = v1::Plan::default();
            write(&mut plan, &schema(&[]), &schema(&[("a", fitted.clone()), ("c", DataType::Int8)]));
            assert_eq!(FittedColumns::of(&plan).check(&sent_columns).is_ok(), is_accepted, "{fitted} and {sent}");
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
        assert!(drift.contains("Float64 or Float32"), "{drift}");
        let missing = known.check(&schema(&[("X1", DataType::Float32)])).unwrap_err().to_string();
        assert!(missing.contains("\"x\"") && missing.contains("\"X1\""), "{missing}");
        assert!(plans.fitted_types("cd").await.unwrap().check(&schema(&[])).is_ok());
    }
}
