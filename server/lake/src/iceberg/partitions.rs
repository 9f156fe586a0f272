//! The partition columns of a snapshot: those with one value in each file, which its manifests record.

use std::collections::{HashMap, HashSet};

use arrow::datatypes::DataType;

use super::{manifests::ManifestEntry, metadata::TableMetadata, schema::SchemaText, spec::is_textual};
use crate::{
    error::LakeError,
    table::{Column, LogValue},
};

/// The columns that every file is partitioned by, with the identity transform.
#[derive(Debug, Default)]
pub(super) struct IdentityPartitions {
    names: Vec<String>,
    types: Vec<DataType>,
    by_spec: HashMap<i32, SpecPlaces>,
}

/// Where the partition records of a spec have the columns.
#[derive(Debug, Default)]
struct SpecPlaces {
    /// Fields of the record.
    width: usize,
    /// The field of each column of [`IdentityPartitions::names`].
    places: Vec<usize>,
    /// Other columns that files of the spec are partitioned by.
    others: Vec<OtherColumn>,
}

/// A column that only some specs partition by, or of a type whose values are not read from manifests.
#[derive(Debug)]
struct OtherColumn {
    /// Its index in the table.
    index: usize,
    data_type: DataType,
    /// Its field of the partition record.
    place: usize,
}

// === impl IdentityPartitions ===

impl IdentityPartitions {
    /// The columns by which the specs of all files partition. Others are read from the files.
    pub(super) fn of(
        table: &TableMetadata,
        schema: &SchemaText,
        columns: &[Column],
        data: &[ManifestEntry],
    ) -> Result<Self, LakeError> {
        let specs: HashSet<i32> = data.iter().map(|entry| entry.spec_id).collect();
        let mut found = Self::default();
        for id in specs {
            found.by_spec.insert(id, SpecPlaces { width: table.spec(id)?.len(), ..SpecPlaces::default() });
        }
        for (index, (field, column)) in schema.fields.iter().zip(columns).enumerate() {
            let mut places = HashMap::new();
            for id in found.by_spec.keys() {
                let fields = table.spec(*id)?;
                if let Some(place) = fields.iter().position(|partition| partition.identity() == Some(field.id)) {
                    places.insert(*id, place);
                }
            }
            let data_type = column.field.data_type();
            let is_partition = !places.is_empty() && places.len() == found.by_spec.len() && is_textual(data_type);
            if is_partition {
                found.names.push(field.name.clone());
                found.types.push(data_type.clone());
            }
            for (id, spec) in &mut found.by_spec {
                match places.get(id) {
                    Some(place) if is_partition => spec.places.push(*place),
                    Some(place) => {
                        spec.others.push(OtherColumn { index, data_type: data_type.clone(), place: *place });
                    }
                    None => {}
                }
            }
        }
        Ok(found)
    }

    /// The names of the columns.
    pub(super) fn into_names(self) -> Vec<String> {
        self.names
    }

    /// The values of a file, in the order of the names.
    pub(super) fn values(&self, entry: &ManifestEntry) -> Result<Vec<Option<String>>, LakeError> {
        let corrupt = |reason: &str| LakeError::Corrupt(format!("the manifest entry of \"{}\" {reason}", entry.url));
        let spec = self.by_spec.get(&entry.spec_id).ok_or_else(|| corrupt("has an unknown partition spec"))?;
        if entry.partition.len() != spec.width {
            let (found, width) = (entry.partition.len(), spec.width);
            return Err(corrupt(&format!("has {found} partition values, but its partition spec has {width} fields")));
        }
        let values = spec.places.iter().zip(&self.types).zip(&self.names).map(|((place, data_type), name)| {
            let value = entry.partition.get(*place).ok_or_else(|| corrupt("lacks a partition value"))?;
            let text = value.text(data_type);
            text.map_err(|()| {
                corrupt(&format!("has a partition value of column \"{name}\" that is not of type {data_type}"))
            })
        });
        values.collect()
    }

    /// The values of the other columns that the spec of a file partitions by, for a file that lacks them.
    pub(super) fn if_missing(&self, entry: &ManifestEntry) -> Vec<(usize, LogValue)> {
        let others = self.by_spec.get(&entry.spec_id).into_iter().flat_map(|spec| &spec.others);
        let value = |column: &OtherColumn| {
            let text = entry.partition.get(column.place).and_then(|value| value.text(&column.data_type).ok());
            (column.index, text.map_or(LogValue::Unread, LogValue::Text))
        };
        others.map(value).collect()
    }
}
