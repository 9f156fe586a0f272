//! Arrow types of leaf columns where the Parquet library's choice loses information: INT96 gets a unit that can hold
//! its dates, intervals keep their months, and logical types with an Arrow extension type keep its name.
//!
//! This module decides types only; `scan` converts the values.

use std::{slice::Iter, sync::Arc};

use arrow::datatypes::{DataType, Field, FieldRef, IntervalUnit, Schema, SchemaRef, TimeUnit};
use parquet::{
    basic::{ConvertedType, LogicalType, TimeUnit as StoredUnit, Type as Physical},
    errors::ParquetError,
    schema::types::{ColumnDescPtr, ColumnDescriptor, SchemaDescPtr, SchemaDescriptor, Type, TypePtr},
};

/// Field metadata keys of an extension type: its name and its parameters.
const EXTENSION_NAME: &str = "ARROW:extension:name";
const EXTENSION_METADATA: &str = "ARROW:extension:metadata";

/// The unit of timestamps stored as INT96.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Int96Unit {
    /// Covers all dates in practical use, such as 9999-12-31; fractions of a microsecond are rounded down.
    #[default]
    Microseconds,
    /// Covers the years 1677 to 2262.
    Nanoseconds,
}

/// The leaves of a file in the order of its schema.
struct Leaves<'a> {
    rest: Iter<'a, ColumnDescPtr>,
    int96: Int96Unit,
    names_extensions: bool,
}

/// The schema to read a file with, from the one that the library proposes. Extension types are named if
/// `names_extensions`.
pub(super) fn schema(
    proposed: &Schema,
    stored: &SchemaDescriptor,
    int96: Int96Unit,
    names_extensions: bool,
) -> SchemaRef {
    let mut leaves = Leaves { rest: stored.columns().iter(), int96, names_extensions };
    let fields: Vec<FieldRef> = proposed.fields().iter().map(|field| leaves.field(field)).collect();
    Arc::new(Schema::new_with_metadata(fields, proposed.metadata().clone()))
}

/// The schema for the decoder: intervals as 12 bytes, as the library has no exact type for them.
pub(super) fn decoded(stored: &SchemaDescPtr) -> Result<SchemaDescPtr, ParquetError> {
    if stored.columns().iter().any(|column| is_interval(column)) {
        Ok(Arc::new(SchemaDescriptor::new(without_intervals(&stored.root_schema_ptr())?)))
    } else {
        Ok(Arc::clone(stored))
    }
}

fn is_interval(column: &ColumnDescriptor) -> bool {
    column.converted_type() == ConvertedType::INTERVAL
}

fn without_intervals(stored: &TypePtr) -> Result<TypePtr, ParquetError> {
    match stored.as_ref() {
        Type::GroupType { basic_info, fields } => {
            let fields: Result<Vec<TypePtr>, ParquetError> = fields.iter().map(without_intervals).collect();
            Ok(Arc::new(Type::GroupType { basic_info: basic_info.clone(), fields: fields? }))
        }
        Type::PrimitiveType { basic_info, physical_type, type_length, .. }
            if basic_info.converted_type() == ConvertedType::INTERVAL =>
        {
            let bytes = Type::primitive_type_builder(basic_info.name(), *physical_type)
                .with_repetition(basic_info.repetition())
                .with_length(*type_length)
                .with_id(basic_info.has_id().then(|| basic_info.id()));
            Ok(Arc::new(bytes.build()?))
        }
        Type::PrimitiveType { .. } => Ok(Arc::clone(stored)),
    }
}

// === impl Int96Unit ===

impl Int96Unit {
    /// The Arrow unit.
    pub fn arrow(self) -> TimeUnit {
        match self {
            Self::Microseconds => TimeUnit::Microsecond,
            Self::Nanoseconds => TimeUnit::Nanosecond,
        }
    }
}

// === impl Leaves ===

impl Leaves<'_> {
    fn field(&mut self, field: &FieldRef) -> FieldRef {
        let changed = match field.data_type() {
            DataType::Struct(fields) => DataType::Struct(fields.iter().map(|field| self.field(field)).collect()),
            DataType::List(item) => DataType::List(self.field(item)),
            DataType::LargeList(item) => DataType::LargeList(self.field(item)),
            DataType::ListView(item) => DataType::ListView(self.field(item)),
            DataType::LargeListView(item) => DataType::LargeListView(self.field(item)),
            DataType::FixedSizeList(item, length) => DataType::FixedSizeList(self.field(item), *length),
            DataType::Map(entries, is_sorted) => DataType::Map(self.field(entries), *is_sorted),
            _ => {
                let leaf = self.rest.next();
                return leaf.map_or_else(|| Arc::clone(field), |leaf| self.leaf(field, leaf));
            }
        };
        Arc::new(field.as_ref().clone().with_data_type(changed))
    }

    fn leaf(&self, field: &FieldRef, leaf: &ColumnDescriptor) -> FieldRef {
        let mut changed = field.as_ref().clone();
        if let Some(data_type) = self.data_type(field.data_type(), leaf) {
            changed = changed.with_data_type(data_type);
        }
        if self.names_extensions
            && let Some(name) = extension(leaf)
            && !field.metadata().contains_key(EXTENSION_NAME)
        {
            changed = with_extension(changed, name);
        }
        Arc::new(changed)
    }

    /// The type to use instead of the proposed one.
    fn data_type(&self, proposed: &DataType, leaf: &ColumnDescriptor) -> Option<DataType> {
        let zone = || match proposed {
            DataType::Timestamp(_, zone) => zone.clone(),
            DataType::Dictionary(_, values) => match values.as_ref() {
                DataType::Timestamp(_, zone) => zone.clone(),
                _ => None,
            },
            _ => None,
        };
        match (leaf.physical_type(), leaf.logical_type_ref()) {
            // Always null, for any stored type.
            _ if *proposed == DataType::Null => None,
            // The library cannot read INT96 as a dictionary.
            (Physical::INT96, _) => Some(DataType::Timestamp(self.int96.arrow(), zone())),
            // The embedded Arrow schema has another unit, which would misread the stored numbers.
            (Physical::INT64, Some(LogicalType::Timestamp(stored)))
                if stored.unit == StoredUnit::NANOS && matches!(proposed, DataType::Timestamp(..)) =>
            {
                Some(DataType::Timestamp(TimeUnit::Nanosecond, zone()))
            }
            _ if is_interval(leaf) => Some(DataType::Interval(IntervalUnit::MonthDayNano)),
            _ => None,
        }
    }
}

/// The canonical extension type of a logical type without an Arrow type.
fn extension(leaf: &ColumnDescriptor) -> Option<&'static str> {
    match (leaf.logical_type_ref(), leaf.converted_type()) {
        (Some(LogicalType::Uuid), _) if leaf.type_length() == 16 => Some("arrow.uuid"),
        (Some(LogicalType::Json), _) | (None, ConvertedType::JSON) => Some("arrow.json"),
        _ => None,
    }
}

fn with_extension(field: Field, name: &str) -> Field {
    let mut metadata = field.metadata().clone();
    metadata.insert(EXTENSION_NAME.to_owned(), name.to_owned());
    metadata.insert(EXTENSION_METADATA.to_owned(), String::new());
    field.with_metadata(metadata)
}
