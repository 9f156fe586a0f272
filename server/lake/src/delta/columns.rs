//! The columns of a Delta table: their Arrow types, and how data files store them under column mapping.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef};
use delta_kernel::{
    engine::arrow_conversion::TryIntoArrow,
    schema::{DataType as DeltaType, PrimitiveType, StructField, StructType},
    table_features::ColumnMappingMode,
};

use crate::{
    error::LakeError,
    table::{Column, ColumnKey, StoredAs},
};

/// The columns of a table's schema.
pub(super) fn columns(schema: &StructType, mapping: ColumnMappingMode) -> Result<Vec<Column>, LakeError> {
    schema.fields().map(|field| column(field, mapping)).collect()
}

fn column(field: &StructField, mapping: ColumnMappingMode) -> Result<Column, LakeError> {
    let name = field.name();
    if let Some(kind) = unsupported(field.data_type()) {
        return Err(LakeError::Unsupported(format!(
            "column \"{name}\" has the type {kind}, which is not supported: drop the column, or copy the table without it"
        )));
    }
    let arrow: Result<Field, _> = field.try_into_arrow();
    let arrow = arrow.map_err(|error| LakeError::Unsupported(format!("column \"{name}\": {error}")))?;
    let data_type = plain(arrow.data_type());
    let stored = StoredAs { key: key(field, mapping)?, children: children(field.data_type(), mapping)? };
    Ok(Column { field: Field::new(name, data_type, field.is_nullable()), stored })
}

/// The name of a type, of a column or nested in it, that has no Arrow type here.
fn unsupported(kind: &DeltaType) -> Option<&'static str> {
    match kind {
        DeltaType::Primitive(PrimitiveType::Void) => Some("void"),
        DeltaType::Primitive(PrimitiveType::IntervalYearMonth | PrimitiveType::IntervalDayTime) => Some("interval"),
        DeltaType::Primitive(_) => None,
        DeltaType::Variant(_) => Some("variant"),
        DeltaType::Array(array) => unsupported(array.element_type()),
        DeltaType::Map(map) => unsupported(map.key_type()).or_else(|| unsupported(map.value_type())),
        DeltaType::Struct(fields) => fields.fields().find_map(|field| unsupported(field.data_type())),
    }
}

/// A type without metadata, whose nested fields may be null: writers may declare optional what the table does not.
fn plain(data_type: &DataType) -> DataType {
    let nested = |field: &FieldRef, is_nullable: bool| -> FieldRef {
        Arc::new(Field::new(field.name(), plain(field.data_type()), is_nullable))
    };
    match data_type {
        DataType::List(item) => DataType::List(nested(item, true)),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(|field| nested(field, true)).collect()),
        DataType::Map(entries, is_sorted) => {
            let DataType::Struct(fields) = entries.data_type() else { return data_type.clone() };
            let fields = fields.iter().enumerate().map(|(index, field)| nested(field, index > 0));
            let entries = Field::new(entries.name(), DataType::Struct(fields.collect()), false);
            DataType::Map(Arc::new(entries), *is_sorted)
        }
        other => other.clone(),
    }
}

fn key(field: &StructField, mapping: ColumnMappingMode) -> Result<ColumnKey, LakeError> {
    if mapping != ColumnMappingMode::Id {
        return Ok(ColumnKey::Name(field.physical_name(mapping).to_owned()));
    }
    let id = field.column_mapping_id().and_then(|id| i32::try_from(id).ok());
    let missing = || LakeError::Corrupt(format!("column \"{}\" has no ID, but columns are mapped by ID", field.name()));
    id.map(ColumnKey::Id).ok_or_else(missing)
}

fn children(kind: &DeltaType, mapping: ColumnMappingMode) -> Result<Vec<StoredAs>, LakeError> {
    let at_place =
        |kind: &DeltaType| children(kind, mapping).map(|children| StoredAs { key: ColumnKey::Position, children });
    match kind {
        DeltaType::Struct(fields) => fields
            .fields()
            .map(|field| Ok(StoredAs { key: key(field, mapping)?, children: children(field.data_type(), mapping)? }))
            .collect(),
        DeltaType::Array(array) => Ok(vec![at_place(array.element_type())?]),
        DeltaType::Map(map) => Ok(vec![at_place(map.key_type())?, at_place(map.value_type())?]),
        DeltaType::Primitive(_) | DeltaType::Variant(_) => Ok(Vec::new()),
    }
}
